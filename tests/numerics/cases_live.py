"""Decoder steps as a language model has them: rope, a paged cache that grows, grouped queries.

What lies between q, k and v and attention is folded into it (passes/attend.c), unless something else
reads it or rows share a sequence.
"""
import numpy as np

from dtypes import encode


def attention(rows, heads, kv_heads, head_dim, positions, dtype="bf16", context=64, keep=(),
              seq=False, **rope):
    """q, k and v from matmuls, rotated; positions of each row, step by step."""
    def build(g):
        d = 48
        g.cache("kv", dtype, 1, kv_heads, head_dim, context, rows, 16)
        g.tensor("x", (rows, d), dtype)
        g.index("pos", positions[0])
        for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            g.tensor("w" + name, (n * head_dim, d), dtype, role="weight", scale=0.15)
            g.op("matmul", x="x", w="w" + name, transpose_w=True, out=name)
        for name in "qk":
            g.op("rope", x=name, pos="pos", head_dim=head_dim, **rope, out=name + "r")
        more = {"seq": g.index("seq", np.arange(rows)[::-1])} if seq else {}
        g.op("attention", q="qr", k="kr", v="v", cache="kv", pos="pos", head_dim=head_dim, **more,
             out="y")
        g.returns("y", *keep)
        g.steps = [{"pos": encode(np.array(p), "i32"),
                    "x": encode(g.rng.normal(size=(rows, d)), dtype)} for p in positions]
    return build


def through_the_ring():
    """Few queries a KV head, as tensor cores take them: device/attention_ring.cuh; or, as for ten of them or a
    head of 96, as they come. Splits of one key and of none, and of several stages."""
    for heads, kv_heads, head_dim, dtype in ((1, 1, 64, "bf16"), (6, 2, 64, "bf16"),
                                             (4, 1, 128, "f16"), (8, 1, 128, "bf16"),
                                             (10, 1, 64, "bf16"), (2, 1, 96, "bf16")):
        yield (f"{heads} over {kv_heads} heads of {head_dim} in {dtype}",
               attention(2, heads, kv_heads, head_dim, [[0, 63], [1, 64], [70, 65]], dtype=dtype,
                         context=128))
    yield ("several stages", attention(3, 2, 1, 128, [[0, 511, 129], [64, 100, -1], [15, 17, 448]],
                                       context=512), {"budgets": (None, 40)})
    yield "more splits than warps", attention(1, 2, 1, 64, [[1000], [620], [3]], context=1024)
    yield "in one split", attention(2, 2, 1, 64, [[0, 62], [1, 63]])
    yield "several stages of two", attention(1, 2, 1, 64, [[400], [127], [128], [129]], context=512)
    yield "interleaved heads of 64", attention(1, 2, 1, 64, [[5], [6]], pairing="interleaved")


def decoder(rows, layers, heads, kv_heads, head_dim, f, context, count):
    """Tokens are given, not fed back: a near tie of two logits must not decide what follows. Scores are
    small beside what is added to, or their worst case would be beyond judgement after a norm."""
    def build(g):
        d, vocabulary = heads * head_dim, 70
        g.cache("kv", "bf16", layers, kv_heads, head_dim, context, rows, 16)
        g.tensor("table", (vocabulary, d), "bf16", role="weight", scale=4)
        g.index("ids", np.zeros(rows))
        g.index("pos", np.zeros(rows))
        weights = {"q": (d, d), "k": (kv_heads * head_dim, d), "v": (kv_heads * head_dim, d),
                   "o": (d, d), "gate": (f, d), "up": (f, d), "down": (d, f)}
        h = g.op("embedding", ids="ids", table="table", dtype="f32", out="h0")
        for layer in range(layers):
            def name(what):
                return f"{layer}.{what}"

            def product(x, w, out, **more):
                shape = weights[w]
                scale = (0.05 if w in "qk" else 0.4) * shape[1] ** -0.5
                g.tensor(name("w_" + w), shape, "bf16", role="weight", scale=scale)
                return g.op("matmul", x=x, w=name("w_" + w), transpose_w=True, **more, out=name(out))

            for norm in ("n1", "n2"):
                g.tensor(name(norm), (d,), "bf16", role="weight")
            x = g.op("rmsnorm", x=h, weight=name("n1"), dtype="bf16", out=name("x"))
            q, k, v = (product(x, w, w) for w in "qkv")
            q, k = (g.op("rope", x=t, pos="pos", head_dim=head_dim, theta=500.0, out=t + ".r")
                    for t in (q, k))
            a = g.op("attention", q=q, k=k, v=v, cache="kv", pos="pos", layer=layer,
                     head_dim=head_dim, out=name("a"))
            h = product(a, "o", "r", add=h, dtype="f32")
            x = g.op("rmsnorm", x=h, weight=name("n2"), dtype="bf16", out=name("m"))
            gate, up = product(x, "gate", "g"), product(x, "up", "u")
            y = g.op("map", expr="silu(g) * u", g=gate, u=up, out=name("y"))
            h = product(y, "down", "h", add=h, dtype="f32")
        g.returns(h)
        g.steps = [{"ids": encode(g.rng.integers(0, vocabulary, rows), "i32"),
                    "pos": encode(np.full(rows, t), "i32")} for t in range(count)]
    return build


def cases():
    for rows in (1, 3):
        yield (f"rotated, {rows} rows",
               attention(rows, 4, 2, 16, [[t + 5 * r for r in range(rows)] for t in range(3)]))
    yield "absent rows", attention(3, 2, 1, 16, [[0, -1, 4], [1, 0, -1], [-1, 1, 5]])
    yield "interleaved", attention(2, 2, 1, 16, [[0, 7], [1, 8]], pairing="interleaved")
    yield "narrow heads", attention(1, 4, 2, 8, [[0], [1], [2]])
    yield "narrow heads interleaved", attention(1, 4, 2, 8, [[0], [1]], pairing="interleaved")
    yield "heads of 12", attention(1, 2, 1, 12, [[0], [1], [2]])
    yield "f32", attention(1, 2, 1, 16, [[0], [1]], dtype="f32")
    yield "splits", attention(2, 4, 2, 64, [[300, 511], [301, 512], [302, 513]], context=1024)
    yield "k is an output", attention(2, 4, 2, 16, [[0, 3], [1, 4]], keep=("kr",))
    yield "q is an output", attention(2, 4, 2, 16, [[0, 3], [1, 4]], keep=("qr",))
    yield "sequences named", attention(3, 2, 1, 16, [[0, 3, 1], [1, 4, 2]], seq=True)
    yield from through_the_ring()
    yield "a decoder", decoder(1, 2, 4, 2, 32, 200, 64, 3)
    yield "a decoder, 4 rows", decoder(4, 1, 4, 2, 32, 136, 64, 2)
