#!/bin/sh
# artefacts.sh GPUOSC FOLDER [sweep]: compiles what run.sh tests, on a machine that has the compiler. No GPU is needed.
# With sweep also the artefacts of sweep.py, in FOLDER/sweep, which takes a quarter of an hour on two cores.
set -eu
[ $# -eq 2 ] || [ $# -eq 3 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
gpuosc=$1 folder=$2
tests=$(cd "$(dirname "$0")" && pwd)
examples=$tests/../../examples
mkdir -p "$folder"
make() { # make NAME MODEL OPTION...
  name=$1
  shift
  "$gpuosc" "$@" -o "$folder/$name.cubin"
}
# The same chip without wgmma: what it runs is the code of every other chip.
portable=$folder/h200_sm_90.yaml
sed -e 's/^arch: .*/arch: sm_90/' "$tests/../../ir/targets/h200.yaml" >"$portable"

make small_fp8 "$examples/fp8_gemm.yaml" -D M=200 -D N=136 -D K=1040
make small_fp8_odd "$examples/fp8_gemm.yaml" -D M=200 -D N=137 -D K=1040
make small_fp8_sm_90 "$examples/fp8_gemm.yaml" -D M=200 -D N=136 -D K=1040 --target-file="$portable"
make small_bf16 "$examples/bf16_gemm.yaml" -D M=77 -D N=99 -D K=130
make small_bf16_wide "$examples/bf16_gemm.yaml" -D M=130 -D N=264 -D K=200
make small_fused "$tests/fused.yaml"
make small_fused_odd "$tests/fused.yaml" -D M=130 -D N=131 -D K=208 -D P=99
make small_fused_sm_90 "$tests/fused.yaml" --target-file="$portable"
make small_mixed "$tests/mixed.yaml"
make small_smollm2 "$examples/smollm2_135m.yaml" -D L=2 -D V=512 -D CTX=1024
make small_shared "$examples/smollm2_135m.yaml" "$examples/fp8_gemm.yaml" -D L=2 -D V=512 -D CTX=1024 -D M=200 -D N=136 -D K=1040
make split_fp8 "$examples/fp8_gemm.yaml" -D M=300 -D N=200 -D K=16384
make split_operands "$tests/../passes/split/operands.yaml"
make block "$examples/llama_block.yaml"
make smollm2_b4 "$examples/smollm2_135m.yaml" -D B=4
make large_fp8 "$examples/fp8_gemm.yaml"
make large_fp8_ragged "$examples/fp8_gemm.yaml" -D M=4033 -D N=4328 -D K=8208
make large_fp8_sm_90 "$examples/fp8_gemm.yaml" --target-file="$portable"
make large_bf16 "$examples/bf16_gemm.yaml"
make large_fused "$tests/fused.yaml" -D M=4096 -D N=4096 -D K=8192 -D P=4096
mkdir -p "$folder/live" # for timing only: as large as they are
make live/llama_3_2_1b "$examples/llama_3_2_1b.yaml"
make live/llama_3_1_8b "$examples/llama_3_1_8b.yaml"
make live/llama_3_1_8b_b4 "$examples/llama_3_1_8b.yaml" -D B=4
[ $# -eq 2 ] || python3 "$tests/sweep.py" make "$gpuosc" "$folder/sweep"
