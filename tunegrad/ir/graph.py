"""The graph: lazy tensor operations, immutable and interned.

A node is an operation on earlier nodes with its shape and dtype inferred and checked when it is
built. Equal nodes are the same object, so common subexpressions are shared by construction.
Movement operations never move data: each is a function from an output index to an input index (and,
for ``PAD``, a condition).

    INPUT(name)       a tensor the caller supplies
    CONST(data)       an array known at load time
    FULL(value)       one number everywhere
    IOTA(dim)         the position along a dimension
    MAP(op)           elementwise on equal shapes
    CAST(dtype)       to another type
    REDUCE(op, axes)  folds axes, keeping them with extent 1; the dtype is the accumulator's
    RESHAPE  EXPAND  PERMUTE(order)  PAD(((lo, hi), ...))  SHRINK(((begin, end), ...))  FLIP(dims)
    WINDOW(dim, size, stride, dilation)
                      appends an axis: out[.., o, .., k] = in[.., o*stride + k*dilation, ..]
    GATHER(dim)       out[.., i, ..] = in[.., index[.., i, ..], ..]: the first source, along ``dim``
                      at the elements of the second; negative ones count from the end, beyond either
                      end they are the first or the last
    WITHIN(bounds)    indices as they are; an error where one of them is out of bounds, and the
                      second source, a truth, holds if it is there
    CONTIGUOUS        a fence: this tensor exists in memory; with a Fence, in its layout and by its
                      schedule, or apart from equal ones
    IDENTITY(tag)     the first source, with a gradient that its tag tells; only while a function is
                      traced for its gradient
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, IndexOutOfRange, ShapeError
from tunegrad.lazy import dataclass

from .dtypes import BF16, BF16X2, BOOL, F32, I8, I8X4, I32, I64, U8, U8X4, DType
from .expr import Op
from .layout import Layout


class GraphOp(StrEnum):
    """The closed set of graph operations."""

    INPUT = "input"
    CONST = "const"
    FULL = "full"
    IOTA = "iota"
    MAP = "map"
    CAST = "cast"
    REDUCE = "reduce"
    RESHAPE = "reshape"
    EXPAND = "expand"
    PERMUTE = "permute"
    PAD = "pad"
    SHRINK = "shrink"
    FLIP = "flip"
    WINDOW = "window"
    GATHER = "gather"
    WITHIN = "within"
    CONTIGUOUS = "contiguous"
    IDENTITY = "identity"


MOVEMENT = frozenset(
    (
        GraphOp.RESHAPE,
        GraphOp.EXPAND,
        GraphOp.PERMUTE,
        GraphOp.PAD,
        GraphOp.SHRINK,
        GraphOp.FLIP,
        GraphOp.WINDOW,
    )
)

VIEWS = (GraphOp.RESHAPE, GraphOp.PERMUTE, GraphOp.FLIP)
"""Movements that neither repeat nor leave out an element."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ConstData:
    """An array of a program: ``digest`` stands for its bytes in hashes and comparisons.

    ``memory`` is the address of an array that others may still write to, such as the weights of a
    module of PyTorch, and 0 of any other. Two such arrays are never one constant, whatever they
    hold: a write to the one must not reach the other. A number below 0 says of which file the array
    is: equal arrays of two files have names of their own. ``made`` makes one of another: it has
    ``source``, the other one without its elements, and ``of`` its array.
    """

    digest: str
    name: str
    array: NDArray[np.generic]
    memory: int = 0
    made: Any = None

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstData)
            and self.digest == other.digest
            and self.memory == other.memory
        )

    @property
    def forgotten(self) -> ConstData:
        """The same without its elements: it still says which constant it is."""
        empty = np.empty(0, self.array.dtype)
        return ConstData(self.digest, self.name, empty, self.memory, self.made)

    def held(self, known: dict[str, ConstData]) -> ConstData | None:
        """The same with its elements, of ``known`` ones by digest; it is one of them from now on.
        None where it is made of none.
        """
        found = known.get(self.digest)
        if found is None and self.made is not None:
            source = self.made.source.held(known)
            if source is not None:
                array = self.made.of(source.array)
                found = known[self.digest] = replace(self, array=array)
        return found

    @staticmethod
    def of(array: NDArray[np.generic], name: str = "") -> ConstData:
        a = np.ascontiguousarray(array).reshape(np.shape(array))
        import hashlib

        hashed = hashlib.sha256(f"{a.dtype.str}{a.shape}".encode())
        hashed.update(a.reshape(-1).view(np.uint8).data)
        return ConstData(hashed.hexdigest(), name, a, a.ctypes.data if _is_live(a) else 0)


def _is_live(array: NDArray[np.generic]) -> bool:
    """Return True for a read-only view of memory that others may write to."""
    if array.flags.writeable:  # it was handed over
        return False
    base = array.base
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    if base is None:
        return False
    try:
        return not memoryview(base).readonly
    except TypeError:  # memory of another library
        return True


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a WITHIN node on indices: ``low <= index < high``, for operation ``op``.

    ``low`` is ``-high`` where negative indices count from the end.
    """

    op: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.op} {self.low}:{self.high}"

    def fault(self, index: int) -> IndexOutOfRange:
        """The error that an index out of bounds is."""
        negative = -self.high <= index < self.low
        return IndexOutOfRange(
            f"{self.op}: index {index} is out of range for an extent of {self.high}"
            + ("; it can not be negative" if negative else "")
        )


@dataclass(frozen=True, slots=True)
class Fence:
    """Demands of a CONTIGUOUS node on the memory behind it.

    ``layout`` is where its elements live (None: as fusion chooses), ``schedule`` the action text of
    the kernel that writes it (empty: searched like any other). ``apart``: what is made of the node
    is computed again, beside equal nodes that are made of its source; it demands nothing else.
    """

    layout: Layout | None = None
    schedule: str = ""
    apart: bool = False

    def __str__(self) -> str:
        words = [f"layout=({self.layout})"] if self.layout is not None else []
        words += [f"schedule=({self.schedule})"] if self.schedule else []
        return " ".join([*words, *(["apart"] if self.apart else [])])


Arg = object


_MOST_ELEMENTS = 1 << 60
"""Elements of a tensor: their offsets in bytes are numbers of 64 bits."""

_MOST_DIMENSIONS = 64
"""As numpy's arrays have."""


class Node:
    """One interned operation: ``op``, sources, argument, and inferred ``shape`` and ``dtype``."""

    __slots__ = ("__weakref__", "arg", "dtype", "op", "shape", "srcs")

    op: GraphOp
    srcs: tuple[Node, ...]
    arg: Arg
    shape: tuple[int, ...]
    dtype: DType

    def __new__(
        cls, op: GraphOp, srcs: tuple[Node, ...], arg: Arg, shape: tuple[int, ...], dtype: DType
    ) -> Node:
        key = (op, srcs, arg, shape, dtype.name)
        known = _INTERNED.get(key)
        found = known() if known is not None else None
        if found is not None:
            return found
        if prod(shape) > _MOST_ELEMENTS:
            raise ShapeError(f"{op}: a tensor of shape {shape} has over 2^60 elements")
        if len(shape) > _MOST_DIMENSIONS:
            raise ShapeError(f"{op}: a tensor of {len(shape)} dimensions; 64 are there at most")
        node = object.__new__(cls)
        node.op, node.srcs, node.arg, node.shape, node.dtype = op, srcs, arg, shape, dtype
        reference = _INTERNED[key] = _Reference(node, _forget)
        reference.key = key
        return node

    def __reduce__(self) -> tuple[object, ...]:
        """As a list, sources first: a pickle of a deep graph must not recurse."""
        order = topological((self,))
        at = {id(n): i for i, n in enumerate(order)}
        return _rebuilt, (
            tuple((n.op, tuple(at[id(s)] for s in n.srcs), n.arg, n.shape, n.dtype) for n in order),
        )

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype}{list(self.shape)}>"


def _rebuilt(
    rows: tuple[tuple[GraphOp, tuple[int, ...], Arg, tuple[int, ...], DType], ...],
) -> Node:
    """The last node of a list of (op, places of sources in the list, argument, shape, dtype)."""
    nodes: list[Node] = []
    for op, srcs, arg, shape, dtype in rows:
        nodes.append(Node(op, tuple(nodes[i] for i in srcs), arg, shape, dtype))
    return nodes[-1]


class _Reference(weakref.ref[Node]):
    """A weak reference, and the key that it is found by."""

    __slots__ = ("key",)
    key: object


_INTERNED: dict[object, _Reference] = {}
"""As a WeakValueDictionary, whose look-ups are calls of Python's."""


def _forget(gone: _Reference, interned: dict[object, _Reference] = _INTERNED) -> None:
    """Drop a reference to a node that is no more, unless the key has another one."""
    if interned.get(gone.key) is gone:
        del interned[gone.key]


Step = Mapping[Node, Node]
"""A rewrite's result for each node of a graph. Rewrites append theirs where they are given a list,
so that what they made can be compared with what was there (``ir.validate.rewrites``).
"""


def with_sources(node: Node, srcs: tuple[Node, ...]) -> Node:
    """The operation of ``node`` on other sources of the same shapes and dtypes."""
    return node if srcs == node.srcs else Node(node.op, srcs, node.arg, node.shape, node.dtype)


def substitute(outputs: tuple[Node, ...], replaced: Mapping[Node, Node]) -> tuple[Node, ...]:
    """``outputs`` with every node in ``replaced`` exchanged for its like-typed partner."""
    return rewritten(outputs, lambda node, _: replaced.get(node))


def rewritten(
    outputs: tuple[Node, ...], change: Callable[[Node, tuple[Node, ...]], Node | None]
) -> tuple[Node, ...]:
    """``outputs`` with every node exchanged for ``change(node, its new sources)``, of the same
    shape and dtype; None stands for the node with these sources.
    """
    done: dict[Node, Node] = {}
    for node in topological(outputs):
        srcs = tuple(map(done.__getitem__, node.srcs))
        done[node] = change(node, srcs) or with_sources(node, srcs)
    return tuple(done[o] for o in outputs)


def graph_input(name: str, shape: tuple[int, ...], dtype: DType) -> Node:
    """A tensor the caller supplies at run time."""
    return Node(GraphOp.INPUT, (), name, tuple(shape), dtype)


def const(array: NDArray[np.generic], dtype: DType, name: str = "", file: int = 0) -> Node:
    """An array known when the model is loaded (a weight); ``file`` is below 0 for one of a file."""
    data = ConstData.of(array, name)
    if file:
        data = ConstData(data.digest, name, data.array, file)
    return Node(GraphOp.CONST, (), data, tuple(array.shape), dtype)


def full(value: float | int | bool, shape: tuple[int, ...], dtype: DType) -> Node:
    """``value`` everywhere; never a buffer. Raises DTypeError for an integer out of range."""
    v = bool(value) if dtype.is_bool else int(value) if dtype.is_int else float(value)
    if dtype.is_int and not dtype.least <= v <= dtype.greatest:
        raise DTypeError(f"full: {value!r} is not a value of {dtype}")
    return Node(GraphOp.FULL, (), (type(v).__name__, repr(v), v), tuple(shape), dtype)


def iota(shape: tuple[int, ...], dim: int, dtype: DType = I64) -> Node:
    """The position along ``dim``."""
    return Node(GraphOp.IOTA, (), dim, tuple(shape), dtype)


def elementwise(op: Op, *srcs: Node) -> Node:
    """``op`` on nodes of one shape and dtype (``WHERE``: a bool first; ``DOT4``: any words)."""
    if len(srcs) != op.arity:
        raise ShapeError(f"{op} takes {op.arity} tensors, got {len(srcs)}")
    shape, kind, mixed = srcs[0].shape, srcs[-1].dtype, op is Op.WHERE
    for s in srcs:
        if s.shape != shape:
            raise ShapeError(f"{op}: shapes {', '.join(str(s.shape) for s in srcs)} must be equal")
        mixed = mixed or (s.dtype is not kind and s.dtype != kind)
    if mixed:
        apart = op is Op.DOT4 and all(s.dtype.is_quad for s in srcs)
        chosen = op is Op.WHERE and srcs[0].dtype.is_bool and srcs[1].dtype == kind
        if not (apart or chosen):
            raise DTypeError(f"{op}: dtypes {', '.join(str(s.dtype) for s in srcs)} do not fit")
    return Node(GraphOp.MAP, srcs, op, shape, _map_dtype(op, kind))


def _map_dtype(op: Op, dtype: DType) -> DType:
    """The dtype of an operation's result on ``dtype``.

    Raises DTypeError for pairs of anything but bf16, and for parts of such; for words of anything
    but bytes; for tf32 of anything but f32.
    """
    if op not in _OF_WORDS and dtype.category not in ("pair", "quad"):
        return BOOL if op.compares else dtype
    if op is Op.TF32 and dtype != F32:
        raise DTypeError(f"{op}: {dtype} does not fit")
    if op in (Op.QUAD, Op.DOT4) or dtype.is_quad:
        if not (dtype in (I8, U8) if op is Op.QUAD else op is Op.DOT4 and dtype.is_quad):
            raise DTypeError(f"{op}: {dtype} does not fit")
        return I32 if op is Op.DOT4 else I8X4 if dtype == I8 else U8X4
    if op is Op.PAIR or dtype.is_pair:
        if not (dtype == BF16 if op is Op.PAIR else op in (Op.LOW, Op.HIGH, Op.DOT2)):
            raise DTypeError(f"{op}: {dtype} does not fit")
        return BF16X2 if op is Op.PAIR else F32
    return dtype


_OF_WORDS = frozenset((Op.TF32, Op.QUAD, Op.DOT4, Op.PAIR))
"""Operations whose dtypes are looked at, as those of words are."""


def cast(x: Node, dtype: DType) -> Node:
    """``x`` converted to ``dtype``."""
    same = x.dtype is dtype or x.dtype == dtype  # what is equal is nearly always one object
    return x if same else Node(GraphOp.CAST, (x,), dtype, x.shape, dtype)


def converts_reads(n: Node) -> bool:
    """True if a node is left to its readers, as its source has no more bytes: it casts floats of 16
    bits to wider ones, or rounds to tf32 for a matrix unit.
    """
    if n.op is GraphOp.MAP:
        return n.arg is Op.TF32
    if n.op is not GraphOp.CAST or not (n.dtype.is_float and n.srcs[0].dtype.is_float):
        return False
    return n.srcs[0].dtype.is_half and not n.dtype.is_half


def narrows(n: Node) -> bool:
    """True if a node casts wider floats to 16 bits: it rounds, and takes fewer bytes."""
    if n.op is not GraphOp.CAST or not (n.dtype.is_float and n.srcs[0].dtype.is_float):
        return False
    return n.dtype.is_half and not n.srcs[0].dtype.is_half


def reduce(op: Op, x: Node, axes: tuple[int, ...], dtype: DType | None = None) -> Node:
    """``x`` folded over ``axes`` (kept with extent 1), summed in ``dtype`` (default: its own)."""
    if op not in (Op.ADD, Op.MUL, Op.MAX, Op.MIN):
        raise ShapeError(f"reduce: {op} is not one of add, mul, max, min")
    axes = tuple(sorted(set(axes)))
    if any(not 0 <= a < len(x.shape) for a in axes):
        raise ShapeError(f"reduce: axes {axes} are not all in a tensor of shape {x.shape}")
    if not axes:
        return x if dtype is None else cast(x, dtype)
    shape = tuple(1 if i in axes else s for i, s in enumerate(x.shape))
    acc = x.dtype if dtype is None else dtype
    return Node(GraphOp.REDUCE, (cast(x, acc),), (op, axes), shape, acc)


def reshape(x: Node, shape: tuple[int, ...]) -> Node:
    """The same elements in row-major order under another shape."""
    shape = tuple(shape)
    if prod(shape) != x.size or any(s < 0 for s in shape):
        raise ShapeError(f"reshape: {x.shape} has {x.size} elements, {shape} has {prod(shape)}")
    if shape == x.shape:
        return x
    src = x.srcs[0] if x.op is GraphOp.RESHAPE else x
    return src if src.shape == shape else Node(GraphOp.RESHAPE, (src,), None, shape, x.dtype)


def expand(x: Node, shape: tuple[int, ...]) -> Node:
    """Extent-1 dimensions repeated."""
    shape = tuple(shape)
    if len(shape) != len(x.shape) or any(
        a not in (1, b) for a, b in zip(x.shape, shape, strict=False)
    ):
        raise ShapeError(
            f"expand: {x.shape} does not broadcast to {shape}; only extents of 1 can grow"
        )
    return x if shape == x.shape else Node(GraphOp.EXPAND, (x,), None, shape, x.dtype)


def permute(x: Node, order: tuple[int, ...]) -> Node:
    """Dimension ``i`` of the result is dimension ``order[i]`` of ``x``."""
    order = tuple(order)
    if sorted(order) != list(range(len(x.shape))):
        raise ShapeError(
            f"permute: {order} is not a permutation of the {len(x.shape)} dimensions of {x.shape}"
        )
    if order == tuple(range(len(order))):
        return x
    return Node(GraphOp.PERMUTE, (x,), order, tuple(x.shape[o] for o in order), x.dtype)


def pad(x: Node, widths: tuple[tuple[int, int], ...]) -> Node:
    """Zeros before and after each dimension."""
    widths = tuple((int(a), int(b)) for a, b in widths)
    if len(widths) != len(x.shape) or any(a < 0 or b < 0 for a, b in widths):
        raise ShapeError(
            f"pad: {widths} needs one pair of widths >= 0 for each dimension of {x.shape}"
        )
    if not any(a or b for a, b in widths):
        return x
    shape = tuple(s + a + b for s, (a, b) in zip(x.shape, widths, strict=True))
    return Node(GraphOp.PAD, (x,), widths, shape, x.dtype)


def shrink(x: Node, limits: tuple[tuple[int, int], ...]) -> Node:
    """The part ``begin <= i < end`` of each dimension."""
    limits = tuple((int(a), int(b)) for a, b in limits)
    if len(limits) != len(x.shape) or any(
        not 0 <= a <= b <= s for (a, b), s in zip(limits, x.shape, strict=False)
    ):
        raise ShapeError(
            f"shrink: {limits} needs one 0 <= begin <= end <= extent for each dimension of "
            f"{x.shape}"
        )
    if all(a == 0 and b == s for (a, b), s in zip(limits, x.shape, strict=True)):
        return x
    return Node(GraphOp.SHRINK, (x,), limits, tuple(b - a for a, b in limits), x.dtype)


def flip(x: Node, dims: tuple[int, ...]) -> Node:
    """Dimensions reversed."""
    dims = tuple(sorted(set(dims)))
    if any(not 0 <= d < len(x.shape) for d in dims):
        raise ShapeError(f"flip: dimensions {dims} are not all in a tensor of shape {x.shape}")
    return x if not dims else Node(GraphOp.FLIP, (x,), dims, x.shape, x.dtype)


def window(x: Node, dim: int, size: int, stride: int = 1, dilation: int = 1) -> Node:
    """Sliding windows along ``dim``, the position inside a window as a new last dimension."""
    if not 0 <= dim < len(x.shape) or size < 1 or stride < 1 or dilation < 1:
        raise ShapeError(
            f"window: dim {dim}, size {size}, stride {stride}, dilation {dilation} do not fit "
            f"{x.shape}"
        )
    span = dilation * (size - 1) + 1
    if x.shape[dim] < span:
        raise ShapeError(
            f"window: {span} elements do not fit extent {x.shape[dim]} of dimension {dim} of "
            f"{x.shape}"
        )
    count = (x.shape[dim] - span) // stride + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    return Node(GraphOp.WINDOW, (x,), (dim, size, stride, dilation), shape, x.dtype)


def gather(x: Node, index: Node, dim: int) -> Node:
    """``x`` at the elements of ``index`` along ``dim``; other dimensions of both are the same.

    Raises ShapeError and DTypeError.
    """
    if not 0 <= dim < len(x.shape) or len(index.shape) != len(x.shape):
        raise ShapeError(f"gather: dim {dim} of {x.shape} by an index of shape {index.shape}")
    if any(a != b for d, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim):
        raise ShapeError(
            f"gather: shapes {x.shape} and {index.shape} may differ in dimension {dim} only"
        )
    if not index.dtype.is_int:
        raise DTypeError(f"gather: an index is an integer, not {index.dtype}")
    if index.size and not x.shape[dim]:
        raise ShapeError(f"gather: dimension {dim} of {x.shape} has no elements to read")
    return Node(GraphOp.GATHER, (x, index), dim, index.shape, x.dtype)


def within(x: Node, bounds: Bounds, when: Node | None = None) -> Node:
    """``x``, whose elements are ``bounds.low <= index < bounds.high`` or an error when it runs.

    ``when``: a truth of shape (), without which they may be anything. Raises ShapeError and
    DTypeError.
    """
    if not x.dtype.is_int:
        raise DTypeError(f"{bounds.op}: indices are integers, not {x.dtype}")
    if when is not None and (when.shape or not when.dtype.is_bool):
        raise ShapeError(
            f"{bounds.op}: a condition of {when.dtype}{list(when.shape)} is not a boolean"
        )
    srcs = (x,) if when is None else (x, when)
    return Node(GraphOp.WITHIN, srcs, bounds, x.shape, x.dtype)


def identity(x: Node, tag: object, *others: Node) -> Node:
    """``x``, whose gradient goes where ``tag`` says, of these sources too."""
    return Node(GraphOp.IDENTITY, (x, *others), tag, x.shape, x.dtype)


def contiguous(x: Node, layout: tuple[int, ...] | Layout | None = None, schedule: str = "") -> Node:
    """A fence: ``x`` is written to memory by a kernel of its own.

    ``layout``: the order in which dimensions are stored, the last one contiguous, or a Layout of
    ``x``'s shape. ``schedule``: the action text of that kernel, which is then not searched. Raises
    ShapeError.
    """
    if layout is None and not schedule:
        if x.op in (GraphOp.CONTIGUOUS, GraphOp.INPUT, GraphOp.CONST):
            return x
        return Node(GraphOp.CONTIGUOUS, (x,), None, x.shape, x.dtype)
    if x.op is GraphOp.CONTIGUOUS and x.arg is None:
        x = x.srcs[0]
    fence = Fence(None if layout is None else _layout_of(x, layout), schedule)
    return Node(GraphOp.CONTIGUOUS, (x,), fence, x.shape, x.dtype)


def apart(x: Node) -> Node:
    """``x`` in memory, with another name: nodes are interned, and what is made of this one is
    computed again beside what is made of ``x``.
    """
    return Node(GraphOp.CONTIGUOUS, (x,), Fence(apart=True), x.shape, x.dtype)


def is_plain(fence: Node) -> bool:
    """True if a CONTIGUOUS node is its source, as soon as that has memory."""
    return fence.arg is None or fence.arg == Fence(apart=True)


def _layout_of(x: Node, layout: tuple[int, ...] | Layout) -> Layout:
    if isinstance(layout, Layout):
        layout.verify()
        if layout.shape != x.shape:
            raise ShapeError(
                f"contiguous: a layout of shape {layout.shape} does not fit a tensor of shape "
                f"{x.shape}"
            )
        return layout
    order = tuple(layout)
    if any(type(d) is not int for d in order) or sorted(order) != list(range(len(x.shape))):
        raise ShapeError(
            f"contiguous: layout {order} is not a permutation of the {len(x.shape)} dimensions "
            f"of {x.shape}"
        )
    return Layout.permuted(x.shape, order)


def topological(outputs: tuple[Node, ...]) -> list[Node]:
    """Every node the outputs need, sources first; no recursion, so depth does not matter."""
    order: list[Node] = []
    seen: set[Node] = set()
    begun: list[Node] = []
    stack: list[Node | None] = list(reversed(outputs))
    while stack:
        node = stack.pop()
        if node is None:  # the sources of the last one that was begun are there
            order.append(begun.pop())
        elif node not in seen:
            seen.add(node)
            if node.srcs:
                begun.append(node)
                stack.append(None)
                stack += node.srcs[::-1]
            else:
                order.append(node)
    return order
