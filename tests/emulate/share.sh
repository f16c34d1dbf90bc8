#!/bin/sh
# share.sh GPUOSC GPUOS TEST_GPU EMULATOR FOLDER: a live model and its job in one kernel, its device code on the CPU, through
# `gpuos share`: live steps one after the other, then one each deadline. That command fails when results are not those
# of each alone, bit by bit; the job must get on wherever it has SMs of its own or is left some. Then both against the CPU
# device, in many divisions of the SMs, and aborted. Last a job that meets a fault, of which both are told. Written into FOLDER.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
gpuosc=$1 gpuos=$2 test_gpu=$3 emulator=$4 folder=$5
mkdir -p "$folder"
sed 's/arch: sm_90a/arch: sm_90/' "$here/../../ir/targets/h200.yaml" >"$folder/sm_90.yaml" # no wgmma here
for emit in cuda cubin; do
  "$gpuosc" "$here/share_live.yaml" "$here/share_job.yaml" "--target-file=$folder/sm_90.yaml" --emit=$emit \
    -o "$folder/share.$emit"
done
sh "$here/build.sh" "$folder/share.cuda" "$folder/share.so"
share() { # share LINES OPTION...: prints so many lines of numbers, each of which ends with a share above 0.
  lines=$1
  shift
  LD_LIBRARY_PATH=$emulator GPUOS_EMULATED=$folder/share.so \
    "$gpuos" share "$folder/share.cubin" --sms=3 "$@" >"$folder/share.txt" || { cat "$folder/share.txt"; exit 1; }
  cat "$folder/share.txt"
  awk -v lines="$lines" '
    $1 ~ /^[0-9]+$/ { found++; if ($11 != "TFLOP/s" || !($12 > 0)) bad = 1 }
    END { exit bad || found != lines }' "$folder/share.txt" || { echo "FAIL share $*: the job stands still"; exit 1; }
  echo "pass share $*"
}
share 1 --seconds=1 --job-sms=2
share 2 --seconds=2 --job-sms=0,1 --deadline=900000
LD_LIBRARY_PATH=$emulator GPUOS_EMULATED=$folder/share.so "$test_gpu" --limit=60 --storm "$folder/share.cubin"

sed 's/^class: .*/class: live/' "$here/share_job.yaml" >"$folder/soft.yaml"
cat >"$folder/lookup.yaml" <<'MODEL'
gpuos: 1
name: lookup
class: background
dims: {B: 2, V: 4, D: 8}
tensors:
  ids:   {shape: [B], dtype: i32, role: input}
  table: {shape: [V, D], dtype: f32, role: input}
  rows:  {shape: [B, D], dtype: f32, role: output}
ops:
  - embedding: {ids: ids, table: table, out: rows}
MODEL
for emit in cuda cubin; do
  "$gpuosc" "$folder/soft.yaml" "$folder/lookup.yaml" "--target-file=$folder/sm_90.yaml" --emit=$emit -o "$folder/fault.$emit"
done
sh "$here/build.sh" "$folder/fault.cuda" "$folder/fault.so"
head -c 65536 /dev/zero >"$folder/x.bin"
head -c 128 /dev/zero >"$folder/table.bin"
printf '\001\000\000\000\143\000\000\000' >"$folder/ids.bin" # 1, 99
said=$(LD_LIBRARY_PATH=$emulator GPUOS_EMULATED=$folder/fault.so "$gpuos" run "$folder/fault.cubin" --steps=1000 \
  --set "x=$folder/x.bin" --job "ids=$folder/ids.bin" --job "table=$folder/table.bin" --job-steps=1 2>&1) && status=0 || status=$?
echo "$said"
for word in 'step: the other program' 'job: .*99'; do
  echo "$said" | grep -q "$word" || { echo "FAIL share: nothing is said of '$word'"; exit 1; }
done
[ "$status" -eq 1 ]
echo 'pass share, a fault of the job'
