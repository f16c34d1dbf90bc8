#!/bin/sh
# storm.sh GPUOSC TEST_GPU EMULATOR FOLDER: a language model's step in small, its device code on the CPU,
# against the CPU device; then paused and moved from SM to SM, where results must stay the same bit by
# bit. Written into FOLDER.
set -eu
here=$(dirname "$0")
mkdir -p "$4"
sed 's/arch: sm_90a/arch: sm_90/' "$here/../../ir/targets/h200.yaml" >"$4/sm_90.yaml" # no wgmma here
small="-D L=2 -D D=128 -D H=2 -D KV=1 -D HD=64 -D F=136 -D V=70 -D CTX=256 -D B=2"
# shellcheck disable=SC2086 # the options are words
for emit in cuda cubin; do
  "$1" "$here/../../examples/smollm2_135m.yaml" $small "--target-file=$4/sm_90.yaml" --emit=$emit -o "$4/step.$emit"
done
sh "$here/build.sh" "$4/step.cuda" "$4/step.so"
export GPUOS_EMULATED="$4/step.so" LD_LIBRARY_PATH="$3"
"$2" --limit=60 "$4/step.cubin"
"$2" --limit=60 --no-cpu --storm "$4/step.cubin"
