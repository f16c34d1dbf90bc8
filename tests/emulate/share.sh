#!/bin/sh
# share.sh GPUOSC GPUOS TEST_GPU EMULATOR FOLDER: a live model and its job in one kernel, its device code on the CPU, through
# `gpuos share`: live steps one after the other, then one each deadline. That command fails when results are not those
# of each alone, bit by bit; the job must get on wherever it has SMs of its own or is left some. Then both against the CPU
# device, in many divisions of the SMs, and aborted. Written into FOLDER.
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
