"""Elementwise operations equal PyTorch's in compiled form, in every float type."""

import math

import numpy as np
import pytest
from torch_cases import check, integers, numbers, on, optional_torch

torch = optional_torch()

SHAPES = [(3, 5), (), (0, 4), (2, 1, 7)]

SMOOTH = {
    "abs": lambda T, F, x: T.abs(x),
    "neg": lambda T, F, x: x.neg(),
    "square": lambda T, F, x: T.square(x),
    "sign": lambda T, F, x: T.sign(x),
    "exp": lambda T, F, x: x.exp(),
    "exp2": lambda T, F, x: T.exp2(x),
    "expm1": lambda T, F, x: T.expm1(x),
    "sin": lambda T, F, x: T.sin(x),
    "cos": lambda T, F, x: T.cos(x * 5),
    "sinc": lambda T, F, x: T.sinc(x),
    "atan": lambda T, F, x: T.atan(x),
    "sinh": lambda T, F, x: T.sinh(x),
    "cosh": lambda T, F, x: T.cosh(x),
    "tanh": lambda T, F, x: x.tanh(),
    "asinh": lambda T, F, x: T.asinh(x),
    "sigmoid": lambda T, F, x: T.sigmoid(x),
    "erf": lambda T, F, x: T.erf(x),
    "erfc": lambda T, F, x: T.erfc(x),
    "deg2rad": lambda T, F, x: T.deg2rad(x),
    "rad2deg": lambda T, F, x: T.rad2deg(x),
    "reciprocal": lambda T, F, x: T.reciprocal(x),
    "floor": lambda T, F, x: T.floor(x),
    "ceil": lambda T, F, x: T.ceil(x),
    "trunc": lambda T, F, x: T.trunc(x),
    "frac": lambda T, F, x: T.frac(x),
    "clamp": lambda T, F, x: x.clamp(-1, 1.5),
    "clamp min": lambda T, F, x: x.clamp(min=0.5),
    "clip max": lambda T, F, x: T.clip(x, max=0.5),
    "nan_to_num": lambda T, F, x: T.nan_to_num(x, 1.0),
    "relu": lambda T, F, x: F.relu(x),
    "relu6": lambda T, F, x: F.relu6(x * 3),
    "leaky_relu": lambda T, F, x: F.leaky_relu(x, 0.2),
    "rrelu": lambda T, F, x: F.rrelu(x),
    "elu": lambda T, F, x: F.elu(x, 1.5),
    "selu": lambda T, F, x: F.selu(x),
    "celu": lambda T, F, x: F.celu(x, 1.5),
    "gelu": lambda T, F, x: F.gelu(x),
    "gelu tanh": lambda T, F, x: F.gelu(x, approximate="tanh"),
    "silu": lambda T, F, x: F.silu(x),
    "mish": lambda T, F, x: F.mish(x),
    "softplus": lambda T, F, x: F.softplus(x, 2, 3),
    "softsign": lambda T, F, x: F.softsign(x),
    "softshrink": lambda T, F, x: F.softshrink(x, 0.7),
    "hardshrink": lambda T, F, x: F.hardshrink(x, 0.7),
    "hardtanh": lambda T, F, x: F.hardtanh(x, -2, 1),
    "hardsigmoid": lambda T, F, x: F.hardsigmoid(x),
    "hardswish": lambda T, F, x: F.hardswish(x),
    "tanhshrink": lambda T, F, x: F.tanhshrink(x),
    "threshold": lambda T, F, x: F.threshold(x, 0.5, 7.0),
    "logsigmoid": lambda T, F, x: F.logsigmoid(x),
    "pow 3": lambda T, F, x: x**3,
    "rsub": lambda T, F, x: 2 - x,
    "rdiv": lambda T, F, x: 2 / x,
    "lerp": lambda T, F, x: T.lerp(x, x * 2, 0.3),
    "where": lambda T, F, x: T.where(x > 0, x, -x),
    "x.where": lambda T, F, x: x.where(x > 0, x * 2),
    "masked_fill": lambda T, F, x: x.masked_fill(x > 0, -1.0),
    "heaviside": lambda T, F, x: T.heaviside(x, x),
    "softmax": lambda T, F, x: F.softmax(x, -1) if x.ndim else x,
    "log_softmax": lambda T, F, x: T.log_softmax(x, 0) if x.ndim else x,
    "float": lambda T, F, x: (x.float(), x.double(), x.half(), x.to(T.float32)),
    "long": lambda T, F, x: (x.long(), x.int(), x.bool(), x.short() if hasattr(x, "short") else x.int()),
}  # fmt: skip
del SMOOTH["long"]

POSITIVE = {
    "sqrt": lambda T, F, x: x.sqrt(),
    "rsqrt": lambda T, F, x: T.rsqrt(x),
    "log": lambda T, F, x: x.log(),
    "log2": lambda T, F, x: T.log2(x),
    "log10": lambda T, F, x: T.log10(x),
    "log1p": lambda T, F, x: T.log1p(x),
    "acosh": lambda T, F, x: T.acosh(x + 1),
    "pow": lambda T, F, x: x**0.7,
    "rpow": lambda T, F, x: 2.5**x,
    "x ** x": lambda T, F, x: T.pow(x, x),
    "xlogy": lambda T, F, x: T.xlogy(x, x),
}

UNIT = {
    "asin": lambda T, F, x: T.asin(x),
    "acos": lambda T, F, x: T.acos(x),
    "atanh": lambda T, F, x: T.atanh(x),
    "erfinv": lambda T, F, x: T.erfinv(x),
    "tan": lambda T, F, x: T.tan(x),
    "logit": lambda T, F, x: T.logit(x.abs(), 0.01),
}

BINARY = {
    "add alpha": lambda T, F, x, y: T.add(x, y, alpha=2),
    "sub alpha": lambda T, F, x, y: x.sub(y, alpha=0.5),
    "mul": lambda T, F, x, y: T.mul(x, y),
    "div": lambda T, F, x, y: T.div(x, y),
    "div floor": lambda T, F, x, y: T.div(x, y, rounding_mode="floor"),
    "div trunc": lambda T, F, x, y: T.div(x, y, rounding_mode="trunc"),
    "floor_divide": lambda T, F, x, y: x // y,
    "remainder": lambda T, F, x, y: T.remainder(x, y),
    "fmod": lambda T, F, x, y: T.fmod(x, y),
    "maximum": lambda T, F, x, y: T.maximum(x, y),
    "min of two": lambda T, F, x, y: T.min(x, y),
    "fmax": lambda T, F, x, y: T.fmax(x, y),
    "hypot": lambda T, F, x, y: T.hypot(x, y),
    "atan2": lambda T, F, x, y: T.atan2(x, y),
    "copysign": lambda T, F, x, y: T.copysign(x, y),
    "logaddexp": lambda T, F, x, y: T.logaddexp(x, y),
    "logaddexp2": lambda T, F, x, y: T.logaddexp2(x, y),
    "addcmul": lambda T, F, x, y: T.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda T, F, x, y: T.addcdiv(x, x, y, value=0.5),
    "comparisons": lambda T, F, x, y: (x < y, x.le(y), T.gt(x, y), x.ge(y), x.eq(y), T.ne(x, y)),
    "logical": lambda T, F, x, y: (T.logical_and(x, y), T.logical_or(x, y), T.logical_xor(x, y)),
    "isclose": lambda T, F, x, y: T.isclose(x, x + y * 1e-6),
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_functions_of_one_tensor_equal_torch(dtype):
    shapes = SHAPES if dtype == "f32" else SHAPES[:1]
    cases = on(SMOOTH, *([numbers(*s)] for s in shapes))
    cases |= on(POSITIVE, *([numbers(*s, low=0.2)] for s in shapes))
    cases |= on(UNIT, *([numbers(*s, low=-0.9, high=0.9)] for s in shapes))
    narrow = dtype in ("f16", "bf16")
    if narrow:  # torch has no such type, or rounds in between
        for name in [n for n in cases if n.split(" (")[0] in ("frac", "lerp", "float", "cos")]:
            del cases[name]
    check(cases, torch, dtype, {"f16": 6e-3, "bf16": 5e-2}.get(dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_of_two_tensors_equal_torch(dtype):
    pairs = [
        [numbers(3, 5), numbers(3, 5, seed=1)],
        [numbers(2, 1, 4), numbers(3, 1, seed=1)],
        [numbers(0, 4), numbers(4, seed=1)],
    ]
    check(on(BINARY, *pairs), torch, dtype)


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 0.5, -0.5, 1.5, 2.5, -2.5,
     0.49999997, 8388609.0, 3.7, 88.8, -88.8],
    np.float32,
)  # fmt: skip

ON_SPECIAL = {
    "round": lambda T, F, x: T.round(x),
    "trunc": lambda T, F, x: T.trunc(x),
    "isnan": lambda T, F, x: (T.isnan(x), T.isinf(x), T.isfinite(x), T.isposinf(x), T.isneginf(x)),
    "signbit": lambda T, F, x: T.signbit(x),
    "sign": lambda T, F, x: T.sign(x),
    "expm1": lambda T, F, x: T.expm1(x),
    "log1p": lambda T, F, x: T.log1p(x),
    "nan_to_num": lambda T, F, x: T.nan_to_num(x),
    "atan": lambda T, F, x: T.atan(x),
    "asin": lambda T, F, x: T.asin(x),
    "acos": lambda T, F, x: T.acos(x),
    "sinh": lambda T, F, x: T.sinh(x),
    "asinh": lambda T, F, x: T.asinh(x),
    "acosh": lambda T, F, x: T.acosh(x),
    "erfinv": lambda T, F, x: T.erfinv(x),
    "softplus": lambda T, F, x: F.softplus(x),
    "logsigmoid": lambda T, F, x: F.logsigmoid(x),
    "hypot": lambda T, F, x: T.hypot(x, x.flip(0)),
    "copysign": lambda T, F, x: T.signbit(T.copysign(T.ones_like(x), x)),
    "atan2": lambda T, F, x: T.atan2(x, x.flip(0)),
    "logaddexp": lambda T, F, x: T.logaddexp(x, x.flip(0)),
    "fmin": lambda T, F, x: T.fmin(x, x.flip(0)),
    "xlogy": lambda T, F, x: T.xlogy(x, x.flip(0)),
}


def test_functions_of_special_numbers_equal_torch():
    check(on(ON_SPECIAL, [SPECIAL]), torch)


def test_round_keeps_decimals():
    check({"round": (lambda T, F, x: T.round(x, decimals=2), [numbers(4, 4)])}, torch)


def test_cosine_is_exact_far_from_zero():
    x = np.linspace(-300, 300, 997).astype(np.float32)
    check({"cos": (lambda T, F, x: (T.cos(x), T.sin(x)), [x])}, torch, close=2e-6)


WHOLE = {
    "add": lambda T, F, x, y: x + y,
    "sub": lambda T, F, x, y: x - y,
    "mul": lambda T, F, x, y: x * y,
    "div": lambda T, F, x, y: x / y,
    "floordiv": lambda T, F, x, y: x // y,
    "div trunc": lambda T, F, x, y: T.div(x, y, rounding_mode="trunc"),
    "mod": lambda T, F, x, y: x % y,
    "fmod": lambda T, F, x, y: T.fmod(x, y),
    "square": lambda T, F, x, y: x**2,
    "bits": lambda T, F, x, y: (x & y, x | y, x ^ y, ~x, T.bitwise_not(y)),
    "max": lambda T, F, x, y: (T.maximum(x, y), T.minimum(x, y)),
    "sign": lambda T, F, x, y: (T.sign(x), T.abs(x), -x),
    "round": lambda T, F, x, y: (T.round(x), T.floor(x), T.ceil(x), T.trunc(x)),
    "clamp": lambda T, F, x, y: x.clamp(-3, 4),
    "exp": lambda T, F, x, y: (T.exp(x), T.sigmoid(x), T.cos(x)),
    "compare": lambda T, F, x, y: (x < y, x == y, T.logical_not(x)),
    "where": lambda T, F, x, y: T.where(x > y, x, y),
    "casts": lambda T, F, x, y: (x.float(), x.bool(), x.long(), x.int()),
    "sum": lambda T, F, x, y: (x.sum(), x.prod(0), x.amax(0), x.amin(1, keepdim=True)),
    "any": lambda T, F, x, y: (x.any(), x.all(0), T.count_nonzero(x, 1)),
}


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.int8])
def test_integers_equal_torch(dtype):
    x = integers(3, 4, dtype=dtype)
    y = np.where(integers(3, 4, seed=1, dtype=dtype) == 0, 5, integers(3, 4, seed=1, dtype=dtype))
    check(on(WHOLE, [x, y.astype(dtype)]), torch)


def test_bools_equal_torch():
    cases = {
        "logic": lambda T, F, x, y: (x & y, x | y, x ^ y, ~x, T.logical_and(x, y)),
        "sums": lambda T, F, x, y: (x.sum(), x.any(1), x.all(0), T.count_nonzero(x)),
        "where": lambda T, F, x, y: T.where(x, 1.5, 2.5),
        "masked": lambda T, F, x, y: T.zeros_like(x).masked_fill(y, True),
    }
    check(on(cases, [integers(3, 4) > 0, integers(3, 4, seed=1) > 0]), torch)


def test_prelu_and_glu_equal_torch():
    cases = {
        "prelu one": (lambda T, F, x, w: F.prelu(x, w), [numbers(2, 3, 4), numbers(1)]),
        "prelu each": (lambda T, F, x, w: F.prelu(x, w), [numbers(2, 3, 4), numbers(3)]),
        "glu": (lambda T, F, x: F.glu(x, 1), [numbers(2, 6, 4)]),
        "softmin": (lambda T, F, x: F.softmin(x, 1), [numbers(2, 6)]),
    }
    check(cases, torch)


def test_polynomial_functions_are_exact_in_f64():
    x = numbers(64, low=-0.999, high=0.999)
    check({"erfinv": (lambda T, F, x: T.erfinv(x), [x])}, torch, "f64", 1e-9)
    wide = numbers(64, low=-50, high=50)
    check(
        {"atan": (lambda T, F, x: (T.atan(x), T.atan2(x, x + math.pi)), [wide])},
        torch,
        "f64",
        1e-13,
    )
