#!/bin/sh
# From a bare Debian to a language model's answer: installs what is missing, builds gpuosc and gpuos,
# compiles examples/smollm2_135m.yaml and lets the CPU device decode.
#
#   sh examples/run.sh                              # asks about France
#   sh examples/run.sh 'Why is the sky blue?'
set -eu
cd "$(dirname "$0")/.."
. examples/setup.sh
question=${1:-What is the capital of France, and what is it known for?}

need_toolchain
say "building gpuosc and gpuos in build/"
cmake -S . -B build -DGPUOS_TESTS=OFF
cmake --build build -j "$jobs" --target gpuosc gpuos
need_weights

say "compiling examples/smollm2_135m.yaml to a schedule table"
build/gpuosc --emit=table --report examples/smollm2_135m.yaml -o build/smollm2_135m.gpos

say "$question"
prompt=$("$python" examples/tokenizer.py chat "$model/tokenizer.json" "$question")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# 2 ends an answer. A pipe hides the status of its first command, so success is a line in the log.
{ build/gpuos run build/smollm2_135m.gpos --device=cpu --weights="$model/model.safetensors" \
  --prompt="$prompt" --generate=200 --stop=2 2>"$log" && echo answered >>"$log"; } |
  "$python" examples/tokenizer.py answer "$model/tokenizer.json" -
grep -qx answered "$log" || fail "$(cat "$log")"
awk '/median/ { printf "\n%d tokens read and written, %.1f tokens/s\n", $2, 1000 / $5 }' "$log"
