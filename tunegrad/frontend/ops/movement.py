"""Other shapes and places of the same elements, and padding: kernels move them as they read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Literal

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL

from ..handle import Handle, TensorLike, apply, lift, where
from ..nodes import elementwise as ew
from ..nodes import movement
from ..nodes.elementwise import Scalar
from ..nodes.movement import Axes, axes_of, axis_of, integer
from ..operation import T, operation, viewing

Sections = int | Sequence[int]
Mode = Literal["constant", "reflect", "replicate", "circular"]
Pairs = Sequence[Sequence[int]]


@viewing
def view_as(input: Handle, other: Handle) -> Handle:
    """The same elements under the shape of ``other``."""
    return input.reshape(other.shape)


@viewing
def flatten(input: Handle, start_dim: int = 0, end_dim: int = -1) -> Handle:
    """Dimensions from ``start_dim`` to ``end_dim`` as one."""
    if not input.shape:
        return flatten(input.reshape(1), start_dim, end_dim)
    first = axis_of("flatten", start_dim, input.shape)
    last = axis_of("flatten", end_dim, input.shape)
    if last < first:
        raise ShapeError(
            f"flatten: start_dim {start_dim} is after end_dim {end_dim} of shape {input.shape}"
        )
    merged = prod(input.shape[first : last + 1])
    return input.reshape(*input.shape[:first], merged, *input.shape[last + 1 :])


@viewing
def unflatten(input: Handle, dim: int, sizes: Sequence[int]) -> Handle:
    """Dimension ``dim`` as several; one of ``sizes`` may be -1."""
    at = axis_of("unflatten", dim, input.shape)
    part = list(movement.extents("unflatten", sizes, -1))
    if part.count(-1) == 1:
        rest = prod(s for s in part if s != -1)
        part[part.index(-1)] = input.shape[at] // rest if rest else -1
    if prod(part) != input.shape[at]:
        raise ShapeError(
            f"unflatten: sizes {tuple(sizes)} for extent {input.shape[at]} of dimension {at} of "
            f"{input.shape}"
        )
    return input.reshape(*input.shape[:at], *part, *input.shape[at + 1 :])


@viewing
def expand_dims(input: Handle, dim: int) -> Handle:
    """A new dimension of extent 1 in front of ``dim``, by numpy's name."""
    return input.unsqueeze(dim)


@viewing
def transpose(input: Handle, dim0: int | Sequence[int] = -2, dim1: int = -1, *more: int) -> Handle:
    """Two dimensions exchanged, by default the last two; a list, or more than two numbers, is
    numpy's permutation.
    """
    if isinstance(dim0, Sequence):
        return input.permute(dim0)
    if more:
        return input.permute(dim0, dim1, *more)
    return input.swapaxes(dim0, dim1)


@viewing
def t(input: Handle) -> Handle:
    """The transpose of a matrix; a vector or scalar stays.

    Raises ShapeError for more dimensions.
    """
    if input.ndim > 2:
        raise ShapeError(f"t: shape {input.shape} has more than two dimensions")
    return input.T


@viewing
def movedim(input: Handle, source: Axes, destination: Axes) -> Handle:
    """Dimensions ``source`` moved to the places ``destination``, the others in their order."""
    old, new = (axes_of("movedim", a, input.shape) for a in (source, destination))
    if len(old) != len(new):
        raise ShapeError(f"movedim: {source} and {destination} are not as many dimensions")
    placed = dict(zip(new, old, strict=True))
    rest = (a for a in range(input.ndim) if a not in old)
    return input.permute([placed[i] if i in placed else next(rest) for i in range(input.ndim)])


@operation
def fliplr(input: Handle) -> Handle:
    """Columns reversed."""
    return input.flip(1)


@operation
def flipud(input: Handle) -> Handle:
    """Rows reversed."""
    return input.flip(0)


@operation
def rot90(input: Handle, k: int = 1, dims: Sequence[int] = (0, 1)) -> Handle:
    """Turned by ``k`` quarter turns in the plane of two dimensions, the first to the second."""
    axes = [axis_of("rot90", d, input.shape) for d in dims]
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(f"rot90: dims {tuple(dims)} of shape {input.shape} must be two")
    a, b = axes
    turns = integer("rot90", "k", k) % 4
    if turns % 2 == 0:
        return input.flip(a, b) if turns else input
    turned = input.swapaxes(a, b)
    return turned.flip(a) if turns == 1 else turned.flip(b)


@operation
def roll(input: Handle, shifts: int | Sequence[int], dims: Axes = None) -> Handle:
    """Elements moved on by ``shifts`` along ``dims``, those at the end to the beginning; of all
    elements in one row, where no dimension is named.
    """
    if dims is None:
        return roll(input.ravel(), shifts, 0).reshape(input.shape)
    by = tuple(shifts) if isinstance(shifts, Sequence) else (shifts,)
    axes = [axis_of("roll", a, input.shape) for a in ([dims] if isinstance(dims, int) else dims)]
    if len(by) != len(axes):
        raise ShapeError(f"roll: {len(by)} shifts for {len(axes)} dimensions of {input.shape}")
    result = input
    for shift, a in zip(by, axes, strict=True):
        extent = input.shape[a]
        first = -integer("roll", "a shift", shift) % extent if extent else 0
        if first:
            parts = (result.narrow(a, first, extent - first), result.narrow(a, 0, first))
            result = join("roll", parts, a)
    return result


@viewing
def expand_as(input: Handle, other: Handle) -> Handle:
    """Repeated to the shape of ``other``."""
    return input.expand(other.shape)


@viewing
def broadcast_to(input: Handle, shape: Sequence[int]) -> Handle:
    """Repeated to ``shape``."""
    return input._expanded("broadcast_to", movement.flat((shape,)))


@operation
def repeat(input: Handle, *repeats: int | Sequence[int]) -> Handle:
    """Copies side by side: so many along each dimension, new ones in front."""
    times = movement.extents("repeat", movement.flat(repeats))
    if len(times) < input.ndim:
        raise ShapeError(f"repeat: {times} are fewer than the dimensions of {input.shape}")
    shape = (1,) * (len(times) - input.ndim) + input.shape
    pairs = [(1, s) for s in shape]
    spread = [(r, s) for r, s in zip(times, shape, strict=True)]
    x = input.reshape([e for p in pairs for e in p]).expand([e for p in spread for e in p])
    return x.reshape([r * s for r, s in spread])


@operation
def tile(input: Handle, *dims: int | Sequence[int]) -> Handle:
    """Copies side by side; fewer numbers than dimensions are for the last ones."""
    times = movement.extents("tile", movement.flat(dims))
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


@operation
def repeat_interleave(input: Handle, repeats: int, dim: int | None = None) -> Handle:
    """Each element ``repeats`` times along ``dim``; of all in one row, where it is None."""
    if dim is None or not input.shape:
        return repeat_interleave(input.ravel(), repeats, 0 if dim is None else dim)
    at = axis_of("repeat_interleave", dim, input.shape)
    count = integer("repeat_interleave", "repeats", repeats, 0)
    spread = input.unsqueeze(at + 1)
    shape = list(spread.shape)
    shape[at + 1] = count
    return flatten(spread.expand(shape), at, at + 1)


@viewing
def split(input: T, split_size: Sections, dim: int = 0) -> tuple[T, ...]:
    """Parts of ``split_size`` elements along ``dim`` (the last may be smaller), or of the sizes
    in a list.
    """
    at = axis_of("split", dim, input.shape)
    extent = input.shape[at]
    if isinstance(split_size, int):
        step = integer("split", "split_size", split_size, 1)
        sizes = [min(step, extent - i) for i in range(0, extent, step)] or [0]
    else:
        sizes = list(movement.extents("split", split_size))
    if sum(sizes) != extent:
        raise ShapeError(
            f"split: sizes {tuple(sizes)} do not add up to extent {extent} of dimension {at} "
            f"of {input.shape}"
        )
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(input.narrow(at, b, n) for b, n in zip(starts, sizes, strict=True))


@viewing
def chunk(input: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """At most ``chunks`` parts of equal size along ``dim``; the last may be smaller."""
    extent = input.shape[axis_of("chunk", dim, input.shape)]
    count = integer("chunk", "chunks", chunks, 1)
    return split(input, -(-extent // count) or [0] * count, dim)


@viewing
def tensor_split(input: T, indices_or_sections: Sections, dim: int = 0) -> tuple[T, ...]:
    """So many parts along ``dim``, the first ones larger by one; or cut at the indices of a
    list.
    """
    extent = input.shape[axis_of("tensor_split", dim, input.shape)]
    if isinstance(indices_or_sections, int):
        n = integer("tensor_split", "sections", indices_or_sections, 1)
        return split(input, [extent // n + (i < extent % n) for i in range(n)], dim)
    cuts = [0, *(range(extent)[:i].stop for i in indices_or_sections), extent]
    return split(input, [max(0, b - a) for a, b in pairwise(cuts)], dim)


@viewing
def unbind(input: T, dim: int = 0) -> tuple[T, ...]:
    """The slices along ``dim``, without that dimension."""
    at = axis_of("unbind", dim, input.shape)
    return tuple(input.select(at, i) for i in range(input.shape[at]))


@viewing
def unfold(input: Handle, dimension: int, size: int, step: int) -> Handle:
    """Windows of ``size`` elements along a dimension, ``step`` apart, the place inside a window
    as a new last dimension.
    """
    return input.window(dimension, size, step)


@viewing
def diagonal(input: Handle, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Handle:
    """Elements at (i, i + offset) of two dimensions, as a new last dimension."""
    return _diagonals(input, offset, dim1, dim2)


def _diagonals(input: T, offset: int, dim1: int, dim2: int) -> T:
    a, b = axis_of("diagonal", dim1, input.shape), axis_of("diagonal", dim2, input.shape)
    if a == b:
        raise ShapeError(f"diagonal: {dim1} and {dim2} are one dimension of {input.shape}")
    return input._moved(movement.diagonal, offset, a, b)


@operation
def diag(input: Handle, diagonal: int = 0) -> Handle:
    """The diagonal of a matrix, or the matrix that has a vector on its diagonal."""
    if input.ndim == 2:
        return _diagonals(input, diagonal, 0, 1)
    if input.ndim != 1:
        raise ShapeError(f"diag: shape {input.shape} must be a vector or a matrix")
    return diag_embed(input, diagonal)


@operation
def diagflat(input: Handle, offset: int = 0) -> Handle:
    """A matrix with all elements in a row on a diagonal, zeros elsewhere."""
    return diag(input.ravel(), offset)


@operation
def diag_embed(input: Handle, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Handle:
    """Matrices in dimensions ``dim1`` and ``dim2``, with the last dimension on their diagonal."""
    if not input.shape:
        raise ShapeError("diag_embed: a tensor of shape () has no last dimension")
    n = input.shape[-1] + abs(offset)
    lead = ((0, 0),) * (input.ndim - 1)
    rows = input._with(graph.pad(input.node, (*lead, (max(0, -offset), max(0, offset)))))
    column, row = (input._with(graph.iota((n, n), d)) for d in (1, 0))
    found = where(column - row == offset, rows.unsqueeze(-1), 0)._as(input.dtype)
    return movedim(found, (-2, -1), (dim1, dim2))


@operation
def tril(input: Handle, diagonal: int = 0) -> Handle:
    """The last two dimensions at and below a diagonal; zero above."""
    return where(_column_less_row(input, "tril") <= diagonal, input, 0)._as(input.dtype)


@operation
def triu(input: Handle, diagonal: int = 0) -> Handle:
    """The last two dimensions at and above a diagonal; zero below."""
    return where(_column_less_row(input, "triu") >= diagonal, input, 0)._as(input.dtype)


@operation
def trace(input: Handle) -> Handle:
    """The sum of the diagonal of a matrix."""
    return diagonal(input).sum()


def _column_less_row(input: Handle, op: str) -> Handle:
    if input.ndim < 2:
        raise ShapeError(f"{op}: shape {input.shape} has fewer than two dimensions")
    plane = input.shape[-2:]
    return Handle.of(graph.iota(plane, 1)) - Handle.of(graph.iota(plane, 0))


def join(op: str, tensors: Sequence[TensorLike], dim: int) -> Handle:
    """Tensors side by side along ``dim``, dtypes promoted."""
    if isinstance(tensors, Handle) or not len(tensors):
        raise ShapeError(f"{op}: at least one tensor is needed, in a list")
    return apply(op, lambda *n: movement.cat(n, dim, op), *[lift(t, op) for t in tensors])


@operation
def pad(
    input: Handle, pad: Sequence[int] | Pairs, mode: Mode | Scalar = "constant",
    value: Scalar | None = None,
) -> Handle:  # fmt: skip
    """Elements before and after each dimension.

    ``pad``: one pair for each dimension, or a flat list of numbers as PyTorch has it: before
    and after the last dimension, then the one before it, and so on. Negative ones cut away.
    ``mode``: ``"constant"`` puts ``value`` there (zero unless given), ``"reflect"`` mirrors at
    the edge element, ``"replicate"`` repeats it, ``"circular"`` goes on at the other end. What is
    cut away is mirrored and repeated, too, but circular goes on with what is left, as in PyTorch.

    Raises ShapeError for widths or a mode that do not fit.
    """
    pairs = _pairs(input, pad)
    if not isinstance(mode, str):  # pad(widths, value)
        return _constant(input, pairs, mode)
    if mode == "constant":
        return _constant(input, pairs, 0 if value is None else value)
    if mode not in _EDGES:
        raise ShapeError(
            f"pad: mode={mode!r} is not one of 'constant', {', '.join(map(repr, _EDGES))}"
        )
    cut = [(min(a, 0), min(b, 0)) for a, b in pairs]
    x = _constant(input, cut, 0) if mode == "circular" else input
    for at, (a, b) in enumerate(pairs):
        x = _edges(x, mode, at, max(a, 0), max(b, 0))
    return x if mode == "circular" else _constant(x, cut, 0)


def _pairs(input: Handle, pad: Sequence[int] | Pairs) -> list[tuple[int, int]]:
    flat = list(pad)
    if flat and all(isinstance(n, int) for n in flat):
        if len(flat) % 2 or len(flat) > 2 * input.ndim:
            raise ShapeError(
                f"pad: width {flat[0]} of shape {input.shape} must be a pair (before, after); "
                f"a flat list of {len(flat)} is not two numbers for each of the last dimensions"
            )
        ends = [(integer("pad", "a width", flat[i]), integer("pad", "a width", flat[i + 1]))
                for i in range(0, len(flat), 2)]  # fmt: skip
        return [(0, 0)] * (input.ndim - len(ends)) + ends[::-1]
    pairs: list[tuple[int, int]] = []
    for width in flat:
        if not isinstance(width, Sequence) or len(width) != 2:
            raise ShapeError(
                f"pad: width {width!r} of shape {input.shape} must be a pair (before, after)"
            )
        a, b = (integer("pad", "a width", w) for w in width)
        pairs.append((a, b))
    if len(pairs) != input.ndim:
        raise ShapeError(
            f"pad: {len(pairs)} pairs of widths for the {input.ndim} dimensions of {input.shape}"
        )
    return pairs


def _constant(input: Handle, pairs: list[tuple[int, int]], value: Scalar) -> Handle:
    x = input.node
    if any(a < 0 or b < 0 for a, b in pairs):
        limits = [(-min(a, 0), s + min(b, 0)) for s, (a, b) in zip(x.shape, pairs, strict=True)]
        if any(begin > end for begin, end in limits):
            raise ShapeError(f"pad: widths {pairs} cut more away than {x.shape} has")
        x = graph.shrink(x, tuple(limits))
    widths = tuple((max(a, 0), max(b, 0)) for a, b in pairs)
    padded = graph.pad(x, widths)
    if padded is not x and (value != 0 or str(value) == "-0.0"):
        padded = ew.where(graph.pad(graph.full(True, x.shape, BOOL), widths), padded, value)
    if padded.dtype != x.dtype:
        raise DTypeError(f"pad: {value!r} is not a value of {x.dtype}")
    return input._with(padded)


_EDGES = ("reflect", "replicate", "circular")


def _edges(x: Handle, mode: str, at: int, before: int, after: int) -> Handle:
    """One dimension made longer by elements of its own."""
    if not before and not after:
        return x
    extent = x.shape[at]
    most = extent - 1 if mode == "reflect" else extent if mode == "circular" else before + after
    if extent == 0 or before > most or after > most:
        raise ShapeError(
            f"pad: mode {mode!r} has {extent} elements of dimension {at} of {x.shape} for widths "
            f"{(before, after)}"
        )
    if mode == "circular":
        parts = (x.narrow(at, extent - before, before), x, x.narrow(at, 0, after))
    elif mode == "reflect":
        parts = (
            x.narrow(at, 1, before).flip(at), x, x.narrow(at, extent - 1 - after, after).flip(at)
        )  # fmt: skip
    else:
        first, last = x.narrow(at, 0, 1), x.narrow(at, extent - 1, 1)
        shape = [list(x.shape) for _ in range(2)]
        shape[0][at], shape[1][at] = before, after
        parts = (first.expand(shape[0]), x, last.expand(shape[1]))
    return join("pad", [p for p in parts if p.shape[at]], at)
