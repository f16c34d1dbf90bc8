#!/bin/sh
# lost.sh GPUOSC GPUOS TEST_GPU EMULATOR FOLDER: a language model's step in small, its device code on the CPU, in which
# the first tile of a product writes stamps that nobody expects: as if its results were lost. Whoever waits for them must
# say so, with SM, tile and counter, when the tile has been counted and when it has not. Written into FOLDER.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$5/tests" "$5/codegen"
sed 's/arch: sm_90a/arch: sm_90/' "$here/../../ir/targets/h200.yaml" >"$5/sm_90.yaml" # no wgmma here
small="-D L=1 -D D=128 -D H=2 -D KV=1 -D HD=64 -D F=136 -D V=70 -D CTX=256"
# shellcheck disable=SC2086 # the options are words
for emit in cuda cubin; do
  "$1" "$here/../../examples/smollm2_135m.yaml" $small "--target-file=$5/sm_90.yaml" --emit=$emit -o "$5/step.$emit"
done
cp -r "$here" "$5/tests/"
rm -rf "$5/runtime"
cp -r "$here/../../runtime" "$5/"
lose() { # lose FOLDER OPERATOR: device code in which the operator's first tile writes stamps that nobody expects.
  op=$("$GPUOS" inspect --ops "$1/step.cubin" | awk -v name="$2" '$2 == "matmul" && $0 ~ name {print $1; exit}')
  lost="ctx.slot->tile.op == $op \&\& ctx.slot->box.lo[2] == 0"
  rm -rf "$1/codegen/device"
  cp -r "$here/../../codegen/device" "$1/codegen/"
  sed -i "s/\(gpuos_stamp(ctx.slot->step, ctx.slot->tile.op)\);/\1 ^ ($lost);/" "$1/codegen/device/matmul_stream.cuh"
  # The emulated clock is slow: of the limit a five-hundredth, or the host would give up first.
  sed -i 's/500ull \* cta.wait_limit_us/1ull * cta.wait_limit_us/' "$1/codegen/device/stream.cuh"
}
stalls() { # stalls GPUOS_TEST EMULATOR FOLDER WHAT: a step ends with a message that has WHAT.
  sh "$3/tests/emulate/build.sh" "$3/step.cuda" "$3/step.so"
  said=$(GPUOS_EMULATED="$3/step.so" LD_LIBRARY_PATH="$2" "$1" --no-cpu --limit=8 "$3/step.cubin" 2>&1) && status=0 || status=$?
  echo "$said"
  [ "$status" -ne 0 ]
  echo "$said" | grep -q "$4"
}
GPUOS=$2
# Who waits: attention; a norm, whose row comes in fours; a product, whose row comes in words.
for pair in q_proj:attention.0 o_proj:gate_proj gate_proj:down_proj; do
  lose "$5" "${pair%:*}"
  stalls "$3" "$4" "$5" "STALL: .*${pair#*:}' unit.* counter [0-9]*: expected \([0-9]*\), found \1"
done
lose "$5" q_proj
sed -i "s/^  s.unsaid++;/  if (!($lost)) s.unsaid++;/" "$5/codegen/device/stream.cuh"
stalls "$3" "$4" "$5" 'STALL: .*counter'
