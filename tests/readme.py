#!/usr/bin/env python3
"""Runs the commands of README.md that begin with "$ build/", in order, in one scratch folder.

    python3 tests/readme.py BUILD MODEL    # MODEL: what examples/smollm2_weights.py wrote

A command passes if it exits 0 and prints every line that README.md shows below it. The files they
name are SmolLM2's. A line a command; exits 1 if one fails.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# 10^12 multiplications are for a GPU: --set reads the inputs of the 8192 x 8192 x 8192 GEMM.
FOR_A_GPU = "--set "


def main():
    build, model = (pathlib.Path(arg).resolve() for arg in sys.argv[1:])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in (("build", build), ("examples", ROOT / "examples"),
                           *((name, model / name) for name in ("config.json", "model.safetensors"))):
            os.symlink(path, pathlib.Path(folder, name))
        for command, shown in commands((ROOT / "README.md").read_text(encoding="utf-8")):
            if FOR_A_GPU not in command:
                failed += not works(command, shown, folder)
    sys.exit(failed > 0)


def commands(text):
    """(command, lines shown below it) for each; a comment behind two spaces is not part of it."""
    blocks = re.findall(r"^    \$ (build/.*)\n((?:    [^$\s].*\n)*)", text, re.MULTILINE)
    for command, shown in blocks:
        yield re.sub(r"  +#.*", "", command), [line.strip() for line in shown.splitlines()]


def works(command, shown, folder):
    result = subprocess.run(command, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    missing = [line for line in shown if line not in result.stdout]
    good = result.returncode == 0 and not missing
    print("pass" if good else "FAIL", "", command, flush=True)
    if not good:
        print(f"{result.stdout}exit status {result.returncode}; not printed: {missing}", flush=True)
    return good


if __name__ == "__main__":
    main()
