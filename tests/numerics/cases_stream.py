"""Few rows of x against weights that are read once, as a decoder has them: device/matmul_stream.cuh.

K and N end within pieces, stages and tiles; long rows are longer than a stage.
"""


def product(rows, k, n, dtype="bf16", out="f32", norm=None, **more):
    """One matmul; norm: the format of what is normalised first."""
    def build(g):
        g.tensor("x", (rows, k), norm or dtype)
        g.tensor("w", (n, k), dtype, role="weight", scale=0.1)
        x = "x"
        if norm:
            g.tensor("gain", (k,), dtype, role="weight")
            x = g.op("rmsnorm", x="x", weight="gain", dtype=dtype, out="h")
        extra = {"add": g.tensor("rest", (rows, n), "f32")} if more.get("add") else {}
        g.op("matmul", x=x, w="w", transpose_w=True, dtype=out, **extra, out="y")
        g.returns("y")
    return build


def gate_and_up(rows, k, n):
    """Two matrices in one operator, row by row in turn."""
    def build(g):
        g.tensor("x", (rows, k), "bf16")
        for name in ("gate", "up"):
            g.tensor("w_" + name, (n, k), "bf16", role="weight", scale=0.1)
            g.op("matmul", x="x", w="w_" + name, transpose_w=True, out=name)
        g.op("map", expr="silu(a) * b", a="gate", b="up", out="y")
        g.returns("y")
    return build


def one_x_two_ways(g):
    """The same bytes of x as rows of two lengths, and with two norms: what one SM has of it is of no use
    for the next."""
    g.tensor("x", (4, 512), "bf16")
    g.tensor("gain", (512,), "bf16", role="weight")
    for name, k in (("a", 256), ("b", 512), ("c", 512), ("d", 512)):
        g.tensor(name, (33, k), "bf16", role="weight", scale=0.1)
    g.op("slice", x="x", ranges="[:, :256]", out="half")
    g.op("matmul", x="half", w="a", transpose_w=True, dtype="f32", out="ya")
    g.op("matmul", x="x", w="b", transpose_w=True, dtype="f32", out="yb")
    for name, eps in (("c", 1e-5), ("d", 10.0)):
        h = g.op("rmsnorm", x="x", weight="gain", eps=eps, out="h" + name)
        g.op("matmul", x=h, w=name, transpose_w=True, dtype="f32", out="y" + name)
    g.returns("ya", "yb", "yc", "yd")


def layer(rows, d, f):
    """The products of a decoder layer around its attention: what follows waits for all of it."""
    def build(g):
        g.tensor("x", (rows, d), "f32")
        g.tensor("gain", (d,), "bf16", role="weight")
        for name, shape in (("q", (d, d)), ("k", (d // 4, d)), ("o", (d, d)), ("gate", (f, d)),
                            ("up", (f, d)), ("down", (d, f))):
            g.tensor("w_" + name, shape, "bf16", role="weight", scale=0.1)
        g.op("rmsnorm", x="x", weight="gain", dtype="bf16", out="h")
        g.op("matmul", x="h", w="w_q", transpose_w=True, out="q")
        g.op("matmul", x="h", w="w_k", transpose_w=True, out="k")
        g.op("matmul", x="q", w="w_o", transpose_w=True, add="x", dtype="f32", out="r")
        g.op("rmsnorm", x="r", weight="gain", dtype="bf16", out="s")
        g.op("matmul", x="s", w="w_gate", transpose_w=True, out="g")
        g.op("matmul", x="s", w="w_up", transpose_w=True, out="u")
        g.op("map", expr="silu(g) * u", g="g", u="u", out="a")
        g.op("matmul", x="a", w="w_down", transpose_w=True, add="r", dtype="f32", out="y")
        g.returns("k", "y")
    return build


def narrow_middle(k, d, n):
    """Long rows make tiles of two: their floats travel one at a time to the product that normalises them."""
    def build(g):
        g.tensor("x", (1, k), "bf16")
        g.tensor("gain", (d,), "bf16", role="weight")
        for name, shape in (("in", (d, k)), ("out", (n, d))):
            g.tensor("w_" + name, shape, "bf16", role="weight", scale=0.1)
        g.op("matmul", x="x", w="w_in", transpose_w=True, dtype="f32", out="r")
        g.op("rmsnorm", x="r", weight="gain", dtype="bf16", out="h")
        g.op("matmul", x="h", w="w_out", transpose_w=True, out="y")
        g.returns("y")
    return build


def last_row(rows, k, d, n):
    """Of several rows of floats one goes on: they come one element at a time, as a warp has not all rows of four."""
    def build(g):
        g.tensor("x", (rows, k), "bf16")
        g.tensor("gain", (d,), "bf16", role="weight")
        for name, shape in (("in", (d, k)), ("out", (n, d))):
            g.tensor("w_" + name, shape, "bf16", role="weight", scale=0.1)
        g.op("matmul", x="x", w="w_in", transpose_w=True, dtype="f32", out="r")
        g.op("rmsnorm", x=f"r[{rows - 1}:, :]", weight="gain", dtype="bf16", out="h")
        g.op("matmul", x="h", w="w_out", transpose_w=True, out="y")
        g.returns("y")
    return build


def cases():
    for rows in (1, 2, 3, 4, 5, 8, 9, 16):
        yield f"{rows} rows", product(rows, 264, 71)
    for k in (8, 40, 256, 1544, 9000, 16384, 17000):
        yield f"K {k}", product(1, k, 37)
    yield "a row a stage, 2 rows", product(2, 9216, 11)
    yield "a row a stage, 4 rows", product(4, 8456, 6, add=True)
    yield "a row a stage, gate and up", gate_and_up(1, 10248, 13)
    yield "long rows, several", product(7, 2312, 45)
    yield "long rows in parts, nine", product(9, 3840, 20)
    yield "more tiles than SMs", product(1, 1024, 1200)
    yield "f16", product(2, 520, 40, dtype="f16", out="f16")
    yield "added to", product(3, 328, 33, add=True)
    yield "normalised", product(2, 264, 40, norm="bf16")
    yield "normalised from f32", product(1, 2056, 40, norm="f32")
    yield "rows normalised from f32", product(5, 520, 40, norm="f32", add=True)
    yield "one x two ways", one_x_two_ways
    yield "normalised after long rows", narrow_middle(17000, 24, 40)
    yield "the last of 3 rows, normalised", last_row(3, 264, 64, 40)
    yield "the last of 16 rows, normalised", last_row(16, 264, 64, 40)
    yield "a layer", layer(1, 256, 520)
    yield "a layer, 2 rows", layer(2, 256, 520)
    yield "a layer, 3 rows", layer(3, 256, 520)
