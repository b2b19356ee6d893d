"""Indexing by data on graph nodes: gather and its kin, and scatter.

Reading is one graph operation, GATHER, which fusion turns into an index of the kernel that reads:
an embedding reads the rows that it needs, and an index of several dimensions is one load. Indices
are integers of any width. Negative ones count from the end. One out of range is an error: of
constants when the graph is made, of others when it runs (``ir.rewrites.ranges``). With
``beyond="clip"`` it is the last position, and a negative one is the first, as in numpy; with
``"wrap"`` it counts on from the other end. With ``"known"``, of indices that are known to be in
range, nothing is done about it. In none of these is anything checked.

Writing is a reduction: each element of the result folds what is written to it. So it is
deterministic on every device, and takes (elements written to) x (indices) steps. Many slices that
one row of indices puts somewhere are sorted first, and take that many steps for their indices only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Literal, cast, get_args

from tunegrad.errors import AxisError, DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, I32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Bounds, GraphOp, Node
from tunegrad.ir.kernel import identity
from tunegrad.ir.rewrites import interval

from . import tracing
from .elementwise import binary, broadcast, broadcast_shapes, compare, constant, where
from .folds import argsort
from .movement import axis_of, inverse

Beyond = Literal["raise", "clip", "wrap", "known"]
Mode = Literal["set", "add", "mul", "max", "min"]
_SORTED, _FEATURES = 1 << 26, 8
"""Steps, and elements of a slice, from which on slices are sorted before they are folded."""
_FOLDS = {"add": Op.ADD, "mul": Op.MUL, "max": Op.MAX, "min": Op.MIN}


@contextmanager
def only_where(condition: Node) -> Iterator[None]:
    """Indices of what is made inside are held to be in range where a truth of shape () holds: both
    branches of a condition are computed, and one of them is read.
    """
    outer = tracing.CONDITION.get()
    both = condition if outer is None else graph.elementwise(Op.AND, outer, condition)
    token = tracing.CONDITION.set(both)
    try:
        yield
    finally:
        tracing.CONDITION.reset(token)


def within(op: str, indices: Node, low: int, high: int) -> Node:
    """The indices, held to ``low <= index < high``.

    Raises:
        IndexOutOfRange: constants that are not.
        DTypeError: indices that are no integers.
    """
    if not indices.dtype.is_int:
        raise DTypeError(f"{op}: indices are integers, not {indices.dtype}")
    if not indices.size:
        return indices
    if indices.op is GraphOp.EXPAND:
        return graph.expand(within(op, indices.srcs[0], low, high), indices.shape)
    if indices.op is GraphOp.RESHAPE:
        return graph.reshape(within(op, indices.srcs[0], low, high), indices.shape)
    bounds, when = Bounds(op, low, high), tracing.CONDITION.get()
    least, greatest = interval(indices)
    if low <= least and greatest < high:
        return indices
    if when is None and _is_constant(indices):
        from tunegrad.ir.interpret.evaluate import evaluate

        evaluate((graph.within(indices, bounds),))
        return indices
    return graph.within(indices, bounds, when)


def _is_constant(n: Node) -> bool:
    while n.srcs and n.op in graph.MOVEMENT:
        n = n.srcs[0]
    return n.op in (GraphOp.CONST, GraphOp.FULL)


def gather(x: Node, indices: Node, axis: int, beyond: Beyond = "raise") -> Node:
    """``out[i, j] = x[indices[i, j], j]`` for axis 0 of two, as ``torch.gather``.

    ``indices`` has the rank of ``x`` and is no longer than it along the other axes.

    Raises:
        ShapeError: no such axis, ranks that differ, an index that is longer.
        IndexOutOfRange: constants out of range.
        DTypeError: indices that are no integers.
    """
    at = axis_of("gather", axis, x.shape)
    if len(indices.shape) != len(x.shape) or any(
        a > b for d, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != at
    ):
        raise ShapeError(f"gather: shapes {x.shape} and {indices.shape} do not fit along {axis}")
    limits = tuple(
        (0, extent if d == at else n)
        for d, (extent, n) in enumerate(zip(x.shape, indices.shape, strict=True))
    )
    return _gathered("gather", graph.shrink(x, limits), indices, at, beyond)


def take_along(x: Node, indices: Node, axis: int, beyond: Beyond = "raise") -> Node:
    """``gather`` with the other axes of both broadcast, as ``numpy.take_along_axis``."""
    at = axis_of("take_along", axis, x.shape)
    if len(indices.shape) != len(x.shape):
        raise ShapeError(f"take_along: shapes {x.shape} and {indices.shape} differ in rank")
    rest = [s[:at] + s[at + 1 :] for s in (x.shape, indices.shape)]
    common = broadcast_shapes("take_along", *rest)
    whole = [(*common[:at], n.shape[at], *common[at:]) for n in (x, indices)]
    wide, places = broadcast(x, whole[0]), broadcast(indices, whole[1])
    return _gathered("take_along", wide, places, at, beyond)


def take(x: Node, indices: Node, axis: int, beyond: Beyond = "raise") -> Node:
    """``x`` at ``indices`` of any shape along an axis, replaced by theirs, as ``numpy.take``."""
    at = axis_of("take", axis, x.shape)
    count = prod(indices.shape)
    row = graph.reshape(indices, (count, *(1 for _ in x.shape[at + 1 :])))
    places = broadcast(row, (*x.shape[:at], count, *x.shape[at + 1 :]))
    picked = _gathered("take", x, places, at, beyond)
    return graph.reshape(picked, (*x.shape[:at], *indices.shape, *x.shape[at + 1 :]))


def embedding(weight: Node, indices: Node) -> Node:
    """The rows of a table (rows, features) at ``indices``: (*indices, features)."""
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding: the table has shape {weight.shape}, not (rows, features)")
    return take(weight, indices, 0)


def index(x: Node, indices: Sequence[Node | None]) -> Node:
    """``x[i, :, j]`` by tensors, None for what is taken whole: numpy's advanced indexing.

    The indices broadcast; their shape stands where the first one is, or in front where whole axes
    part them.

    Raises:
        AxisError: more indices than axes, or shapes that do not broadcast.
    """
    if len(indices) > len(x.shape):
        raise AxisError(f"index: {len(indices)} indices for shape {x.shape}")
    given = [d for d, i in enumerate(indices) if i is not None]
    if not given:
        return x
    rest = [d for d in range(len(x.shape)) if d not in given]
    arrays = [cast(Node, indices[d]) for d in given]
    try:
        shape = broadcast_shapes("index", *(i.shape for i in arrays))
    except ShapeError as error:
        raise AxisError(*error.args) from None
    moved = graph.permute(x, (*given, *rest))
    tail, count = moved.shape[len(given) :], prod(shape)
    for n, i in enumerate(arrays):
        flat = graph.reshape(broadcast(i, shape), (count,))
        if n == 0:
            moved = take(moved, flat, 0)
            continue
        extents = (count, 1, *moved.shape[2:])
        column = graph.reshape(flat, (count, *(1 for _ in extents[1:])))
        picked = _gathered("index", moved, broadcast(column, extents), 1, "raise")
        moved = graph.reshape(picked, (count, *moved.shape[2:]))
    found = graph.reshape(moved, (*shape, *tail))
    together = given == list(range(given[0], given[-1] + 1))
    if not together or given[0] == 0:
        return found
    before = given[0]
    lead = range(len(shape), len(shape) + before)
    order = (*lead, *range(len(shape)), *range(len(shape) + before, len(found.shape)))
    return graph.permute(found, order)


def indexed_put(x: Node, indices: Sequence[Node | None], source: Node) -> Node:
    """``x`` with ``source``, shaped as what ``index`` reads, at the places of these indices; of
    several elements for one place the last one stays.
    """
    given = [d for d, i in enumerate(indices) if i is not None]
    rest = [d for d in range(len(x.shape)) if d not in given]
    arrays = [cast(Node, indices[d]) for d in given]
    shape = broadcast_shapes("index", *(i.shape for i in arrays))
    moved = graph.permute(x, (*given, *rest))
    count, tail = prod(shape), moved.shape[len(given) :]
    places: Node | None = None
    for d, i in zip(given, arrays, strict=True):
        extent = x.shape[d]
        held = clamped(within("setitem", i, -extent, extent), extent)
        flat = graph.reshape(broadcast(held, shape), (count,))
        places = flat if places is None else binary(Op.ADD, binary(Op.MUL, places, extent), flat)
    before = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    lead = range(before, before + len(shape))  # where ``index`` leaves the dimensions of indices
    order = (*lead, *(d for d in range(len(source.shape)) if d not in lead))
    rows = graph.reshape(graph.permute(source, order), (count, *tail))
    table = graph.reshape(moved, (prod(moved.shape[: len(given)]), *tail))
    found = graph.reshape(put(table, cast(Node, places), rows, 0), moved.shape)
    return graph.permute(found, inverse((*given, *rest)))


def scatter(x: Node, indices: Node, source: Node, axis: int, mode: Mode = "set") -> Node:
    """``x`` with ``source[i, j]`` written to ``[indices[i, j], j]`` for axis 0 of two, as
    ``torch.scatter`` and ``scatter_reduce`` (which includes ``x``).

    ``set``: of several, the last one in the source's order stays; the others fold ``x`` and what is
    written. ``source`` and ``indices`` have one shape, no longer than ``x`` along the other axes.

    Raises:
        ShapeError: shapes that do not fit.
        IndexOutOfRange: constants out of range.
        DTypeError: a source of another dtype, indices that are no integers, or a mode that the
            dtype does not have.
    """
    at = axis_of("scatter", axis, x.shape)
    fits = len(indices.shape) == len(x.shape) and all(
        a <= b for d, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != at
    )
    if not fits or source.shape != indices.shape:
        raise ShapeError(
            f"scatter: shapes {x.shape}, {indices.shape} and {source.shape} do not fit along {axis}"
        )
    if source.dtype != x.dtype:
        raise DTypeError(f"scatter: source of {source.dtype} into {x.dtype}; cast one")
    if x.dtype.is_bool and mode in ("add", "mul"):
        raise DTypeError(f"scatter: {mode} is not defined for bool")
    held = within("scatter", indices, -x.shape[at], x.shape[at])
    if 0 in indices.shape:
        return x
    spread = _spread(x, held, at)
    if mode == "set":
        return _set(x, source, spread, at)
    op = _FOLDS[mode]
    kind = x.dtype.compute
    if kind.is_bool:
        kind = I32
    start = graph.full(identity(op, kind), spread.shape, kind)
    written = where(spread, _placed(graph.cast(source, kind), x, at), start)
    total = graph.reduce(op, graph.cast(written, kind), (at + 1,))
    folded = graph.reshape(total, x.shape)
    return graph.cast(graph.elementwise(op, graph.cast(x, kind), folded), x.dtype)


def put(x: Node, indices: Node, source: Node, axis: int, mode: Mode = "set") -> Node:
    """``x`` with whole slices of ``source`` written to places along an axis: ``index_copy``,
    ``index_add`` and ``index_reduce`` (which includes ``x``).

    ``indices`` has one dimension, as long as ``source`` is along the axis; ``set`` keeps the last
    of several. Errors as ``scatter``'s.
    """
    at = axis_of("put", axis, x.shape)
    wanted = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
    if len(indices.shape) != 1 or source.shape != wanted:
        raise ShapeError(
            f"put: shapes {x.shape}, {indices.shape} and {source.shape} do not fit along {axis}"
        )
    line = (*(1 for _ in x.shape[:at]), *indices.shape, *(1 for _ in x.shape[at + 1 :]))
    count, features = indices.shape[0], prod(x.shape) // max(1, x.shape[at])
    long = count * x.size >= _SORTED and features >= _FEATURES
    if mode != "set" and long and source.dtype == x.dtype:
        return _put_sorted(x, indices, source, at, _FOLDS[mode])
    if mode != "set" or source.dtype != x.dtype or not count:
        return scatter(x, broadcast(graph.reshape(indices, line), wanted), source, at, mode)
    indices = within("put", indices, -x.shape[at], x.shape[at])
    places = graph.full(0, (x.shape[at],), I32)  # for their shape
    spread = _spread(places, indices, 0)
    last = graph.reduce(Op.MAX, where(spread, graph.iota(spread.shape, 1, I32), -1), (1,))
    column = (*(1 for _ in x.shape[:at]), x.shape[at], *(1 for _ in x.shape[at + 1 :]))
    winner = broadcast(graph.reshape(graph.contiguous(last), column), x.shape)
    return where(compare("lt", winner, 0), x, graph.gather(source, winner, at))


def _put_sorted(x: Node, indices: Node, source: Node, at: int, op: Op) -> Node:
    """``put`` by sorting the indices: the slices of one place are then neighbours, which a scan of
    log2(slices) passes folds, in a tree of their order; each place reads its last one.

        indices  2 0 2 5 0      sorted  0 0 2 2 5      scanned   s1 s1+s4 s0 s0+s2 s3
        up to    0 1 2 3 4 5    stand   2 2 4 4 4 5
    """
    kind = I32 if x.dtype.is_bool else x.dtype.compute
    (count,), extent = indices.shape, x.shape[at]
    indices = within("put", indices, -extent, extent)
    order = (at, *(d for d in range(len(x.shape)) if d != at))
    rows, given = (graph.permute(graph.cast(n, kind), order) for n in (x, source))
    held = graph.contiguous(clamped(indices, extent))
    sequence = argsort(held, 0)
    places = graph.contiguous(graph.gather(held, sequence, 0))
    total = graph.contiguous(take(given, sequence, 0, "known"))
    start, step = identity(op, kind), 1
    while step < count:
        widths = ((step, 0), *((0, 0) for _ in given.shape[1:]))
        limits = ((0, count - step), *((0, s) for s in given.shape[1:]))
        before = graph.pad(graph.shrink(total, limits), widths)
        same = compare("eq", places, graph.pad(graph.shrink(places, limits[:1]), widths[:1]))
        inside = compare("le", step, graph.iota((count,), 0, I32))
        line = graph.reshape(graph.elementwise(Op.AND, same, inside), _column(count, given))
        folded = where(broadcast(line, given.shape), before, start)
        total = graph.contiguous(graph.elementwise(op, total, folded))
        step *= 2
    table = (extent, count)
    reached = compare(
        "le", broadcast(graph.reshape(held, (1, count)), table), graph.iota(table, 0, I64)
    )
    upto = graph.reduce(Op.ADD, graph.cast(reached, I32), (1,))
    last = graph.contiguous(binary(Op.SUB, graph.reshape(upto, (extent,)), 1))
    written = compare("eq", graph.gather(places, last, 0), graph.iota((extent,), 0, I64))
    some = graph.elementwise(Op.AND, written, compare("le", 0, last))
    wide = broadcast(graph.reshape(some, _column(extent, rows)), rows.shape)
    found = graph.elementwise(op, rows, where(wide, take(total, last, 0, "known"), start))
    return graph.cast(graph.permute(found, inverse(order)), x.dtype)


def _column(count: int, like: Node) -> tuple[int, ...]:
    return (count, *(1 for _ in like.shape[1:]))


def _gathered(op: str, x: Node, indices: Node, axis: int, beyond: Beyond) -> Node:
    if beyond not in get_args(Beyond):
        raise ShapeError(f"{op}: mode {beyond!r}; valid: {', '.join(get_args(Beyond)[:-1])}")
    extent = x.shape[axis]
    if beyond == "raise":
        return graph.gather(x, within(op, indices, -extent, extent), axis)
    if beyond == "clip" and interval(indices)[0] < 0:
        indices = binary(Op.MAX, indices, 0)
    if beyond == "wrap" and extent and extent <= indices.dtype.greatest:
        indices = binary(Op.MOD, indices, extent)
    return graph.gather(x, indices, axis)


def _spread(x: Node, indices: Node, at: int) -> Node:
    """Mask of the places i that element j of the indices writes: ``[.., i, j, ..]``."""
    placed = _placed(clamped(indices, x.shape[at]), x, at, fill=-1)
    positions = graph.iota(placed.shape, at, I64)
    return compare("eq", placed, positions)


def clamped(indices: Node, extent: int) -> Node:
    """Indices from 0 to ``extent`` - 1, as a read takes them; spread-out ones as they were."""
    if indices.op is GraphOp.EXPAND:
        return graph.expand(clamped(indices.srcs[0], extent), indices.shape)
    if indices.op is GraphOp.RESHAPE:
        return graph.reshape(clamped(indices.srcs[0], extent), indices.shape)
    if indices.dtype.signed:
        signed = graph.cast(indices, I64)
        signed = where(compare("lt", signed, 0), binary(Op.ADD, signed, extent), signed)
        return binary(Op.MIN, binary(Op.MAX, signed, 0), extent - 1)
    highest = min(extent - 1, indices.dtype.greatest)
    return graph.cast(binary(Op.MIN, indices, highest), I64)


def _placed(source: Node, x: Node, at: int, fill: int = 0) -> Node:
    """A source over (.., places, sources, ..); ``fill`` past its end along the other axes."""
    widths = tuple(
        (0, 0 if d == at else n - s)
        for d, (n, s) in enumerate(zip(x.shape, source.shape, strict=True))
    )
    padded = graph.pad(source, widths)
    if fill and padded is not source:
        inside = graph.pad(constant(True, source.shape, BOOL), widths)
        padded = where(inside, padded, fill)
    shape = padded.shape
    row = graph.reshape(padded, (*shape[:at], 1, *shape[at:]))
    return graph.expand(row, (*shape[:at], x.shape[at], *shape[at:]))


def _set(x: Node, source: Node, spread: Node, at: int) -> Node:
    """The last source that writes to each place, and ``x`` where there is none."""
    numbers = graph.iota(spread.shape, at + 1, I32)
    last = graph.reduce(Op.MAX, where(spread, numbers, -1), (at + 1,))
    winner = graph.reshape(last, x.shape)
    widths = tuple(
        (0, 0 if d == at else n - s)
        for d, (n, s) in enumerate(zip(x.shape, source.shape, strict=True))
    )
    written = graph.gather(graph.pad(source, widths), winner, at)
    return where(compare("lt", winner, 0), x, written)
