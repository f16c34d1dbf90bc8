"""map with each function, cast and broadcast; quantize and dequantize, exactly."""
import numpy as np

from dtypes import FLOATS, decode, encode

POSITIVE = {"log", "sqrt", "rsqrt"}
SMALL = ("f32", "f16", "bf16", "e4m3", "e5m2")
EXPRESSIONS = [
    "exp(x)", "log(x)", "sqrt(x)", "rsqrt(x)", "abs(x)", "tanh(x)", "erf(x)", "sigmoid(x)",
    "silu(x)", "gelu(x)", "gelu_tanh(x)", "-x", "x", "x * x - 2", "1 / (x + 9)", "x / 3 + 0.1",
    "max(x, 0.25)", "min(x, -0.5)", "max(min(x, 1), -1)", "bf16(x * 1.01)", "f16(x) - x",
    "e4m3(x) * 2", "e5m2(x) + e4m3(x)", "-(x + 1) * -x", "2.5e-1 * x",
]
# Values at the edges of every format, and ties.
EDGES = np.array([0.0, -0.0, 1, -1, 447, 448, 449, 464, 480, 1e5, -1e5, 57344, 61440, 65504, 65519,
                  65520, 1e30, 3.4e38, 2.0 ** -7, 2.0 ** -9, 2.0 ** -10, 3 * 2.0 ** -10, 2.0 ** -17,
                  3 * 2.0 ** -17, 2.0 ** -24, 2.0 ** -25, 2.0 ** -26, 1e-40, -1e-40, 17, 19, 257,
                  259, 1.0 + 2.0 ** -8, 1.0 + 3 * 2.0 ** -8, 2049, 2051, np.inf, -np.inf, np.nan])


def one(expr):
    def build(g):
        values = g.rng.normal(size=(5, 37)) * 3
        g.tensor("x", (5, 37), values=np.abs(values) + 0.1 if expr.split("(")[0] in POSITIVE
                 else values)
        g.op("map", expr=expr, x="x", out="y")
        g.returns("y")
    return build


def far(expr):
    """Where exp overflows or vanishes, logistic functions must not."""
    def build(g):
        g.tensor("x", (8,), values=[-200, -104, -89, -88, 88, 89, 104, 200])
        g.op("map", expr=expr, x="x", out="y")
        g.returns("y")
    return build


def cast(source, target):
    """An exact conversion; from fp32 also of the edges."""
    def build(g):
        values = np.concatenate([g.rng.normal(size=400) * np.exp2(g.rng.uniform(-30, 20, 400)),
                                 EDGES])
        g.tensor("x", values.shape, source, values=values)
        g.op("map", expr="x", x="x", dtype=target, out="y")
        g.returns("y")
        g.exact["y"] = encode(decode(g.bits["x"], source), target)
    return build


def inner_cast(target):
    def build(g):
        values = np.concatenate([g.rng.normal(size=300) * 100, EDGES])
        g.tensor("x", values.shape, values=values)
        g.op("map", expr=f"{target}(x)", x="x", out="y")
        g.returns("y")
        g.exact["y"] = encode(decode(encode(decode(g.bits["x"], "f32"), target), target), "f32")
    return build


def broadcast(*shapes):
    def build(g):
        names = [g.tensor(f"t{i}", s, SMALL[i % 3]) for i, s in enumerate(shapes)]
        terms = " + ".join(f"{i + 1} * {n}" for i, n in enumerate(names))
        g.op("map", expr=terms, **{n: n for n in names}, dtype="f32", out="y")
        g.returns("y")
    return build


def eight_inputs(g):
    names = [g.tensor(f"t{i}", (3, 20), SMALL[i % 5]) for i in range(8)]
    g.op("map", expr="t0 * t1 + t2 * t3 - t4 * t5 + t6 / (abs(t7) + 1)",
         **{n: n for n in names}, dtype="f32", out="y")
    g.returns("y")


def twice(g):
    g.tensor("x", (4, 9), "bf16")
    g.op("map", expr="a * b + a", a="x", b="x", dtype="f32", out="y")
    g.returns("y")


def from_integers(g):
    g.index("n", [-5, 0, 7, 1 << 20])
    g.op("map", expr="n * 0.5", n="n", out="y")
    g.returns("y")
    g.exact["y"] = encode(np.array([-2.5, 0, 3.5, 1 << 19]), "f32")


def nan_in_max(g):
    """max and min give the other operand when one is NaN."""
    g.tensor("x", (4,), values=[np.nan, 1, np.nan, -2])
    g.tensor("y", (4,), values=[2, np.nan, np.nan, 3])
    for f in ("max", "min"):
        g.op("map", expr=f"{f}(x, y)", x="x", y="y", out=f)
    g.returns("max", "min")
    g.exact["max"] = encode(np.array([2, 1, np.nan, 3]), "f32")
    g.exact["min"] = encode(np.array([2, 1, np.nan, -2]), "f32")


def quantise(dtype, shape, scale_shape=()):
    def build(g):
        g.tensor("x", shape, "f32", scale=200)
        g.tensor("s", scale_shape, "f32", values=np.float32(0.37))
        g.op("quantize", x="x", scale="s", dtype=dtype, out="y")
        g.returns("y")
        x, s = (decode(g.bits[n], "f32").astype(np.float32) for n in "xs")
        g.exact["y"] = encode((x / s.reshape(())).astype(np.float64), dtype)
    return build


def dequantise(source, dtype, scale_shape=()):
    def build(g):
        g.tensor("x", (3, 50), source, scale=20)
        g.tensor("s", scale_shape, "f32", values=np.float32(1.7))
        g.op("dequantize", x="x", scale="s", dtype=dtype, out="y")
        g.returns("y")
        x, s = decode(g.bits["x"], source).astype(np.float32), np.float32(1.7)
        g.exact["y"] = encode((x * s).astype(np.float64), dtype)
    return build


def large(g):
    g.tensor("x", (300, 700), "bf16")
    g.tensor("b", (700,), "f32")
    g.op("map", expr="silu(x) + b", x="x", b="b", out="y")
    g.returns("y")


def cases():
    for expr in EXPRESSIONS:
        yield f"map {expr}", one(expr)
    for expr in ("sigmoid(x)", "silu(x)", "tanh(x)", "gelu(x)", "gelu_tanh(x)"):
        yield f"far {expr}", far(expr)
    for source in FLOATS:
        for target in FLOATS:
            yield f"cast {source} to {target}", cast(source, target)
        yield f"inner cast {source}", inner_cast(source) if source != "f32" else one("x + 0")
    for shapes in ([(4, 5), (5,)], [(4, 5), ()], [(), (4, 5)], [(4, 1), (1, 5)], [(5,), (4, 1)],
                   [(2, 3, 4), (3, 1), (4,)], [(2, 1, 4, 1), (3, 1, 5)], [(2, 3, 4, 5), (3, 1, 1)],
                   [(2, 3, 4, 5), (2, 1, 1, 5), (4, 5)], [(1,), ()], [(), ()], [(1, 1, 1), (1,)],
                   [(7,), (1, 7), (1, 1, 7)], [(2, 1, 3, 1, 1), (4, 1)], [(2, 2, 2, 2, 2, 2), (2,)],
                   [(3, 1, 1, 4, 2), (1, 1, 1, 4, 2)]):
        yield "broadcast " + " ".join(map(str, shapes)), broadcast(*shapes)
    yield "eight inputs", eight_inputs
    yield "one tensor twice", twice
    yield "from integers", from_integers
    yield "NaN in max and min", nan_in_max
    for dtype in ("e4m3", "e5m2"):
        yield f"quantize {dtype}", quantise(dtype, (7, 33))
        yield f"quantize {dtype} rank 1", quantise(dtype, (33,), (1,))
        for out in ("f32", "f16", "bf16"):
            yield f"dequantize {dtype} to {out}", dequantise(dtype, out)
    yield "quantize scale of rank 2 for rank 1", quantise("e4m3", (33,), (1, 1))
    yield "quantize scale of rank 3 for rank 2", quantise("e4m3", (5, 33), (1, 1, 1))
    yield "dequantize scale of rank 3", dequantise("e4m3", "f32", (1, 1, 1))
    yield "large", large, {"budgets": (None, 3)}
