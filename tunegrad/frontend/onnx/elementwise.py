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

_METHODS = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish",
    "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_PAIRS = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge",
    "Less": "lt", "LessOrEqual": "le", "Mul": "mul", "Or": "logical_or", "Sub": "sub",
    "Xor": "logical_xor",
}  # fmt: skip


def _method(name: str) -> Function:
    return lambda n: getattr(n(0), name)()


def _pair(name: str) -> Function:
    return lambda n: getattr(n(0), name)(n(1))


def _many(name: str) -> Function:
    return lambda n: reduce(lambda a, b: getattr(a, name)(b), (n(i) for i in range(len(n.inputs))))


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


def _of(name: str, **attributes: tuple[str, Any]) -> Function:
    """A method whose arguments are attributes: (ONNX's name, default)."""

    def function(n: NodeView) -> Tensor:
        given = {k: n.get(onnx, default) for k, (onnx, default) in attributes.items()}
        found: Tensor = getattr(n(0), name)(**given)
        return found

    return function


def _affine(n: NodeView, alpha: float, beta: float) -> Tensor:
    a, b = float(n.get("alpha", alpha)), float(n.get("beta", beta))
    return (n(0) * a + b).clamp(0.0, 1.0)


ELEMENTWISE: dict[str, Callable[[NodeView], Any]] = {
    **{op: _method(name) for op, name in _METHODS.items()},
    **{op: _pair(name) for op, name in _PAIRS.items()},
    "BitShift": lambda n: getattr(
        n(0), f"bitwise_{n.get('direction').lower()}_shift"
    )(n(1)),
    "Celu": _of("celu", alpha=("alpha", 1.0)),
    "Clip": _clip,
    "Div": _div,
    "Elu": _of("elu", alpha=("alpha", 1.0)),
    "Gelu": _gelu,
    "HardSigmoid": lambda n: _affine(n, 0.2, 0.5),
    "Identity": lambda n: n(0),
    "IsInf": _isinf,
    "LeakyRelu": _of("leaky_relu", negative_slope=("alpha", 0.01)),
    "Max": _many("maximum"),
    "Mean": lambda n: _many("add")(n) / len(n.inputs),
    "Min": _many("minimum"),
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "Selu": lambda n: where(
        n(0) > 0, n(0), n(0).exp() * n.get("alpha", 1.67326319217681884765625)
        - n.get("alpha", 1.67326319217681884765625)
    ) * n.get("gamma", 1.05070102214813232421875),
    "Shrink": _shrink,
    "Softplus": lambda n: n(0).softplus(),
    "Sum": _many("add"),
    "SwiGLU": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid() * n(1),
    "Swish": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid(),
    "ThresholdedRelu": lambda n: where(n(0) > n.get("alpha", 1.0), n(0), n(0) * 0),
    "Where": lambda n: where(n(0), n(1), n(2)),
}  # fmt: skip
