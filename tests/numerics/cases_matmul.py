"""matmul: every dtype, transposes, batches, epilogue terms, ragged sizes, K in slices."""
import itertools

from dtypes import FLOATS

SMALL_UNITS = {"budgets": (None, 3)}
EIGHT = ("e4m3", "e5m2")


def shaped(g, name, shape, dtype, transposed, **more):
    shape = (*shape[:-2], shape[-1], shape[-2]) if transposed else tuple(shape)
    return g.tensor(name, shape, dtype, **more)


def product(m, n, k, dtype="f32", w_dtype=None, tx=False, tw=False, batch=(), shared=False,
            terms=(), out=None, weight_role="weight"):
    def build(g):
        shaped(g, "x", (*batch, m, k), dtype, tx)
        shaped(g, "w", (*(() if shared else batch), k, n), w_dtype or dtype, tw, role=weight_role)
        attributes = {"x": "x", "w": "w", "out": "y"}
        if tx:
            attributes["transpose_x"] = True
        if tw:
            attributes["transpose_w"] = True
        if out:
            attributes["dtype"] = out
        for term in terms:
            shape = {"bias": (n,), "add": (*batch, m, n)}.get(term, ())
            scale = 0.25 if "scale" in term else 2.0
            g.tensor(term, shape, "f32" if "scale" in term or dtype in EIGHT else dtype,
                     scale=scale)
            attributes[term] = term
        g.op("matmul", **attributes)
        g.returns("y")
    return build


def add_broadcast(*shape):
    def build(g):
        g.tensor("x", (2, 3, 5, 16), "bf16")
        g.tensor("w", (16, 6), "bf16", role="weight")
        g.tensor("a", shape, "f32")
        g.op("matmul", x="x", w="w", add="a", dtype="f32", out="y")
        g.returns("y")
    return build


def wide_scales(g):
    for name, shape in (("xs", (1, 1, 1)), ("ws", (1,))):
        g.tensor(name, shape, "f32")
    g.tensor("x", (5, 32), "e4m3")
    g.tensor("w", (32, 7), "e4m3")
    g.op("matmul", x="x", w="w", x_scale="xs", w_scale="ws", out="y")
    g.returns("y")


def same_scale(g):
    g.tensor("s", (), "f32")
    g.tensor("x", (5, 32), "e5m2")
    g.tensor("w", (32, 7), "e4m3")
    g.op("matmul", x="x", w="w", x_scale="s", w_scale="s", dtype="f32", out="y")
    g.returns("y")


def square_of_itself(g):
    g.tensor("x", (24, 24), "bf16")
    g.op("matmul", x="x", w="x", transpose_w=True, add="x", out="y")
    g.returns("y")


def chain(g):
    """Tiles of the second wait for tiles of the first."""
    g.tensor("x", (70, 130), "bf16")
    g.tensor("a", (130, 90), "bf16", role="weight", scale=0.1)
    g.tensor("b", (90, 50), "bf16", role="weight", scale=0.1)
    g.op("matmul", x="x", w="a", out="h")
    g.op("matmul", x="h", w="b", out="y")
    g.returns("y")


def split_between(g):
    """K is split, its result written into half of a concat, and read as it was rounded."""
    g.tensor("x", (70, 4096), "bf16")
    g.tensor("w", (72, 4096), "bf16", role="weight", scale=0.02)
    g.tensor("a", (70, 72), "f32")
    g.tensor("s", (), "f32", values=0.5)
    g.op("matmul", x="x", w="w", transpose_w=True, out="h")
    g.op("map", expr="silu(h) + a * s", h="h", a="a", s="s", out="f")
    g.op("concat", inputs=["f", "h"], axis=1, out="both")
    g.op("softmax", x="f", out="p")
    g.returns("h", "both", "p")


def cases():
    for dtype in FLOATS:
        yield f"{dtype}", product(33, 47, 80, dtype), SMALL_UNITS
        for tx, tw in itertools.product((False, True), repeat=2):
            yield f"{dtype} transposed {tx} {tw}", product(9, 21, 40, dtype, tx=tx, tw=tw)
        for out in FLOATS:
            yield f"{dtype} to {out}", product(5, 18, 24, dtype, out=out)
    for x, w in (("e4m3", "e5m2"), ("e5m2", "e4m3")):
        yield f"{x} {w}", product(17, 33, 65, x, w, tw=True), SMALL_UNITS
    for m, n, k in itertools.product((1, 3, 17), (1, 15, 130), (1, 63, 64, 129)):
        yield f"{m}x{n}x{k}", product(m, n, k, "bf16", tw=k % 2 == 1)
    terms = ("bias", "add", "x_scale", "w_scale")
    for count in range(1, 5):
        for some in itertools.combinations(terms, count):
            yield "with " + ", ".join(some), product(6, 20, 32, "e4m3", "e4m3", terms=some)
    for dtype in ("f32", "f16", "bf16"):
        yield f"bias and add {dtype}", product(19, 35, 64, dtype, terms=("bias", "add"))
    for batch in ((3,), (1,), (2, 3), (2, 1)):
        for tx, tw in itertools.product((False, True), repeat=2):
            yield f"batch {batch} {tx} {tw}", product(5, 7, 33, "bf16", tx=tx, tw=tw, batch=batch)
            yield (f"batch {batch} one w {tx} {tw}",
                   product(5, 7, 33, "f16", tx=tx, tw=tw, batch=batch, shared=True))
        yield f"batch {batch} terms", product(4, 9, 20, "f32", batch=batch, terms=("bias", "add"))
        yield (f"batch {batch} one w terms",
               product(4, 9, 20, "f32", batch=batch, shared=True, terms=("bias", "add")))
    for shape in ((6,), (5, 6), (3, 5, 6), (2, 3, 5, 6), (3, 1, 6), (5, 1), (1, 1, 1, 1)):
        yield f"add of shape {shape}", add_broadcast(*shape)
    for dtype in FLOATS:
        yield (f"sliced K {dtype}", product(20, 24, 1500, dtype, tw=True, terms=("bias",)),
               {"budgets": (None, 5, 3)})
    yield "sliced K ragged", product(3, 5, 2049, "bf16", tw=False), {"budgets": (None, 3)}
    yield "sliced K with batch", product(18, 20, 700, "f32", batch=(2,)), {"budgets": (3,)}
    yield "sliced by K alone", product(4, 16, 4096, "e4m3", tw=True), {"budgets": (3,)}
    # Few tiles and a long K: passes/split.c cuts it.
    for dtype, k in (("f32", 2048), ("bf16", 8192), ("f16", 4224), ("e4m3", 10880), ("e5m2", 8192)):
        yield (f"split K {dtype}", product(70, 72, k, dtype, tw=True, terms=("bias", "add")),
               {"budgets": (None, 5)})
    for tx, tw in itertools.product((False, True), repeat=2):
        yield f"split K transposed {tx} {tw}", product(70, 72, 2048, tx=tx, tw=tw)
    yield ("split K to e4m3", product(130, 67, 16384, "e4m3", "e5m2", tw=True, out="e4m3",
                                      terms=("x_scale", "w_scale")))
    yield "split K between operators", split_between
    yield "many tiles", product(150, 300, 96, "bf16", tw=True, terms=("add",)), SMALL_UNITS
    yield "an input as w", product(8, 8, 16, "bf16", weight_role="input")
    yield "scale of rank 3", wide_scales
    yield "one scale for both", same_scale
    yield "x is also w and add", square_of_itself
    yield "chain", chain, SMALL_UNITS
