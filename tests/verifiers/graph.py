"""The graph's verifier: every shape, dtype and argument inferred a second time."""

from __future__ import annotations

from typing import Any, cast

from tunegrad.errors import UserError, VerifyError
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Op, fold_takes, result_type
from tunegrad.ir.graph import ConstData, GraphOp, Node

__all__ = ["verify_graph"]

_LEAVES = (GraphOp.INPUT, GraphOp.CONST, GraphOp.FULL, GraphOp.IOTA)


def verify_graph(outputs: tuple[Node, ...]) -> None:
    """Raise VerifyError, naming the node and the rule, unless every node is what its sources and
    argument imply.
    """
    inputs: dict[str, Node] = {}
    for n in g.topological(outputs):
        if any(s < 0 or type(s) is not int for s in n.shape):
            raise VerifyError(f"graph: {n!r}: extents must be ints >= 0")
        if (n.op in _LEAVES) != (not n.srcs):
            raise VerifyError(f"graph: {n!r} has {len(n.srcs)} sources")
        if not _is_argument(n.op, n.arg):
            raise VerifyError(f"graph: {n!r}: {n.arg!r} is not an argument of {n.op}")
        _verify_leaf(n) if n.op in _LEAVES else _verify_node(n)
        if n.op is GraphOp.INPUT:
            first = inputs.setdefault(cast(str, n.arg), n)
            if first is not n:
                raise VerifyError(f"graph: {first!r} and {n!r} are both the input {n.arg!r}")


def _is_argument(op: GraphOp, arg: object) -> bool:
    """True if an argument is of the kind that its operation takes."""
    if op is GraphOp.PAD or op is GraphOp.SHRINK:
        return isinstance(arg, tuple) and all(_is_ints(pair) and len(pair) == 2 for pair in arg)
    if op is GraphOp.REDUCE:
        return (
            isinstance(arg, tuple) and len(arg) == 2 and isinstance(arg[0], Op) and _is_ints(arg[1])
        )
    if op is GraphOp.WINDOW:
        return isinstance(arg, tuple) and _is_ints(arg) and len(arg) == 4
    if op is GraphOp.PERMUTE or op is GraphOp.FLIP:
        return _is_ints(arg)
    if op is GraphOp.FULL:
        return isinstance(arg, tuple) and len(arg) == 3
    kinds = {
        GraphOp.INPUT: str, GraphOp.CONST: ConstData, GraphOp.IOTA: int,
        GraphOp.GATHER: int, GraphOp.WITHIN: g.Bounds, GraphOp.MAP: Op,
        GraphOp.CAST: DType,
        GraphOp.RESHAPE: type(None), GraphOp.EXPAND: type(None), GraphOp.CONTIGUOUS: g.Fence | None,
    }  # fmt: skip
    return isinstance(arg, kinds[op])


def _is_ints(arg: object) -> bool:
    return isinstance(arg, tuple) and all(type(i) is int for i in arg)


def _verify_leaf(n: Node) -> None:
    arg = cast(Any, n.arg)
    if n.op is GraphOp.INPUT and not (isinstance(arg, str) and arg):
        raise VerifyError(f"graph: {n!r}: an input needs a name, got {arg!r}")
    if n.op is GraphOp.CONST:
        data = cast(ConstData, arg)
        if data.array.shape != n.shape or data.array.dtype != n.dtype.numpy:
            raise VerifyError(
                f"graph: {n!r} holds an array of {data.array.dtype}{list(data.array.shape)}"
            )
    if n.op is GraphOp.FULL and not _is_full(n):
        raise VerifyError(f"graph: {n!r}: {arg[2]!r} is not a value of {n.dtype} in its one form")
    if n.op is GraphOp.IOTA and not (0 <= arg < len(n.shape) and not n.dtype.is_bool):
        raise VerifyError(f"graph: {n!r}: dimension {arg} of an iota must be one of {len(n.shape)}")


def _is_full(n: Node) -> bool:
    arg = cast(Any, n.arg)
    try:
        return bool(g.full(arg[2], n.shape, n.dtype).arg == arg)
    except UserError:
        return False


def _verify_node(n: Node) -> None:
    try:
        shape, dtype = _inferred(n)
    except (UserError, TypeError, ValueError) as e:
        raise VerifyError(f"graph: {n!r} of {', '.join(map(repr, n.srcs))}: {e}") from e
    if (shape, dtype) != (n.shape, n.dtype):
        raise VerifyError(
            f"graph: {n!r} should be {dtype}{list(shape)} by its sources and argument"
        )


def _inferred(n: Node) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype by the node's own rule; raises UserError where there is none."""
    op, arg, x = n.op, cast(Any, n.arg), n.srcs[0]
    if op is GraphOp.MAP:
        made = g.elementwise(arg, *n.srcs)
        if result_type(arg, [s.dtype for s in n.srcs]) != made.dtype:
            raise VerifyError(
                f"graph: {n!r}: {arg} is not defined on {', '.join(str(s.dtype) for s in n.srcs)}"
            )
        return made.shape, made.dtype
    if op is GraphOp.CAST:
        return x.shape, cast(DType, arg)
    if op is GraphOp.REDUCE:
        fold, axes = cast(tuple[Op, tuple[int, ...]], arg)
        if not axes or tuple(sorted(set(axes))) != axes or not fold_takes(fold, x.dtype):
            raise VerifyError(f"graph: {n!r}: {fold} over axes {axes} of {x!r} is not a reduction")
        made = g.reduce(fold, x, axes)
    elif op is GraphOp.RESHAPE:
        made = g.reshape(x, n.shape)
    elif op is GraphOp.EXPAND:
        made = g.expand(x, n.shape)
    elif op is GraphOp.PERMUTE:
        made = g.permute(x, arg)
    elif op is GraphOp.PAD:
        made = g.pad(x, arg)
    elif op is GraphOp.SHRINK:
        made = g.shrink(x, arg)
    elif op is GraphOp.FLIP:
        made = g.flip(x, arg)
    elif op is GraphOp.WINDOW:
        made = g.window(x, *arg)
    elif op is GraphOp.GATHER and len(n.srcs) == 2:
        made = g.gather(x, n.srcs[1], arg)
        return made.shape, made.dtype
    elif op is GraphOp.WITHIN and len(n.srcs) in (1, 2):
        made = g.within(x, arg, *n.srcs[1:])
        return made.shape, made.dtype
    else:
        fence = cast(g.Fence | None, arg)
        made = x if fence is None or fence.apart else g.contiguous(x, fence.layout, fence.schedule)
    if len(n.srcs) != 1:
        raise VerifyError(f"graph: {n!r} has {len(n.srcs)} sources, takes one")
    return made.shape, made.dtype
