#!/bin/sh
# storm.sh GPUOSC TEST_GPU EMULATOR FOLDER: a language model's step in small, its device code on the CPU,
# against the CPU device; then paused and moved from SM to SM, where results must stay the same bit by
# bit. All of it again by the rules of a chip of so many SMs that each has few copies under way. Some of its tiles are of one
# stage. Written into FOLDER.
set -eu
here=$(dirname "$0")
mkdir -p "$4"
sed 's/arch: sm_90a/arch: sm_90/' "$here/../../ir/targets/h200.yaml" >"$4/sm_90.yaml" # no wgmma here
small="-D L=2 -D D=320 -D H=5 -D KV=1 -D HD=64 -D F=328 -D V=70 -D CTX=256 -D B=2"
# shellcheck disable=SC2086 # the options are words
for emit in cuda cubin; do
  "$1" "$here/../../examples/smollm2_135m.yaml" $small "--target-file=$4/sm_90.yaml" --emit=$emit -o "$4/step.$emit"
done
few='GPUOS_ENOUGH_UNDER_WAY = 16 << 20'
grep -q "$few" "$here/../../codegen/device/stream.cuh"
sh "$here/build.sh" "$4/step.cuda" "$4/few.so"
sh "$here/build.sh" "$4/step.cuda" "$4/many.so" "s/$few/GPUOS_ENOUGH_UNDER_WAY = 0/"
export LD_LIBRARY_PATH="$3" GPUOS_EMULATED
for sms in few many; do
  GPUOS_EMULATED="$4/$sms.so"
  "$2" --limit=60 "$4/step.cubin"
  "$2" --limit=60 --no-cpu --storm "$4/step.cubin"
done
