"""Elementwise operations on graph nodes: broadcasting, promotion, and the type that arithmetic
happens in.

An operand is a Node or a Python number. Tensors without dimensions are weaker than those that have
some, and numbers weaker still: what is weaker has a say only where its category (bool, int, float)
is higher, so a float with integers gives f32 and an int with bools i64. f16 and bf16 are computed
in f32 and rounded to be stored; what stands beside them is rounded to them first, but for numbers
that multiply or divide, as in PyTorch. On bools, + and maximum are "or", * and minimum are "and",
as in numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, F16, F32, I64, DType, promote
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

from .arrays import representable

Scalar = bool | int | float
Operand = Node | Scalar

_ON_BOOLS = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.MIN: Op.AND}


def result_type(*operands: Operand) -> DType:
    """The dtype that arithmetic on the operands has, as ``torch.result_type``.

    Tensors with dimensions are promoted, then those without, then numbers; each group counts where
    its category is higher than all before it have.

        f32[3] * f64[]  f32      i32[3] * f64[]  f64      f16[3] * 2.5  f16      f64[] * 2.5  f64
    """
    groups: tuple[list[DType], list[DType], list[DType]] = ([], [], [])
    for x in operands:
        if isinstance(x, Node):
            groups[0 if x.shape else 1].append(x.dtype)
        else:
            groups[2].append(BOOL if isinstance(x, bool) else I64 if isinstance(x, int) else F32)
    first, *weaker = (functools.reduce(promote, group) for group in groups if group)
    for kind in weaker:
        first = kind if _LEVEL[kind.category] > _LEVEL[first.category] else first
    return first


_LEVEL = {"bool": 0, "int": 1, "float": 2}


def broadcast_shapes(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape by numpy's rule.

    Raises:
        ShapeError: two extents differ and neither is 1.
    """
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            raise ShapeError(
                f"{op}: shapes {' and '.join(str(s) for s in shapes)} do not broadcast"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcast(x: Node, shape: tuple[int, ...]) -> Node:
    """``x`` repeated along new leading dimensions and along extents of 1."""
    if x.shape == shape:
        return x
    return graph.expand(graph.reshape(x, (1,) * (len(shape) - len(x.shape)) + x.shape), shape)


def constant(value: Scalar, shape: tuple[int, ...], dtype: DType, op: str = "full") -> Node:
    """One number everywhere. f16 and bf16 ones are an f32 number under a cast."""
    number = representable(value, dtype, op)
    return graph.cast(graph.full(number, shape, dtype.compute), dtype)


def binary(op: Op, a: Operand, b: Operand) -> Node:
    """ADD, SUB, MUL, MAX or MIN, broadcast and promoted."""
    kind = result_type(a, b)
    if kind.is_bool:
        if op not in _ON_BOOLS:
            raise DTypeError(f"{op}: not defined for {kind} and {kind}; cast one to i32, or use ^")
        op = _ON_BOOLS[op]
    return _apply(op, str(op), (a, b), kind)


def divide(a: Operand, b: Operand) -> Node:
    """True division; integers and bools give f32."""
    kind = result_type(a, b)
    return _apply(Op.DIV, "div", (a, b), kind if kind.is_float else F32)


def floor_divide(a: Operand, b: Operand) -> Node:
    """Division rounded towards minus infinity, as Python's and numpy's ``//``; integers by a tensor
    that is zero give 0, and by the number 0 raise ShapeError.
    """
    return _apply(Op.FLOORDIV, "floordiv", (a, b), _divisible("floordiv", a, b))


def remainder(a: Operand, b: Operand) -> Node:
    """The rest with the divisor's sign, as Python's and numpy's ``%``; by zero as ``//``."""
    return _apply(Op.MOD, "mod", (a, b), _divisible("mod", a, b))


def _divisible(op: str, a: Operand, b: Operand) -> DType:
    """The dtype of a quotient. Raises ShapeError for integers by 0, as PyTorch a RuntimeError."""
    kind = result_type(a, b)
    if kind.is_bool:
        raise DTypeError(f"{op}: not defined for bool and bool; cast one to i32")
    if kind.is_int and not isinstance(b, Node) and b == 0:
        raise ShapeError(f"{op}: {kind} divided by zero")
    return kind


def power(a: Operand, b: Operand) -> Node:
    """``a ** b``; squares, cubes, reciprocals, roots and powers of integers by a number are
    products, reciprocals and roots, as PyTorch's are. Integers wrap around.

    Raises DTypeError for integers to a negative number; a tensor's negative powers give 0 for all
    but 1 and -1, as PyTorch's.
    """
    kind = result_type(a, b)
    kind = I64 if kind.is_bool else kind
    if kind.is_int and not isinstance(b, Node) and b < 0:
        raise DTypeError(
            f"pow: {kind} to the negative power {b} is not an integer; cast to f32 first"
        )
    if isinstance(a, Node) and not isinstance(b, Node):
        if b == 1:
            return graph.cast(a, kind)
        if b == 2:
            return _apply(Op.MUL, "pow", (a, a), kind)
        if b == -1:
            return _apply(Op.RECIP, "pow", (a,), kind)
        if abs(b) == 0.5 and kind != F16:  # of f16 PyTorch takes no root
            root = _apply(Op.SQRT, "pow", (a,), kind)
            return root if b > 0 else _apply(Op.RECIP, "pow", (root,), kind)
        if b == 3 and kind.is_float and not kind.is_half:
            return _apply(Op.MUL, "pow", (_apply(Op.MUL, "pow", (a, a), kind), a), kind)
    if kind.is_int and isinstance(a, Node) and not isinstance(b, Node):
        return _integer_power(graph.cast(a, kind), int(b))
    return _apply(Op.POW, "pow", (a, b), kind)


def _integer_power(x: Node, power: int) -> Node:
    """By squaring; what overflows wraps around."""
    found: Node | None = None
    while power:
        if power & 1:
            found = x if found is None else graph.elementwise(Op.MUL, found, x)
        power >>= 1
        if power:
            x = graph.elementwise(Op.MUL, x, x)
    return graph.full(1, x.shape, x.dtype) if found is None else found


def bitwise(op: Op, a: Operand, b: Operand) -> Node:
    """AND, OR or XOR of bools, or of the bits of integers."""
    kind = result_type(a, b)
    if kind.is_float:
        raise DTypeError(f"{op}: not defined for {kind}; bools and integers only")
    return _apply(op, str(op), (a, b), kind)


def shift(op: Op, a: Operand, b: Operand) -> Node:
    """SHL or SHR of integers; by all bits or a negative number, SHR leaves the sign, as numpy."""
    kind = result_type(a, b)
    if not kind.is_int:
        raise DTypeError(f"{op}: not defined for {kind}; integers only")
    return _apply(op, str(op), (a, b), kind)


def compare(name: str, a: Operand, b: Operand) -> Node:
    """``name`` is lt, le, gt, ge, eq or ne; the result is bool, and false for NaN unless ne."""
    kind = result_type(a, b)
    if name in ("gt", "ge"):
        a, b, name = b, a, {"gt": "lt", "ge": "le"}[name]
    kind = I64 if kind.is_bool and name in ("lt", "le") else kind
    x, y = _aligned(name, (a, b), kind)
    if name != "le":
        return graph.elementwise(Op(name), x, y)
    if kind.is_float:
        return graph.elementwise(
            Op.OR, graph.elementwise(Op.LT, x, y), graph.elementwise(Op.EQ, x, y)
        )
    return graph.elementwise(Op.NOT, graph.elementwise(Op.LT, y, x))


def where(condition: Node, a: Operand, b: Operand) -> Node:
    """``a`` where the condition holds, else ``b``; all three broadcast.

    Raises:
        DTypeError: the condition is not bool.
    """
    if not condition.dtype.is_bool:
        raise DTypeError(
            f"where: the condition is {condition.dtype}, it must be bool (compare with something)"
        )
    kind = result_type(a, b)
    shape = broadcast_shapes(
        "where", condition.shape, *(x.shape for x in (a, b) if isinstance(x, Node))
    )
    x, y = (_to(v, shape, kind, "where") for v in (a, b))
    return graph.cast(graph.elementwise(Op.WHERE, broadcast(condition, shape), x, y), kind)


def unary(op: Op, x: Node) -> Node:
    """NEG, ABS, FLOOR or RECIP in ``x``'s own dtype; whole numbers are their own floor."""
    if op is Op.FLOOR and not x.dtype.is_float:
        return x
    if op is Op.ABS and x.dtype.is_bool:
        return x
    return _apply(op, str(op), (x,), x.dtype)


def negate(x: Node) -> Node:
    """``-x``; not for bools."""
    if x.dtype.is_bool:
        raise DTypeError("neg: not defined for bool; use ~")
    return unary(Op.NEG, x)


def invert(x: Node) -> Node:
    """Logical not of bools, all bits of integers flipped."""
    if x.dtype.is_float:
        raise DTypeError(f"invert: not defined for {x.dtype}; bools and integers only")
    return graph.elementwise(Op.NOT, x)


def float_function(op: Op, x: Node) -> Node:
    """EXP, LOG, SQRT, TANH, ERF, SIN, COS or RECIP; integers and bools become f32 first."""
    kind = x.dtype if x.dtype.is_float else F32
    return _apply(op, str(op), (x,), kind)


def _apply(op: Op, name: str, operands: Sequence[Operand], kind: DType) -> Node:
    nodes = _aligned(name, operands, kind, op in (Op.MUL, Op.DIV, Op.FLOORDIV))
    return graph.cast(graph.elementwise(op, *nodes), kind)


def _aligned(
    name: str, operands: Sequence[Operand], kind: DType, factors: bool = False
) -> list[Node]:
    """The operands of a result of ``kind`` at one shape, in the dtype that it is computed in.

    ``factors``: numbers, and a second operand of one element, are not rounded to f16 or bf16.
    """
    shape = broadcast_shapes(name, *(x.shape for x in operands if isinstance(x, Node)))
    return [
        _to(x, shape, kind.compute if factors and _is_number(x, at) else kind, name)
        for at, x in enumerate(operands)
    ]


def _is_number(x: Operand, at: int) -> bool:
    return not isinstance(x, Node) or (at == 1 and x.size == 1)


def _to(x: Operand, shape: tuple[int, ...], kind: DType, name: str) -> Node:
    """Rounded to ``kind``, in the dtype that this is computed in."""
    if isinstance(x, Node):
        return broadcast(graph.cast(graph.cast(x, kind), kind.compute), shape)
    return graph.full(representable(x, kind, name), shape, kind.compute)
