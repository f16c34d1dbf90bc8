"""transpose, reshape, concat, slice: which move nothing unless they must, and what is returned.

Values that are only moved must arrive exactly, whatever stands in between.
"""
import itertools

import numpy as np

BIG = (1 << 24) + 1  # no float has it


def moved(dtype, of, op, exact, **attributes):
    """One operator that moves elements of an input; `exact` does the same to an array."""
    def build(g):
        values = g.rng.integers(-BIG, BIG, of) if dtype == "i32" else g.rng.normal(size=of)
        g.tensor("x", of, dtype, values=values)
        g.op(op, x="x", **attributes, out="y")
        g.returns("y")
        g.exact["y"] = exact(g.bits["x"])
    return build


def permuted(dtype, shape, perm):
    return moved(dtype, shape, "transpose", lambda a: np.transpose(a, perm), perm=list(perm))


def reshaped(dtype, shape, to):
    return moved(dtype, shape, "reshape", lambda a: a.reshape(to), shape=list(to))


def sliced(dtype, shape, text, index):
    return moved(dtype, shape, "slice", lambda a: a[index], ranges=text)


def computed(shape, views, then=None):
    """A result of map goes through views; then maybe into another map."""
    def build(g):
        g.tensor("x", shape, "bf16")
        at = g.op("map", expr="x * 2 + 1", x="x", out="h")
        for number, (op, attributes) in enumerate(views):
            at = g.op(op, x=at, **attributes, out=f"v{number}")
        if then:
            at = g.op("map", expr="v * v", v=at, dtype=then, out="y")
        g.returns(at)
    return build


def through(op, dtype="f32"):
    """A transposed and sliced view as operand of an operator that wants rows."""
    def build(g):
        g.tensor("x", (4, 6, 10), dtype)
        if op == "rmsnorm":
            g.tensor("w", (6,), dtype)
        g.op("transpose", x="x", perm=[2, 0, 1], out="t")
        g.op("slice", x="t", ranges="[1:9, :3, :]", out="s")
        more = {"weight": "w"} if op == "rmsnorm" else {}
        g.op(op, x="s", **more, out="y")
        g.returns("y")
    return build


def matmul_of_views(g):
    """Heads moved in front of rows by a transpose, as attention by hand does."""
    g.tensor("x", (2, 5, 3, 8), "f32")
    g.tensor("z", (2, 7, 3, 8), "f32")
    g.op("transpose", x="x", perm=[0, 2, 1, 3], out="a")
    g.op("transpose", x="z", perm=[0, 2, 3, 1], out="b")
    g.op("matmul", x="a", w="b", out="s")
    g.op("softmax", x="s", out="p")
    g.op("transpose", x="p", perm=[0, 2, 1, 3], out="y")
    g.returns("y")


def matmul_shared_of_views(g):
    g.tensor("x", (2, 5, 3, 8), "f32")
    g.tensor("w", (8, 12), "f32", role="weight")
    g.op("transpose", x="x", perm=[2, 0, 1, 3], out="a")
    g.op("matmul", x="a[:, :, 1:4, :]", w="w[:, 2:9]", out="y")
    g.returns("y")


PRODUCERS = {
    "map": {"expr": "a + b", "a": "x", "b": "x"},
    "softmax": {"x": "x"},
    "rmsnorm": {"x": "x", "weight": "gain"},
    "matmul": {"x": "x", "w": "square"},
    "quantize": {"x": "x", "scale": "one", "dtype": "e4m3"},
    "argmax": {"x": "x4"},
}


def joined(producer, rank, axis, also_output=False):
    """Two results and an input side by side; results should be written where they belong."""
    def build(g):
        shape = (2, 3, 4, 6)[4 - rank:]
        g.tensor("x", shape, "f32")
        g.tensor("x4", (*shape, 5), "f32")
        g.tensor("gain", (6,), "f32")
        g.tensor("square", (6, 6), "f32")
        g.tensor("one", (), "f32", values=1.0)
        dtype = {"quantize": "e4m3", "argmax": "i32"}.get(producer, "f32")
        g.tensor("z", shape, dtype, values=np.arange(np.prod(shape)).reshape(shape) % 7)
        used = set(PRODUCERS[producer].values())
        for name in ("x", "x4", "gain", "square", "one"):  # unused tensors are errors
            if name not in used:
                del g.decls[name], g.bits[name]
        g.op(producer, **PRODUCERS[producer], out="a")
        g.op(producer, **PRODUCERS[producer], out="b")
        g.op("concat", inputs=["a", "z", "b"], axis=axis, out="y")
        g.returns("y", *(["a"] if also_output else []))
    return build


def joined_inputs(dtype, shapes, axis):
    def build(g):
        names = []
        for i, shape in enumerate(shapes):
            values = g.rng.integers(-BIG, BIG, shape) if dtype == "i32" else None
            names.append(g.tensor(f"t{i}", shape, dtype, values=values))
        g.op("concat", inputs=names, axis=axis, out="y")
        g.returns("y")
        g.exact["y"] = np.concatenate([g.bits[n] for n in names], axis)
    return build


def joined_attention(axis):
    def build(g):
        for name in "qkv":
            g.tensor(name, (2, 5, 8), "f32")
        for name in "ab":
            g.op("attention", q="q", k="k", v="v", head_dim=4, causal=name == "a", out=name)
        g.op("concat", inputs=["a", "b"], axis=axis, out="y")
        g.returns("y")
    return build


def joined_rope_and_embedding(axis):
    def build(g):
        g.tensor("t", (9, 8), "f32")
        g.index("ids", [3, 0, 8])
        g.index("pos", [0, 4, -1])
        g.op("embedding", ids="ids", table="t", out="e")
        g.op("rope", x="e", pos="pos", head_dim=4, out="r")
        g.op("concat", inputs=["e", "r", "e"], axis=axis, out="y")
        g.returns("y")
    return build


def nested(outer, inner):
    def build(g):
        g.tensor("x", (3, 4, 6), "f32")
        for name in "abcd":
            g.op("map", expr=f"x + {ord(name)}", x="x", out=name)
        g.op("concat", inputs=["a", "b"], axis=inner, out="ab")
        g.op("concat", inputs=["c", "d"], axis=inner, out="cd")
        g.op("concat", inputs=["ab", "cd", "ab"], axis=outer, out="y")
        g.returns("y")
    return build


def part_read_back(g):
    """A part of a concat is also an operand, before and after."""
    g.tensor("x", (4, 6), "f32")
    g.op("map", expr="x * 3", x="x", out="a")
    g.op("map", expr="a + x", a="a", x="x", out="b")
    g.op("concat", inputs=["a", "b"], axis=1, out="c")
    g.op("map", expr="c * a", c="c[:, 3:9]", a="a", out="y")
    g.returns("y")


def concat_of_parts_of_itself(g):
    g.tensor("x", (4, 6), "f32")
    g.op("map", expr="x * 3", x="x", out="a")
    g.op("concat", inputs=["a[:, 3:]", "a[:, :3]", "a[:, 2:4]"], axis=1, out="y")
    g.returns("y")


def returned_input(g):
    g.tensor("x", (4, 6), "bf16")
    g.op("reshape", x="x", shape=[24], out="y")
    g.op("slice", x="x", ranges="[1:3, :]", out="z")
    g.returns("y", "z")
    g.exact = {"y": g.bits["x"].reshape(24), "z": g.bits["x"][1:3]}


def returned_views(g):
    g.tensor("x", (4, 6), "f32")
    g.op("map", expr="exp(x)", x="x", out="h")
    g.op("transpose", x="h", perm=[1, 0], out="t")
    g.op("slice", x="h", ranges="[:, 1:2]", out="s")
    g.returns("h", "t", "s")


def returned_twice(g):
    g.tensor("x", (4, 6), "f32")
    g.op("map", expr="exp(x)", x="x", out="h")
    g.op("reshape", x="h", shape=[4, 6], out="a")
    g.op("reshape", x="h", shape=[4, 6], out="b")
    g.op("slice", x="b", ranges="[:, :]", out="c")
    g.returns("a", "b", "c", "h")


def returned_and_used(g):
    g.tensor("x", (40, 60), "f32")
    g.op("softmax", x="x", out="a")
    g.op("map", expr="a - x", a="a", x="x", out="b")
    g.tensor("gain", (60,), "f32")
    g.op("rmsnorm", x="b", weight="gain", out="c")
    g.returns("a", "b", "c")


def reassigned(g):
    g.tensor("x", (4, 6), "f32")
    g.op("map", expr="x + 1", x="x", out="h")
    g.op("map", expr="h * x", h="h", x="x", out="k")
    g.op("map", expr="h * 2", h="h", out="h")
    g.op("transpose", x="h", perm=[1, 0], out="h")
    g.op("matmul", x="k", w="h", out="h")
    g.returns("h", "k")


def index_views(g):
    """Slices of one i32 tensor as ids and positions."""
    g.tensor("t", (9, 8), "f32")
    g.index("n", [[7, 0], [2, 5], [8, 3], [1, 1]])
    g.op("transpose", x="n", perm=[1, 0], out="m")
    g.op("reshape", x="m", shape=[8], out="f")
    g.op("embedding", ids="f[1:4]", table="t", out="e")
    g.op("rope", x="e", pos="f[5:]", head_dim=4, out="y")
    g.returns("y")


def bias_view(g):
    g.tensor("x", (5, 8), "f32")
    g.tensor("w", (12, 8), "f32")
    g.tensor("b", (3, 20), "f32")
    g.op("slice", x="b", ranges="[1:2, 4:16]", out="s")
    g.op("reshape", x="s", shape=[12], out="r")
    g.op("matmul", x="x", w="w", transpose_w=True, bias="r", out="y")
    g.returns("y")


def scalars(g):
    g.tensor("x", (), "f32")
    g.op("map", expr="x + 1", x="x", out="a")
    g.op("reshape", x="a", shape=[1, 1], out="b")
    g.op("reshape", x="b", shape=[], out="y")
    g.returns("y")


def cases():
    for shape in ((4, 5), (2, 3, 4), (2, 3, 4, 5)):
        for perm in itertools.permutations(range(len(shape))):
            if len(shape) < 4 or perm[0] != 0 or perm[1] == 2:
                yield f"transpose {shape} by {perm}", permuted("bf16", shape, perm)
    yield "transpose of rank 6 that merges", permuted("f32", (2, 3, 2, 2, 3, 2), (2, 3, 0, 1, 4, 5))
    yield "transpose of rank 5 that merges", permuted("f32", (2, 3, 4, 2, 3), (0, 3, 4, 1, 2))
    yield "transpose of ones", permuted("f32", (1, 3, 1, 2, 1, 4), (5, 4, 3, 2, 1, 0))
    for dtype in ("f32", "f16", "e4m3", "i32"):
        yield f"transpose {dtype}", permuted(dtype, (33, 50), (1, 0))
        yield f"reshape {dtype}", reshaped(dtype, (6, 10), (3, 4, 5))
        yield f"slice {dtype}", sliced(dtype, (6, 10), "[1:5, 3:]", np.s_[1:5, 3:])
        yield f"concat {dtype}", joined_inputs(dtype, [(3, 4), (3, 1), (3, 7)], 1)
    for text, index in (("[:]", np.s_[:]), ("[2:3]", np.s_[2:3]), ("[:4]", np.s_[:4])):
        yield f"slice vector {text}", sliced("bf16", (7,), text, index)
    yield "slice of rank 6", sliced("f32", (2, 3, 2, 2, 3, 2), "[1:, :, :, :, 1:2, :]",
                                    np.s_[1:, :, :, :, 1:2, :])
    yield "slice of rank 4", sliced("f32", (4, 5, 6, 7), "[1:3, 2:, :5, 3:4]",
                                    np.s_[1:3, 2:, :5, 3:4])
    for shape, axes in (((2, 5), (0, 1, -1)), ((2, 3, 4), (0, 1, 2, -2)), ((2, 2, 3, 2), range(4)),
                        ((2, 1, 2, 3, 2), (1, 3)), ((4,), (0,))):
        for axis in axes:
            yield f"concat {shape} along {axis}", joined_inputs("bf16", [shape] * 3, axis)
    yield "concat of one", joined_inputs("f32", [(3, 4)], 0)
    yield "concat of eight", joined_inputs("f32", [(3, i + 1) for i in range(8)], -1)
    for producer in PRODUCERS:
        for rank in (1, 2, 3, 4):
            if (producer, rank) in (("matmul", 1), ("argmax", 4)):
                continue
            for axis in range(rank):
                yield f"concat of {producer} rank {rank} along {axis}", joined(producer, rank, axis)
    yield "concat of a result that is an output", joined("softmax", 2, 1, True)
    for axis in (0, 1, 2):
        yield f"concat of attention along {axis}", joined_attention(axis)
    for axis in (0, 1):
        yield f"concat of rope and embedding along {axis}", joined_rope_and_embedding(axis)
    for outer, inner in itertools.product(range(3), repeat=2):
        yield f"concat {outer} of concat {inner}", nested(outer, inner)
    yield "a part read back", part_read_back
    yield "concat of parts of one", concat_of_parts_of_itself
    for op in ("softmax", "rmsnorm", "argmax"):
        yield f"{op} of a view", through(op)
    yield "views of a result", computed((4, 6), [("transpose", {"perm": [1, 0]}),
                                                 ("reshape", {"shape": [8, 3]}),
                                                 ("slice", {"ranges": "[2:7, 1:]"})])
    yield "map of views of a result", computed((4, 6), [("transpose", {"perm": [1, 0]}),
                                                        ("reshape", {"shape": [2, 2, 6]})], "f32")
    yield "reshape of a slice", computed((6, 8), [("slice", {"ranges": "[:, 2:5]"}),
                                                  ("reshape", {"shape": [9, 2]})], "f32")
    yield "reshape of a column", computed((6, 8), [("slice", {"ranges": "[:, 2:3]"}),
                                                   ("reshape", {"shape": [2, 3]})], "f32")
    yield "reshape of every other matrix", computed((4, 2, 5, 3), [
        ("slice", {"ranges": "[:, 1:, :, :]"}), ("reshape", {"shape": [4, 15]}),
        ("slice", {"ranges": "[:, 4:5]"}), ("reshape", {"shape": [1, 2, 2]})], "f32")
    yield "reshape of rows", computed((6, 8), [("slice", {"ranges": "[2:5, :]"}),
                                               ("reshape", {"shape": [24]})], "f32")
    yield "matmul of views", matmul_of_views
    yield "matmul of views and one w", matmul_shared_of_views
    yield "returned inputs", returned_input
    yield "returned views", returned_views
    yield "returned twice", returned_twice
    yield "returned and used", returned_and_used, {"budgets": (None, 3)}
    yield "names given again", reassigned
    yield "views of indices", index_views
    yield "bias is a view", bias_view
    yield "scalars", scalars
