"""Draws the cases of sweep.py: small graphs of one to three matrix products.

A case is data: tensors, operators, outputs, a line that says what it is. Shapes come from decks, so
that every edge is dealt before any comes again; the seed decides the order.
"""
import math
import random
import re

EIGHT = ("e4m3", "e5m2")
EDGES_M = (65, 127, 128, 129, 255, 257)
EDGES_N = (64, 100, 127, 128, 129, 136, 255, 256, 257)
ALIGNED_K = (16, 48, 128, 1040, 4112)  # rows of whole 16-byte pieces in every format: wgmma
RAGGED_K = (17, 31, 127, 128, 129, 130)
MOST_PRODUCTS = 4e9  # M N K of a case

PAIRS = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e4m3"),
         ("bf16", "bf16"), ("bf16", "bf16"), ("f16", "f16")]
OUTS = ["bf16", "f16", "f32", "e4m3", "e5m2", "bf16", "f32"]
SCALES = [("x_scale", "w_scale"), ("x_scale", "w_scale"), ("x_scale",), ("w_scale",), ()]
TERMS = [(), (), ("bias",), ("add",), ("bias", "add")]
# Expressions over the product h; s is a number, r as h, t a column of it, v a row.
EXPRESSIONS = [None, None, None, "silu(h)", "max(h, 0)", "gelu(h)", "gelu_tanh(h)", "h * s",
               "h + r", "silu(h) * r", "h * t", "max(h * s + r, 0)", "min(max(h, -4), 4)",
               "tanh(h) * v", "bf16(h) * 2", "e4m3(h) + r"]
GATES = ["silu(g) * u", "gelu_tanh(g) * u", "max(g, 0) * u", "g * u", "silu(g) * u + r"]


class Deck:
    """Deals its cards in a random order, all of them before one comes again."""

    def __init__(self, rng, cards):
        self.rng, self.cards, self.left = rng, list(cards), []

    def deal(self):
        if not self.left:
            self.left = self.rng.sample(self.cards, len(self.cards))
        return self.left.pop()


def power(x):
    """The power of two next to x: scaling by it is exact."""
    return 2.0 ** round(math.log2(x))


class Case:
    """A graph under construction; tensors are called by a letter and the case's number."""

    def __init__(self, number, kind):
        self.number, self.tensors, self.ops, self.outputs = number, {}, [], []
        self.notes = [kind]

    def name(self, letter):
        return f"{letter}{self.number}"

    def tensor(self, letter, shape, dtype, unit=1.0, role="input"):
        """Random values are of size `unit`; a scalar is `unit`."""
        name = self.name(letter)
        self.tensors[name] = {"shape": list(shape), "dtype": dtype, "role": role, "unit": unit}
        return name

    def op(self, op, out, **attributes):
        self.ops.append([op, {**attributes, "out": self.name(out)}])
        return self.name(out)

    def output(self, letter, shape, dtype):
        self.tensor(letter, shape, dtype, role="output")
        self.outputs.append(self.name(letter))

    def data(self):
        text = " ".join(str(n) for n in self.notes if n)
        return {"number": self.number, "text": text, "tensors": self.tensors, "ops": self.ops,
                "outputs": self.outputs}


class Draw:
    """All decks, and the parts that cases are made of."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        for name, cards in (("m", EDGES_M), ("n", EDGES_N), ("k", ALIGNED_K),
                            ("ragged_k", RAGGED_K), ("pair", PAIRS), ("out", OUTS),
                            ("scales", SCALES), ("terms", TERMS),
                            ("expression", EXPRESSIONS), ("gate", GATES),
                            ("aligned", [True, True, False]), ("coin", [True, False]),
                            ("batch", [(2,), (3,), (2, 2), (1,)]), ("link_pair", PAIRS)):
            setattr(self, name, Deck(self.rng, cards))

    # ---- shapes

    def size(self, least, most, step=1):
        value = math.exp(self.rng.uniform(math.log(least), math.log(most)))
        return max(least, round(value / step) * step)

    def edge_or(self, deck, *limits):
        return deck.deal() if self.rng.random() < 0.5 else self.size(*limits)

    def shape(self, aligned, batch=1):
        """M, N, K; aligned: what wgmma takes, otherwise anything."""
        if aligned:  # rows of the result are whole pieces in some formats, and then bulk stores
            m, n, k = (self.edge_or(self.m, 65, 2300),
                       self.edge_or(self.n, 64, 2300, self.rng.choice((1, 8, 16))),
                       self.edge_or(self.k, 16, 2300, 16))
        else:
            m, n, k = (self.edge_or(self.m, 1, 2300), self.edge_or(self.n, 1, 2300),
                       self.edge_or(self.ragged_k, 1, 2300))
        while batch * m * n * k > MOST_PRODUCTS:
            m, n = (max(m // 2, 65), n) if m > n else (m, max(n // 2, 64))
        return m, n, k

    # ---- parts of a graph

    def weight(self, case, letter, n, k, dtype, transposed, batch=()):
        """A weight and what goes with it; 16-bit ones keep products about as large as x."""
        unit = 1.0 if dtype in EIGHT else power(1 / math.sqrt(k))
        shape = (*batch, n, k) if transposed else (*batch, k, n)
        role = "weight" if self.coin.deal() else "input"
        more = {"transpose_w": True} if transposed else {}
        return {"w": case.tensor(letter, shape, dtype, unit, role), **more}

    def scale(self, case, pair, k, names=None):
        """Scales, one or both of which bring an 8-bit product to a size of about 4."""
        if pair[0] not in EIGHT:
            return {}
        names = names or self.scales.deal()
        whole = power(4 / math.sqrt(k))
        first = power(math.sqrt(whole)) if len(names) == 2 else whole
        values = dict(zip(names, (first, whole / first)))
        if len(names) < 2:
            case.notes.append(", ".join(names) or "no scale")
        return {name: case.tensor(name[0] + "s", (), "f32", values[name]) for name in names}

    def terms_of(self, case, shape):
        """bias and add, in several formats."""
        found = {}
        for name in self.terms.deal():
            dtype = self.rng.choice(("f32", "bf16", "f16"))
            letter, of = ("d", shape[-1:]) if name == "bias" else ("e", shape)
            found[name] = case.tensor(letter, of, dtype, 2.0)
            case.notes.append(f"+{name} {dtype}")
        return found

    def inputs(self, case, expression, shape):
        """The tensors that an expression names, each in a dealt format."""
        shapes = {"r": shape, "t": (*shape[:-1], 1), "v": shape[-1:]}
        found = {}
        for letter in dict.fromkeys(re.findall(r"\b[rstv]\b", expression)):
            if letter == "s":
                found[letter] = case.tensor(letter, (), "f32", 0.5)
            else:
                dtype = self.rng.choice(("f32", "bf16", "f16"))
                found[letter] = case.tensor(letter, shapes[letter], dtype)
        return found

    def finish(self, case, op, attributes, shape, expression):
        """The last operators, which become one: `op`, an expression, a cast or quantisation."""
        dtype = self.out.deal()
        quantised = dtype in EIGHT and self.coin.deal()
        case.notes.append(f"{expression or ''} -> {'quantised ' if quantised else ''}{dtype}")
        steps = [(op, attributes)]
        if expression:
            inputs = self.inputs(case, expression, shape)
            steps.append(("map", {"expr": expression, "h": case.name("h0_"), **inputs}))
        if quantised:
            scale = case.tensor("q", (), "f32", self.rng.choice((0.25, 0.5, 2.0)))
            steps.append(("quantize", {"x": case.name(f"h{len(steps) - 1}_"), "scale": scale}))
        for i, (kind, more) in enumerate(steps[:-1]):
            case.op(kind, f"h{i}_", **more, dtype="f32")
        case.op(steps[-1][0], "c", **steps[-1][1], dtype=dtype)
        case.output("c", shape, dtype)

    # ---- kinds of cases

    def plain(self, case):
        aligned = self.aligned.deal()
        self.product(case, aligned, self.shape(aligned))

    def wide(self, case):
        """Enough of it that tiles of 256 columns pay."""
        n = self.size(2049, 2400, self.rng.choice((1, 8, 16)))
        self.product(case, True, (self.size(2049, 2300), n, self.size(64, 700, 16)))

    def product(self, case, aligned, shape):
        pair, (m, n, k) = self.pair.deal(), shape
        if not aligned and self.rng.random() < 0.15:
            pair = ("f32", "f32")
        case.notes += [" x ".join(pair), f"{m}x{n}x{k}"]
        transposed_x = not aligned and self.rng.random() < 0.2
        x = case.tensor("a", (k, m) if transposed_x else (m, k), pair[0])
        w = self.weight(case, "b", n, k, pair[1], aligned or self.coin.deal())
        case.notes.append("xT" * transposed_x + " wT" * ("transpose_w" in w))
        more = {"transpose_x": True} if transposed_x else {}
        self.finish(case, "matmul", {"x": x, **w, **more, **self.scale(case, pair, k),
                                     **self.terms_of(case, (m, n))}, (m, n), self.expression.deal())

    def batched(self, case):
        pair, aligned, batch = self.pair.deal(), self.aligned.deal(), self.batch.deal()
        m, n, k = self.shape(aligned, math.prod(batch))
        shared = self.coin.deal()
        case.notes += [" x ".join(pair), f"{batch} {m}x{n}x{k}", "one w" if shared else "w each"]
        x = case.tensor("a", (*batch, m, k), pair[0])
        transposed, own = aligned or self.coin.deal(), () if shared else batch
        w = self.weight(case, "b", n, k, pair[1], transposed, own)
        shape = (*batch, m, n)
        self.finish(case, "matmul", {"x": x, **w, **self.scale(case, pair, k),
                                     **self.terms_of(case, shape)}, shape, self.expression.deal())

    def sliced(self, case):
        """x, w and the residual are parts of wider tensors; aligned ones stay wgmma's."""
        pair, aligned = self.pair.deal(), self.aligned.deal()
        m, n, k = self.shape(aligned)
        step = 16 if aligned else 1
        case.notes += [" x ".join(pair), f"{m}x{n}x{k}", "of wider"]
        x = self.part(case, "a", (m, k), pair[0], 1.0, step)
        unit = 1.0 if pair[1] in EIGHT else power(1 / math.sqrt(k))
        w = self.part(case, "b", (n, k), pair[1], unit, step)
        add = self.part(case, "e", (m, n), "f32", 1.0, self.rng.choice((1, 4, 16)))
        self.finish(case, "matmul", {"x": x, "w": w, "transpose_w": True, "add": add,
                                     **self.scale(case, pair, k)}, (m, n), self.expression.deal())

    def part(self, case, letter, shape, dtype, unit, step):
        first = [self.rng.randrange(0, 9), self.rng.randrange(0, 9) * step]
        after = [self.rng.randrange(0, 5), self.rng.randrange(0, 5) * step]
        # The rows of the wider tensor must be whole pieces as well.
        after[1] += -(first[1] + shape[1] + after[1]) % step
        whole = [a + b + c for a, b, c in zip(first, shape, after)]
        name = case.tensor(letter, whole, dtype, unit)
        return f"{name}[" + ", ".join(f"{a}:{a + b}" for a, b in zip(first, shape)) + "]"

    def gated(self, case):
        """Two weights and one x, in one pass."""
        pair, aligned, gate = self.pair.deal(), self.aligned.deal(), self.gate.deal()
        m, n, k = self.shape(aligned, 2)
        case.notes += [" x ".join(pair), f"{m}x{n}x{k}", gate]
        x = case.tensor("a", (m, k), pair[0])
        scales = self.scale(case, pair, k, SCALES[0])
        transposed = aligned or self.coin.deal()
        biased = self.coin.deal()
        for letter, result in (("b", "g"), ("p", "u")):
            more = {"bias": case.tensor(letter + "d", (n,), "f32")} if biased else {}
            case.op("matmul", result, x=x, **self.weight(case, letter, n, k, pair[1], transposed),
                    **scales, **more, dtype="f32")
        self.finish(case, "map", {"expr": gate, "g": case.name("g"), "u": case.name("u"),
                                  **self.inputs(case, gate, (m, n))}, (m, n), None)

    def chain(self, case, length):
        """Each product is the next one's x; some products are outputs as well."""
        pair, kept = self.link_pair.deal(), self.coin.deal()
        m = self.edge_or(self.m, 65, 700)
        width = self.size(64, 700, 16)
        case.notes += [" x ".join(pair), "kept" if kept else ""]
        x = case.tensor("a", (m, width), pair[0])
        for i in range(length):
            k, last = width, i == length - 1
            width = self.edge_or(self.n, 64, 700) if last else self.size(64, 700, 16)
            case.notes.append(f"{m}x{width}x{k}")
            letter = "bfp"[i]
            w = self.weight(case, letter, width, k, pair[1], True)
            attributes = {"x": x, **w}
            if last:
                self.finish(case, "matmul", {**attributes, **self.scale(case, pair, k)}, (m, width),
                            self.expression.deal())
            else:
                x = self.link(case, attributes, pair, k, (m, width), f"m{'xyz'[i]}", kept)

    def link(self, case, attributes, pair, k, shape, name, kept):
        """A product in the format of its own x."""
        if kept:
            case.output(name, shape, pair[0])
        if pair[0] not in EIGHT:
            return case.op("matmul", name, **attributes, dtype=pair[0])
        product = case.op("matmul", name + "h", **attributes, dtype="f32")
        if self.coin.deal():
            product = case.op("map", name + "s", expr="max(h, 0)", h=product, dtype="f32")
        scale = case.tensor(name + "q", (), "f32", power(math.sqrt(k) / 4))
        return case.op("quantize", name, x=product, scale=scale, dtype=pair[0])

    def placed(self, case):
        """Products written into a part of a tensor, or across."""
        pair, aligned = self.pair.deal(), self.aligned.deal()
        m, n, k = self.shape(aligned, 2)
        dtype = self.rng.choice(("bf16", "f16", "f32"))
        how = self.rng.choice(("beside", "beside", "below", "across"))
        case.notes += [" x ".join(pair), f"{m}x{n}x{k}", how, f"-> {dtype}"]
        x = case.tensor("a", (m, k), pair[0])
        widths = (n,) if how == "across" else (n, self.n.deal() if how == "beside" else n)
        parts = [case.op("matmul", f"h{'xyz'[i]}", x=x, dtype=dtype,
                         **self.weight(case, "bp"[i], width, k, pair[1], True))
                 for i, width in enumerate(widths)]
        if how == "across":
            case.op("transpose", "c", x=parts[0], perm=[1, 0])
            case.output("c", (n, m), dtype)
        else:
            case.op("concat", "c", inputs=parts, axis=1 if how == "beside" else 0)
            case.output("c", (m, sum(widths)) if how == "beside" else (2 * m, n), dtype)


# Of 20 cases.
KINDS = (["plain"] * 8 + ["wide", "batched", "sliced", "gated", "chain 2"] * 2 +
         ["chain 3", "placed"])


def draw(seed, count):
    draws = Draw(seed)
    kinds = Deck(draws.rng, KINDS)
    found = []
    for number in range(count):
        kind, *length = kinds.deal().split()
        case = Case(number, kind)
        getattr(draws, kind)(case, *map(int, length))
        found.append(case.data())
    return found
