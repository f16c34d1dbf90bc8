#!/bin/sh
# build.sh SOURCE.cu OBJECT.so: what `gpuosc --emit=cuda` wrote, compiled for the CPU.
set -eu
root=$(dirname "$0")/../..
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$root"/codegen/device/*.cuh "$scratch"
cp "$root/tests/emulate/ptx.cuh" "$scratch" # in the place of the instructions
gcc -std=c17 -O2 -fPIC -c -I "$root/runtime" "$root/runtime/cpu_dtype.c" -o "$scratch/dtype.o"
g++ -std=c++17 -O2 -g -fPIC -shared -w -fno-extern-tls-init -include "$root/tests/emulate/language.h" -I "$scratch" \
  -I "$root/runtime" -x c++ "$1" -x none "$scratch/dtype.o" -o "$2" -lm
