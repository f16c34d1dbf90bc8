#!/usr/bin/env python3
"""Time and memory of `gpuosc --emit=schedule` on the largest example, check included.

    python3 tests/bench/compile_time.py GPUOSC [RUNS]

Limits: 0.5 s (median) and 300 MB (largest) on two cores. Prints the figures, exits 1 beyond them.
"""
import os
import resource
import statistics
import subprocess
import sys
import time

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "llama_3_1_8b.yaml")
SECONDS, MEGABYTES = 0.5, 300


def main():
    gpuosc, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11
    times = []
    for _ in range(runs):
        start = time.monotonic()
        # check runs as a stage of every compile that goes this far.
        subprocess.run([gpuosc, MODEL, "--emit=schedule", "-o", os.devnull], check=True)
        times.append(time.monotonic() - start)
    median = statistics.median(times)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    good = median <= SECONDS and largest <= MEGABYTES
    print(
        f"{'pass' if good else 'FAIL'}  schedule of llama_3_1_8b: median {median:.3f} s "
        f"({min(times):.3f} to {max(times):.3f}, {runs} runs), {largest:.0f} MB"
    )
    sys.exit(0 if good else 1)


main()
