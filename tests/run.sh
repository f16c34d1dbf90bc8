#!/bin/sh
# Installs what is missing, builds everything three times and runs every test that needs no GPU.
# Ends with "N passed, N failed"; what could not be built or started has failed.
#
#   sh tests/run.sh                             # a quarter of an hour on two cores
#   ctest --test-dir build-asan -R unit/ir      # then, some of them again; build, build-fuzz
set -eu
cd "$(dirname "$0")/.."
trap 'echo "0 passed, 1 failed"' EXIT # until there is something to count
. examples/setup.sh

need_toolchain
need_packages libcriterion-dev clang-22 libclang-rt-22-dev llvm-22-tools
need_python lit==18.1.8
need_weights

# tree FOLDER CMAKE-OPTION...: builds all of it and runs the tests that tests/CMakeLists.txt has
# there. Goes on after errors: the other tests count too.
tree() {
  folder=$1
  shift
  rm -rf "$folder/results"
  mkdir -p "$folder/results"
  say "building in $folder/"
  if ! { cmake -S . -B "$folder" -DGPUOS_TESTS=ON "$@" &&
    cmake --build "$folder" -j "$jobs" -- -k; }; then
    echo "FAIL $folder does not build" >"$folder/results/build"
  fi
  say "testing in $folder/"
  ctest --test-dir "$folder" -j "$jobs" --output-on-failure || true # tally.py counts
}

tree build
tree build-asan -DGPUOS_SANITIZE=address,undefined
tree build-fuzz -DGPUOS_SANITIZE=fuzzer-no-link,address,undefined -DCMAKE_C_COMPILER=clang-22

say "all tests but tests/gpu, which needs a GPU"
trap - EXIT
"$python" tests/tally.py sum build/results build-asan/results build-fuzz/results
