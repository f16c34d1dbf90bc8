#!/bin/sh
# artefacts.sh GPUOSC FOLDER: compiles what run.sh tests, on a machine that has the compiler. No GPU is needed.
set -eu
[ $# -eq 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
gpuosc=$1 folder=$2
tests=$(cd "$(dirname "$0")" && pwd)
examples=$tests/../../examples
mkdir -p "$folder"
make() { # make NAME MODEL OPTION...
  name=$1
  shift
  "$gpuosc" "$@" -o "$folder/$name.cubin"
}
make small_fp8 "$examples/fp8_gemm.yaml" -D M=200 -D N=136 -D K=1040
make small_bf16 "$examples/bf16_gemm.yaml" -D M=77 -D N=99 -D K=130
make small_mixed "$tests/mixed.yaml"
make small_smollm2 "$examples/smollm2_135m.yaml" -D L=2 -D V=512 -D CTX=1024
make block "$examples/llama_block.yaml"
make smollm2_b4 "$examples/smollm2_135m.yaml" -D B=4
make large_fp8 "$examples/fp8_gemm.yaml"
make large_bf16 "$examples/bf16_gemm.yaml"
