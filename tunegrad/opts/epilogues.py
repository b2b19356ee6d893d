"""The way of a group's sums through shared memory before they are stored.

    registers of a matrix unit:  item (row, column) holds rows 8*high + row, columns 2*column + pair
    what stores want:            neighbouring items hold neighbouring runs of 16 bytes

A slice of the group's results is what its items hold at one point of the register loops that are
not ``columns``. Its rows are the work-items along the other axes; its columns lie side by side in
the output, in loops each of which steps over the one before.

    column c of row r lies at  stride * r + 36 * (c // 32) + c % 32

so that neither the 4 x 8 pairs that a warp of a matrix unit stores, nor the runs of 8 columns that
8 items load, meet in one of 32 banks of 4 bytes. Loops of columns are powers of two: what is shared
out along them can then be proved to be stored once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from tunegrad.errors import IllegalAction
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.kernel import Reduce, Store
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

__all__ = ["StagedEpilogue", "row_stride", "staged_epilogue"]

_RUN, _SPARE = 32, 4
"""Columns side by side, and the elements after them that stay empty."""

_BANKED = 16, 8
"""Rows are so many elements long, divided by the first: with remainder of the second."""

_PART = 8
"""Work-items that load 16 bytes each at a time: they share a row."""


@dataclass(frozen=True, slots=True)
class StagedEpilogue:
    """The slice of a group's sums that is in shared memory at a time.

    ``columns`` are loops from the one that steps by an element on, ``rows`` local loops, outermost
    first, ``slices`` register loops. ``run`` columns are stored by an item at a time.
    """

    reduce: Reduce
    columns: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    slices: tuple[Loop, ...]
    run: int

    @property
    def buffer(self) -> str:
        """The shared memory."""
        return f"{self.reduce.name}.slice"

    @property
    def width(self) -> int:
        """Columns of a row."""
        return prod(x.extent for x in self.columns)

    @property
    def height(self) -> int:
        """Rows of a slice."""
        return prod(x.extent for x in self.rows)

    @property
    def stride(self) -> int:
        """Elements from row to row."""
        return row_stride(self.width)

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return self.height * self.stride

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        return self.size * self.reduce.dtype.itemsize

    @property
    def runs(self) -> int:
        """Number of runs of columns in a slice, which the items of a group share out."""
        return self.height * self.width // self.run

    def place(self, row: Index, column: Index) -> Index:
        """Offset of a sum in the buffer."""
        return row * self.stride + column // _RUN * (_RUN + _SPARE) + column % _RUN

    def held(self) -> tuple[Index, Index]:
        """The row and the column of what an item holds, over the loops."""
        row, column, step = as_index(0), as_index(0), 1
        for x in self.rows:
            row = row * x.extent + var(x.name, x.extent)
        for x in self.columns:
            column = column + var(x.name, x.extent) * step
            step *= x.extent
        return row, column

    def loops_at(self, row: Index, column: Index) -> dict[str, Index]:
        """The loops of rows and of columns at a place of the slice.

        The outermost row is past its extent where a place is past the slice: what is asked of it
        then proves that two places have two results.
        """
        found: dict[str, Index] = {}
        for x in reversed(self.rows):
            found[x.name], row = row % x.extent if x is not self.rows[0] else row, row // x.extent
        for x in self.columns:
            found[x.name], column = column % x.extent, column // x.extent
        return found


def row_stride(width: int) -> int:
    """Elements from row to row of so many columns."""
    last = width - 1
    length = last // _RUN * (_RUN + _SPARE) + last % _RUN + 1
    every, left = _BANKED
    return length + (left - length) % every


def staged_epilogue(tree: LoopTree, param: str) -> StagedEpilogue:
    """Plan the way of sums to the stage that stores ``param``. Raises IllegalAction where there is
    none.
    """
    where = f"epilogue(param={param})"
    if tree.matrix is None:
        raise IllegalAction(f"{where}: no matrix unit makes the sums of {tree.kernel.name}")
    if not tree.target.has_work_items:
        raise IllegalAction(f"{where}: target {tree.target.name} has no work-items")
    stores = [s for s in tree.kernel.stages if isinstance(s, Store)]
    store = next((s for s in stores if s.param == param), None)
    if store is None:
        valid = ", ".join(p.name for p in tree.kernel.outputs)
        raise IllegalAction(f"{where}: no output of that name; valid: {valid}")
    if any(s.axes for s in stores) or tree.partial:
        raise IllegalAction(f"{where}: sums are not stored where they were added up")
    (reduce,) = tree.kernel.reduces
    p = tree.kernel.param(param)
    axes = dict(tree.index)
    offset = p.layout.offset([i.substitute(axes) for i in store.index])
    mine = [x for x in tree.loops if x.stage < 0 and (x.kind.is_register or _is_item(x))]
    columns = _columns(mine, offset)
    width = prod(x.extent for x in columns)
    if width < 2:
        raise IllegalAction(f"{where}: what a group makes does not lie side by side")
    odd = next((x for x in columns if x.extent & (x.extent - 1)), None)
    if odd is not None:
        raise IllegalAction(f"{where}: extent {odd.extent} of loop {odd.name}: no power of two")
    run = gcd(tree.target.lanes(p.dtype.itemsize), max(1, width // _PART))
    rest = [x for x in mine if x not in columns and x.extent > 1]
    rows = tuple(x for x in rest if _is_item(x))
    slices = tuple(x for x in rest if x.kind.is_register)
    return StagedEpilogue(reduce, columns, rows, slices, run)


def _is_item(x: Loop) -> bool:
    return x.kind is LoopKind.LOCAL


def _columns(loops: list[Loop], offset: Index) -> tuple[Loop, ...]:
    """The loops of one axis that are neighbours in the output, from the one that steps by an
    element on.
    """
    found: list[Loop] = []
    step = 1
    while True:
        mine = [x for x in loops if x.extent > 1 and offset.coefficient(x.name) == step]
        if not mine or (found and mine[0].axes != found[0].axes):
            return tuple(found)
        found.append(mine[0])
        step *= mine[0].extent
