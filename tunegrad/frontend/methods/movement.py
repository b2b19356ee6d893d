"""Other shapes of the same elements. Nothing is moved until a kernel reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from tunegrad.errors import AxisError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.layout import Layout

from .. import movement
from ..handle import Handle, TensorLike, apply, lift
from ..handle import where as select
from ..movement import Axes, axes_of, axis_of, integer
from .trigonometry import Trigonometry

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Movement", "Sections", "join"]

Sections = int | Sequence[int]


def join(op: str, tensors: Sequence[TensorLike], dim: int) -> Tensor:
    """Tensors side by side along ``dim``, dtypes promoted."""
    if isinstance(tensors, Handle) or not len(tensors):
        raise ShapeError(f"{op}: at least one tensor is needed, in a list")
    return apply(op, lambda *n: movement.cat(n, dim, op), *[lift(t, op) for t in tensors])


class Movement(Trigonometry):
    """``reshape``, ``permute``, ``expand``, ``split``, ``roll`` and the like."""

    __slots__ = ()

    # ---- shapes

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements under another shape; one extent may be -1."""
        return self._with(movement.reshape(self.node, movement.flat(shape)))

    view = reshape

    def view_as(self, other: Tensor) -> Tensor:
        """The same elements under the shape of ``other``."""
        return self.reshape(other.shape)

    reshape_as = view_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Dimensions from ``start_dim`` to ``end_dim`` as one."""
        if not self.shape:
            return self.reshape(1).flatten(start_dim, end_dim)
        first = axis_of("flatten", start_dim, self.shape)
        last = axis_of("flatten", end_dim, self.shape)
        if last < first:
            raise ShapeError(
                f"flatten: start_dim {start_dim} is after end_dim {end_dim} of shape {self.shape}"
            )
        merged = prod(self.shape[first : last + 1])
        return self.reshape(*self.shape[:first], merged, *self.shape[last + 1 :])

    def ravel(self) -> Tensor:
        """All elements in one dimension."""
        return self.reshape(self.node.size)

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Tensor:
        """Dimension ``dim`` as several; one of ``sizes`` may be -1."""
        at = axis_of("unflatten", dim, self.shape)
        part = list(movement.extents("unflatten", sizes, -1))
        if part.count(-1) == 1:
            rest = prod(s for s in part if s != -1)
            part[part.index(-1)] = self.shape[at] // rest if rest else -1
        if prod(part) != self.shape[at]:
            raise ShapeError(
                f"unflatten: sizes {tuple(sizes)} for extent {self.shape[at]} of dimension {at} of "
                f"{self.shape}"
            )
        return self.reshape(*self.shape[:at], *part, *self.shape[at + 1 :])

    def squeeze(self, dim: Axes = None) -> Tensor:
        """Dimensions of extent 1 removed, of those named; None is all of them."""
        named = axes_of("squeeze", dim, self.shape)
        return self._with(movement.squeeze(self.node, [a for a in named if self.shape[a] == 1]))

    def unsqueeze(self, dim: int) -> Tensor:
        """A new dimension of extent 1 in front of ``dim``."""
        return self._with(movement.unsqueeze(self.node, dim))

    def expand_dims(self, dim: int) -> Tensor:
        """A new dimension of extent 1 in front of ``dim``, by numpy's name."""
        return self.unsqueeze(dim)

    # ---- orders

    def permute(self, *dims: int | Sequence[int]) -> Tensor:
        """Dimensions in another order."""
        return self._with(movement.permute(self.node, movement.flat(dims)))

    def transpose(self, dim0: int | Sequence[int] = -2, dim1: int = -1, *more: int) -> Tensor:
        """Two dimensions exchanged, by default the last two; a list, or more than two numbers, is
        numpy's permutation.
        """
        if isinstance(dim0, Sequence):
            return self.permute(dim0)
        if more:
            return self.permute(dim0, dim1, *more)
        return self._with(movement.swap(self.node, dim0, dim1))

    def swapaxes(self, dim0: int, dim1: int) -> Tensor:
        """Two dimensions exchanged."""
        return self._with(movement.swap(self.node, dim0, dim1))

    swapdims = swapaxes

    def t(self) -> Tensor:
        """The transpose of a matrix; a vector or scalar stays.

        Raises ShapeError for more dimensions.
        """
        if self.ndim > 2:
            raise ShapeError(f"t: shape {self.shape} has more than two dimensions")
        return self.T

    @property
    def T(self) -> Tensor:  # noqa: N802 - numpy's name
        """All dimensions reversed."""
        return self._with(movement.permute(self.node, range(self.ndim)[::-1]))

    @property
    def mT(self) -> Tensor:  # noqa: N802 - PyTorch's name
        """The last two dimensions exchanged."""
        return self.swapaxes(-2, -1)

    def movedim(self, source: Axes, destination: Axes) -> Tensor:
        """Dimensions ``source`` moved to the places ``destination``, the others in their order."""
        old, new = (axes_of("movedim", a, self.shape) for a in (source, destination))
        if len(old) != len(new):
            raise ShapeError(f"movedim: {source} and {destination} are not as many dimensions")
        placed = dict(zip(new, old, strict=True))
        rest = (a for a in range(self.ndim) if a not in old)
        return self.permute([placed[i] if i in placed else next(rest) for i in range(self.ndim)])

    moveaxis = movedim

    def flip(self, *dims: int | Sequence[int] | None) -> Tensor:
        """Dimensions reversed; none named is all of them."""
        if not dims or dims == (None,):
            return self._with(movement.flip(self.node, None))
        given = dims[0] if len(dims) == 1 else dims
        return self._with(movement.flip(self.node, given))  # type: ignore[arg-type]

    def fliplr(self) -> Tensor:
        """Columns reversed."""
        return self.flip(1)

    def flipud(self) -> Tensor:
        """Rows reversed."""
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
        """Turned by ``k`` quarter turns in the plane of two dimensions, from the first towards the
        second.
        """
        axes = [axis_of("rot90", d, self.shape) for d in dims]
        if len(axes) != 2 or axes[0] == axes[1]:
            raise ShapeError(f"rot90: dims {tuple(dims)} of shape {self.shape} must be two")
        a, b = axes
        turns = integer("rot90", "k", k) % 4
        if turns % 2 == 0:
            return self.flip(a, b) if turns else self._same()
        turned = self.swapaxes(a, b)
        return turned.flip(a) if turns == 1 else turned.flip(b)

    def roll(self, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
        """Elements moved on by ``shifts`` along ``dims``, those at the end to the beginning; of all
        elements in one row, where no dimension is named.
        """
        if dims is None or not self.shape:
            along = 0 if dims is None else dims
            return self.ravel().roll(shifts, along).reshape(self.shape)
        by = tuple(shifts) if isinstance(shifts, Sequence) else (shifts,)
        axes = [axis_of("roll", a, self.shape) for a in ([dims] if isinstance(dims, int) else dims)]
        if len(by) != len(axes):
            raise ShapeError(f"roll: {len(by)} shifts for {len(axes)} dimensions of {self.shape}")
        result = self._same()
        for shift, a in zip(by, axes, strict=True):
            extent = self.shape[a]
            first = -integer("roll", "a shift", shift) % extent if extent else 0
            if first:
                parts = (result.narrow(a, first, extent - first), result.narrow(a, 0, first))
                result = join("roll", parts, a)
        return result

    # ---- repetition

    def expand(self, *sizes: int | Sequence[int]) -> Tensor:
        """Extents of 1 repeated to a larger shape; -1 keeps an extent."""
        return self._with(movement.broadcast_to(self.node, movement.flat(sizes), "expand"))

    def expand_as(self, other: Tensor) -> Tensor:
        """Repeated to the shape of ``other``."""
        return self.expand(other.shape)

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """Repeated to ``shape``."""
        return self._with(movement.broadcast_to(self.node, movement.flat((shape,))))

    def repeat(self, *repeats: int | Sequence[int]) -> Tensor:
        """Copies side by side: so many along each dimension, new ones in front."""
        times = movement.extents("repeat", movement.flat(repeats))
        if len(times) < self.ndim:
            raise ShapeError(f"repeat: {times} are fewer than the dimensions of {self.shape}")
        shape = (1,) * (len(times) - self.ndim) + self.shape
        pairs = [(1, s) for s in shape]
        spread = [(r, s) for r, s in zip(times, shape, strict=True)]
        x = self.reshape([e for p in pairs for e in p]).expand([e for p in spread for e in p])
        return x.reshape([r * s for r, s in spread])

    def tile(self, *dims: int | Sequence[int]) -> Tensor:
        """Copies side by side; fewer numbers than dimensions are for the last ones."""
        times = movement.extents("tile", movement.flat(dims))
        return self.repeat((1,) * (self.ndim - len(times)) + times)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Tensor:
        """Each element ``repeats`` times along ``dim``; of all in one row, where it is None."""
        if dim is None or not self.shape:
            return self.ravel().repeat_interleave(repeats, 0 if dim is None else dim)
        at = axis_of("repeat_interleave", dim, self.shape)
        count = integer("repeat_interleave", "repeats", repeats, 0)
        spread = self.unsqueeze(at + 1)
        shape = list(spread.shape)
        shape[at + 1] = count
        return spread.expand(shape).flatten(at, at + 1)

    # ---- parts

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """The ``length`` elements from ``start`` along ``dim``."""
        at = axis_of("narrow", dim, self.shape)
        extent = self.shape[at]
        first = integer("narrow", "start", start)
        first = first + extent if first < 0 else first
        count = integer("narrow", "length", length, 0)
        if not 0 <= first <= first + count <= extent:
            raise AxisError(
                f"narrow: {count} elements from {start} are not in extent {extent} of dimension "
                f"{at} of {self.shape}"
            )
        limits = [(first, first + count) if a == at else (0, s) for a, s in enumerate(self.shape)]
        return self._with(graph.shrink(self.node, tuple(limits)))

    def select(self, dim: int, index: int) -> Tensor:
        """The slice at ``index`` along ``dim``, without that dimension."""
        at = axis_of("select", dim, self.shape)
        position = axis_of("select", index, self.shape, self.shape[at])
        return self.narrow(at, position, 1).squeeze(at)

    def split(self, split_size: Sections, dim: int = 0) -> tuple[Tensor, ...]:
        """Parts of ``split_size`` elements along ``dim`` (the last may be smaller), or of the sizes
        in a list.
        """
        at = axis_of("split", dim, self.shape)
        extent = self.shape[at]
        if isinstance(split_size, int):
            step = integer("split", "split_size", split_size, 1)
            sizes = [min(step, extent - i) for i in range(0, extent, step)] or [0]
        else:
            sizes = list(movement.extents("split", split_size))
        if sum(sizes) != extent:
            raise ShapeError(
                f"split: sizes {tuple(sizes)} do not add up to extent {extent} of dimension {at} "
                f"of {self.shape}"
            )
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return tuple(self.narrow(at, b, n) for b, n in zip(starts, sizes, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """At most ``chunks`` parts of equal size along ``dim``; the last may be smaller."""
        extent = self.shape[axis_of("chunk", dim, self.shape)]
        count = integer("chunk", "chunks", chunks, 1)
        return self.split(max(1, -(-extent // count)), dim)

    def tensor_split(self, indices_or_sections: Sections, dim: int = 0) -> tuple[Tensor, ...]:
        """So many parts along ``dim``, the first ones larger by one; or cut at the indices of a
        list.
        """
        extent = self.shape[axis_of("tensor_split", dim, self.shape)]
        if isinstance(indices_or_sections, int):
            n = integer("tensor_split", "sections", indices_or_sections, 1)
            return self.split([extent // n + (i < extent % n) for i in range(n)], dim)
        cuts = [0, *(range(extent)[:i].stop for i in indices_or_sections), extent]
        return self.split([max(0, b - a) for a, b in pairwise(cuts)], dim)

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The slices along ``dim``, without that dimension."""
        at = axis_of("unbind", dim, self.shape)
        return tuple(self.select(at, i) for i in range(self.shape[at]))

    def unfold(self, dimension: int, size: int, step: int) -> Tensor:
        """Windows of ``size`` elements along a dimension, ``step`` apart, the place inside a window
        as a new last dimension.
        """
        return self._with(movement.window(self.node, dimension, size, step, 1))

    def window(self, dim: int, size: int, stride: int = 1, dilation: int = 1) -> Tensor:
        """Sliding windows along ``dim``, the position inside a window as a new last dimension."""
        return self._with(movement.window(self.node, dim, size, stride, dilation))

    def shrink(self, limits: Sequence[Sequence[int]]) -> Tensor:
        """The part ``begin <= i < end`` of each dimension."""
        return self._with(movement.shrink(self.node, limits))

    # ---- diagonals and triangles

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """Elements at (i, i + offset) of two dimensions, as a new last dimension."""
        a, b = axis_of("diagonal", dim1, self.shape), axis_of("diagonal", dim2, self.shape)
        if a == b:
            raise ShapeError(f"diagonal: {dim1} and {dim2} are one dimension of {self.shape}")
        x = self.movedim((a, b), (-2, -1))
        rows, columns = x.shape[-2:]
        top, left = max(0, -offset), max(0, offset)
        count = max(0, min(rows - top, columns - left))
        if not count:
            return self._with(graph.full(0, (*x.shape[:-2], 0), self.dtype.compute))._as(self.dtype)
        x = x.narrow(-2, top, count).narrow(-1, left, count)
        # rows of count + 1 elements put each diagonal element first
        lead = x.shape[:-2]
        padded = x.reshape(*lead, count * count).narrow(-1, 0, (count - 1) * (count + 1) + 1)
        return padded.window(-1, 1, count + 1).squeeze(-1)

    def diag(self, diagonal: int = 0) -> Tensor:
        """The diagonal of a matrix, or the matrix that has a vector on its diagonal."""
        if self.ndim == 2:
            return self.diagonal(diagonal)
        if self.ndim != 1:
            raise ShapeError(f"diag: shape {self.shape} must be a vector or a matrix")
        return self.diag_embed(diagonal)

    def diag_embed(self, offset: int = 0) -> Tensor:
        """Matrices in the last two dimensions, with the last dimension on their diagonal."""
        if not self.shape:
            raise ShapeError("diag_embed: a tensor of shape () has no last dimension")
        n = self.shape[-1] + abs(offset)
        lead = ((0, 0),) * (self.ndim - 1)
        rows = self._with(graph.pad(self.node, (*lead, (max(0, -offset), max(0, offset)))))
        column, row = (self._with(graph.iota((n, n), d)) for d in (1, 0))
        return select(column - row == offset, rows.unsqueeze(-1), 0)._as(self.dtype)

    def tril(self, diagonal: int = 0) -> Tensor:
        """The last two dimensions at and below a diagonal; zero above."""
        return select(self._column_less_row("tril") <= diagonal, self, 0)._as(self.dtype)

    def triu(self, diagonal: int = 0) -> Tensor:
        """The last two dimensions at and above a diagonal; zero below."""
        return select(self._column_less_row("triu") >= diagonal, self, 0)._as(self.dtype)

    def trace(self) -> Tensor:
        """The sum of the diagonal of a matrix."""
        return self.diagonal().sum()

    def _column_less_row(self, op: str) -> Tensor:
        if self.ndim < 2:
            raise ShapeError(f"{op}: shape {self.shape} has fewer than two dimensions")
        plane = self.shape[-2:]
        return Handle.of(graph.iota(plane, 1)) - Handle.of(graph.iota(plane, 0))

    # ---- memory

    def clone(self) -> Tensor:
        """self; tensors do not change, so none needs a copy."""
        return self._same()

    def detach(self) -> Tensor:
        """self; there are no gradients to stop."""
        return self._same()

    def cpu(self) -> Tensor:
        """self; values are computed where a model is compiled for."""
        return self._same()

    def contiguous(
        self, layout: Sequence[int] | Layout | None = None, schedule: str | None = None
    ) -> Tensor:
        """A fence: this tensor is written to memory by a kernel of its own.

        ``layout``: the order in which its dimensions are stored, the last one contiguous ((0, 2, 3,
        1) keeps an image channels-last), or a Layout of its shape; default: as fusion chooses.
        ``schedule``: the action text of that kernel, which is then not searched. An output is
        row-major, whatever is asked: the fence is copied to it.

        Raises ShapeError for a layout that does not fit, IllegalAction for a schedule that does not
        parse; one that is not legal for the kernel raises when the model is compiled.
        """
        from tunegrad.opts import Schedule

        text = Schedule.parse(schedule).text if schedule else ""
        order = layout if layout is None or isinstance(layout, Layout) else tuple(layout)
        return self._with(graph.contiguous(self.node, order, text))
