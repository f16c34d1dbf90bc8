#!/bin/sh
# Decodes the prompts of greedy.json on the CPU device and compares the tokens.
#
#   tests/reference/smollm2/run.sh GPUOSC GPUOS MODEL    # MODEL: what smollm2_weights.py wrote
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --emit=table "$here/../../../examples/smollm2_135m.yaml" -o "$folder/smollm2.gpos"
python3 "$here/compare.py" "$here/greedy.json" -- "$2" run "$folder/smollm2.gpos" \
  --device=cpu --quiet --weights="$3/model.safetensors"
