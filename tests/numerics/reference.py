"""Every operator in float64, from the operator table's words (gpuosc --print-ops)."""
import re

import numpy as np

import bounds
from bounds import Num, U, store


def operand(names, text):
    """A tensor, maybe with a slice suffix."""
    match = re.fullmatch(r"([^\[]+?)\s*(\[.*\])?", text)
    x = names[match[1]]
    return x.view(lambda a: a[ranges(match[2])]) if match[2] else x


def ranges(text):
    ends = [part.split(":") for part in text.strip("[] ").split(",")]
    return tuple(slice(int(a) if a.strip() else None, int(b) if b.strip() else None)
                 for a, b in ends)


def swapped(x, swap):
    return x.view(lambda a: np.swapaxes(a, -1, -2)) if swap else x


def embedding(at):
    ids = at("ids").v.astype(int)
    out = at("table").view(lambda a: a[ids])
    return store(out, at.dtype(out.dtype))


def normalise(x, weight, eps):
    """Rounded to x's own dtype before the weight."""
    square = bounds.mul(x, x)
    n = x.shape[-1]
    mean = np.mean(square.v, -1, keepdims=True) + eps
    error = np.mean(square.e, -1, keepdims=True) + (n + 4) * U * mean
    unit = store(bounds.mul(x, bounds.rsqrt(Num(mean, error))), x.dtype)
    return bounds.mul(unit, weight)


def rmsnorm(at):
    x = at("x")
    return store(normalise(x, at("weight"), at.get("eps", 1e-5)), at.dtype(x.dtype))


def matmul(at):
    x, w = at("x"), at("w")
    eight = x.dtype in ("e4m3", "e5m2")
    dtype = at.dtype("bf16" if eight else x.dtype)
    x, w = swapped(x, at.get("transpose_x")), swapped(w, at.get("transpose_w"))
    out = bounds.dot("...mk,...kn->...mn", x, w, x.shape[-1])
    for scale in ("x_scale", "w_scale"):
        if at.get(scale):
            out = bounds.mul(out, at(scale).view(lambda a: a.reshape(())))
    for term in ("bias", "add"):
        if at.get(term):
            out = bounds.add(out, at(term))
    return store(out, dtype)


def map_(at):
    inputs = {k: at(k) for k in at.attributes if k not in ("expr", "out", "dtype")}
    out = bounds.evaluate(at.get("expr"), inputs)
    shape = np.broadcast_shapes(*[x.shape for x in inputs.values()])
    out = out.view(lambda a: np.broadcast_to(a, shape))
    first = next(iter(inputs.values())).dtype
    return store(out, at.dtype("f32" if first == "i32" else first))


def inverse_frequencies(at, head_dim):
    f = float(at.get("theta", 10000.0)) ** (-np.arange(0, head_dim, 2) / head_dim)
    scaling = dict(at.get("scaling", {}))
    for key, value in at.attributes.items():
        if key.startswith("scaling_"):
            scaling[key[len("scaling_"):]] = value
    if scaling.get("type") == "linear":
        f = f / scaling["factor"]
    if scaling.get("type") == "llama3":
        factor, low, high = (scaling.get("factor", 1.0), scaling.get("low_freq_factor", 1.0),
                             scaling.get("high_freq_factor", 4.0))
        context = scaling.get("original_max_position_embeddings", 8192)
        wavelength = 2 * np.pi / f
        smooth = (context / wavelength - low) / (high - low)
        blend = (1 - smooth) * f / factor + smooth * f
        f = np.where(wavelength < context / high, f,
                     np.where(wavelength > context / low, f / factor, blend))
    return f


def rope(at):
    x, pos, d = at("x"), at("pos").v, at.get("head_dim")
    heads = x.view(lambda a: a.reshape(a.shape[0], -1, d))
    angle = np.maximum(pos, 0)[:, None] * inverse_frequencies(at, d)
    slack = 3 * U * np.abs(angle) + 4 * U  # the angle is a product of two floats
    c, s = (Num(f(angle)[:, None, :], slack[:, None, :]) for f in (np.cos, np.sin))
    if at.get("pairing") == "interleaved":
        first, second = np.s_[..., 0::2], np.s_[..., 1::2]
    else:
        first, second = np.s_[..., :d // 2], np.s_[..., d // 2:]
    a, b = heads.view(lambda t: t[first]), heads.view(lambda t: t[second])
    turned = (bounds.sub(bounds.mul(a, c), bounds.mul(b, s)),
              bounds.add(bounds.mul(b, c), bounds.mul(a, s)))
    value, error = heads.v.copy(), heads.e.copy()
    for part, result in zip((first, second), turned):
        value[part], error[part] = result.v, result.e
    used = (pos >= 0)[:, None, None]
    out = Num(np.where(used, value, heads.v), np.where(used, error, heads.e))
    return store(out.view(lambda t: t.reshape(x.shape)), x.dtype)


def attend(q, k, v, seen, scale):
    """q [h, d], k and v [n, h, d] with the kv heads repeated, seen [n]."""
    score = bounds.dot("hd,nhd->hn", q, k, q.shape[-1])
    score = bounds.mul(score, Num(scale, abs(scale) * U))
    weight = bounds.softmax(score, np.broadcast_to(seen, score.shape))
    return bounds.dot("hn,nhd->hd", weight, v, 2 * k.shape[0] + 64)  # sums are rescaled on the way


def split_heads(x, d, repeat=1):
    return x.view(lambda a: np.repeat(a.reshape(a.shape[0], -1, d), repeat, axis=1))


def stack(rows):
    return Num(np.stack([r.v for r in rows]), np.stack([r.e for r in rows]))


def attend_dense(at, q, k, v, d, scale):
    group = q.shape[-1] // k.shape[-1]
    heads, keys, values = split_heads(q, d), split_heads(k, d, group), split_heads(v, d, group)
    rows, n = q.shape[0], k.shape[0]
    out = []
    for row in range(rows):
        last = n - rows + row if at.get("causal", True) else n - 1
        seen = np.arange(n) <= last
        out.append(attend(heads.view(lambda a, r=row: a[r]), keys, values, seen, scale))
    return stack(out).view(lambda a: a.reshape(q.shape))


def attend_cached(at, q, k, v, d, scale):
    cache, pages = at("cache"), at.names[at.get("cache") + ".pages"].v.astype(int)
    layer, page_size = at.get("layer", 0), cache.shape[4]
    pos = at("pos").v.astype(int)
    seq = at("seq").v.astype(int) if at.get("seq") else np.arange(len(pos))
    for row in range(len(pos)):
        if pos[row] < 0:
            continue
        page, slot = pages[seq[row], pos[row] // page_size], pos[row] % page_size
        for which, x in enumerate((k, v)):
            cache.v[layer, which, :, page, slot] = x.v[row].reshape(-1, d)
            cache.e[layer, which, :, page, slot] = x.e[row].reshape(-1, d)
    group, out = q.shape[-1] // k.shape[-1], []
    for row in range(len(pos)):
        if pos[row] < 0:
            out.append(Num(np.zeros((q.shape[-1] // d, d))))
            continue
        n = pos[row] + 1
        at_page, at_slot = pages[seq[row], np.arange(n) // page_size], np.arange(n) % page_size
        keys, values = (cache.view(lambda a, w=w: np.repeat(
            a[layer, w][:, at_page, at_slot].swapaxes(0, 1), group, axis=1)) for w in (0, 1))
        out.append(attend(split_heads(q, d).view(lambda a, r=row: a[r]), keys, values,
                          np.ones(n, bool), scale))
    return stack(out).view(lambda a: a.reshape(q.shape))


def attention(at):
    q, k, v, d = at("q"), at("k"), at("v"), at.get("head_dim")
    scale = at.get("scale", 0.0) or d ** -0.5
    if at.get("cache"):
        out = attend_cached(at, q, k, v, d, scale)
    elif len(q.shape) == 3:
        out = stack([attend_dense(at, *(x.view(lambda a, b=b: a[b]) for x in (q, k, v)), d, scale)
                     for b in range(q.shape[0])])
    else:
        out = attend_dense(at, q, k, v, d, scale)
    return store(out, q.dtype)


def softmax(at):
    x = at("x")
    return store(bounds.softmax(x), at.dtype(x.dtype))


def quantize(at):
    return store(bounds.div(at("x"), at("scale").view(lambda a: a.reshape(()))), at.dtype("e4m3"))


def dequantize(at):
    return store(bounds.mul(at("x"), at("scale").view(lambda a: a.reshape(()))), at.dtype("bf16"))


def argmax(at):
    """Where the largest is not certain, its error says that any index may be right."""
    x = at("x")
    comparable = np.where(np.isnan(x.v), -np.inf, x.v)
    best = np.argmax(comparable, -1)
    top = np.take_along_axis(comparable - x.e, best[..., None], -1)
    rivals = (comparable + x.e >= top).sum(-1)
    equal = (comparable == comparable.max(-1, keepdims=True)).sum(-1)
    certain = (rivals == 1) | ((x.e.max(-1) == 0) & (equal >= 1))
    return Num(best, np.where(certain, 0, np.inf), "i32")


def concat(at):
    parts = [operand(at.names, text) for text in at.get("inputs")]
    axis = at.get("axis", -1)
    return Num(np.concatenate([p.v for p in parts], axis),
               np.concatenate([p.e for p in parts], axis), parts[0].dtype)


RULES = {
    "embedding": embedding, "rmsnorm": rmsnorm, "matmul": matmul, "map": map_, "rope": rope,
    "attention": attention, "softmax": softmax, "quantize": quantize, "dequantize": dequantize,
    "argmax": argmax, "concat": concat,
    "transpose": lambda at: at("x").view(lambda a: np.transpose(a, at.get("perm"))),
    "reshape": lambda at: at("x").view(lambda a: np.reshape(a, at.get("shape"))),
    "slice": lambda at: at("x").view(lambda a: a[ranges(at.get("ranges"))]),
}


class At:
    """One operator: at("x") is an operand, at.get("eps") an attribute."""

    def __init__(self, attributes, names):
        self.attributes, self.names = attributes, names

    def __call__(self, key):
        return operand(self.names, self.attributes[key])

    def get(self, key, fallback=None):
        return self.attributes.get(key, fallback)

    def dtype(self, fallback):
        return self.attributes.get("dtype", fallback)


def run(op, attributes, names):
    names[attributes["out"]] = RULES[op](At(attributes, names))
