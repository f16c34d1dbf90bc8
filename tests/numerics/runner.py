"""Compiles and runs one graph, and compares what comes out with its reference."""
import os
import pathlib
import subprocess

import numpy as np

import dtypes

# How every case is run: as threads, and in one thread in an order drawn from a seed.
RUNS = (["--threads=2"], ["--seed=2", "--take-back"])


class Failure(Exception):
    pass


class Tools:
    """`emulator`: the folder of a libcuda.so.1 that runs device code on the CPU, or None."""
    def __init__(self, gpuosc, gpuos, emulator=None):
        self.gpuosc, self.gpuos, self.emulator = gpuosc, gpuos, emulator


def call(*words, **variables):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **{n: str(v) for n, v in variables.items()}})
    if done.returncode:
        raise Failure(f"{pathlib.Path(str(words[0])).name} {words[1]} exits with "
                      f"{done.returncode}: {done.stderr.strip()[:2000]}")
    return done.stderr


def compile_table(tools, graph, folder, budget):
    model, table = folder / "model.yaml", folder / f"model.{budget or 20}us.tab"
    model.write_text(graph.text)
    options = [f"--unit-budget-us={budget}"] if budget else []
    call(tools.gpuosc, model, "--emit=table", "-o", table, *options)
    return table


def emulate(tools, folder):
    """The artefact, and what runs its device code on the CPU. Without wgmma, which sm_90 lacks."""
    target, source, built = folder / "sm_90.yaml", folder / "model.cu", folder / "model.so"
    root = pathlib.Path(__file__).resolve().parents[2]
    text = (root / "ir/targets/h200.yaml").read_text()
    target.write_text(text.replace("arch: sm_90a", "arch: sm_90"))
    words = [tools.gpuosc, folder / "model.yaml", f"--target-file={target}"]
    call(*words, "--emit=cuda", "-o", source)
    call(*words, "-o", folder / "model.cubin")
    call("sh", root / "tests/emulate/build.sh", source, built)
    return folder / "model.cubin", {"LD_LIBRARY_PATH": tools.emulator, "GPUOS_EMULATED": built}


def run_steps(tools, graph, artefact, folder, options, **variables):
    """Bits of the outputs after each step; states are carried in files."""
    states, results = {}, []
    for number, step in enumerate(graph.steps):
        words = [tools.gpuos, "run", artefact, "--quiet", *options]
        for name, bits in {**graph.bits, **states, **step}.items():
            at = folder / f"{safe(name)}.in"
            at.write_bytes(np.ascontiguousarray(bits).tobytes())
            words.append(f"--set={name}={at}")
        wanted = graph.outputs + graph.states()
        words += [f"--out={name}={folder / safe(name)}.out" for name in wanted]
        call(*words, **variables)
        found = {}
        for name in wanted:
            number_of = graph.environments[number][name]
            data = (folder / f"{safe(name)}.out").read_bytes()
            found[name] = dtypes.load(data, number_of.shape, number_of.dtype)
        states = {name: found[name] for name in graph.states()}
        results.append(found)
    return results


def safe(name):
    return name.replace("/", "_").replace(".", "_")


def place(shape, flat):
    return list(map(int, np.unravel_index(flat, shape))) if shape else []


def compare(name, bits, want, exact, vague):
    got = dtypes.decode(bits, want.dtype)
    if exact is not None:
        both_nan = np.isnan(got) & np.isnan(dtypes.decode(exact, want.dtype))
        wrong = (bits != exact) & ~both_nan
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Failure(f"'{name}'{place(want.shape, at)}: bits {bits.flat[at]:#x}, exactly "
                          f"{exact.flat[at]:#x} expected ({int(wrong.sum())} of {wrong.size})")
        return 0.0
    off = np.abs(got - want.v)
    judged = np.isfinite(want.e)
    if np.isnan(want.v).any() or not (judged.any() or vague):
        raise Failure(f"'{name}': the reference cannot judge it; the case is at fault")
    wrong = ~(off <= want.e) & judged
    if wrong.any():
        at = int(np.argmax(np.where(wrong, np.nan_to_num(off - want.e, nan=np.inf), -1)))
        raise Failure(f"'{name}'{place(want.shape, at)}: {got.flat[at]!r}, expected "
                      f"{want.v.flat[at]!r} within {want.e.flat[at]:.3g} "
                      f"({int(wrong.sum())} of {wrong.size})")
    share = off[judged] / np.maximum(want.e[judged], 1e-300)
    return float(share.max()) if share.size else 0.0


def judge(graph, results):
    """Largest error of these results as a share of what is allowed."""
    return max((compare(name, bits, names[name], graph.exact.get(name), graph.vague)
                for found, names in zip(results, graph.environments)
                for name, bits in found.items()), default=0.0)


def check(tools, graph, folder, budgets=(None,), runs=RUNS):
    """Largest error over all runs as a share of what is allowed. Raises Failure."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.errstate(all="ignore"):  # an unlimited error is an infinite one
        graph.environments = graph.evaluate()
    graph.text = graph.yaml(graph.environments[-1])
    worst = 0.0
    for budget in budgets:
        table = compile_table(tools, graph, folder, budget)
        first = None
        for options in runs:
            results = run_steps(tools, graph, table, folder, ["--device=cpu", *options])
            if first is None:
                first = results
                worst = max(worst, judge(graph, results))
            for step, (a, b) in enumerate(zip(first, results)):
                for name in a:
                    if not np.array_equal(a[name], b[name]):
                        raise Failure(f"'{name}' after step {step} differs between "
                                      f"{' '.join(runs[0])} and {' '.join(options)}")
    if tools.emulator:
        artefact, variables = emulate(tools, folder)
        worst = max(worst, judge(graph, run_steps(tools, graph, artefact, folder,
                                                  ["--device=cuda"], **variables)))
    return worst
