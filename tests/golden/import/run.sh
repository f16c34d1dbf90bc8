#!/bin/sh
# Compares what `gpuosc import` writes with the files beside this script.
#
#   tests/golden/import/run.sh path/to/gpuosc            # exits 1 if anything differs
#   tests/golden/import/run.sh path/to/gpuosc --update   # takes what it writes as expected
#
# NAME.json is a config, NAME.args its options if it has any. NAME.yaml is the expected graph, or
# NAME.err the expected refusal. Prints "pass NAME" or "FAIL NAME", with why, for each.
set -u
gpuosc=$(command -v "$1") || exit 2
gpuosc=$(realpath "$gpuosc")
cd "$(dirname "$0")" || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
good=true # the case at hand

wrong() { # why
  echo "$1"
  good=false
}

same() { # expected, produced
  if [ "${update:-}" ]; then cp "$2" "$1"; fi
  diff -u "$1" "$2" || wrong "$1 was expected"
}

verdict() { # name; ends a case
  if $good; then echo "pass  $1"; else echo "FAIL  $1"; failed=1; fi
  good=true
}

[ "${2:-}" = --update ] && update=1
for config in *.json; do
  name=${config%.json}
  out=$folder/$name.yaml
  arguments=
  if [ -f "$name.args" ]; then arguments=$(cat "$name.args"); fi
  # shellcheck disable=SC2086 # the arguments are words
  "$gpuosc" import "$config" -o "$out" $arguments 2>"$folder/err"
  status=$?
  if [ -f "$out" ]; then
    same "$name.yaml" "$out"
    [ $status -eq 0 ] || wrong "status $status"
    [ ! -s "$folder/err" ] || wrong "not silent"
    [ ! -f "$name.err" ] || wrong "not refused"
  else
    same "$name.err" "$folder/err"
    [ $status -eq 1 ] || wrong "status $status"
    [ ! -f "$name.yaml" ] || wrong "nothing written"
  fi
  verdict "$name"
done

# The examples say what import says; only their first lines are their own.
for pair in llama-3.1-8b:llama_3_1_8b llama-3.2-1b:llama_3_2_1b smollm2-135m:smollm2_135m; do
  sed -n '/^dims:/,$p' "${pair%:*}.yaml" >"$folder/import"
  sed -n '/^dims:/,$p' "../../../examples/${pair#*:}.yaml" >"$folder/example"
  diff -u "$folder/import" "$folder/example" || wrong "the example says something else"
  verdict "${pair#*:}.yaml"
done

# An older file stays when the import fails, and nothing is left beside it.
mkdir "$folder/whole" && echo old >"$folder/whole/model.yaml"
"$gpuosc" import gemma.json -o "$folder/whole/model.yaml" 2>/dev/null
[ "$(cat "$folder/whole/"*)" = old ] || wrong "touched"
verdict "an import that fails leaves the old file"
exit $failed
