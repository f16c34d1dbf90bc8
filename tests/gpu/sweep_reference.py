"""What a case must give: PyTorch in float64 on the bits that the artefact got.

A value carries the RMS error that device arithmetic may have made by then. It is 0 as long as every
sum is exact whatever its order: small integers times powers of two. Then bits must agree.
Otherwise an element may be an ulp of its format and 20 RMS errors away, and the RMS of all
differences half an ulp's and the error together. Errors of a product, relative to its RMS:

  8-bit matrix units of sm_90 keep 13 bits below the largest of the sum so far and a step's 32
  products, and drop the rest. Simulated so: 1.3e-3 at K = 4112, growing as K^0.65; 2.0e-3 was
  measured at 8192 (tests/bench/results). Allowed is half more.
  16-bit and fp32 products sum in fp32: 2e-5.
"""
import math
import re

import torch

MANTISSA = {"f32": 23, "f16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2}
LEAST_EXPONENT = {"f32": -126, "f16": -14, "bf16": -126, "e4m3": -6, "e5m2": -14}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}  # where conversion saturates
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
EIGHT = ("e4m3", "e5m2")
# Bits of a sum of integers that matrix units keep for sure.
EXACT_BITS = {"e4m3": 13, "e5m2": 13, "bf16": 22, "f16": 22, "f32": 24}
WORST = 20  # largest of millions of errors, in RMS errors


class Wrong(Exception):
    pass


def rms(v):
    return v.square().mean().sqrt().item()


def encode(v, dtype):
    if dtype in LARGEST:
        v = v.clamp(-LARGEST[dtype], LARGEST[dtype])
    return v.float().to(TORCH[dtype])


def rounded(v, dtype):
    return encode(v, dtype).double()


def ulp(v, dtype):
    """Distance of neighbouring values of dtype at v, from float64's bits."""
    exponent = (v.contiguous().view(torch.int64) >> 52 & 0x7ff) - 1023
    step = exponent.clamp(min=LEAST_EXPONENT[dtype]) - MANTISSA[dtype]
    return (step + 1023 << 52).view(torch.float64)


# ---- values with errors -------------------------------------------------------------------------

class Value:
    """A float64 tensor; e, the RMS error of the device's value; jump, what a rounding that falls to
    the other side adds to the worst error. Both are absolute."""

    def __init__(self, v, e=0.0, jump=0.0):
        self.v, self.e, self.jump = v, e, jump

    def size(self):
        return rms(self.v)

    def most(self):
        return self.v.abs().max().item()

    def __add__(self, other):
        other = value_of(other, self)
        return arithmetic(self.v + other.v, math.hypot(self.e, other.e), self.jump + other.jump)

    def __mul__(self, other):
        """Errors are not independent of values: half more."""
        other = value_of(other, self)
        e = 1.5 * math.hypot(self.e * other.size(), other.e * self.size())
        return arithmetic(self.v * other.v, e, self.jump * other.most() + other.jump * self.most())

    def __truediv__(self, other):
        other = value_of(other, self)
        least = other.v.abs().min().item()
        return arithmetic(self.v / other.v, self.e / least, self.jump / least)

    def __neg__(self):
        return Value(-self.v, self.e, self.jump)

    def __sub__(self, other):
        return self + -value_of(other, self)

    __radd__, __rmul__ = __add__, __mul__


def value_of(x, like):
    return x if isinstance(x, Value) else Value(torch.tensor(float(x), device=like.v.device,
                                                             dtype=torch.float64))


def arithmetic(v, e, jump):
    """A result in fp32, exact if it is one of fp32's values."""
    finite = v[v.isfinite()]
    if not torch.equal(finite.float().double(), finite):
        e = math.hypot(e, 1e-7 * rms(finite))
    return Value(v, e, jump)


def stored(x, dtype):
    """Rounded: an error tips some elements over to the next value."""
    v = rounded(x.v, dtype)
    if x.e == 0:
        return Value(v)
    step = 2.0 ** -MANTISSA[dtype] * x.size()
    return Value(v, math.hypot(x.e, math.sqrt(x.e * step)), x.jump + ulp(v, dtype).max().item())


def curve(function):
    """A function of slope 1.2 at most that the device computes to about 1e-6."""
    def apply(x):
        return Value(function(x.v), 1.2 * x.e + 1e-6 * x.size(), 1.2 * x.jump)
    return apply


def chosen(function):
    def apply(x, y):
        y = value_of(y, x)
        return Value(function(x.v, y.v), max(x.e, y.e), max(x.jump, y.jump))
    return apply


def gelu_tanh(v):
    return 0.5 * v * (1 + torch.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))


FUNCTIONS = {
    "silu": curve(lambda v: v / (1 + torch.exp(-v))),
    "gelu": curve(lambda v: 0.5 * v * (1 + torch.erf(v / math.sqrt(2)))),
    "gelu_tanh": curve(gelu_tanh), "tanh": curve(torch.tanh),
    "max": chosen(torch.maximum), "min": chosen(torch.minimum),
    **{name: (lambda x, name=name: stored(x, name)) for name in TORCH},
}


# ---- operators: Values before they are rounded to the result's format ---------------------------

def granularity(v):
    """The largest power of two of which every element is a multiple, down to 2^-30."""
    step = 1.0
    while step > 2.0 ** -30 and not torch.equal((v / step).round() * step, v):
        step /= 2
    return step


def sums_exactly(x, w, bits):
    step = granularity(x) * granularity(w)
    return torch.matmul(x.abs(), w.abs()).max().item() < 2.0 ** bits * step


def sum_error(dtype, k):
    return 2e-3 * (k / 4112) ** 0.65 + 1e-4 if dtype in EIGHT else 2e-5


def swapped(v, at, key):
    return v.transpose(-1, -2) if at.attributes.get(key) else v


def matmul(at):
    x, w = at("x"), at("w")
    a, b = swapped(x.v, at, "transpose_x"), swapped(w.v, at, "transpose_w")
    k, dtype = a.shape[-1], at.dtype_of("x")
    v = torch.matmul(a, b)
    e = math.sqrt(k) * math.hypot(x.e * w.size(), w.e * x.size())
    if at.random or not sums_exactly(a, b, EXACT_BITS[dtype]):
        e = math.hypot(e, sum_error(dtype, k) * rms(v))
    out = Value(v, e, x.jump * w.most() + w.jump * x.most())
    for scale in ("x_scale", "w_scale"):
        if scale in at.attributes:
            out = out * at(scale)
    for term in ("bias", "add"):
        if term in at.attributes:
            out = out + at(term)
    return out


def map_(at):
    names = [n for n in at.attributes if n not in ("expr", "out", "dtype")]
    scope = {**FUNCTIONS, **{n: at(n) for n in names}}
    return eval(at.attributes["expr"], {"__builtins__": {}}, scope)  # of our own cases


def quantize(at):
    return at("x") / at("scale")


def transpose(at):
    x = at("x")
    return Value(x.v.permute(at.attributes["perm"]), x.e, x.jump)


def concat(at):
    parts = [at.tensor(n) for n in at.attributes["inputs"]]
    return Value(torch.cat([p.v for p in parts], at.attributes["axis"]),
                 max(p.e for p in parts), max(p.jump for p in parts))


OPERATORS = {"matmul": matmul, "map": map_, "quantize": quantize, "transpose": transpose,
             "concat": concat}


class At:
    """An operator's attributes, and the values that they name."""

    def __init__(self, attributes, values, dtypes, random):
        self.attributes, self.values, self.dtypes = attributes, values, dtypes
        self.random = random

    def __call__(self, key):
        return self.tensor(self.attributes[key])

    def tensor(self, text):
        name, *ranges = re.split(r"[\[\],]", text)
        x = self.values[name]
        if not ranges:
            return x
        ends = [part.split(":") for part in ranges if part.strip()]
        return Value(x.v[tuple(slice(int(a), int(b)) for a, b in ends)], x.e, x.jump)

    def dtype_of(self, key):
        source = self.attributes[key]
        return self.dtypes[(source if isinstance(source, str) else source[0]).split("[")[0]]

    def out_dtype(self):
        source = "x" if "x" in self.attributes else "inputs"
        return self.attributes.get("dtype") or self.dtype_of(source)


# ---- judging ------------------------------------------------------------------------------------

def place_of(wrong):
    """Where the wrong elements are."""
    at = wrong.nonzero()
    least, most = at.min(0).values.tolist(), at.max(0).values.tolist()
    return at[0].tolist(), ", ".join(f"{a}..{b}" for a, b in zip(least, most))


def complain(name, wrong, got, want, why):
    first, box = place_of(wrong)
    raise Wrong(f"{name}: {int(wrong.sum())} of {wrong.numel()} {why}, first {first}: "
                f"{got[tuple(first)].item():.6g} for {want[tuple(first)].item():.6g}; all in "
                f"[{box}] of {list(wrong.shape)}")


def half_ulp(dtype, count, random):
    """RMS of rounding errors, at worst: all mantissas at 1, and few values or integers all ties."""
    share = min(math.sqrt(3), 1.05 + 2 / math.sqrt(count)) if random else math.sqrt(3)
    return share * 2.0 ** -(MANTISSA[dtype] + 1) / math.sqrt(3)


def judge(name, got, x, dtype, random):
    """Raises Wrong unless `got` is x in this format, as near as x's error allows."""
    want = rounded(x.v, dtype)
    wrong = got.isnan() != want.isnan()
    if wrong.any():
        complain(name, wrong, got, want, "are no numbers")
    off = (got - want).abs()
    off[got == want] = 0
    limit = 1.001 * ulp(want, dtype) + WORST * x.e + x.jump if x.e else torch.zeros_like(want)
    if (off > limit).any():
        complain(name, off > limit, got, want, "too far off" if x.e else "not exact")
    clamped = x.v.clamp(-LARGEST[dtype], LARGEST[dtype]) if dtype in LARGEST else x.v
    size, error = rms(clamped), rms(got - clamped)
    allowed = math.hypot(half_ulp(dtype, got.numel(), random) * size, x.e)
    if x.e and error > allowed:
        raise Wrong(f"{name}: RMS error {error / size:.2e} of the values' {size:.3g}, allowed "
                    f"{allowed / size:.2e}")
    return error / size if size else 0.0


def check(case, given, got, random):
    """Follows a case: outputs must be right, and what comes after them starts from them.

    given, got: name to float64 tensor; random: values are, not integers. Returns the largest RMS
    error of an output and how many of them had to be, and are, right bit by bit.
    """
    values = {name: Value(v) for name, v in given.items()}
    dtypes = {name: t["dtype"] for name, t in case["tensors"].items()}
    worst, exact = 0.0, 0
    for op, attributes in case["ops"]:
        at, name = At(attributes, values, dtypes, random), attributes["out"]
        x, dtype = OPERATORS[op](at), at.out_dtype()
        dtypes[name] = dtype
        if name in case["outputs"]:
            worst = max(worst, judge(name, got[name], x, dtype, random))
            exact += x.e == 0
            values[name] = Value(got[name])
        else:
            values[name] = stored(x, dtype)
    return worst, exact
