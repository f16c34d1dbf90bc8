#!/usr/bin/env python3
"""Compiles small graphs, runs them on the CPU device and compares with float64 NumPy.

    python3 tests/numerics/run.py GPUOSC GPUOS [--filter TEXT] [--seed N] [--jobs N] [--keep DIR]
                                  [--emulator DIR]

With --emulator, the folder of tests/emulate's libcuda.so.1, the generated device code runs as well.

Prints a line a case and a count; exits with 1 if one fails. Tolerances: bounds.py.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import pathlib
import re
import shutil
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cases_attention  # noqa: E402
import cases_fused  # noqa: E402
import cases_live  # noqa: E402
import cases_matmul  # noqa: E402
import cases_pointwise  # noqa: E402
import cases_rows  # noqa: E402
import cases_stream  # noqa: E402
import cases_views  # noqa: E402
import dtypes  # noqa: E402
import random_graphs  # noqa: E402
import runner  # noqa: E402
from graph import Graph  # noqa: E402

FAMILIES = (cases_pointwise, cases_matmul, cases_rows, cases_attention, cases_views, cases_fused,
            cases_stream, cases_live, random_graphs)

# build(graph) declares everything; budgets are --unit-budget-us values, None the default one.
Case = collections.namedtuple("Case", "name build budgets runs")


def all_cases():
    for family in FAMILIES:
        prefix = family.__name__.removeprefix("cases_")
        for entry in family.cases():
            name, build, *rest = entry
            options = rest[0] if rest else {}
            yield Case(f"{prefix}/{name}", build, options.get("budgets", (None,)),
                       options.get("runs", runner.RUNS))


def run(number, case, tools, seed, folder):
    """The line to print, and whether the case is right."""
    digest = int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:4], "little")
    graph = Graph(np.random.default_rng([seed, digest]))
    at = folder / f"{number}_{re.sub(r'[^A-Za-z0-9]+', '_', case.name)}"
    try:
        case.build(graph)
        worst = runner.check(tools, graph, at, case.budgets, case.runs)
    except Exception as failure:  # a case that cannot be built is a failure too
        return f"FAIL {case.name}: {type(failure).__name__} {failure}", False
    shutil.rmtree(at)
    return f"ok   {case.name}  {100 * worst:.0f} %", True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gpuosc", type=pathlib.Path)
    parser.add_argument("gpuos", type=pathlib.Path)
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="where failing cases stay")
    parser.add_argument("--emulator", type=pathlib.Path, help="of the device code")
    options = parser.parse_args()
    dtypes.check()
    start = time.monotonic()
    folder = (options.keep or pathlib.Path(tempfile.mkdtemp())).resolve()
    tools = runner.Tools(options.gpuosc.resolve(), options.gpuos.resolve(), options.emulator)
    cases = [c for c in all_cases() if options.filter in c.name]
    print(f"{len(cases)} cases, seed {options.seed}; the largest error as a share of its bound")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for line, right in pool.map(lambda c: run(*c, tools, options.seed, folder),
                                    enumerate(cases)):
            print(line, flush=True)
            failed += not right
    if not options.keep:
        shutil.rmtree(folder)
    print(f"{len(cases) - failed} of {len(cases)} right in {time.monotonic() - start:.0f} s")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
