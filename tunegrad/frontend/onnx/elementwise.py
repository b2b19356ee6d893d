"""Operators element by element, choices, casts, scales with zero points, and random numbers.

A node that draws counts from its ``seed``, so that each call has the same numbers, as in ONNX's
reference; one without a seed from an input of the model (``draws_from``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import F32, DType, dtype_of

from ..functions import where
from ..random import bernoulli, draws_from, multinomial, rand, randn, start_of
from ..tensor import Tensor
from .node import (
    Coded,
    Function,
    Kind,
    NodeView,
    Value,
    bits_of,
    codes_of,
    decoded,
    encoded,
    kind_of_array,
    of_bits,
    type_of_number,
)


def type_of(n: NodeView, to: int) -> DType | Kind:
    """The type that a number of ONNX's stands for. ModelError for a type that is not there."""
    try:
        return type_of_number(to)
    except Exception as error:  # a number that ONNX, numpy or tunegrad does not have
        raise n.error(f"there is no dtype {to}") from error


def _as(n: NodeView, x: Tensor | Coded, to: DType | Kind) -> Tensor | Coded:
    saturate, rounding = bool(n.get("saturate", 1)), n.get("round_mode", "up")
    if isinstance(x, Coded):
        if x.kind == to:
            return x
        x = decoded(x, to if isinstance(to, DType) else F32)
    return encoded(x, to, saturate, rounding) if isinstance(to, Kind) else x.cast(to)


def _cast(n: NodeView) -> Tensor | Coded:
    if n.op == "CastLike":
        like = n.any(1)
        return _as(n, n.any(0), like.kind if isinstance(like, Coded) else like.dtype)
    return _as(n, n.any(0), type_of(n, n.get("to")))


def _bit_cast(n: NodeView) -> Tensor | Coded:
    """BitCast: the bits of one type as those of another, whatever they meant; all NaNs are one."""
    x, to = n.any(0), type_of(n, n.get("to"))
    held = x.codes if isinstance(x, Coded) else x
    kind = x.kind if isinstance(x, Coded) else x.dtype
    if to == kind:
        return x
    if kind.bits != to.bits:
        raise n.error(f"{kind.name} and {to.name} are not of one width")
    if isinstance(x, Tensor) and x.dtype.is_float and x.dtype.name != "bf16":
        held = bits_of(x)
    if isinstance(to, DType) and to.is_float:
        return of_bits(held, to)
    if not isinstance(to, Kind):
        return held.cast(to)
    return encoded(held, to) if to.is_int else Coded(held.cast("u8"), to)


def _quantized(n: NodeView) -> Tensor | Coded:
    """QuantizeLinear: to the nearest, ties to even, saturated."""
    zero, to = n.at(2), n.get("output_dtype", 0)
    given = None if zero is None else n.any(2)
    kind: DType | Kind = type_of(n, to) if to else dtype_of("u8")
    if given is not None:
        kind = given.kind if isinstance(given, Coded) else given.dtype
    x, scale = n(0), _along(n, 1)
    precision = type_of(n, n.get("precision")) if n.get("precision", 0) else None
    wide = precision if isinstance(precision, DType) else x.dtype.compute
    y = x.cast(wide) / scale.cast(wide)
    if isinstance(kind, Kind) and not kind.is_int:
        return encoded(y, kind, bool(n.get("saturate", 1)))
    if not isinstance(kind, Kind) and not kind.is_int:
        raise n.error(f"zero point of {kind}")
    y = y.round()
    if given is not None:
        y = y + _along(n, 2, y.dtype)
    low, high = kind.range if isinstance(kind, Kind) else (kind.least, kind.greatest)
    held = y.clamp(float(low), float(high)).cast(kind.codes if isinstance(kind, Kind) else kind)
    return Coded(held, kind) if isinstance(kind, Kind) else held


def _dequantized(n: NodeView) -> Tensor:
    x, scale = n.any(0), _along(n, 1)
    wide = scale.dtype.compute
    to = type_of(n, n.get("output_dtype")) if n.get("output_dtype", 0) else scale.dtype
    if isinstance(to, Kind):
        raise n.error(f"there are no outputs of {to.name}")
    y = decoded(x, wide) if isinstance(x, Coded) else x.cast(wide)
    if n.at(2) is not None and not (isinstance(x, Coded) and not x.kind.is_int):
        y = y - _along(n, 2, wide)
    return (y * scale.cast(wide)).cast(to)


def _along(n: NodeView, place: int, dtype: DType | None = None) -> Tensor:
    """A scale or zero point, one in all, one for each position of an axis or for each block."""
    given = n.any(place)
    value = decoded(given, dtype or F32) if isinstance(given, Coded) else given
    value = value if dtype is None else value.cast(dtype)
    shape, block = n.any(0).shape, n.get("block_size", 0)
    if value.ndim == 0 or value.shape == (1,):
        return value.reshape(())
    axis = n.get("axis", 1) % len(shape)
    if block:
        return value.repeat_interleave(block, axis).narrow(axis, 0, shape[axis])
    if value.ndim != 1 or value.shape[0] != shape[axis]:
        raise n.error(f"operand {place} of {value.shape} does not fit axis {axis} of {shape}")
    return value.reshape(*(1,) * axis, -1, *(1,) * (len(shape) - axis - 1))


def dynamically(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DynamicQuantizeLinear: steps in u8, their scale and zero point, by the range."""
    low, high = x.amin().minimum(0.0), x.amax().maximum(0.0)
    scale = (high - low) / 255.0
    zero = (low.neg() / scale).clamp(0.0, 255.0).round()
    y = ((x / scale).round() + zero).clamp(0.0, 255.0).cast("u8")
    return y, scale, zero.cast("u8")


CASTS: dict[str, Callable[[NodeView], Any]] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast,
    "DequantizeLinear": _dequantized,
    "DynamicQuantizeLinear": lambda n: dynamically(n(0)),
    "QuantizeLinear": _quantized,
}

_MOVING = frozenset(
    ["Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
     "GatherND", "Identity", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth", "Split",
     "Squeeze", "Tile", "Transpose", "Unsqueeze"]
)  # fmt: skip
"""Operators that move elements whatever they are, so codes, too."""


def called(function: Function, n: NodeView) -> Any:
    """Result of an operator; one that only moves elements does so with codes."""
    kinds = {k for v in n.inputs if (k := _kind(v)) is not None}
    if n.op not in _MOVING or not kinds:
        return function(n)
    if len(kinds) > 1:
        raise n.error(f"operands of {' and '.join(sorted(k.name for k in kinds))}")
    (kind,) = kinds
    made = function(replace(n, inputs=[v if _kind(v) is None else _codes(v) for v in n.inputs]))
    listed = made if isinstance(made, tuple) else (made,)
    found = tuple(Coded(m, kind) if isinstance(m, Tensor) else m for m in listed)
    return found if isinstance(made, tuple) else found[0]


def _kind(value: Value) -> Kind | None:
    if isinstance(value, Coded):
        return value.kind
    return kind_of_array(value) if isinstance(value, np.ndarray) else None


def _codes(value: Value) -> Value:
    if isinstance(value, Coded):
        return value.codes
    return codes_of(value) if isinstance(value, np.ndarray) else value


def _sign(x: Tensor) -> Tensor:
    """That of NaN is NaN, unlike PyTorch's."""
    return where(x != x, x, x.sign()) if x.dtype.is_float else x.sign()


def _hard_swish(x: Tensor) -> Tensor:
    """Finite where x is, unlike PyTorch's."""
    return x * (x * (1 / 6) + 0.5).clamp(0.0, 1.0)


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": Tensor.abs, "Acos": Tensor.acos, "Acosh": Tensor.acosh, "Asin": Tensor.asin,
    "Asinh": Tensor.asinh, "Atan": Tensor.atan, "Atanh": Tensor.atanh,
    "BitwiseNot": Tensor.bitwise_not, "Ceil": Tensor.ceil, "Cos": Tensor.cos, "Cosh": Tensor.cosh,
    "Erf": Tensor.erf, "Exp": Tensor.exp, "Floor": Tensor.floor, "HardSwish": _hard_swish,
    "IsNaN": Tensor.isnan, "Log": Tensor.log, "Mish": Tensor.mish, "Neg": Tensor.neg,
    "Not": Tensor.logical_not, "Reciprocal": Tensor.reciprocal, "Relu": Tensor.relu,
    "Round": Tensor.round, "Sigmoid": Tensor.sigmoid, "Sign": _sign, "Sin": Tensor.sin,
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


def _pow(n: NodeView) -> Tensor:
    base, power = n(0), n.at(1)
    if base.dtype.is_int and n(1).dtype.is_float:  # f32 does not hold every integer of 32 bits
        return base.cast("f64").pow(n(1).cast("f64")).cast(base.dtype)
    if isinstance(power, np.ndarray) and power.size == 1:
        number = power.reshape(-1)[0].item()
        if abs(number) != 0.5:  # a root, as PyTorch's is, has other limits at -inf and -0
            return base.pow(number).cast(base.dtype)
    return base.pow(n(1)).cast(base.dtype)


def _clip(n: NodeView) -> Tensor:
    if n.opset < 11:
        low, high = n.get("min"), n.get("max")
        return n(0) if low is None and high is None else n(0).clamp(low, high)
    least, most = n.tensor(1), n.tensor(2)
    return n(0) if least is None and most is None else n(0).clamp(least, most)


def _shrink(n: NodeView) -> Tensor:
    x, bias, edge = n(0), n.get("bias", 0.0), n.get("lambd", 0.5)
    return where(x < -edge, x + bias, where(x > edge, x - bias, 0)).cast(x.dtype)


def _isinf(n: NodeView) -> Tensor:
    x, up, down = n(0), n.get("detect_positive", 1), n.get("detect_negative", 1)
    if up and down:
        return x.isinf()
    return x.isposinf() if up else x.isneginf() if down else x.isinf().logical_and(False)


ELEMENTWISE: dict[str, Callable[[NodeView], Any]] = {
    **{op: _of_one(f) for op, f in _UNARY.items()},
    **{op: _of_two(f) for op, f in _PAIRS.items()},
    "BitShift": lambda n: n(0) << n(1) if n.get("direction") == "LEFT" else n(0) >> n(1),
    "Celu": lambda n: n(0).celu(n.get("alpha", 1.0)),
    "Clip": _clip,
    "Div": lambda n: n(0).div(n(1), rounding_mode="trunc" if n(0).dtype.is_int else None),
    "Elu": lambda n: n(0).elu(n.get("alpha", 1.0)),
    "Gelu": lambda n: n(0).gelu(n.get("approximate", "none")),
    "HardSigmoid": lambda n: (
        n(0) * n.get("alpha", 0.2) + n.get("beta", 0.5)
    ).clamp(0.0, 1.0),
    "Identity": lambda n: n(0),
    "IsInf": _isinf,
    "LeakyRelu": lambda n: n(0).leaky_relu(n.get("alpha", 0.01)),
    "Max": _many(Tensor.maximum),
    "Mean": lambda n: _many(Tensor.add)(n) / len(n.inputs),
    "Min": _many(Tensor.minimum),
    "Mod": lambda n: (Tensor.fmod if n.get("fmod", 0) else Tensor.remainder)(n(0), n(1)),
    "PRelu": lambda n: where(n(0) < 0, n(0) * n(1), n(0)),
    "Pow": _pow,
    "Selu": lambda n: (
        n(0).elu(n.get("alpha", 1.67326319217681884765625))
        * n.get("gamma", 1.05070102214813232421875)
    ),
    "Shrink": _shrink,
    "Softplus": lambda n: n(0).softplus(),
    "Sum": _many(Tensor.add),
    "SwiGLU": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid() * n(1),
    "Swish": lambda n: n(0) * (n(0) * n.get("alpha", 1.0)).sigmoid(),
    "ThresholdedRelu": lambda n: where(n(0) > n.get("alpha", 1.0), n(0), 0),
    "Where": lambda n: where(n(0), n(1), n(2)),
}  # fmt: skip


def _seeded(draw: Callable[[NodeView], Any]) -> Function:
    def drawn(n: NodeView) -> Any:
        seed = n.get("seed")
        if seed is None or seed != seed:  # a seed that is NaN is none, too
            return draw(n)
        with draws_from(Tensor(np.asarray(start_of(int(seed)), np.uint64))):
            return draw(n)

    return drawn


def _random(n: NodeView) -> Tensor | Coded:
    """RandomNormal, RandomUniform, and those in the shape and type of another tensor."""
    like = n.any(0) if n.op.endswith("Like") else None
    shape = n.get("shape", []) if like is None else like.shape
    default = F32 if like is None else like.kind if isinstance(like, Coded) else like.dtype
    kind = type_of(n, n.get("dtype")) if n.get("dtype") else default
    wide = kind if isinstance(kind, DType) and kind.is_float else F32
    if n.op.startswith("RandomNormal"):
        return _as(n, randn(*shape, dtype=wide) * n.get("scale", 1.0) + n.get("mean", 0.0), kind)
    low, high = n.get("low", 0.0), n.get("high", 1.0)
    return _as(n, rand(*shape, dtype=wide) * (high - low) + low, kind)


def _bernoulli(n: NodeView) -> Tensor | Coded:
    kind = type_of(n, n.get("dtype")) if n.get("dtype") else n(0).dtype
    return _as(n, bernoulli(n(0)), kind)


def _multinomial(n: NodeView) -> Tensor | Coded:
    """Multinomial, of logarithms of weights."""
    weights = n(0).softmax(-1)
    found = multinomial(weights, n.get("sample_size", 1), replacement=True)
    return _as(n, found, type_of(n, n.get("dtype", 6)))


def _dropout(n: NodeView) -> tuple[Any, ...]:
    training, said = n.known(2), n.at(1)
    ratio = said.item() if isinstance(said, np.ndarray) else 0.5 if said is None else n(1)
    if training is None or not np.any(training) or (isinstance(ratio, float) and ratio == 0.0):
        return (n.at(0), np.ones(n.any(0).shape, np.bool_))[: max(1, n.outputs)]
    kept = rand(n(0).shape) >= ratio
    return where(kept, n(0) / (1.0 - ratio), 0.0).cast(n(0).dtype), kept


DRAWING: dict[str, Function] = {
    "Bernoulli": _seeded(_bernoulli),
    "Dropout": _seeded(_dropout),
    "Multinomial": _seeded(_multinomial),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        _seeded(_random),
    ),
}
