"""attention: through a paged cache over several steps, and over the rows given."""
import numpy as np

from dtypes import encode


def cached(rows, heads, kv_heads, head_dim, positions, dtype="bf16", context=64, page_size=16,
           sequences=None, seq=None, pages=None, shuffle=False, layers=1, layer=0, scale=None):
    """A step for each of `positions`, which are those of the rows; `seq` likewise, or None."""
    def build(g):
        count = sequences or rows
        table = None
        if shuffle:
            room = pages or count * context // page_size
            table = g.rng.permutation(room)[:count * context // page_size]
        g.cache("kv", dtype, layers, kv_heads, head_dim, context, count, page_size, pages, table)
        sizes = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        for name, size in sizes.items():
            g.tensor(name, (rows, size), dtype)
        g.index("pos", positions[0])
        more = {"seq": g.index("seq", seq[0])} if seq else {}
        if layer:
            more["layer"] = layer
        if scale:
            more["scale"] = scale
        g.op("attention", q="q", k="k", v="v", cache="kv", pos="pos", head_dim=head_dim, **more,
             out="y")
        g.returns("y")
        g.steps = []
        for number, pos in enumerate(positions):
            step = {"pos": encode(np.array(pos), "i32")}
            for name, size in sizes.items():
                step[name] = encode(g.rng.normal(size=(rows, size)), dtype)
            if seq:
                step["seq"] = encode(np.array(seq[number]), "i32")
            g.steps.append(step)
    return build


def decode_steps(rows, count):
    return [[t + 3 * r for r in range(rows)] for t in range(count)]


def prefill_is_decode(g):
    """The same tokens at once in one cache and one a step in another give the same rows."""
    n, d = 12, 8
    data = {name: encode(g.rng.normal(size=(n, size)), "f32")
            for name, size in (("q", 2 * d), ("k", d), ("v", d))}
    for name, bits in data.items():
        g.tensor(name, bits.shape)
        g.tensor(name + "1", (1, bits.shape[1]))
    g.cache("all", "f32", context=32, head_dim=d)
    g.cache("each", "f32", context=32, head_dim=d)
    for name in ("pos", "seq"):
        g.index(name, np.zeros(n))
    g.index("pos1", [0])
    g.op("attention", q="q", k="k", v="v", cache="all", pos="pos", seq="seq", head_dim=d, out="y")
    g.op("attention", q="q1", k="k1", v="v1", cache="each", pos="pos1", head_dim=d, out="y1")
    g.returns("y", "y1")
    g.steps = []
    for t in range(n):
        pos = np.arange(n) if t == n - 1 else np.full(n, -1)
        g.steps.append({**data, "pos": encode(pos, "i32"), "pos1": encode([t], "i32"),
                        **{name + "1": bits[t:t + 1] for name, bits in data.items()}})


def two_layers(g):
    """Each layer has its own part of one cache; the second uses the first's result."""
    d = 8
    g.cache("kv", "f32", layers=3, kv_heads=2, head_dim=d, context=48, sequences=2)
    g.tensor("x", (2, 2 * d))
    g.index("pos", [0, 0])
    g.op("attention", q="x", k="x", v="x", cache="kv", layer=0, pos="pos", head_dim=d, out="a")
    g.op("map", expr="a * 0.5 + x", a="a", x="x", out="b")
    g.op("attention", q="b", k="b", v="x", cache="kv", layer=2, pos="pos", head_dim=d, out="y")
    g.returns("y")
    g.steps = [{"pos": encode([t, 2 * t + 1], "i32"), "x": encode(g.rng.normal(size=(2, 2 * d)),
                                                                  "f32")} for t in range(5)]


def same_layer_twice(g):
    """The second writes the next position of the same layer and sees what the first wrote."""
    d = 8
    g.cache("kv", "f32", head_dim=d, context=32)
    for name in "ab":
        g.tensor(name, (1, d))
    g.index("p", [0])
    g.index("r", [1])
    g.op("attention", q="a", k="a", v="a", cache="kv", pos="p", head_dim=d, out="u")
    g.op("attention", q="b", k="b", v="u", cache="kv", pos="r", head_dim=d, out="y")
    g.returns("y", "u")
    g.steps = [{"p": encode([2 * t], "i32"), "r": encode([2 * t + 1], "i32"),
                "a": encode(g.rng.normal(size=(1, d)), "f32")} for t in range(3)]


def dense(rows, keys, heads, kv_heads, d, dtype="f32", batch=None, causal=None, scale=None):
    def build(g):
        first = () if batch is None else (batch,)
        g.tensor("q", (*first, rows, heads * d), dtype)
        g.tensor("k", (*first, keys, kv_heads * d), dtype)
        g.tensor("v", (*first, keys, kv_heads * d), dtype)
        more = {} if causal is None else {"causal": causal}
        if scale:
            more["scale"] = scale
        g.op("attention", q="q", k="k", v="v", head_dim=d, **more, out="y")
        g.returns("y")
    return build


def packed(g):
    """q, k and v are parts of one projection."""
    d = 8
    g.tensor("qkv", (6, 4 * d), "bf16")
    g.op("attention", q="qkv[:, :16]", k="qkv[:, 16:24]", v="qkv[:, 24:]", head_dim=d, out="y")
    g.returns("y")


def packed_cached(g):
    d = 8
    g.cache("kv", "bf16", head_dim=d, context=32, sequences=3)
    g.tensor("qkv", (6, 4 * d), "bf16")
    g.index("pos", [0, 1, 2, 0, 1, -1])
    g.index("seq", [0, 0, 0, 2, 2, 1])
    g.op("attention", q="qkv[1:4, :16]", k="qkv[1:4, 16:24]", v="qkv[1:4, 24:]", cache="kv",
         pos="pos[:3]", seq="seq[3:]", head_dim=d, out="y")
    g.returns("y")
    g.bits["pos"] = encode([0, 1, 0, 5, 5, 5], "i32")
    g.bits["seq"] = encode([9, 9, 9, 2, 2, 0], "i32")


def cases():
    few = {"budgets": (None, 3)}
    yield "decode", cached(1, 1, 1, 8, decode_steps(1, 20)), few
    for dtype in ("f32", "f16", "bf16", "e4m3", "e5m2"):
        yield f"decode {dtype}", cached(2, 4, 2, 16, decode_steps(2, 6), dtype)
    for heads, kv_heads in ((4, 4), (4, 1), (6, 2), (9, 3)):
        yield f"decode {heads} over {kv_heads}", cached(3, heads, kv_heads, 8, decode_steps(3, 5))
    yield "decode with a scale", cached(2, 2, 1, 8, decode_steps(2, 4), scale=0.7)
    yield "decode layer 1 of 3", cached(2, 2, 1, 8, decode_steps(2, 4), layers=3, layer=1)
    yield ("rows unused", cached(4, 4, 2, 8, [[0, -1, 5, -3], [-1, 0, 6, -1], [-1, -1, -1, -1]],
                                 "f32"), few)
    yield "page 1", cached(2, 2, 2, 8, decode_steps(2, 6), "f32", context=24, page_size=1)
    yield "shuffled pages", cached(3, 4, 2, 8, decode_steps(3, 12), "f32", page_size=4,
                                   shuffle=True)
    yield "more pages than used", cached(2, 2, 1, 8, decode_steps(2, 12), "f32", page_size=4,
                                         pages=99, shuffle=True)
    yield ("several rows of a sequence",
           cached(6, 2, 1, 8, [[0, 1, 2, 0, 1, -1], [3, 4, 5, 2, 3, 4]], "f32", sequences=4,
                  seq=[[2, 2, 2, 0, 0, 1], [2, 2, 2, 0, 0, 0]], shuffle=True), few)
    yield ("sequences in any order",
           cached(3, 2, 1, 8, [[0, 0, 0], [1, 1, 1], [2, -1, 2]], sequences=5,
                  seq=[[4, 0, 2], [0, 2, 4], [2, 1, 0]]))
    yield "prefill is decode", prefill_is_decode
    yield ("a long context in splits",
           cached(2, 4, 2, 16, [[0, 255], [256, 511], [257, 512], [1500, 700], [2047, 3]], "f32",
                  context=2048, page_size=64, shuffle=True), few)
    yield ("a long context in bf16", cached(1, 9, 3, 32, [[4000], [5], [1023]], context=4096,
                                            page_size=64), few)
    yield ("a ragged split", cached(1, 1, 1, 8, [[700], [719], [0], [-1]], "f32", context=720,
                                    page_size=48), few)
    yield "two layers", two_layers, few
    yield "one layer twice", same_layer_twice
    yield "packed projection with a cache", packed_cached
    for causal in (None, True, False):
        for rows, keys in ((1, 1), (7, 7), (3, 9), (40, 40)):
            yield (f"dense {rows} of {keys} causal {causal}",
                   dense(rows, keys, 4, 2, 8, causal=causal), few)
    yield "dense with fewer keys", dense(6, 4, 2, 2, 8, causal=False)
    yield "dense batch", dense(5, 5, 4, 2, 8, "bf16", batch=3)
    yield "dense batch not causal", dense(4, 7, 2, 1, 16, batch=2, causal=False)
    yield "dense batch of one", dense(4, 4, 2, 2, 8, batch=1)
    yield "dense with a scale", dense(5, 5, 2, 2, 8, scale=0.05)
    for dtype in ("f16", "bf16", "e4m3", "e5m2"):
        yield f"dense {dtype}", dense(6, 6, 2, 1, 32, dtype)
    yield "packed projection", packed
