"""Operators that work element by element, casts, and choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..functions import where
from ..tensor import Tensor
from .node import Function, NodeView

__all__ = ["ELEMENTWISE"]

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": Tensor.abs, "Acos": Tensor.acos, "Acosh": Tensor.acosh, "Asin": Tensor.asin,
    "Asinh": Tensor.asinh, "Atan": Tensor.atan, "Atanh": Tensor.atanh,
    "BitwiseNot": Tensor.bitwise_not, "Ceil": Tensor.ceil, "Cos": Tensor.cos, "Cosh": Tensor.cosh,
    "Erf": Tensor.erf, "Exp": Tensor.exp, "Floor": Tensor.floor, "HardSwish": Tensor.hardswish,
    "IsNaN": Tensor.isnan, "Log": Tensor.log, "Mish": Tensor.mish, "Neg": Tensor.neg,
    "Not": Tensor.logical_not, "Reciprocal": Tensor.reciprocal, "Relu": Tensor.relu,
    "Round": Tensor.round, "Sigmoid": Tensor.sigmoid, "Sign": Tensor.sign, "Sin": Tensor.sin,
    "Sinh": Tensor.sinh, "Softsign": Tensor.softsign, "Sqrt": Tensor.sqrt, "Tan": Tensor.tan,
    "Tanh": Tensor.tanh,
}  # fmt: skip
_PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": Tensor.add, "And": Tensor.logical_and, "BitwiseAnd": Tensor.bitwise_and,
    "BitwiseOr": Tensor.bitwise_or, "BitwiseXor": Tensor.bitwise_xor, "Equal": Tensor.eq,
    "Greater": Tensor.gt, "GreaterOrEqual": Tensor.ge, "Less": Tensor.lt, "LessOrEqual": Tensor.le,
    "Mul": Tensor.mul, "Or": Tensor.logical_or, "Sub": Tensor.sub, "Xor": Tensor.logical_xor,
}  # fmt: skip


def _of_one(function: Callable[[Tensor], Tensor]) -> Function:
    return lambda n: function(n(0))


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda n: function(n(0), n(1))


def _many(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda n: reduce(function, (n(i) for i in range(len(n.inputs))))


def _div(n: NodeView) -> Tensor:
    if n(0).dtype.is_int:
        return n(0).div(n(1), rounding_mode="trunc")
    return n(0).div(n(1))


def _mod(n: NodeView) -> Tensor:
    return n(0).fmod(n(1)) if n.get("fmod", 0) else n(0).remainder(n(1))


def _pow(n: NodeView) -> Tensor:
    base, power = n(0), n.at(1)
    if base.dtype.is_int and n(1).dtype.is_float:  # f32 does not hold every integer of 32 bits
        return base.cast("f64").pow(n(1).cast("f64")).cast(base.dtype)
    if isinstance(power, np.ndarray) and power.size == 1:
        return base.pow(power.reshape(-1)[0].item()).cast(base.dtype)
    return base.pow(n(1)).cast(base.dtype)


def _clip(n: NodeView) -> Tensor:
    if n.opset < 11:
        low, high = n.get("min"), n.get("max")
        return n(0) if low is None and high is None else n(0).clamp(low, high)
    least, most = n.tensor(1), n.tensor(2)
    return n(0) if least is None and most is None else n(0).clamp(least, most)


def _gelu(n: NodeView) -> Tensor:
    return n(0).gelu("tanh" if n.get("approximate", "none") == "tanh" else "none")


def _prelu(n: NodeView) -> Tensor:
    x = n(0)
    return where(x < 0, x * n(1), x)


def _shrink(n: NodeView) -> Tensor:
    x, bias, edge = n(0), n.get("bias", 0.0), n.get("lambd", 0.5)
    return where(x < -edge, x + bias, where(x > edge, x - bias, x * 0)).cast(x.dtype)


def _isinf(n: NodeView) -> Tensor:
    x, up, down = n(0), n.get("detect_positive", 1), n.get("detect_negative", 1)
    if up and down:
        return x.isinf()
    return x.isposinf() if up else x.isneginf() if down else x.isinf().logical_and(False)


def _affine(n: NodeView, alpha: float, beta: float) -> Tensor:
    a, b = float(n.get("alpha", alpha)), float(n.get("beta", beta))
    return (n(0) * a + b).clamp(0.0, 1.0)


ELEMENTWISE: dict[str, Callable[[NodeView], Any]] = {
    **{op: _of_one(f) for op, f in _UNARY.items()},
    **{op: _of_two(f) for op, f in _PAIRS.items()},
    "BitShift": lambda n: n(0) << n(1) if n.get("direction") == "LEFT" else n(0) >> n(1),
    "Celu": lambda n: n(0).celu(n.get("alpha", 1.0)),
    "Clip": _clip,
    "Div": _div,
    "Elu": lambda n: n(0).elu(n.get("alpha", 1.0)),
    "Gelu": _gelu,
    "HardSigmoid": lambda n: _affine(n, 0.2, 0.5),
    "Identity": lambda n: n(0),
    "IsInf": _isinf,
    "LeakyRelu": lambda n: n(0).leaky_relu(n.get("alpha", 0.01)),
    "Max": _many(Tensor.maximum),
    "Mean": lambda n: _many(Tensor.add)(n) / len(n.inputs),
    "Min": _many(Tensor.minimum),
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "Selu": lambda n: where(
        n(0) > 0, n(0), n(0).exp() * n.get("alpha", 1.67326319217681884765625)
        - n.get("alpha", 1.67326319217681884765625)
    ) * n.get("gamma", 1.05070102214813232421875),
    "Shrink": _shrink,
    "Softplus": lambda n: n(0).softplus(),
    "Sum": _many(Tensor.add),
    "SwiGLU": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid() * n(1),
    "Swish": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid(),
    "ThresholdedRelu": lambda n: where(n(0) > n.get("alpha", 1.0), n(0), n(0) * 0),
    "Where": lambda n: where(n(0), n(1), n(2)),
}  # fmt: skip
