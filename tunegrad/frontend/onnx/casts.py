"""Other types for the same numbers, and scales with zero points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import DTYPES, F32, DType, dtype_of

from ..tensor import Tensor
from .bits import bits_of, of_bits
from .codes import KINDS, Coded, Kind, codes_of, decoded, encoded, kind_of_array
from .node import Function, NodeView, Value

__all__ = ["CASTS", "called", "dynamically", "type_of"]


def type_of(n: NodeView, to: int) -> DType | Kind:
    """The type that a number of ONNX's stands for. Raises ModelError for a type that is not
    there.
    """
    from onnx import TensorProto, helper

    try:
        name = str(TensorProto.DataType.Name(to))
        if name in KINDS:
            return KINDS[name]
        if name == "BFLOAT16":
            return DTYPES["bf16"]
        return dtype_of(np.dtype(helper.tensor_dtype_to_np_dtype(to)).name)
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
    """DynamicQuantizeLinear: steps in u8, their scale and zero point, by the range of what is
    there.
    """
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
