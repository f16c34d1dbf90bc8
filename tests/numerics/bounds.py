"""Numbers with a proven error: a float64 value and how far from it a right result may lie.

Every tolerance of these tests comes from here. A Num starts exact, as an input is, and each step
adds what a correct implementation may lose in it:

  - storing to a dtype loses half a unit in the last place of that dtype (dtypes.ulp):
        f32 2^-24   f16 2^-11   bf16 2^-8   e4m3 2^-4   e5m2 2^-3   relative,
    and half the smallest subnormal near zero. Fusion leaves stores out and so loses less;
  - each fp32 operation loses U = 2^-24 of its result, and so does each term of a sum of n terms,
    whatever their order: n U of the sum of magnitudes (Higham, Accuracy and Stability, 4.2);
  - exp, log, tanh, erf in fp32 lose at most 4 U: glibc states 1 to 2 units in the last place;
  - errors of the operands go on through the derivative of the operation.

A result outside its bound is wrong, and for a single operator the bound is little more than one
rounding, so that a wrong index, a lost slice of K or a second rounding shows.
"""
import ast

import numpy as np

import dtypes

U = 2.0 ** -24
TINY = 1e-36  # fp32 subnormals


class Num:
    def __init__(self, value, error=None, dtype="f32"):
        self.v = np.asarray(value, np.float64)
        self.e = np.zeros(self.v.shape) if error is None else error + np.zeros(self.v.shape)
        self.dtype = dtype

    @property
    def shape(self):
        return self.v.shape

    def view(self, change):
        """The same numbers elsewhere: change is applied to values and errors alike."""
        return Num(change(self.v), change(self.e), self.dtype)

    def top(self):
        return np.abs(self.v) + self.e


def lossy(value, error, steps=1):
    """A result of `steps` fp32 operations. Where the error knows no limit, it is infinite."""
    error = np.nan_to_num(error, nan=np.inf)
    return Num(value, error + steps * U * (np.abs(value) + error) + TINY)


def store(x, dtype):
    """x rounded to dtype."""
    if dtype == "i32":
        return Num(x.v, x.e, dtype)
    _, _, _, largest, saturates = dtypes.FORMATS[dtype]
    value = np.clip(x.v, -largest, largest) if saturates else x.v
    return Num(value, x.e + dtypes.ulp(x.top(), dtype) / 2, dtype)


def add(a, b):
    return lossy(a.v + b.v, a.e + b.e)


def sub(a, b):
    return lossy(a.v - b.v, a.e + b.e)


def mul(a, b):
    return lossy(a.v * b.v, np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e)


def div(a, b):
    value = a.v / b.v
    room = np.abs(b.v) - b.e
    error = np.where(room > 0, (a.e + np.abs(value) * b.e) / np.where(room > 0, room, 1), np.inf)
    return lossy(value, error)


def rsqrt(x):
    low = np.maximum(x.v - x.e, 0)
    value = 1 / np.sqrt(x.v)
    error = np.where(low > 0, 1 / np.sqrt(np.where(low > 0, low, 1)) - value, np.inf)
    return lossy(value, error, 2)


def sqrt(x):
    return lossy(np.sqrt(x.v), np.sqrt(x.v) - np.sqrt(np.maximum(x.v - x.e, 0)))


def exp(x):
    return lossy(np.exp(x.v), np.exp(x.v) * np.expm1(x.e), 4)


def log(x):
    low = np.maximum(x.v - x.e, 0)
    error = np.where(low > 0, np.log(x.v / np.where(low > 0, low, 1)), np.inf)
    return lossy(np.log(x.v), error, 4)


ERF = np.vectorize(__import__("math").erf, otypes=[np.float64])


def sigmoid(x):
    return lossy(1 / (1 + np.exp(-x.v)), 0.25 * x.e, 8)


def silu(x):
    return lossy(x.v / (1 + np.exp(-x.v)), 1.1 * x.e, 8)


def gelu(x):  # 1 + erf cancels for negative x, so the loss is relative to x
    value = 0.5 * x.v * (1 + ERF(x.v / np.sqrt(2)))
    return Num(value, 1.13 * x.e + 8 * U * x.top() + TINY)


def gelu_tanh(x):
    value = 0.5 * x.v * (1 + np.tanh(np.sqrt(2 / np.pi) * (x.v + 0.044715 * x.v ** 3)))
    return Num(value, 1.13 * x.e + 16 * U * x.top() + TINY)


FUNCTIONS = {
    "exp": exp, "log": log, "sqrt": sqrt, "rsqrt": rsqrt,
    "abs": lambda x: Num(np.abs(x.v), x.e),
    "max": lambda a, b: Num(np.maximum(a.v, b.v), np.maximum(a.e, b.e)),
    "min": lambda a, b: Num(np.minimum(a.v, b.v), np.maximum(a.e, b.e)),
    "tanh": lambda x: lossy(np.tanh(x.v), x.e, 4),
    "erf": lambda x: lossy(ERF(x.v), 1.13 * x.e, 4),
    "sigmoid": sigmoid, "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh,
    "bf16": lambda x: store(x, "bf16"), "f16": lambda x: store(x, "f16"),
    "e4m3": lambda x: store(x, "e4m3"), "e5m2": lambda x: store(x, "e5m2"),
}
OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: div}


def evaluate(text, names):
    """A pointwise expression over Nums. Its grammar is also Python's."""
    def walk(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.UnaryOp):
            x = walk(node.operand)
            return Num(-x.v, x.e)
        if isinstance(node, ast.Call):
            return FUNCTIONS[node.func.id](*[walk(a) for a in node.args])
        if isinstance(node, ast.Constant):
            return Num(node.value, abs(node.value) * U)
        return names[node.id]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return walk(ast.parse(text, mode="eval").body)


def dot(subscripts, a, b, length):
    """An einsum of two operands that sums `length` terms."""
    def es(x, y):
        return np.einsum(subscripts, x, y)
    error = es(np.abs(a.v), b.e) + es(a.e, b.top())
    return Num(es(a.v, b.v), error + (length + 2) * U * es(a.top(), b.top()) + TINY)


def softmax(x, seen=None):
    """Over the last axis; `seen` masks the terms that take part."""
    seen = np.ones(x.shape, bool) if seen is None else seen
    any_seen = seen.any(-1, keepdims=True)
    top = np.where(seen, x.v, -np.inf).max(-1, keepdims=True)
    top = np.where(any_seen, top, 0)
    shifted = np.where(seen, x.v - top, -np.inf)
    weight = np.exp(shifted)
    total = weight.sum(-1, keepdims=True)
    value = weight / np.where(total > 0, total, 1)
    worst = np.where(seen, x.e, 0).max(-1, keepdims=True)
    spread = np.where(seen, np.abs(shifted), 0)
    loss = 2 * worst + U * (2 * spread + x.shape[-1] + 16)
    return Num(value, value * np.expm1(loss) + TINY)
