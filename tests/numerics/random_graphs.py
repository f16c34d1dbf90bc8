"""Random graphs of 5 to 20 operators, compiled with random budgets, run in several orders."""
import numpy as np

COUNT = 120
RUNS = (["--threads=2"], ["--seed=11"], ["--seed=12", "--take-back"], ["--seed=13", "--take-back"])
ROWS, COLUMNS = (1, 2, 3, 5, 16, 17, 40, 70), (2, 4, 6, 8, 12, 24, 33, 64)
MOST = 8192  # elements of one tensor
UNARY = ["tanh(a)", "a * 0.5 + 0.1", "silu(a)", "gelu(a)", "max(a, 0)", "-a", "bf16(a)",
         "sigmoid(a) - 0.5", "min(max(a, -1), 1)", "erf(a)", "1 / (2 + abs(a))"]
BINARY = ["a + b", "a - b", "0.5 * a * b", "silu(a) * b", "max(a, b)", "tanh(a + b) + a"]


class Builder:
    """Grows one graph. `pool` holds what an operator may take: name to (shape, dtype)."""

    def __init__(self, g):
        self.g, self.rng = g, g.rng
        self.pool, self.used, self.leaves, self.made = {}, set(), [], set()
        self.count = 0
        for _ in range(self.rng.integers(1, 4)):
            shape = [self.pick(COLUMNS)]
            if self.chance(0.9):
                shape.insert(0, self.pick(ROWS))
            if self.chance(0.3):
                shape.insert(0, int(self.rng.integers(1, 4)))
            self.given(shape, self.pick(("f32", "f32", "f32", "bf16", "f16")))

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def chance(self, p):
        return self.rng.random() < p

    def fresh(self):
        self.count += 1
        return f"t{self.count}"

    def given(self, shape, dtype, role="input", scale=1.0, pooled=True):
        name = self.g.tensor(self.fresh(), tuple(shape), dtype, role, scale=scale)
        if pooled:
            self.pool[name] = (tuple(shape), dtype)
        return name

    def weight(self, shape, dtype, scale=1.0):
        return self.given(shape, dtype, "weight", scale, False)

    def any(self, test=lambda shape, dtype: True):
        """A tensor from the pool, the newer ones more likely; None if none will do."""
        names = [n for n, (s, d) in self.pool.items() if test(s, d)]
        if not names:
            return None
        return names[max(self.rng.integers(len(names)), self.rng.integers(len(names)))]

    def apply(self, op, shape, dtype, takes, /, leaf=False, **attributes):
        """Adds an operator. Its result may take over the name of an operand."""
        self.used.update(takes)
        out = self.fresh()
        # A declared output gives its dtype to every operator that gives its name.
        renamed = [n for n in takes if n in self.made and self.pool[n][1] == dtype]
        if renamed and self.chance(0.15) and not leaf:
            out = self.pick(renamed)
        self.g.op(op, **attributes, out=out)
        self.used.discard(out)
        self.made.add(out)
        self.pool.pop(out, None)
        if leaf:
            self.leaves.append(out)
        else:
            self.pool[out] = (tuple(int(n) for n in shape), dtype)
        return out

    # ---- one method an operator; False: nothing in the pool suits it

    def map_one(self):
        x = self.any()
        shape, dtype = self.pool[x]
        more = {"dtype": self.pick(("f32", "bf16"))} if self.chance(0.2) else {}
        self.apply("map", shape, more.get("dtype", dtype), [x], expr=self.pick(UNARY), a=x, **more)

    def map_two(self):
        x = self.any()
        shape, dtype = self.pool[x]
        y = self.any(lambda s, d: s == shape)
        if y == x or self.chance(0.4):
            kept = [n if self.chance(0.6) else 1 for n in shape[int(self.rng.integers(0, 2)):]]
            y = self.given(kept, self.pick(("f32", "bf16")), pooled=False)
        self.apply("map", shape, dtype, [x, y], expr=self.pick(BINARY), a=x, b=y)

    def matmul(self):
        x = self.any(lambda s, d: len(s) >= 2)
        if not x:
            return
        shape, dtype = self.pool[x]
        n, k = self.pick(COLUMNS), shape[-1]
        if np.prod(shape[:-1]) * n > MOST:
            return
        takes, more, transposed = [x], {}, self.chance(0.5)
        w = self.any(lambda s, d: d == dtype and len(s) == 2 and s[1] == k and s[0] <= 64)
        if w and self.chance(0.4):
            n, transposed = self.pool[w][0][0], True
            takes.append(w)
        else:
            batch = shape[:-2] if self.chance(0.3) else ()
            inner = (n, k) if transposed else (k, n)
            w = self.weight((*batch, *inner), dtype, k ** -0.5)
        out = (*shape[:-1], n)
        if self.chance(0.3):
            more["bias"] = self.weight((n,), "f32", 0.5)
        add = self.any(lambda s, d: s == out)
        if add and self.chance(0.5):
            more["add"] = add
            takes.append(add)
        self.apply("matmul", out, dtype, takes, x=x, w=w, **more,
                   **({"transpose_w": True} if transposed else {}))

    def gated(self):
        """Two projections of one tensor and a map of both."""
        x = self.any(lambda s, d: len(s) == 2)
        if not x:
            return
        (rows, k), dtype = self.pool[x]
        n = self.pick(COLUMNS)
        parts = [self.apply("matmul", (rows, n), dtype, [x], x=x,
                            w=self.weight((k, n), dtype, k ** -0.5)) for _ in range(2)
                 if x in self.pool and self.pool[x] == ((rows, k), dtype)]
        if len(parts) == 2 and all(self.pool.get(p) == ((rows, n), dtype) for p in parts):
            self.apply("map", (rows, n), dtype, parts, expr="silu(a) * b", a=parts[0], b=parts[1])

    def rmsnorm(self):
        x = self.any()
        shape, dtype = self.pool[x]
        self.apply("rmsnorm", shape, dtype, [x], x=x, weight=self.weight(shape[-1:], dtype),
                   eps=0.01)

    def softmax(self):
        x = self.any()
        self.apply("softmax", *self.pool[x], [x], x=x)

    def transpose(self):
        x = self.any(lambda s, d: len(s) >= 2)
        if not x:
            return
        shape, dtype = self.pool[x]
        perm = [int(p) for p in self.rng.permutation(len(shape))]
        self.apply("transpose", [shape[p] for p in perm], dtype, [x], x=x, perm=perm)

    def reshape(self):
        x = self.any()
        shape, dtype = self.pool[x]
        total, parts = int(np.prod(shape)), []
        while len(parts) < 2 and total > 1:
            parts.append(self.pick([n for n in range(1, total + 1) if total % n == 0]))
            total //= parts[-1]
        to = parts + [total]
        self.apply("reshape", to, dtype, [x], x=x, shape=[int(n) for n in to])

    def slice(self):
        x = self.any()
        shape, dtype = self.pool[x]
        starts = [int(self.rng.integers(0, n // 2 + 1)) if n > 1 else 0 for n in shape]
        stops = [int(self.rng.integers(a + 1, n + 1)) for a, n in zip(starts, shape)]
        text = "[" + ", ".join(f"{a}:{b}" for a, b in zip(starts, stops)) + "]"
        to = [b - a for a, b in zip(starts, stops)]
        if self.chance(0.5):
            self.apply("slice", to, dtype, [x], x=x, ranges=text)
        else:
            self.apply("map", to, dtype, [x], expr="a + 0.25", a=x + text)

    def concat(self):
        x = self.any()
        shape, dtype = self.pool[x]
        axis = int(self.rng.integers(len(shape)))

        def fits(s, d):
            return d == dtype and len(s) == len(shape) and all(
                a == b for i, (a, b) in enumerate(zip(s, shape)) if i != axis)
        parts = [x] + [self.any(fits) for _ in range(self.rng.integers(1, 3))]
        to = list(shape)
        to[axis] = sum(self.pool[p][0][axis] for p in parts)
        if np.prod(to) <= MOST:
            self.apply("concat", to, dtype, parts, inputs=parts, axis=axis - len(shape))

    def rope(self):
        x = self.any(lambda s, d: len(s) == 2 and s[1] % 4 == 0)
        if not x:
            return
        shape, dtype = self.pool[x]
        pos = self.g.index(self.fresh(), self.rng.integers(-1, 50, shape[0]))
        self.apply("rope", shape, dtype, [x], x=x, pos=pos, head_dim=4,
                   pairing=self.pick(("half", "interleaved")))

    def attention(self):
        q = self.any(lambda s, d: len(s) in (2, 3) and s[-1] % 4 == 0)
        if not q:
            return
        shape, dtype = self.pool[q]
        k, v = (self.any(lambda s, d: s == shape and d == dtype) for _ in range(2))
        self.apply("attention", shape, dtype, [q, k, v], q=q, k=k, v=v, head_dim=4,
                   causal=self.chance(0.5))

    def cached(self):
        q = self.any(lambda s, d: len(s) == 2 and s[1] % 4 == 0)
        if not q:
            return
        (rows, width), dtype = self.pool[q]
        k, v = (self.any(lambda s, d: s == (rows, width) and d == dtype) for _ in range(2))
        cache = self.g.cache(self.fresh(), dtype, kv_heads=width // 4, head_dim=4,
                             context=self.pick((16, 512)), sequences=rows, page_size=16)
        pos = self.g.index(self.fresh(), self.rng.integers(-1, 16, rows))
        self.apply("attention", (rows, width), dtype, [q, k, v], q=q, k=k, v=v, cache=cache,
                   pos=pos, head_dim=4)

    def argmax(self):
        x = self.any()
        self.apply("argmax", self.pool[x][0][:-1], "i32", [x], leaf=True, x=x)

    def quantize(self):
        x = self.any()
        scale = self.g.tensor(self.fresh(), (), values=0.25)
        self.apply("quantize", self.pool[x][0], "e4m3", [x], leaf=True, x=x, scale=scale)

    def finish(self):
        kept = [n for n in self.pool if n in self.made and (n not in self.used or
                                                            self.chance(0.15))]
        self.g.returns(*dict.fromkeys(self.leaves + kept))
        for name in [n for n in self.pool if n not in self.made and n not in self.used]:
            del self.g.decls[name], self.g.bits[name]


METHODS = ["map_one", "map_two", "matmul", "gated", "rmsnorm", "softmax", "transpose", "reshape",
           "slice", "concat", "rope", "attention", "cached", "argmax", "quantize"]
WEIGHTS = np.array([4, 4, 6, 3, 3, 2, 3, 3, 3, 4, 2, 2, 1, 1, 1], float)


def build(g):
    g.vague = True
    builder = Builder(g)
    wanted = g.rng.integers(5, 21)
    while len(g.ops) < wanted:
        getattr(builder, METHODS[g.rng.choice(len(METHODS), p=WEIGHTS / WEIGHTS.sum())])()
    builder.finish()


def cases():
    for number in range(COUNT):
        yield f"{number}", build, {"budgets": ((None, 3, 4, 8)[number % 4],), "runs": RUNS}
