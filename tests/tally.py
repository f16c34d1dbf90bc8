#!/usr/bin/env python3
"""Counts the cases of tests that are programs with many.

    tally.py run NAME KIND FOLDER COMMAND...   runs a test, keeps its verdicts in FOLDER
    tally.py sum FOLDER...                     prints what failed; ends with "N passed, N failed"

KIND says what COMMAND prints for a case: criterion, lit, unittest, lines ("pass NAME", "FAIL NAME")
or exit (nothing: the whole command is one case). Whatever else goes wrong is a failed case: an exit
status that no case explains, a command that cannot start or shows no case, and what a sanitizer
reports. That last one has to be looked for: a leak leaves a Criterion test green, and `not` takes
any failure for the one that it expects.
"""
import os
import pathlib
import re
import subprocess
import sys

# A line that passes, fails, is skipped; the group is the case.
KINDS = {
    "criterion": (r"ok - (\S+)(?!.*# SKIP)", r"not ok - (\S+)", r"ok - (\S+).*# SKIP"),
    "lit": (r"PASS: \w+ :: (\S+)", r"(?:FAIL|XPASS|UNRESOLVED|TIMEOUT): \w+ :: (\S+)",
            r"UNSUPPORTED: \w+ :: (\S+)"),
    "unittest": (r"(.*) \.\.\. ok$", r"(.*) \.\.\. (?:FAIL|ERROR)$", r"(.*) \.\.\. skipped"),
    "lines": (r"(?:pass|ok) +(\S.*)", r"(?:FAIL|not ok) +(\S.*)", r"skip +(\S.*)"),
    "exit": None,
}
VERDICTS = ("pass", "FAIL", "skip")


def main():
    if sys.argv[1:2] == ["run"] and len(sys.argv) > 5 and sys.argv[3] in KINDS:
        sys.exit(run(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5:]))
    if sys.argv[1:2] == ["sum"] and len(sys.argv) > 2:
        sys.exit(total(map(pathlib.Path, sys.argv[2:])))
    sys.exit(__doc__)


# --- one test ------------------------------------------------------------------------------------


def run(name, kind, folder, command):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name.replace("/", "-")
    for old in folder.glob(file.name + ".sanitizer.*"):
        old.unlink()
    # Stays if we are killed, as at the end of a test's time.
    file.write_text(f"FAIL {name}: did not finish\n", encoding="utf-8")
    cases = [*cases_of(name, kind, command, file)]
    found = [*reports(name, file)]
    if not has_failed(cases):  # a Criterion test that fails leaks what it had
        cases += found
    file.write_text("".join(f"{verdict} {case}\n" for verdict, case in cases), encoding="utf-8")
    return has_failed(cases)


def has_failed(cases):
    return any(verdict == "FAIL" for verdict, _ in cases)


def cases_of(name, kind, command, file):
    """Runs the command and yields (verdict, case)."""
    if kind == "criterion":
        command = [*command, "--tap"]
    try:
        process = subprocess.Popen(command, env=environment(file), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        print(error)
        yield "FAIL", f"{name}: {error.strerror}"
        return
    counts = dict.fromkeys(VERDICTS, 0)
    for line in process.stdout:
        print(line, end="", flush=True)
        for verdict, pattern in zip(VERDICTS, KINDS[kind] or ()):
            if found := re.match(pattern, line):
                counts[verdict] += 1
                yield verdict, f"{name}: {found[1]}"
    if process.wait() != 0 and counts["FAIL"] == 0:
        yield "FAIL", f"{name}: exit status {process.returncode}"
    elif kind == "exit":
        yield "pass", name
    elif not any(counts.values()):
        yield "FAIL", f"{name}: no case was run"


def environment(file):
    """gcc's UBSan knows no log_path, but a crash is no failure that anything expects.

    ASan guesses how long a block of dynamic thread-local storage is from the bytes before it, where
    its address mod 4096 is 16. NVRTC's block lies there by chance, and the search for leaks then
    reads at 0xf68; without the guess it is no root, which nothing of ours needs.
    """
    options = f"log_path={file}.sanitizer:detect_stack_use_after_return=1:intercept_tls_get_addr=0"
    return os.environ | {
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": "abort_on_error=1:print_stacktrace=1",
    }


def reports(name, file):
    for log in sorted(file.parent.glob(file.name + ".sanitizer.*")):
        text = log.read_text(encoding="utf-8", errors="replace")
        print(text)
        first = next((line for line in text.splitlines() if "ERROR" in line or "error" in line), "")
        yield "FAIL", f"{name}: sanitizer: {first}"


# --- all of them ---------------------------------------------------------------------------------


def total(folders):
    counts = dict.fromkeys(VERDICTS, 0)
    for file in sorted(path for folder in folders for path in folder.iterdir()):
        if ".sanitizer." in file.name:
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            verdict, case = line.split(" ", 1)
            counts[verdict] += 1
            if verdict != "pass":
                print(f"{verdict}  {case}")
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    print(f"{counts['pass']} passed, {counts['FAIL']} failed{skipped}")
    return counts["FAIL"] > 0 or counts["pass"] == 0


if __name__ == "__main__":
    main()
