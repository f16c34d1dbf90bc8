"""The storage formats, bit for bit, in NumPy: to nearest even, 8-bit formats saturating.

Written from the formats' definitions (IEEE 754, bfloat16, OCP OFP8), not from the runtime's code.
"""
import numpy as np

# name: (bytes, mantissa bits, exponent bias, largest finite value, saturates)
FORMATS = {
    "f32": (4, 23, 127, float(np.finfo(np.float32).max), False),
    "f16": (2, 10, 15, 65504.0, False),
    "bf16": (2, 7, 127, float.fromhex("0x1.fep127"), False),
    "e4m3": (1, 3, 7, 448.0, True),
    "e5m2": (1, 2, 15, 57344.0, True),
}
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
FLOATS = tuple(FORMATS)


def size(dtype):
    return 4 if dtype == "i32" else FORMATS[dtype][0]


def ulp(x, dtype):
    """Distance of neighbouring values of dtype around |x|, at least that of its subnormals."""
    _, mantissa, bias, _, _ = FORMATS[dtype]
    _, exponent = np.frexp(np.abs(x))  # of zero: 0, whose neighbours are subnormal
    exponent = np.where(x == 0, 1 - bias, exponent)
    return np.ldexp(1.0, np.maximum(exponent - 1, 1 - bias) - mantissa)


def round_to(x, dtype):
    """x as the nearest value of dtype, in float64."""
    _, _, _, largest, saturates = FORMATS[dtype]
    x = np.asarray(x, np.float64)
    finite = np.where(np.isfinite(x), x, 0.0)
    step = ulp(finite, dtype)
    y = np.rint(finite / step) * step
    y = np.where(np.abs(y) > largest, np.copysign(largest if saturates else np.inf, y), y)
    y = np.where(np.isinf(x), np.copysign(largest if saturates else np.inf, x), y)
    return np.where(np.isnan(x), np.nan, np.copysign(y, x))


def encode(x, dtype):
    """The bits of x in dtype, as unsigned integers."""
    if dtype == "i32":
        return np.asarray(x, np.int64).astype(np.int32).view(np.uint32)
    width, mantissa, bias, _, _ = FORMATS[dtype]
    y = round_to(x, dtype)
    magnitude = np.abs(np.where(np.isfinite(y), y, 0.0))
    _, exponent = np.frexp(magnitude)
    exponent = np.where(magnitude == 0, 1 - bias, np.maximum(exponent - 1, 1 - bias))
    field = np.rint(np.ldexp(magnitude, mantissa - exponent))
    bits = field.astype(np.int64) + ((exponent + bias - 1).astype(np.int64) << mantissa)
    exponent_bits = 8 * width - 1 - mantissa
    infinity = ((1 << exponent_bits) - 1) << mantissa
    bits = np.where(np.isinf(y), infinity, bits)
    bits = np.where(np.isnan(y), (1 << (8 * width - 1)) - 1, bits)
    sign = np.where(np.signbit(y) & ~np.isnan(y), 1 << (8 * width - 1), 0)
    return (bits | sign).astype(WORDS[width])


def decode(bits, dtype):
    """The values of bits, in float64."""
    if dtype == "i32":
        return bits.view(np.int32).astype(np.float64)
    width, mantissa, bias, _, _ = FORMATS[dtype]
    bits = bits.astype(np.int64)
    magnitude = bits & ((1 << (8 * width - 1)) - 1)
    exponent, field = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    field = np.where(exponent > 0, field + (1 << mantissa), field)
    y = np.ldexp(field.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa)
    top = (1 << (8 * width - 1 - mantissa)) - 1
    if dtype == "e4m3":  # no infinity, one NaN
        y = np.where(magnitude == 0x7f, np.nan, y)
    else:
        special = np.where(magnitude == top << mantissa, np.inf, np.nan)
        y = np.where(exponent == top, special, y)
    return np.where(bits >> (8 * width - 1), -y, y)


def load(data, shape, dtype):
    word = np.uint32 if dtype == "i32" else WORDS[size(dtype)]
    return np.frombuffer(data, word).reshape(shape)


def check():
    """Every pattern of every small format survives; ties go to even, the ends saturate."""
    for dtype in ("f16", "bf16", "e4m3", "e5m2"):
        bits = np.arange(1 << (8 * size(dtype)), dtype=WORDS[size(dtype)])
        values = decode(bits, dtype)
        number = np.isfinite(values)
        assert np.array_equal(encode(values[number], dtype), bits[number]), dtype
    assert list(round_to([448, 460, 1e9, -np.inf], "e4m3")) == [448, 448, 448, -448]
    assert list(round_to([17, 19, 0.00097656250, 0.0029296875], "e4m3")) == [16, 20, 0, 0.00390625]
    assert list(round_to([57344, 1e6, 9, 11], "e5m2")) == [57344, 57344, 8, 12]
    assert list(round_to([257, 259, 65519, 65520], "f16")) == [257, 259, 65504, np.inf]
    assert list(round_to([257, 259], "bf16")) == [256, 260]
    sample = np.random.default_rng(0).normal(size=1000) * 1e3
    assert np.array_equal(encode(sample, "f32"), sample.astype(np.float32).view(np.uint32))
