"""Copies with other elements in a part."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from tunegrad.errors import ShapeError
from tunegrad.ir.graph import Node

from ..aliasing import put
from ..handle import Handle, TensorLike, apply, lift
from ..handle import where as choose
from ..nodes.elementwise import broadcast_shapes, constant
from ..nodes.movement import axis_of, integer
from ..operation import operation
from .indexing import item, take
from .movement import broadcast_to, diagonal
from .ordering import cumsum


@operation
def masked_scatter(input: Handle, mask: TensorLike, source: TensorLike) -> Handle:
    """The elements of ``source``, one after the other, where a mask holds, which broadcasts.

    Fewer of them than places are an index out of range.
    """
    m, s = lift(mask, "masked_scatter"), lift(source, "masked_scatter").cast(input.dtype).ravel()
    shape = broadcast_shapes("masked_scatter", input.shape, m.shape)
    x, m = broadcast_to(input, shape), broadcast_to(m, shape)
    if not x.size or not s.size:
        return choose(m, _none_of(s, m), x) if x.size else x
    number = cumsum(m.ravel().cast("i64"), 0).reshape(shape) - 1
    return choose(m, take(s, choose(m, number, 0)), x)


def _none_of(s: Handle, mask: Handle) -> Handle:
    """Elements of an empty source: an error where the mask holds."""
    one = Handle.of(constant(0, (1,), s.dtype))
    return take(one, mask.cast("i64"))


def _in_part(input: Handle, op: str, part: Callable[[Handle], Handle], src: TensorLike) -> Handle:
    """A copy of ``input`` with ``src``, converted to its dtype, in the view that ``part`` gives."""

    def put_there(x: Node, v: Node) -> Node:
        view = part(Handle.plain(x, MappingProxyType({})))
        if view.shape != v.shape:
            raise ShapeError(f"{op}: a source of shape {v.shape} for a part of shape {view.shape}")
        return put(view, v) if v.size else x

    return apply(op, put_there, input, lift(src, op).cast(input.dtype))


@operation
def select_scatter(input: Handle, src: TensorLike, dim: int, index: int) -> Handle:
    """A copy with ``src`` in the place of ``select(dim, index)``."""
    return _in_part(input, "select_scatter", lambda x: x.select(dim, index), src)


@operation
def slice_scatter(
    input: Handle, src: TensorLike, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Handle:  # fmt: skip
    """A copy with ``src`` in the place of ``[start:end:step]`` along ``dim``."""
    at = axis_of("slice_scatter", dim, input.shape)
    if integer("slice_scatter", "step", step) < 1:
        raise ShapeError(f"slice_scatter: step={step} of shape {input.shape} must be 1 or more")
    key = (*(slice(None),) * at, slice(start, end, step))
    return _in_part(input, "slice_scatter", lambda x: item(x, key), src)


@operation
def diagonal_scatter(
    input: Handle, src: TensorLike, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Handle:
    """A copy with ``src`` in the place of ``diagonal(offset, dim1, dim2)``."""
    return _in_part(input, "diagonal_scatter", lambda x: diagonal(x, offset, dim1, dim2), src)
