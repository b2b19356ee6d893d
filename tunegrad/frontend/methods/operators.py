"""Python's operators: numpy's broadcasting and promotion, numbers that take the tensor's dtype."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tunegrad.ir import graph
from tunegrad.ir.dtypes import I8, I16, I32, I64, U8, U16, U32, dtype_of
from tunegrad.ir.expr import Op

from .. import elementwise as ew
from .. import reduction
from ..arrays import DTypeLike
from ..handle import Handle, TensorLike, apply, lift

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Operators", "binary", "bitwise", "compare", "shifted"]


def binary(op: Op, a: TensorLike, b: TensorLike) -> Tensor:
    """ADD, SUB, MUL, MAX or MIN of two."""
    return apply(str(op), functools.partial(ew.binary, op), a, b)


def bitwise(op: Op, a: TensorLike, b: TensorLike) -> Tensor:
    """AND, OR or XOR of two."""
    return apply(str(op), functools.partial(ew.bitwise, op), a, b)


def shifted(op: Op, a: TensorLike, b: TensorLike) -> Tensor:
    """SHL or SHR of the bits of integers."""
    return apply(str(op), functools.partial(ew.shift, op), a, b)


def compare(name: str, a: TensorLike, b: TensorLike) -> Tensor:
    """A comparison of two, by its short name."""
    return apply(name, functools.partial(ew.compare, name), a, b)


_VIA = {I8: I32, U8: I32, I16: I32, U16: I32, U32: I64}
"""Types that floats become on their way to a type, so that they wrap around."""


class Operators(Handle):
    """``+ - * / // % ** @ & | ^ ~ < <= > >= == !=`` and casts."""

    __slots__ = ()

    def __add__(self, other: TensorLike) -> Tensor:
        return binary(Op.ADD, self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return binary(Op.ADD, other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return binary(Op.SUB, self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return binary(Op.SUB, other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return binary(Op.MUL, self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return binary(Op.MUL, other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return apply("div", ew.divide, self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return apply("div", ew.divide, other, self)

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return apply("floordiv", ew.floor_divide, self, other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return apply("floordiv", ew.floor_divide, other, self)

    def __mod__(self, other: TensorLike) -> Tensor:
        return apply("mod", ew.remainder, self, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return apply("mod", ew.remainder, other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return apply("pow", ew.power, self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return apply("pow", ew.power, other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return apply("matmul", reduction.matmul, self, lift(other, "matmul"))

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return apply("matmul", reduction.matmul, lift(other, "matmul"), self)

    def __and__(self, other: TensorLike) -> Tensor:
        return bitwise(Op.AND, self, other)

    def __or__(self, other: TensorLike) -> Tensor:
        return bitwise(Op.OR, self, other)

    def __xor__(self, other: TensorLike) -> Tensor:
        return bitwise(Op.XOR, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: TensorLike) -> Tensor:
        return shifted(Op.SHL, self, other)

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return shifted(Op.SHL, other, self)

    def __rshift__(self, other: TensorLike) -> Tensor:
        return shifted(Op.SHR, self, other)

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return shifted(Op.SHR, other, self)

    def __lt__(self, other: TensorLike) -> Tensor:
        return compare("lt", self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return compare("le", self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return compare("gt", self, other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return compare("ge", self, other)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return compare("eq", self, other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return compare("ne", self, other)

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Tensor:
        return self._with(ew.negate(self.node))

    def __pos__(self) -> Tensor:
        return self._with(self.node)

    def __invert__(self) -> Tensor:
        return self._with(ew.invert(self.node))

    def __abs__(self) -> Tensor:
        return self._with(ew.unary(Op.ABS, self.node))

    def cast(self, dtype: DTypeLike) -> Tensor:
        """Converted; float to int truncates, anything to bool is ``!= 0``.

        Floats beyond an integer of 8 or 16 bits or a u32 wrap around, as PyTorch's do: 300.7 as u8
        is 44. From a magnitude of 2^31 on (u32: 2^63), where C and PyTorch define nothing, i32's or
        i64's nearest number wraps. i32, i64 and u64 give their nearest number. NaN is 0.
        """
        kind, node = dtype_of(dtype), self.node
        if node.dtype.is_float and kind.is_int:
            node = graph.cast(node, _VIA.get(kind, kind))
        return self._with(graph.cast(node, kind))

    astype = cast

    def type(self, dtype: DTypeLike) -> Tensor:
        """Converted to ``dtype``."""
        return self.cast(dtype)

    def to(self, dtype: DTypeLike) -> Tensor:
        """Converted to ``dtype``. Which device a tensor is on is not its own business here."""
        return self.cast(dtype)

    def type_as(self, other: Tensor) -> Tensor:
        """Converted to the dtype of ``other``."""
        return self.cast(other.dtype)

    def float(self) -> Tensor:
        """As f32."""
        return self.cast("f32")

    def double(self) -> Tensor:
        """As f64."""
        return self.cast("f64")

    def half(self) -> Tensor:
        """As f16."""
        return self.cast("f16")

    def bfloat16(self) -> Tensor:
        """As bf16."""
        return self.cast("bf16")

    def int(self) -> Tensor:
        """As i32."""
        return self.cast("i32")

    def long(self) -> Tensor:
        """As i64."""
        return self.cast("i64")

    def bool(self) -> Tensor:
        """True where an element is other than zero."""
        return self.cast("bool")
