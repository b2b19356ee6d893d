"""Writes to tensors, and views: tensors that share their elements with another one.

A write gives a tensor another node; nodes stay what they are, so a result that was made before
keeps its value. A view remembers its source and one move (a graph function with its arguments). It
has its node at hand, with the node of its root that this was made of:

    x = Tensor(a)              x: root, node X
    v = x[1:].T                v: PERMUTE of (a view: SHRINK of x); made of X
    v += 1                     x: node WHERE(inside, PAD(PERMUTE(..)), X); v: node ADD(.., 1)
    x *= 2                     x: node MUL(..)
    v.numpy()                  the root has another node: v's is made again, of this one

A read costs a view two attributes and one comparison, and a root nothing. A write goes from move to
move up to the root: each replaces its part of the source (``_PUT``), and the last one is the root's
node. Decision 0118.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, GradientError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

from .handle import Bindings, Handle, bound, joined, renew
from .nodes import elementwise as ew
from .nodes import movement, tracing

Strides = tuple[int, ...]
_LEVEL = {"bool": 0, "int": 1, "float": 2}


class Aliased(Handle):
    """A view of ``source``: its elements moved by ``step``, a function of nodes and its arguments.

    ``root`` is the first source; ``made`` is this view's node, of the root's node ``seen``, and
    ``held`` its arrays. ``undecided``: it may turn out to be a copy, as PyTorch's reshape is one
    of elements that lie in another order.
    """

    __slots__ = ("held", "made", "root", "seen", "source", "step", "undecided")

    source: Handle
    step: tuple[Callable[..., Node], tuple[Any, ...]]
    root: Handle
    seen: Node
    made: Node
    held: Bindings
    undecided: bool

    def __init__(self, source: Handle, move: Callable[..., Node], args: tuple[Any, ...]) -> None:
        self.made, self.held = _moved(source.node, move, args), source.bindings
        self.source, self.step, self.leaf, self.pending = source, (move, args), None, None
        self.undecided, self.root = False, source
        if isinstance(source, Aliased):
            source.settle()
            self.root = source.root
            self.undecided = move in _COPYING
        self.seen = self.root.node

    @property
    def node(self) -> Node:  # type: ignore[override]  # a root's is an attribute
        """The node of what it is a view of now."""
        if self.root.node is not self.seen:
            self._renew()
        return self.made

    @property
    def bindings(self) -> Bindings:  # type: ignore[override]
        """The arrays of the inputs of its node."""
        if self.root.node is not self.seen:
            self._renew()
        return self.held

    @property
    def in_order(self) -> bool:
        """True if its elements follow each other in memory, as those of no view do."""
        strides = _strides(self)
        return strides is None or _follow(strides, self.shape)

    def settle(self) -> None:
        """Decide that it is a view, or a copy, which is its own root."""
        if not self.undecided:
            return
        self.undecided = False
        if _strides(self) is None:
            self.source = self.root = Handle.plain(self.made, self.held)
            self.step, self.seen = (_same, ()), self.made

    def _renew(self) -> None:
        self.settle()
        move, args = self.step
        source = self.source
        self.root = root_of(source)
        self.made, self.held = move(source.node, *args), source.bindings
        self.seen = self.root.node

    def push(self, move: Callable[..., Node], *args: Any) -> None:
        """Make one more move, of the same shape and dtype, on itself."""
        self.settle()
        inner = type(self)(self.source, *self.step)
        self.__init__(inner, move, args)  # type: ignore[misc]


def _moved(node: Node, move: Callable[..., Node], args: tuple[Any, ...]) -> Node:
    """``move(node, *args)``. Of known arrays, whose nodes are names, the last ones are kept: parts
    that are read in turns are not worked out anew. Marks of gradients are not: they are of a moment
    (``stopped``), or hold a gradient (``leaf``).
    """
    first = node.srcs[0] if node.op in graph.MOVEMENT else node
    if first.op is graph.GraphOp.INPUT and type(first.arg) is str and move not in _MARKS:
        with suppress(TypeError):  # of a list
            return _kept(node, move, args)
    return move(node, *args)


_MARKS = frozenset([tracing.stopped, tracing.leaf])


@functools.lru_cache(maxsize=256)
def _kept(node: Node, move: Callable[..., Node], args: tuple[Any, ...]) -> Node:
    return move(node, *args)


def root_of(x: Handle) -> Handle:
    """The tensor that ``x`` is a view of; itself, where it is none."""
    if not isinstance(x, Aliased):
        return x
    x.settle()
    return x.root


def same_place(a: Handle, b: Handle) -> bool:
    """True if two tensors are the same elements by the same moves."""
    while isinstance(a, Aliased) and isinstance(b, Aliased) and a.step == b.step:
        a.settle()
        b.settle()
        a, b = a.source, b.source
    return a is b


def update(x: Handle, op: str, value: Handle) -> None:
    """Write the result of an operation to ``x``, which keeps its dtype.

    Raises ShapeError for a result of another shape, DTypeError for floats into integers and for
    numbers into truths.
    """
    if value.node.shape != x.node.shape:
        raise ShapeError(
            f"{op}: the result has shape {value.shape}, the tensor that is changed has {x.shape}"
        )
    if _LEVEL[value.dtype.category] > _LEVEL[x.dtype.category]:
        raise DTypeError(f"{op}: a result of {value.dtype} can not be kept in {x.dtype}")
    write(x, value.node if value.dtype == x.dtype else graph.cast(value.node, x.dtype), value)


def write(x: Handle, node: Node, source: Handle) -> None:
    """Give ``x`` the elements of ``node``, of its shape and dtype: in ``x``, in what it is a view
    of, and in all views of that. ``source`` holds the arrays of the node's inputs.

    Raises ShapeError where one element of ``x`` is read at several places, GradientError outside
    ``no_grad`` for a tensor that requires a gradient.
    """
    at, recorded = x, tracing.recording()
    while isinstance(at, Aliased):
        at.settle()
        recorded = recorded and at.step[0] is not tracing.stopped
        if recorded:
            _check_free(at)
        at = at.source
    root = at
    if recorded:
        _check_free(root)
    if not node.size:
        return
    value = put(x, node)
    known = joined([root, source]) if root is not x else source.bindings
    kept = value
    if not recorded:
        kept, known = _unrecorded(root, value, known)
    elif root.leaf is not None:  # it retains the gradient of what it is now
        root.leaf = tracing.Leaf(required=False)
        kept = tracing.leaf(value, root.leaf)
    _noted(root)
    renew(root, kept, known)
    if kept is value and isinstance(x, Aliased) and x.step[0] is not tracing.stopped:
        x.made, x.held, x.seen = node, known, kept


def put(view: Handle, node: Node) -> Node:
    """The root of a view with the elements of ``node``, of its shape and dtype, in the view."""
    while isinstance(view, Aliased):
        view.settle()
        move, args = view.step
        node = _PUT[move](view.source.node, node, args)
        view = view.source
    return node


def _check_free(x: Handle) -> None:
    if x.leaf is not None and x.leaf.required:
        raise GradientError(
            f"a tensor {x.dtype}{list(x.shape)} that requires a gradient is changed in place; do "
            "so inside no_grad()"
        )


def _unrecorded(root: Handle, value: Node, known: Bindings) -> tuple[Node, Bindings]:
    """A value with the gradient of the tensor before: nothing of the write is recorded."""
    if root.leaf is not None:
        (plain,) = tracing.without_identities((value,))
        return tracing.leaf(plain, root.leaf), known
    if tracing.reaches(root.node):
        both = joined([root, Handle.plain(value, known)])
        return tracing.as_if(value, root.node), both
    return tracing.stopped(value), known


# ---- tensors that were written to

Changes = dict[int, tuple["weakref.ref[Handle]", Node, Bindings]]
_changes: ContextVar[Changes | None] = ContextVar("changes", default=None)
_written: dict[int, weakref.ref[Handle]] = {}


@contextmanager
def changes() -> Iterator[Changes]:
    """Roots that are written to inside, each with its node and arrays of before."""
    found: Changes = {}
    token = _changes.set(found)
    try:
        yield found
    finally:
        _changes.reset(token)


def written() -> list[Handle]:
    """Roots that were written to, and are not computed yet, once there are leaves."""
    return [x for ref in list(_written.values()) if (x := ref()) is not None]


def computed(root: Handle, array: NDArray[np.generic], flows: bool = True) -> None:
    """Give a root its value, an array that nothing else writes to. Its gradient flows to what it
    was made of, unless ``flows`` is False.
    """
    _written.pop(id(root), None)
    array.flags.writeable = False
    old = root.node
    node, bindings = bound(array, root.dtype)
    if root.leaf is not None and root.leaf.required:
        node = tracing.leaf(node, root.leaf)
    elif flows and tracing.reaches(old):
        node = tracing.as_if(node, old)
        bindings = joined([root, Handle.plain(node, bindings)])
    elif root.leaf is not None:
        node = tracing.leaf(node, root.leaf)
    renew(root, node, bindings)


def _noted(root: Handle) -> None:
    found = _changes.get()
    if found is not None and id(root) not in found:
        found[id(root)] = weakref.ref(root), root.node, root.bindings
    if tracing.leaves() and id(root) not in _written:
        key = id(root)
        _written[key] = weakref.ref(root, lambda _: _written.pop(key, None))


# ---- moves: the order in memory that they give, and the source with new elements

_COPYING = frozenset([graph.reshape, graph.contiguous, movement.ravel])
"""Moves that copy elements that do not lie in order."""


def _same(x: Node) -> Node:
    return x


def _strides(x: Handle) -> Strides | None:
    """Steps in the memory of its root, which is in row-major order; None of a copy."""
    if not isinstance(x, Aliased):
        return _row_major(x.shape)
    move, args = x.step
    before, shape = _strides(x.source), x.source.shape
    if before is None:
        return None
    after = x.made.shape
    if move is graph.reshape:
        return _reshaped(shape, before, after)
    if move is graph.contiguous or move is movement.ravel:
        return _row_major(after) if _follow(before, shape) else None
    if move is graph.permute:
        return tuple(before[a] for a in args[0])
    if move is movement.diagonal:
        _, a, b = args
        return (*(s for d, s in enumerate(before) if d not in (a, b)), before[a] + before[b])
    if move is graph.flip:
        return tuple(-s if d in args[0] else s for d, s in enumerate(before))
    if move is ew.broadcast:
        lead = len(after) - len(shape)
        kept = (s if a == b else 0 for s, a, b in zip(before, shape, after[lead:], strict=True))
        return (*(0,) * lead, *kept)
    if move is graph.window:
        dim, _, stride, dilation = args
        steps = (s * stride if d == dim else s for d, s in enumerate(before))
        return (*steps, before[dim] * dilation)
    return before


def _follow(strides: Strides, shape: tuple[int, ...]) -> bool:
    """True if elements follow each other in memory."""
    wanted = zip(strides, _row_major(shape), shape, strict=True)
    return 0 in shape or all(a == b for a, b, extent in wanted if extent > 1)


def _row_major(shape: tuple[int, ...]) -> Strides:
    return tuple(prod(max(1, s) for s in shape[d + 1 :]) for d in range(len(shape)))


def _reshaped(shape: tuple[int, ...], strides: Strides, after: tuple[int, ...]) -> Strides | None:
    """Strides under another shape; None where joined dimensions do not follow in memory."""
    if 0 in shape:
        return _row_major(after)
    runs: list[list[int]] = []  # [elements, step] of dimensions that follow each other
    for extent, step in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * step:
            runs[-1] = [runs[-1][0] * extent, step]
        else:
            runs.append([extent, step])
    found: list[int] = []
    rest = 1
    for extent in reversed(after):
        if extent == 1:
            found.append(0)
            continue
        if rest == 1:
            if not runs:
                return None
            rest, step = runs.pop()
        if rest % extent:
            return None
        found.append(step)
        rest, step = rest // extent, step * extent
    return tuple(found[::-1])


def _put_reshaped(source: Node, value: Node, _: Any) -> Node:
    """RESHAPE back"""
    return graph.reshape(value, source.shape)


def _put_permuted(_: Node, value: Node, args: Any) -> Node:
    """PERMUTE -> the inverse permutation"""
    return graph.permute(value, movement.inverse(args[0]))


def _put_shrunk(source: Node, value: Node, args: Any) -> Node:
    """SHRINK -> the value inside, the source around it"""
    if value.shape == source.shape:
        return value
    widths = tuple((a, s - b) for (a, b), s in zip(args[0], source.shape, strict=True))
    return _inside(source, value, lambda x: graph.pad(x, widths))


def _put_flipped(_: Node, value: Node, args: Any) -> Node:
    """FLIP -> FLIP"""
    return graph.flip(value, args[0])


def _put_repeated(source: Node, value: Node, _: Any) -> Node:
    """EXPAND: only what is not repeated"""
    if value.size != source.size:
        raise ShapeError(
            f"a tensor of shape {source.shape} expanded to {value.shape} is changed: several "
            "elements are one; clone() it before"
        )
    return graph.reshape(value, source.shape)


def _put_windows(source: Node, value: Node, args: Any) -> Node:
    """WINDOW -> windows side by side, the source between them"""
    dim, size, stride, dilation = args
    if size > 1 and (size > stride or dilation > 1):
        raise ShapeError(
            f"windows of {size} elements, {stride} apart, of a tensor of shape {source.shape} are "
            "changed: several elements are one; clone() them before"
        )
    last = len(value.shape) - 1
    order = (*range(dim + 1), last, *range(dim + 1, last))

    def laid(x: Node) -> Node:
        wide = movement.extended(graph.permute(x, order), dim + 1, stride)
        line = (*source.shape[:dim], wide.shape[dim] * stride, *source.shape[dim + 1 :])
        return movement.extended(graph.reshape(wide, line), dim, source.shape[dim])

    return _inside(source, value, laid)


def _put_diagonal(source: Node, value: Node, args: Any) -> Node:
    """DIAGONAL -> the value on it, the source beside it"""
    offset, a, b = args
    order = (*(d for d in range(len(source.shape)) if d not in (a, b)), a, b)
    *lead, rows, columns = graph.permute(source, order).shape
    top, count = max(0, -offset), value.shape[-1]
    ends = tuple((0, 0) for _ in lead)
    back = movement.inverse(order)

    def laid(x: Node) -> Node:
        column = graph.pad(x, (*ends, (top, rows - top - count)))
        wide = graph.reshape(column, (*lead, rows, 1))
        return graph.permute(graph.expand(wide, (*lead, rows, columns)), back)

    distance = ew.binary(Op.SUB, graph.iota(source.shape, b), graph.iota(source.shape, a))
    on = ew.compare("eq", distance, offset)
    return ew.where(on, laid(value), source)


def _inside(source: Node, value: Node, laid: Callable[[Node], Node]) -> Node:
    """The source with a value where the same moves put it."""
    mask = laid(graph.full(True, value.shape, BOOL))
    return ew.where(mask, laid(value), source)


def _put_all(_: Node, value: Node, __: Any) -> Node:
    """The value"""
    return value


_PUT: MappingProxyType[Callable[..., Node], Callable[[Node, Node, Any], Node]] = MappingProxyType(
    {
        graph.reshape: _put_reshaped, graph.permute: _put_permuted, graph.shrink: _put_shrunk,
        graph.flip: _put_flipped, ew.broadcast: _put_repeated, graph.window: _put_windows,
        movement.ravel: _put_reshaped, movement.diagonal: _put_diagonal,
        graph.contiguous: _put_all, _same: _put_all, tracing.stopped: _put_all,
        tracing.leaf: _put_all,
    }
)  # fmt: skip
