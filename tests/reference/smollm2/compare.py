#!/usr/bin/env python3
"""Decides whether greedily decoded ids are those of the reference. Standard library only.

    compare.py greedy.json --ids FILE                    # a line of ids a prompt, in order
    compare.py greedy.json -- gpuos run model.cubin ...  # run once a prompt, with --prompt=IDS,
                                                         # --generate=64 and --logits=FILE
                                                         # appended; the last line it prints
                                                         # holds the ids

A prompt passes if its ids are equal, or if they first differ at a tie: where the reference's two
largest logits are closer than bf16 can tell (2^-8 of the larger, --tie) and the second was taken.
What follows a tie answers to another text and is not compared.

How much is a tie? examples/smollm2_135m.yaml with every stored result rounded to bf16 once moves the
two logits apart by 0.26 (median), 0.85 (P90) and 1.7 (P99) times 2^-8 of the larger, PyTorch in bf16,
which rounds more often, by 0.5, 1.6 and 4.5. So a lead of more than 2^-8 can be lost as well, rarely,
to nothing but another order of sums (it needs a --tie of 0.0078125 for PyTorch). How far a command
moves the logits is therefore a verdict of its own, "fidelity": no more than PyTorch does. Exits 1 if
anything fails.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile

BF16_RELATIVE = 2.0**-8  # half the spacing of bf16 numbers, relative to the power of two below
PYTORCH = {0.5: 0.5, 0.9: 1.6, 0.99: 4.5}  # quantiles of what it moves two logits apart by, x 2^-8


def main():
    own, command = split_command(sys.argv[1:])
    args = parse(own, command)
    with open(args.reference, encoding="utf-8") as file:
        reference = json.load(file)
    prompts = [p for p in reference["prompts"] if args.only in (None, p["name"])]
    if not prompts:
        sys.exit(f"error: {args.reference} has no prompt {args.only}")
    count = args.generate or reference["generate"]
    answers = from_file(args.ids, prompts) if args.ids else from_runs(command, prompts, count)
    failed, moves = 0, []
    for prompt, (answer, logits) in zip(prompts, answers):
        good, verdict = judge(prompt, answer, count, args.tie)
        print(f"{'pass' if good else 'FAIL'}  {prompt['name']:8} {verdict}", flush=True)
        failed += not good
        moves += moved(prompt, answer, logits) if logits else []
    if command:
        good, verdict = judge_moves(moves)
        print(f"{'pass' if good else 'FAIL'}  fidelity {verdict}", flush=True)
        failed += not good
    sys.exit(1 if failed else 0)


def split_command(argv):
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def parse(argv, command):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("reference", help="greedy.json")
    parser.add_argument("--ids", help="file of produced ids, a line for each prompt")
    parser.add_argument("--tie", type=float, default=BF16_RELATIVE, help="relative; default 2^-8")
    parser.add_argument("--generate", type=int, help="compare only the first so many tokens")
    parser.add_argument("--only", metavar="NAME", help="one prompt")
    args = parser.parse_args(argv)
    if bool(args.ids) == bool(command):
        parser.error("give either --ids FILE or -- COMMAND")
    return args


# --- the ids -------------------------------------------------------------------------------------


def from_file(path, prompts):
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    if len(lines) != len(prompts):
        sys.exit(f"error: {path} has {len(lines)} lines of ids for {len(prompts)} prompts")
    return [(read_ids(line), None) for line in lines]


def from_runs(command, prompts, count):
    for prompt in prompts:
        ids = ",".join(map(str, prompt["prompt"]))
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "logits.f32")
            full = command + [f"--prompt={ids}", f"--generate={count}", f"--logits={file}"]
            result = subprocess.run(full, stdout=subprocess.PIPE, text=True)
            if result.returncode != 0:
                sys.exit(f"error: prompt {prompt['name']}: {command[0]} exits {result.returncode}")
            lines = result.stdout.strip().splitlines()
            yield read_ids(lines[-1] if lines else ""), read_floats(file)


def read_floats(path):
    floats = array.array("f")
    with open(path, "rb") as file:
        floats.frombytes(file.read())
    return floats


def read_ids(line):
    try:
        return [int(word) for word in line.split(",")]
    except ValueError:
        sys.exit(f"error: not comma separated ids: {line[:60]!r}")


# --- fidelity ------------------------------------------------------------------------------------


def moved(prompt, answer, logits):
    """How much farther apart or closer the two are than the reference's, x 2^-8 of the larger, at
    each place whose text is the reference's."""
    width, moves = len(logits) // len(answer), []
    for at, (token, expected) in enumerate(zip(answer, prompt["tokens"])):
        first, second = prompt["top_logits"][at]
        mine = [logits[at * width + token_id] for token_id in prompt["top_ids"][at]]
        larger = max(abs(first), abs(second)) * BF16_RELATIVE
        moves.append(abs((mine[0] - mine[1]) - (first - second)) / larger)
        if token != expected:
            break
    return moves


def judge_moves(moves):
    moves = sorted(moves)
    found = {q: moves[int(q * (len(moves) - 1))] for q in PYTORCH}
    text = ", ".join(f"{value:.2f} (P{100 * q:.0f})" for q, value in found.items())
    good = all(found[q] <= most for q, most in PYTORCH.items())
    return good, f"two logits moved by {text} x 2^-8 over {len(moves)} places"


# --- the verdict ---------------------------------------------------------------------------------


def judge(prompt, answer, count, tie):
    """(whether it passes, why) for one prompt's ids."""
    expected = prompt["tokens"][:count]
    if len(answer) != len(expected):
        return False, f"{len(answer)} ids instead of {len(expected)}"
    at = next((i for i, pair in enumerate(zip(expected, answer)) if pair[0] != pair[1]), None)
    if at is None:
        return True, f"{len(expected)} ids equal"
    first, second = prompt["top_logits"][at]
    share = (first - second) / max(abs(first), abs(second))
    runner_up = answer[at] == prompt["top_ids"][at][1]
    good = runner_up and share < tie
    return good, (
        f"{at} ids equal, then {answer[at]} instead of {expected[at]}: "
        f"logits {first:.4f} and {second:.4f}{'' if runner_up else ' of another id'}, "
        f"{share / BF16_RELATIVE:.2f} x 2^-8 apart{', a tie' if good else ''}"
    )


if __name__ == "__main__":
    main()
