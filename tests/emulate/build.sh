#!/bin/sh
# build.sh SOURCE.cu OBJECT.so [EDIT]: what `gpuosc --emit=cuda` wrote, compiled for the CPU, with device code that sed
# has edited.
set -eu
root=$(dirname "$0")/../..
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$root"/codegen/device/*.cuh "$scratch"
[ $# -lt 3 ] || sed -i "$3" "$scratch"/*.cuh
cp "$root/tests/emulate/ptx.cuh" "$scratch" # in the place of the instructions
gcc -std=c17 -O2 -fPIC -c -I "$root/runtime" "$root/runtime/cpu_dtype.c" -o "$scratch/dtype.o"
g++ -std=c++17 -O2 -g -fPIC -shared -w -fno-extern-tls-init -include "$root/tests/emulate/language.h" -I "$scratch" \
  -I "$root/runtime" -x c++ "$1" -x none "$scratch/dtype.o" -o "$2" -lm -latomic
