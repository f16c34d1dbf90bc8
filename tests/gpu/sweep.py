#!/usr/bin/env python3
"""Random matrix products of every kind against PyTorch in float64.

    sweep.py make GPUOSC FOLDER [--seed N] [--count N] [--per-file N] [--jobs N] [--tables]
    sweep.py run GPUOS FOLDER [--only N,N] [--seed N] [--data exact|normal] [--device cuda|cpu]

`make` needs the compiler, no GPU and no PyTorch: it writes FOLDER/sweep_N.yaml and .cubin, several
cases each, every other one with as small a budget as goes so that tiles have several units, and
FOLDER/sweep.json. `run` needs gpuos and PyTorch: it runs every artefact twice, three steps on
poisoned outputs: on small integers, where sums are exact and bits must agree, and on normal
numbers. Prints what is known of each case that fails, and "N passed, N failed". Where there is no
GPU, --tables and --device=cpu try the cases themselves, on the CPU device.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import sweep_cases

STEP_LIMIT_S = 10      # of one step
PROCESS_LIMIT_S = 90   # of one gpuos
HANGS = 2              # after so many the GPU's time is better spent otherwise


# ---- make ---------------------------------------------------------------------------------------

def model_text(cases):
    lines = ["gpuos: 1", "name: sweep", "class: background", "target: h200", "tensors:"]
    for case in cases:
        lines.append(f"  # {case['number']}: {case['text']}")
        for name, tensor in case["tensors"].items():
            known = {key: tensor[key] for key in ("shape", "dtype", "role")}
            lines.append(f"  {name}: {json.dumps(known)}")
    lines.append("ops:")
    for case in cases:
        lines += [f"  - {op}: {json.dumps(attributes)}" for op, attributes in case["ops"]]
    return "\n".join(lines) + "\n"


def call(words, limit_s=600):
    """Exit code and what was said; None for one that had to be ended."""
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                              timeout=limit_s)
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr.strip()
    except subprocess.TimeoutExpired:
        return None, f"no end after {limit_s} s"


def constants(struct):
    """"TILE_N = 128, X_ELEM = GPUOS_BF16, ..." of a struct's text."""
    return ", ".join(re.findall(r"enum { (.*?) };", struct))


def device_code(compiler):
    """Output tensor to the code that makes it: "matmul_wgmma_0, TILE_N = 128, ..., 3 units"."""
    plan, source = call([*compiler, "--emit=plan"])[1], call([*compiler, "--emit=cuda"])[1]
    structs = dict(re.findall(r"^struct (\w+) {\n(.*?)^};", source, re.S | re.M))
    runs = re.search(r"gpuos_outcome run.*?^  }", source, re.S | re.M)
    found = {}
    cases = re.findall(r"((?:case \d+:\s*)+)return \w+<(?:\w+<)?(\w+)>", runs[0] if runs else "")
    for labels, name in cases:
        for number in re.findall(r"\d+", labels):
            op = re.search(rf"^op {number} .* units=(\d+) .*\n *write out .* (\w+)$", plan, re.M)
            if op:
                found[op[2]] = f"{name}, {constants(structs.get(name, ''))}, {op[1]} units"
    return found


def compile_model(options, model, kind, least_budget_us):
    """The compiler's words, none if all went well, and the command without what to emit and where.
    A budget that some unit cannot keep is raised."""
    for budget_us in range(least_budget_us, 21, 5):
        compiler = [options.program, model, f"--unit-budget-us={budget_us}"]
        code, said = call([*compiler, f"--emit={kind}", "-o", model.with_suffix(f".{kind}")])
        if code == 0 or "[budget]" not in said:
            break
    return "" if code == 0 else said, compiler


def compile_cases(options, name, cases):
    """Entries of sweep.json and the lines to print. What does not compile is halved until the case
    that is to blame stands alone; the others keep their place in the sweep."""
    model, kind = options.folder / f"{name}.yaml", "table" if options.tables else "cubin"
    model.write_text(model_text(cases))
    said, compiler = compile_model(options, model, kind, cases[0]["budget_us"])
    if not said:
        code_of = device_code(compiler)
        for case in cases:
            made = dict.fromkeys(code_of.get(output, "?") for output in case["outputs"])
            case["code"] = "; ".join(made)
        entry = {"name": name, "artefact": f"{name}.{kind}", "cases": cases}
        return [entry], [f"ok   {name}: {len(cases)} cases, {compiler[-1]}"]
    lines = [f"FAIL {model}: {said[:500]}"]
    if len(cases) == 1:
        return [], lines + [f"  case {cases[0]['number']} alone: {cases[0]['text']}"]
    entries, middle = [], len(cases) // 2
    for suffix, half in (("a", cases[:middle]), ("b", cases[middle:])):
        more, said = compile_cases(options, name + suffix, half)
        entries += more
        lines += said
    return entries, lines


def summary(files):
    codes = [case["code"] for file in files for case in file["cases"]]
    count = {word: sum(word in code for code in codes)
             for word in ("wgmma", "TILE_N = 256", "PIECES = 1")}
    return f"{len(codes)} cases; outputs with " + ", ".join(f"{w}: {n}" for w, n in count.items())


def make(options):
    folder, size = options.folder, options.per_file
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("sweep_*"):
        old.unlink()
    cases = sweep_cases.draw(options.seed, options.count)
    for case in cases:
        case["budget_us"] = (20, 5)[case["number"] // size % 2]
    groups = [cases[at:at + size] for at in range(0, len(cases), size)]
    files, failed = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = pool.map(lambda g: compile_cases(options, f"sweep_{g[0]}", g[1]), enumerate(groups))
        for entries, lines in jobs:
            print(*lines, sep="\n", flush=True)
            files += entries
            failed += sum(line.startswith("FAIL") for line in lines)
    (folder / "sweep.json").write_text(json.dumps({"seed": options.seed, "files": files}, indent=1))
    print(summary(files))
    print(f"{len(files)} passed, {failed} failed")
    return failed > 0


# ---- run ----------------------------------------------------------------------------------------

class Runner:
    """Gives an artefact data, runs it with gpuos, and has its outputs judged."""

    def __init__(self, options, scratch):
        import torch
        import sweep_reference
        self.torch, self.reference = torch, sweep_reference
        self.options, self.scratch, self.hangs = options, pathlib.Path(scratch), 0
        self.where = torch.device(options.device)

    def draw(self, tensor, random):
        """Float64 values that the tensor's format has."""
        torch, shape, unit = self.torch, tensor["shape"], tensor["unit"]
        like = {"device": self.where, "dtype": torch.float64, "generator": self.generator}
        if not shape:
            share = torch.rand((), **like) * 1.5 + 0.5 if random else 1.0
            values = torch.full((), unit, device=self.where, dtype=torch.float64) * share
        elif random:
            values = torch.randn(shape, **like) * unit
        else:
            most = 2 if tensor["dtype"] in self.reference.EIGHT else 4
            values = torch.randint(-most, most + 1, shape, **like) * unit
        return self.reference.rounded(values, tensor["dtype"])

    def file_of(self, name):
        return self.scratch / f"{name}.bin"

    def write(self, name, values, dtype):
        bits = self.reference.encode(values, dtype).contiguous().reshape(-1)
        bits.view(self.torch.uint8).cpu().numpy().tofile(self.file_of(name))

    def poison(self, name, tensor):
        count = 1
        for n in tensor["shape"]:
            count *= n
        bytes_each = {"f32": 4, "f16": 2, "bf16": 2}.get(tensor["dtype"], 1)
        self.file_of(name).write_bytes(b"\xff" * (count * bytes_each))

    def read(self, name, tensor):
        data = bytearray(self.file_of(name).read_bytes())
        bits = self.torch.frombuffer(data, dtype=self.torch.uint8).to(self.where)
        dtype = self.reference.TORCH[tensor["dtype"]]
        return bits.view(dtype).reshape(tensor["shape"]).double()

    def give(self, file, random):
        """Writes all files; the values given, and the words that say so to gpuos."""
        given, words = {}, []
        for case in file["cases"]:
            for name, tensor in case["tensors"].items():
                words.append(f"--set={name}={self.file_of(name)}")
                if tensor["role"] == "output":
                    self.poison(name, tensor)
                    words.append(f"--out={name}={self.file_of(name)}")
                else:
                    given[name] = self.draw(tensor, random)
                    self.write(name, given[name], tensor["dtype"])
        return given, words

    def judge(self, file, given, random):
        """Case number to what is wrong with it, or None; a line about all of them."""
        wrong, worst, exact, count = {}, 0.0, 0, 0
        for case in file["cases"]:
            got = {name: self.read(name, case["tensors"][name]) for name in case["outputs"]}
            own = {name: given[name] for name in case["tensors"] if name in given}
            count += len(got)
            wrong[case["number"]] = None
            try:
                error, equal = self.reference.check(case, own, got, random)
                worst, exact = max(worst, error), exact + equal
            except self.reference.Wrong as why:
                wrong[case["number"]] = str(why)
        return wrong, f"{exact} of {count} outputs bit by bit, RMS error at most {worst:.1e}"

    def run(self, file, random):
        """Case number to what is wrong with it, "" if the artefact did not run, or None."""
        kind = "normal" if random else "exact"
        seed = self.options.seed * 1000 + 2 * file["cases"][0]["number"] + random
        self.generator = self.torch.Generator(self.where).manual_seed(seed)
        given, words = self.give(file, random)
        artefact = self.options.folder / file["artefact"]
        code, said = call([self.options.program, "run", artefact, f"--device={self.options.device}",
                           f"--timeout={STEP_LIMIT_S}", "--steps=3", "--quiet", *words],
                          PROCESS_LIMIT_S)
        if code == 0:
            wrong, said = self.judge(file, given, random)
        else:
            self.hangs += code is None or "[TIMEOUT]" in said or "[STALL]" in said
            wrong = {case["number"]: "" for case in file["cases"]}
        right = sum(why is None for why in wrong.values())
        print(f"{'ok  ' if right == len(wrong) else 'FAIL'} {file['name']} {kind}: {right} of "
              f"{len(wrong)} cases right, {said}", flush=True)
        return wrong


def check_formats(runner):
    """PyTorch rounds as tests/numerics/dtypes.py does, ties and ends included."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "numerics"))
    import dtypes
    import numpy as np
    random = np.random.default_rng(1)
    some = np.concatenate([random.normal(size=20000) * 2.0 ** random.integers(-12, 12, 20000),
                           random.integers(-70000, 70000, 5000) / 256, [0, 448, 465, 1e5, -6e4]])
    some = some.astype(np.float32).astype(np.float64)
    for dtype in runner.reference.TORCH:
        there = runner.torch.tensor(some, device=runner.where)
        got = runner.reference.rounded(there, dtype).cpu().numpy()
        if not np.array_equal(got, dtypes.round_to(some, dtype)):
            sys.exit(f"sweep.py: PyTorch rounds to {dtype} in another way; fix the reference first")


def run_file(runner, file, kinds):
    """The numbers of the cases that failed."""
    failed = set()
    for random in kinds:
        wrong = runner.run(file, random)
        for case in file["cases"]:
            why = wrong[case["number"]]
            if why is not None:
                failed.add(case["number"])
            if why:
                print(f"  case {case['number']}: {case['text']}\n    {case['code']}\n    {why}",
                      flush=True)
    return failed


def run(options):
    files = json.loads((options.folder / "sweep.json").read_text())["files"]
    kinds = {"exact": [False], "normal": [True], None: [False, True]}[options.data]
    only = [f"sweep_{n}" for n in options.only.split(",")] if options.only else None
    passed = failed = 0
    start = time.monotonic()
    print(f"--seed={options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(options, scratch)
        check_formats(runner)
        for file in files:
            if only and file["name"] not in only:
                continue
            if runner.hangs >= HANGS:
                print(f"FAIL {file['name']}: not run, {HANGS} hung before it", flush=True)
                failed += len(file["cases"])
                continue
            bad = run_file(runner, file, kinds)
            failed, passed = failed + len(bad), passed + len(file["cases"]) - len(bad)
    print(f"{time.monotonic() - start:.0f} s")
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed > 0 or passed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, action in (("make", make), ("run", run)):
        command = commands.add_parser(name)
        command.set_defaults(action=action)
        command.add_argument("program", type=pathlib.Path, help="gpuosc or gpuos")
        command.add_argument("folder", type=pathlib.Path)
        command.add_argument("--seed", type=int, default=1 if name == "make" else int(time.time()))
    commands.choices["make"].add_argument("--count", type=int, default=220, help="cases")
    commands.choices["make"].add_argument("--per-file", type=int, default=4)
    commands.choices["make"].add_argument("--jobs", type=int, default=2)
    commands.choices["make"].add_argument("--tables", action="store_true", help="no device code")
    commands.choices["run"].add_argument("--only", help="files, as 3,17b")
    commands.choices["run"].add_argument("--data", choices=("exact", "normal"), help="default both")
    commands.choices["run"].add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    return options.action(options)


if __name__ == "__main__":
    sys.exit(main())
