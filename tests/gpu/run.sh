#!/bin/sh
# run.sh FOLDER [PART...]: on a machine with a GPU, builds libgpuos and the tests and runs what
# artefacts.sh put into FOLDER. Needs cmake and a C compiler; no CUDA toolkit. Parts, all by default:
#   faults     a kernel that misbehaves on request, if nvcc is there
#   numbers    every artefact, against the CPU device; those called large against float64 only
#   storm      again, paused and moved from SM to SM; results must stay the same bit by bit
#   sweep      FOLDER/sweep against PyTorch, if both are there
#   sanitizer  those called small under compute-sanitizer, if it is there
#   timing     steps of those called large and of FOLDER/live, there at position 1023 on 132, 56 and 24 SMs,
#              two seconds each; into tests/bench/results, with date, chip, clocks and commit
# Each artefact has a process and a time limit of its own. Ends with "N passed, N failed".
set -eu
[ $# -ge 1 ] || { sed -n '2,11s/^# //p' "$0" >&2; exit 2; }
folder=$1
shift
[ $# -ge 1 ] || set -- faults numbers storm sweep sanitizer timing
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build-gpu
cmake -S "$root" -B "$build" -DGPUOS_COMPILER=OFF -DGPUOS_TESTS=OFF >"$build.log" 2>&1 &&
  cmake --build "$build" -j"$(nproc)" >>"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
compile() { cc -std=c17 -D_POSIX_C_SOURCE=200809L -O2 -Wall -Wextra -I"$root/runtime" "$@"; }
compile "$root"/tests/gpu/test_gpu.c \
  "$root"/tests/gpu/data.c "$root"/tests/gpu/storm.c "$build/libgpuos.a" -o "$build/test_gpu" -lpthread -ldl -lm

passed=0 failed=0
run() { # run SECONDS COMMAND...
  seconds=$1
  shift
  if timeout -k 5 "$seconds" "$@"; then
    passed=$((passed + 1))
  else
    echo "FAIL (exit $?): $*"
    failed=$((failed + 1))
  fi
}
# Names without spaces, as gpuosc's examples have them.
files() { find "$folder" -maxdepth 1 -name "$1" ! -name "$2" | sort; }

faults() {
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  [ -n "$nvcc" ] || { echo 'no nvcc here: skipped'; return; }
  "$nvcc" -cubin -arch=sm_90a -I"$root/runtime" "$root/tests/gpu/contract.cu" -o "$build/contract.cubin"
  compile -I"$root/tests/unit/runtime" "$root"/tests/gpu/test_device_cuda.c "$root"/tests/gpu/contract_artefact.c \
    "$root/tests/unit/runtime/models.c" "$root/tests/unit/runtime/tables.c" "$root"/runtime/cli*.c "$build/libgpuos.a" \
    -o "$build/test_device_cuda" -lpthread -ldl -lm
  for part in all trap never; do run 120 "$build/test_device_cuda" "$build/contract.cubin" $part; done
}
numbers() {
  for file in $(files '*.cubin' 'large*'); do run 120 "$build/test_gpu" "$file"; done
  for file in $(files 'large*.cubin' '-'); do run 60 "$build/test_gpu" --no-cpu "$file"; done
}
storm() {
  for file in $(files '*.cubin' '-'); do run 60 "$build/test_gpu" --no-cpu --storm "$file"; done
}
sweep() {
  if [ -e "$folder/sweep/sweep.json" ] && python3 -c 'import torch' 2>"$build.log"; then
    run 420 python3 "$root/tests/gpu/sweep.py" run "$build/gpuos" "$folder/sweep"
  else
    echo 'no PyTorch here, or nothing to sweep: skipped'
  fi
}
sanitizer() {
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  [ -n "$tool" ] || { echo 'no compute-sanitizer here: skipped'; return; }
  for check in memcheck racecheck synccheck; do
    for file in $(files 'small*.cubin' '-'); do
      run 120 "$tool" --tool "$check" --error-exitcode 1 "$build/test_gpu" --no-cpu --one-shot --limit=60 "$file"
    done
  done
}
chip() { nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw --format=csv,noheader 2>/dev/null || true; }
timing() {
  results=$root/tests/bench/results/$(date +%Y-%m-%d-%H%M)-timing.txt
  { date; git -C "$root" rev-parse HEAD 2>/dev/null || true; chip; } >"$results"
  for file in $(files 'large*.cubin' '-'); do bench "$file"; done
  for file in $(find "$folder/live" -name '*.cubin' | sort); do
    for sms in 132 56 24; do bench "$file" --position=1023 --sms=$sms; done
  done
  echo "$results"
}
bench() { # bench FILE OPTION...
  run 120 "$build/gpuos" bench "$@" --seconds=2 >"$build/bench.txt" 2>&1
  { echo; echo "bench $*"; cat "$build/bench.txt"; chip; } | tee -a "$results"
}
for part in "$@"; do
  echo "== $part"
  "$part"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
