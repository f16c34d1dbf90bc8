"""What fuse folds, each also in a form in which it cannot, because a part is an output as well.

Both forms are compared with the same reference; its bounds allow for the roundings that a fused
form leaves out, but an 8-bit rounding that the model asks for is never left out.
"""
import numpy as np

from dtypes import encode, round_to


def norm_matmul(rows, returns_norm, dtype="bf16", eps=1e-5, k=64):
    def build(g):
        g.tensor("x", (rows, k), dtype)
        g.tensor("gain", (k,), dtype, role="weight")
        g.tensor("a", (40, k), dtype, role="weight", scale=0.2)
        g.tensor("b", (24, k), dtype, role="weight", scale=0.2)
        g.op("rmsnorm", x="x", weight="gain", eps=eps, out="h")
        g.op("matmul", x="h", w="a", transpose_w=True, dtype="f32", out="y")
        g.op("matmul", x="h", w="b", transpose_w=True, dtype="f32", out="z")
        g.returns("y", "z", *(["h"] if returns_norm else []))
    return build


def gated(rows, keep=(), dtype="bf16", norm=False, f=40, expr="silu(g) * u", bias=False):
    def build(g):
        g.tensor("x", (rows, 64), dtype)
        more = {"g": {}, "u": {}}
        for name in "gu":
            g.tensor("w" + name, (f, 64), dtype, role="weight", scale=0.2)
            if bias:
                more[name] = {"bias": g.tensor("b" + name, (f,), dtype)}
        x = "x"
        if norm:
            g.tensor("gain", (64,), dtype, role="weight")
            x = g.op("rmsnorm", x="x", weight="gain", out="h")
        for name in "gu":
            g.op("matmul", x=x, w="w" + name, transpose_w=True, **more[name], out=name)
        g.op("map", expr=expr, g="g", u="u", out="y")
        g.returns("y", *keep)
    return build


def half_normed(first_gain, second_gain, eps=(1e-5, 1e-5)):
    """Two matmuls of one x that must not share a pass: their norms differ."""
    def build(g):
        g.tensor("x", (3, 32), "f32")
        for name in ("p", "q"):
            g.tensor(name, (32,), "f32", role="weight")
        for name in "gu":
            g.tensor("w" + name, (32, 16), "f32", role="weight", scale=0.2)
        sources = []
        for name, gain, e in (("hg", first_gain, eps[0]), ("hu", second_gain, eps[1])):
            sources.append(g.op("rmsnorm", x="x", weight=gain, eps=e, out=name) if gain else "x")
        g.op("matmul", x=sources[0], w="wg", out="g")
        g.op("matmul", x=sources[1], w="wu", out="u")
        g.op("map", expr="g * u", g="g", u="u", out="y")
        g.returns("y")
        for name in ("p", "q"):
            if name not in (first_gain, second_gain):
                del g.decls[name], g.bits[name]
    return build


def different_pairs(kind):
    """Two matmuls that a map joins although they cannot be one."""
    def build(g):
        g.tensor("x", (8, 8), "f32")
        g.tensor("z", (8, 8), "f32")
        for name in "gu":
            g.tensor("w" + name, (8, 8), "f32", role="weight")
        second = {"x": {"x": "z"}, "transpose w": {"x": "x", "transpose_w": True},
                  "transpose x": {"x": "x", "transpose_x": True}, "alike": {"x": "x"}}[kind]
        if kind != "x":
            del g.decls["z"], g.bits["z"]
        g.op("matmul", x="x", w="wg", out="g")
        g.op("matmul", **second, w="wu", out="u")
        g.op("map", expr="g - 2 * u", g="g", u="u", out="y")
        g.returns("y")
    return build


def map_chain(length, keep=()):
    def build(g):
        g.tensor("x", (6, 20), "f32")
        g.tensor("b", (20,), "f32")
        at = "x"
        for i in range(length):
            expr = ("tanh(a) + b", "a * a - b", "a * 0.5 + b * b", "silu(a) + b")[i % 4]
            at = g.op("map", expr=expr, a=at, b="b", out=f"h{i}")
        g.returns(at, *keep)
    return build


def long_chain(terms, length):
    """Expressions that together are longer than one may be."""
    def build(g):
        g.tensor("x", (6, 20), "f32")
        at = "x"
        for i in range(length):
            expr = " + ".join(f"{0.01 * (t + 1):.2f} * a" for t in range(terms))
            at = g.op("map", expr=expr, a=at, out=f"h{i}")
        g.returns(at)
    return build


def many_inputs(g):
    """Two maps that take more inputs together than one can."""
    names = [g.tensor(f"t{i}", (4, 6), "f32") for i in range(12)]
    first = {n: n for n in names[:6]}
    g.op("map", expr=" + ".join(first), **first, out="h")
    second = {n: n for n in names[6:]}
    g.op("map", expr="h * (" + " + ".join(second) + ")", h="h", **second, out="y")
    g.returns("y")


def epilogue_many_inputs(g):
    names = [g.tensor(f"t{i}", (4, 6), "f32") for i in range(7)]
    g.tensor("x", (4, 8), "f32")
    g.tensor("w", (8, 6), "f32")
    g.tensor("bias", (6,), "f32")
    g.op("matmul", x="x", w="w", bias="bias", add="t0", out="h")
    inputs = {n: n for n in names}
    g.op("map", expr="h * (" + " + ".join(inputs) + ")", h="h", **inputs, out="y")
    g.returns("y")


def epilogue(expr, shapes, keep=(), twice=False):
    """A map after a matmul, with inputs that broadcast; `add` is one of them once more."""
    def build(g):
        g.tensor("x", (7, 40), "bf16")
        g.tensor("w", (40, 18), "bf16", role="weight", scale=0.2)
        inputs = {f"t{i}": g.tensor(f"t{i}", s, "f32") for i, s in enumerate(shapes)}
        more = {"add": "t0"} if twice else {}
        g.op("matmul", x="x", w="w", **more, dtype="f32", out="h")
        g.op("map", expr=expr, h="h", **inputs, out="y")
        g.returns("y", *keep)
    return build


def epilogue_widens(g):
    """The map's result is larger than the matmul's, so it stays a map."""
    g.tensor("x", (1, 40), "f32")
    g.tensor("w", (40, 18), "f32", role="weight")
    g.tensor("t", (5, 18), "f32")
    g.op("matmul", x="x", w="w", out="h")
    g.op("map", expr="h + t", h="h", t="t", out="y")
    g.returns("y")


def epilogue_batch(shape):
    def build(g):
        g.tensor("x", (2, 3, 5, 16), "f32")
        g.tensor("w", (16, 6), "f32", role="weight")
        g.tensor("t", shape, "f32")
        g.op("matmul", x="x", w="w", out="h")
        g.op("map", expr="h * t", h="h", t="t", out="y")
        g.returns("y")
    return build


def used_twice(g):
    """A matmul that a map reads under two names, and another one reads too."""
    g.tensor("x", (5, 24), "f32")
    g.tensor("w", (24, 10), "f32", role="weight")
    g.op("matmul", x="x", w="w", out="h")
    g.op("map", expr="a * b", a="h", b="h", out="y")
    g.op("map", expr="tanh(h)", h="h", out="z")
    g.returns("y", "z")


def norm_is_also(what):
    """The norm's result is x of a matmul and another operand of it, so it must exist."""
    def build(g):
        g.tensor("x", (8, 8), "f32")
        g.tensor("gain", (8,), "f32")
        g.op("rmsnorm", x="x", weight="gain", out="h")
        other = {"w": {"w": "h"}, "add": {"w": "x", "add": "h"}}[what]
        g.op("matmul", x="h", **other, out="y")
        g.returns("y")
    return build


def there_and_back(dtype):
    """quantize and dequantize one after the other: their rounding is the point."""
    def build(g):
        g.tensor("x", (5, 40), "f32", scale=300)
        g.tensor("s", (), "f32", values=0.5)
        g.op("quantize", x="x", scale="s", dtype=dtype, out="q")
        g.op("dequantize", x="q", scale="s", dtype="f32", out="y")
        g.returns("y")
        g.exact["y"] = encode(round_to(g.number("x").v / 0.5, dtype) * 0.5, "f32")
    return build


def eight_bit_between(first, dtype):
    """A map or matmul with an 8-bit result, then a map that would notice one rounding less."""
    def build(g):
        g.tensor("x", (8, 8), "f32", values=np.eye(8) if first == "matmul" else None)
        if first == "matmul":
            g.tensor("w", (8, 8), "f32", scale=300)
            g.op("matmul", x="x", w="w", dtype=dtype, out="h")
            source = g.number("w").v
        else:
            g.op("map", expr="x * 256", x="x", dtype=dtype, out="h")
            source = g.number("x").v * 256
        g.op("map", expr="h * 0.25", h="h", dtype="f32", out="y")
        g.returns("y")
        g.exact["y"] = encode(round_to(source, dtype) * 0.25, "f32")
    return build


def block(g):
    """A decoder block of 40 rows, as examples/llama_block.yaml, but in fp32: over so many operators
    the bounds of bf16 would allow anything."""
    rows, d, hd, f = 40, 32, 8, 48
    g.tensor("x", (rows, d), "f32")
    g.index("pos", np.arange(rows))
    for name in ("n1", "n2"):
        g.tensor(name, (d,), "f32", role="weight")
    for name, shape in (("wq", (d, d)), ("wk", (16, d)), ("wv", (16, d)), ("wo", (d, d)),
                        ("wg", (f, d)), ("wu", (f, d)), ("wd", (d, f))):
        g.tensor(name, shape, "f32", role="weight", scale=0.15)
    g.op("rmsnorm", x="x", weight="n1", out="h")
    for name in "qkv":
        g.op("matmul", x="h", w="w" + name, transpose_w=True, out=name)
    for name in "qk":
        g.op("rope", x=name, pos="pos", head_dim=hd, out=name)
    g.op("attention", q="q", k="k", v="v", head_dim=hd, out="a")
    g.op("matmul", x="a", w="wo", transpose_w=True, add="x", out="x2")
    g.op("rmsnorm", x="x2", weight="n2", out="h")
    g.op("matmul", x="h", w="wg", transpose_w=True, out="g")
    g.op("matmul", x="h", w="wu", transpose_w=True, out="u")
    g.op("map", expr="silu(g) * u", g="g", u="u", out="f")
    g.op("matmul", x="f", w="wd", transpose_w=True, add="x2", out="y")
    g.returns("y")


def cases():
    few = {"budgets": (None, 4)}
    for rows in (1, 3, 16, 17):
        yield f"norm into matmul, {rows} rows", norm_matmul(rows, False), few
        yield f"norm into matmul, {rows} rows, norm kept", norm_matmul(rows, True)
        yield f"gate and up, {rows} rows", gated(rows), few
        yield f"norm, gate and up, {rows} rows", gated(rows, norm=True)
    yield "norm into matmul f32", norm_matmul(2, False, "f32", 0.1)
    yield "norm into matmul f16", norm_matmul(2, False, "f16")
    yield "norm into matmul of long rows", norm_matmul(2, False, k=1000), {"budgets": (None, 4)}
    for keep in (("g",), ("u",), ("g", "u")):
        yield f"gate and up, {' and '.join(keep)} kept", gated(5, keep)
    yield "gate and up with bias", gated(5, bias=True)
    yield "gate and up in f32", gated(5, dtype="f32", f=17)
    yield "gate and up the other way", gated(5, expr="u * tanh(g) - g")
    yield "gate and up of many columns", gated(20, f=300), few
    yield "norm is also w", norm_is_also("w")
    yield "norm is also add", norm_is_also("add")
    yield "one normed, one not", half_normed("p", None)
    yield "the other normed", half_normed(None, "p")
    yield "normed by different gains", half_normed("p", "q")
    yield "normed with different eps", half_normed("p", "p", (1e-5, 1.0))
    yield "normed alike", half_normed("p", "p")
    for kind in ("x", "transpose w", "transpose x", "alike"):
        yield f"a pair of different {kind}", different_pairs(kind)
    yield "map chain", map_chain(4)
    yield "map chain, parts kept", map_chain(4, ("h0", "h2"))
    yield "chain of long expressions", long_chain(24, 3)
    yield "chain of longest expressions", long_chain(48, 4)
    yield "more inputs than one map takes", many_inputs
    yield "more inputs than an epilogue takes", epilogue_many_inputs
    for keep in ((), ("h",)):
        kept = ", h kept" if keep else ""
        yield f"epilogue{kept}", epilogue("gelu(h)", [], keep), few
        yield f"epilogue of broadcasts{kept}", epilogue("h * t0 + t1 - t2 * t3",
                                                        [(18,), (7, 1), (), (1, 1)], keep)
        yield f"epilogue sharing add{kept}", epilogue("h * t0", [(7, 18)], keep, True)
        yield f"epilogue sharing bias-like add{kept}", epilogue("h * t0", [(18,)], keep, True)
    yield "epilogue that widens", epilogue_widens
    for shape in ((6,), (5, 1), (3, 5, 6), (3, 1, 6), (2, 1, 5, 6), (2, 3, 1, 1), (2, 3, 5, 6)):
        yield f"epilogue of a batch with {shape}", epilogue_batch(shape)
    yield "a matmul used twice", used_twice
    for dtype in ("e4m3", "e5m2"):
        yield f"there and back in {dtype}", there_and_back(dtype)
        yield f"map in {dtype} between", eight_bit_between("map", dtype)
        yield f"matmul in {dtype} between", eight_bit_between("matmul", dtype)
    yield "decoder block", block, {"budgets": (None, 3)}
