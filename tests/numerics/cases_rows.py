"""embedding, rmsnorm, softmax, argmax and rope."""
import numpy as np

from dtypes import FLOATS, encode


def embedding(dtype, out, role="weight"):
    def build(g):
        g.tensor("t", (40, 27), dtype, role=role)
        g.index("ids", g.rng.integers(0, 40, 11))
        more = {"dtype": out} if out else {}
        g.op("embedding", ids="ids", table="t", **more, out="y")
        g.returns("y")
    return build


def embedding_ends(g):
    g.tensor("t", (300, 700), "bf16", role="weight")
    g.index("ids", [0, 299, 0, 5, 299])
    g.op("embedding", ids="ids", table="t", out="y")
    g.returns("y")


def rmsnorm(shape, dtype, eps=None, out=None, weight="f32", scale=1.0):
    def build(g):
        g.tensor("x", shape, dtype, scale=scale)
        g.tensor("w", shape[-1:], weight, role="weight")
        more = {"eps": eps} if eps is not None else {}
        if out:
            more["dtype"] = out
        g.op("rmsnorm", x="x", weight="w", **more, out="y")
        g.returns("y")
    return build


def softmax(shape, dtype, out=None, scale=2.0):
    def build(g):
        g.tensor("x", shape, dtype, scale=scale)
        g.op("softmax", x="x", **({"dtype": out} if out else {}), out="y")
        g.returns("y")
    return build


def argmax(shape, dtype, scale=1.0):
    def build(g):
        g.tensor("x", shape, dtype, scale=scale)
        g.op("argmax", x="x", out="y")
        g.returns("y")
    return build


def argmax_rows(rows, want):
    def build(g):
        g.tensor("x", np.shape(rows), values=rows)
        g.op("argmax", x="x", out="y")
        g.returns("y")
        g.exact["y"] = encode(np.array(want), "i32")
    return build


def rope(dtype="f32", head_dim=16, heads=3, pos=(0, 1, 7, 100), **attributes):
    def build(g):
        g.tensor("x", (len(pos), heads * head_dim), dtype)
        g.index("pos", pos)
        g.op("rope", x="x", pos="pos", head_dim=head_dim, **attributes, out="y")
        g.returns("y")
    return build


LLAMA3 = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 8192}


def cases():
    for dtype in FLOATS:
        yield f"embedding {dtype}", embedding(dtype, None)
        yield f"embedding {dtype} to f32", embedding(dtype, "f32", "input")
        yield f"embedding f32 to {dtype}", embedding("f32", dtype)
        yield f"rmsnorm {dtype}", rmsnorm((5, 48), dtype, weight=dtype)
        yield f"rmsnorm {dtype} to bf16", rmsnorm((5, 48), dtype, out="bf16")
        yield f"softmax {dtype}", softmax((5, 33), dtype)
        yield f"argmax {dtype}", argmax((9, 50), dtype)
        yield f"rope {dtype}", rope(dtype)
    yield "embedding of first and last rows", embedding_ends, {"budgets": (None, 3)}
    for shape in ((1,), (64,), (1, 1), (3, 7), (2, 3, 40), (2, 2, 3, 8), (400, 17), (2, 3000)):
        yield f"rmsnorm {shape}", rmsnorm(shape, "bf16"), {"budgets": (None, 4)}
        yield f"softmax {shape}", softmax(shape, "f32"), {"budgets": (None, 4)}
        yield f"argmax {shape}", argmax(shape, "f32"), {"budgets": (None, 4)}
    for eps in (0, 1e-6, 0.5, 10):
        yield f"rmsnorm eps {eps}", rmsnorm((4, 32), "f32", eps=eps)
    yield "rmsnorm of small numbers", rmsnorm((4, 32), "f32", eps=1e-5, scale=1e-4)
    yield "softmax to bf16", softmax((4, 30), "f32", "bf16")
    yield "softmax of large numbers", softmax((4, 30), "f32", scale=500)
    for n in (40000, 40003):
        yield f"argmax of {n}", argmax((2, n), "e4m3")
        yield f"argmax of {n} equals", argmax_rows([[5] * n, [1] + [5] * (n - 1)], [0, 1])
    yield "argmax of ties", argmax_rows([[1, 3, 3, 2], [5, 5, 5, 5], [-1, -2, -1, -3]], [1, 0, 0])
    yield "argmax of negatives", argmax_rows([[-5, -4, -9], [-1e30, -2e30, -3e38]], [1, 0])
    yield "argmax of zeros", argmax_rows([[-0.0, 0.0], [0.0, -0.0]], [0, 0])
    yield ("argmax of infinities and NaN",
           argmax_rows([[np.nan, 1, 2], [np.inf, np.nan, np.inf], [-np.inf, -np.inf, np.nan],
                        [3, np.nan, np.nan]], [2, 0, 0, 0]))
    yield "argmax of a vector", argmax_rows([1, 4, 2], 1)
    for pairing in ("half", "interleaved"):
        yield f"rope {pairing}", rope("f32", pairing=pairing, theta=500000)
        yield f"rope {pairing} linear", rope("bf16", pairing=pairing,
                                             scaling={"type": "linear", "factor": 4})
        yield (f"rope {pairing} llama3",
               rope("f32", 64, 2, (3, 2000, 8000), pairing=pairing, theta=500000, scaling=LLAMA3))
        yield f"rope {pairing} unused rows", rope("f32", pairing=pairing, pos=(-1, 5, -7, 0))
    yield "rope llama3 defaults", rope("f32", 32, 1, scaling={"type": "llama3", "factor": 8})
    yield "rope long form", rope("f32", 32, 1, scaling_type="linear", scaling_factor=2.5)
    yield "rope of two", rope("f32", 2, 5)
    yield "rope of many", rope("bf16", 64, 9, tuple(range(70))), {"budgets": (None, 3)}
