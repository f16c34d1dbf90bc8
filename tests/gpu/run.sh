#!/bin/sh
# run.sh FOLDER: on a machine with a GPU, builds libgpuos and test_gpu and runs every artefact
# (*.cubin) in FOLDER. Names that begin with "large" are not compared with the CPU device, which
# would take minutes; names that begin with "small" run again under compute-sanitizer, if there is
# one. Needs cmake and a C compiler; no CUDA toolkit.
set -eu
[ $# -eq 1 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build-gpu
cmake -S "$root" -B "$build" -DGPUOS_COMPILER=OFF -DGPUOS_TESTS=OFF >"$build.log" 2>&1 &&
  cmake --build "$build" -j"$(nproc)" >>"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cc -std=c17 -O2 -Wall -Wextra -I"$root/runtime" "$root/tests/gpu/test_gpu.c" "$build/libgpuos.a" \
  -o "$build/test_gpu" -lpthread -ldl -lm

status=0
run() { # run LABEL OPTION FILES...
  echo "== $1"
  shift
  "$@" || status=1
}
files() { find "$1" -maxdepth 1 -name "$2" ! -name "$3" | sort; }
compared=$(files "$1" '*.cubin' 'large*')
large=$(files "$1" 'large*.cubin' '-')
small=$(files "$1" 'small*.cubin' '-')
# Names without spaces, as gpuosc's examples have them.
[ -z "$compared" ] || run 'against the CPU device' "$build/test_gpu" $compared
[ -z "$large" ] || run 'large' "$build/test_gpu" --no-cpu $large
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ] && [ -n "$small" ]; then
  run 'memcheck' "$sanitizer" --tool memcheck --error-exitcode 1 "$build/test_gpu" $small
  run 'racecheck' "$sanitizer" --tool racecheck --error-exitcode 1 "$build/test_gpu" $small
else
  echo '== no compute-sanitizer here, or no small*.cubin: skipped'
fi
exit $status
