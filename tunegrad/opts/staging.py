"""Scratch of a schedule: copies of operands, values that are kept, rows, and sums on their way
through shared memory.

``stage``, ``keep`` and ``epilogue`` ask for it, and lowering allocates and fills it. A plan that
breaks a rule is an IllegalAction, which names the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Literal

from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Load
from tunegrad.ir.index import ALWAYS, Index, Range, Valid, as_index, var
from tunegrad.ir.kernel import Param, Reduce, Store, own_axes
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, Staged, operand
from tunegrad.lazy import dataclass

# ---- staged operands
#
# The copy of a staged operand: its contents, its source, and the index by which the computation
# reads it.
#
# Two forms. With a ``layout`` the copy is indexed by loops (a packed operand): element ``(l1, l2
# ...)`` is what the load reads at those iterations. Without one it is the box of the parameter that
# the inner loops touch, in the parameter's own dimension order, so overlapping windows are copied
# once; what lies outside the tensor is zero.


MAX_SCRATCH_BYTES = 64 << 20
_PADDED = 4
"""A packed constant takes so many times its own bytes at most: tails pad it, and loops that read an
element again copy it again.
"""
_SPARE_BYTES = 16
"""Padding of a row that a matrix unit reads: one wide copy, so the next row stays aligned."""


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """``buffer[variables] = source[offset] if valid else 0``; computations read ``buffer[read]``.

    ``strides`` are those of the variables in the buffer: row-major, but for ``crossed`` copies to
    shared memory. Their source is contiguous along a variable that is not the last one, so that
    neighbouring work-items would write to one bank: rows of that variable are one element longer
    than what they hold. The 8 rows of a tile that a matrix unit reads lie in banks of their own:
    where warps load tiles together, chunks of rows of ``swizzled`` bytes change places; else rows
    are 16 bytes longer, and 32 where items read their elements one by one.
    """

    staged: Staged
    load: Load
    stage: int
    dtype: DType
    variables: tuple[tuple[str, int], ...]
    offset: Index
    valid: Valid
    read: Index
    space: Literal["thread", "team", "shared", "pack"]
    strides: tuple[int, ...]
    crossed: bool = False
    swizzled: int = 0
    source: str = ""
    """The buffer that is copied: the parameter, or what loading packed it into."""

    @property
    def count(self) -> int:
        """Elements that it holds."""
        return prod(e for _, e in self.variables)

    @property
    def dense(self) -> bool:
        """True if an element lies right after the one before, in the source's order, too."""
        return not self.crossed and self.strides == _strides([e for _, e in self.variables])

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return _reach([e for _, e in self.variables], self.strides)


@dataclass(frozen=True, slots=True)
class _Reads:
    """The reads of a staged operand by ``stage``, over loops; ``needed`` index the copy."""

    param: Param
    stage: int
    load: Load
    index: tuple[Index, ...]
    valid: Valid
    needed: tuple[str, ...]


def needed_loops(tree: LoopTree, staged: Staged) -> tuple[str, ...]:
    """The loops that index the copy, in list order, register loops last and lanes at the very end.

    They are those inside ``at``, and all work-items, that the operand depends on.
    """
    return _reads(tree, staged, *operand(tree, staged.param)).needed


def _reads(tree: LoopTree, staged: Staged, stage: int, load: Load) -> _Reads:
    env = dict(tree.index)
    index, valid = tuple([i.substitute(env) for i in load.index]), load.valid.substitute(env)
    used = valid.names().union(*[i.names() for i in index])
    inside = {x.name for x in tree.inside(staged.at)}
    local = LoopKind.LOCAL
    found = [x for x in tree.loops if x.name in used and (x.name in inside or x.kind is local)]
    found.sort(key=lambda x: _INNERMOST.get(x.kind, 0))
    return _Reads(
        tree.kernel.param(staged.param), stage, load, index, valid, tuple([x.name for x in found])
    )


_INNERMOST = {
    LoopKind.VECTOR: 2,
    LoopKind.GROUP: 2,
    LoopKind.UPCAST: 1,
    LoopKind.UNROLL: 1,
    LoopKind.MATRIX: 1,
}


def staged_copy(tree: LoopTree, staged: Staged) -> StagedCopy:
    """The plan of one staged operand; IllegalAction names the rule that it breaks."""
    reads = _legal_reads(tree, staged)
    return (_by_loops if _is_by_loops(staged) else _by_box)(tree, staged, reads)


def shared_bytes(tree: LoopTree) -> int:
    """Shared memory that the staged copies take together, of all slots of a pipeline."""
    name, slots = tree.pipelined or ("", 1)
    return sum(
        c.size * c.dtype.itemsize * (slots if c.staged.at == name else 1)
        for c in (staged_copy(tree, s) for s in tree.staged)
        if c.space == "shared"
    )


def check_copy(tree: LoopTree, staged: Staged) -> None:
    """Raises IllegalAction where ``staged_copy`` would, without making the plan."""
    reads = _legal_reads(tree, staged)
    if _is_by_loops(staged):
        _loop_extents(tree, staged, reads)
    else:
        _box(tree, staged, reads)


def _is_by_loops(staged: Staged) -> bool:
    return bool(staged.layout) or staged.at == "load"


def _illegal(staged: Staged, rule: str) -> IllegalAction:
    """The error that a copy breaks ``rule``."""
    return IllegalAction(f"stage(param={staged.param}, at={staged.at}): {rule}")


def _legal_reads(tree: LoopTree, staged: Staged) -> _Reads:
    """The reads of the operand, where a copy may be made at that place at all."""
    param = next((p for p in tree.kernel.params if p.name == staged.param), None)
    if param is None:
        names = ", ".join(p.name for p in tree.kernel.params)
        raise IllegalAction(f"stage(param={staged.param}): no such parameter; valid: {names}")
    out = tree.kernel.overwritten.get(staged.param)
    if out is not None:
        raise _illegal(staged, f"{out} may lie over it, and is stored between copy and use")
    stage, load = operand(tree, staged.param)
    if staged.at == "load" and param.role != "const":
        raise _illegal(staged, f"the parameter is {param.role!r}, not a constant")
    if staged.at not in ("", "load"):
        loop = tree.loop(staged.at)
        if loop.kind.is_register or loop.stage not in (-1, stage):
            raise _illegal(staged, "not a serial loop around its use")
        if loop.stage >= 0 and any(
            x.stage == loop.stage and x.kind is LoopKind.LOCAL for x in tree.loops
        ):
            raise _illegal(staged, "work-items part ways inside that loop")
    if not tree.target.has_work_items and staged.at not in ("", "load"):
        begin = tree.position(staged.at)
        threads = [i for i, x in enumerate(tree.loops) if x.kind is LoopKind.THREAD]
        if threads and min(threads) <= begin < max(threads):
            outer, inner = tree.loops[min(threads)].name, tree.loops[max(threads)].name
            rule = "where threads would wait for others that never come"
            raise _illegal(staged, f"between thread loops {outer} and {inner}, {rule}")
    if tree.target.has_work_items and staged.at != "load":
        begin = -1 if staged.at == "" else tree.position(staged.at)
        late = [
            x.name
            for i, x in enumerate(tree.loops)
            if x.kind is LoopKind.LOCAL and x.stage < 0 and i > begin
        ]
        if late:
            raise _illegal(staged, f"outside local loop {late[0]}")
    return _reads(tree, staged, stage, load)


def _check_size(tree: LoopTree, staged: Staged, load: Load, elements: int) -> None:
    slots = tree.pipelined[1] if tree.pipelined and tree.pipelined[0] == staged.at else 1
    nbytes = slots * elements * load.dtype.itemsize
    space = _space(tree, staged)
    limit = tree.target.shared_bytes if space == "shared" else MAX_SCRATCH_BYTES
    if space == "pack":
        limit = most_packed(tree.kernel.param(staged.param).nbytes)
    if nbytes > limit:
        raise _illegal(staged, f"{nbytes} bytes exceed {limit}")


def most_packed(nbytes: int) -> int:
    """Bytes that a pack of a constant of ``nbytes`` may take; small ones may take more."""
    return max(MAX_SCRATCH_BYTES, _PADDED * nbytes)


def _reach(extents: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first one to the last."""
    return 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))


def _strides(extents: Sequence[int], longer: int = -1, spare: int = 1) -> tuple[int, ...]:
    """Of a row-major array, the rows of dimension ``longer`` with so many elements to spare."""
    found, stride = [], 1
    for i in reversed(range(len(extents))):
        stride += spare * (i == longer)
        found.append(stride)
        stride *= extents[i]
    return tuple(reversed(found))


def _space(tree: LoopTree, staged: Staged) -> Literal["thread", "team", "shared", "pack"]:
    if staged.at == "load":
        return "pack"
    if tree.target.has_work_items:
        return "shared"
    threads = [i for i, x in enumerate(tree.loops) if x.kind is LoopKind.THREAD]
    if not threads:
        return "thread"
    outside = staged.at == "" or tree.position(staged.at) < max(threads)
    return "team" if outside else "thread"


def _loop_extents(
    tree: LoopTree, staged: Staged, reads: _Reads
) -> tuple[dict[str, int], int, tuple[int, ...], int]:
    """The loops that index a copy, outermost first, with their extents, which one is crossed, the
    strides, and the bytes of rows that are swizzled.

    None is crossed: -1. A layout may name loops along which nothing changes: of one step, or whose
    part of an axis vanishes from the index (``b % 32`` of an axis that is tiled by 96).
    """
    loops = {x.name: x.extent for x in tree.loops}
    used = reads.valid.names().union(*[i.names() for i in reads.index])
    same = {n for n, extent in loops.items() if extent == 1 or n not in used}
    layout = tuple([n for n in staged.layout if n not in same]) or reads.needed
    if set(layout) != set(reads.needed) or len(set(layout)) != len(layout):
        named, needed = ", ".join(layout), ", ".join(reads.needed)
        raise _illegal(staged, f"layout ({named}) must name the loops ({needed}), each once")
    extents = {n: loops[n] for n in layout}
    crossed = _crossed(tree, staged, reads, extents)
    strides, swizzled = _apart(tree, staged, reads, extents, crossed)
    _check_size(tree, staged, reads.load, _reach(list(extents.values()), strides))
    return extents, crossed, strides, swizzled


def _apart(
    tree: LoopTree, staged: Staged, reads: _Reads, extents: dict[str, int], crossed: int
) -> tuple[tuple[int, ...], int]:
    """The strides of a copy, and bytes of rows that are swizzled: neighbours do not meet in one
    bank.

    Elements of more than two bytes that lie across k are read one by one: 8 neighbours of 4 rows.
    """
    sizes, size = list(extents.values()), reads.load.dtype.itemsize
    if tree.matrix is None or _space(tree, staged) != "shared":
        return _strides(sizes, crossed), 0
    along = [tree.loop(n).reduce for n in extents]
    row = max((i for i, k in enumerate(along) if k != along[-1]), default=-1)
    nbytes = prod(sizes[row + 1 :]) * size
    one_by_one = size > 2 and not along[-1]
    together = tree.target.loads_matrices and row >= 0 and not one_by_one
    if together and _can_swizzle(nbytes, prod(sizes) * size):
        return _strides(sizes), nbytes
    spare = (1 + one_by_one) * _SPARE_BYTES
    return _strides(sizes, row, max(1, spare // size)), 0


def _can_swizzle(row: int, total: int) -> bool:
    """True if rows of so many bytes are whole chunks, and chunks change places inside the copy."""
    return row >= 2 * _SPARE_BYTES and row & (row - 1) == 0 and total % (8 * _SPARE_BYTES) == 0


def _source(tree: LoopTree, staged: Staged, reads: _Reads) -> tuple[str, Index, Valid | None]:
    """The buffer that is copied, and where over the loops; what a pack holds is always there."""
    if staged.at != "load":
        for other in tree.staged:
            if other.param == staged.param and other.at == "load":
                pack = staged_copy(tree, other)
                return pack.staged.buffer, pack.read, ALWAYS
    return staged.param, reads.param.layout.offset(reads.index), None


def _crossed(tree: LoopTree, staged: Staged, reads: _Reads, extents: dict[str, int]) -> int:
    """The loop along which the source of a shared copy is contiguous, where it is not the last.

    -1 for none.
    """
    if _space(tree, staged) != "shared":
        return -1
    _, offset, _ = _source(tree, staged, reads)
    steps = [offset.coefficient(n) for n in extents]
    if any(step is None for step in steps) or not steps or steps[-1] == 1:
        return -1
    return steps.index(1) if 1 in steps else -1


def _by_loops(tree: LoopTree, staged: Staged, reads: _Reads) -> StagedCopy:
    extents, crossed, strides, swizzled = _loop_extents(tree, staged, reads)
    buffer, load = staged.buffer, reads.load
    rename = {n: var(f"{buffer}.{n}", extent) for n, extent in extents.items()}
    # what the copy holds is the same at every step of its other loops, and there at the first
    steps = {x.name: as_index(0) for x in tree.inside(staged.at) if x.name not in extents}
    source, offset, known = _source(tree, staged, reads)
    valid = reads.valid & tails(tree, set().union(*(i.names() for i in load.index)))
    if known is not None:
        valid = known
    read = as_index(0)
    for n, stride in zip(reversed(extents), reversed(strides), strict=True):
        read = read + var(n, extents[n]) * stride
    space = _space(tree, staged)
    return StagedCopy(
        staged, load, reads.stage, load.dtype,
        tuple((f"{buffer}.{n}", extent) for n, extent in extents.items()),
        offset.substitute(rename), valid.substitute({**steps, **rename}), read, space, strides,
        crossed >= 0, swizzled, source,
    )  # fmt: skip


def tails(tree: LoopTree, axes: set[str]) -> Valid:
    """That the axes are within their true extents."""
    return Valid(
        Range(tree.axis_index(a), 0, tree.extent(a))
        for a in sorted(axes)
        if tree.nominal(a) != tree.extent(a)
    )


def _box(tree: LoopTree, staged: Staged, reads: _Reads) -> tuple[list[Index], list[Index]]:
    """For each dimension of the parameter, where the box begins, and what is read from there."""
    param = reads.param
    if any(x.param == staged.param and x.at == "load" for x in tree.staged):
        raise IllegalAction(
            f"stage(param={staged.param}): it is packed at load; name the loops of the copy"
        )
    if any(p.step != 1 for p in param.layout.parts) or len(param.layout.parts) != len(param.shape):
        raise IllegalAction(
            f"stage(param={staged.param}): its layout is blocked; name the loops of the copy"
        )
    zero = {n: as_index(0) for n in reads.needed}
    base = [d.substitute(zero) for d in reads.index]
    inner = [d - b for d, b in zip(reads.index, base, strict=True)]
    for d, f in zip(reads.index, inner, strict=True):
        if not f.names().issubset(reads.needed):
            raise _illegal(staged, f"index {d} mixes loops inside and outside the copy")
    for r in reads.valid:
        if all(d.terms != r.index.terms for d in reads.index):
            raise _illegal(staged, f"condition {r} is not about one dimension of the parameter")
    extents = [f.hi - f.lo + 1 for f in inner]
    _check_size(tree, staged, reads.load, prod(extents[p.dim] for p in param.layout.parts))
    return base, inner


def _by_box(tree: LoopTree, staged: Staged, reads: _Reads) -> StagedCopy:
    base, inner = _box(tree, staged, reads)
    param, load = reads.param, reads.load
    names = [f"{staged.buffer}.d{i}" for i in range(len(base))]
    at = [b + f.lo + var(n, f.hi - f.lo + 1) for b, f, n in zip(base, inner, names, strict=True)]
    ranges = [Range(x, 0, s) for x, s in zip(at, param.shape, strict=True)]
    for r in reads.valid:
        i = next(i for i, d in enumerate(reads.index) if d.terms == r.index.terms)
        shift = r.index.const - reads.index[i].const
        ranges.append(Range(at[i] + shift, r.lo, r.hi))
    order = [p.dim for p in param.layout.parts]
    extents = [f.hi - f.lo + 1 for f in inner]
    read, stride = as_index(0), 1
    for dim in reversed(order):
        read = read + (inner[dim] - inner[dim].lo) * stride
        stride *= extents[dim]
    return StagedCopy(
        staged, load, reads.stage, load.dtype, tuple((names[d], extents[d]) for d in order),
        param.layout.offset(at), Valid(ranges), read, _space(tree, staged),
        _strides([extents[d] for d in order]), source=staged.param,
    )  # fmt: skip


# ---- kept values and rows
#
# Values that one stage makes and later ones need: where they are between the two.
#
# A row is always there. Values of a reduction's expression are where ``keep`` asks for it:
#
#                                                kept[r] = exp(x[i, r] - s0)
# s1 = sum over r of exp(x[i, r] - s0)      -->  s1 = sum over r of kept[r]
# store y[i, p] = exp(x[i, p] - s0) / s1         store y[i, p] = kept[p] / s1


ROW = ".row"
"""End of the names of the buffers of rows."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The values of one reduce stage in scratch; ``extents`` are of its axes, padded for loops."""

    stage: int
    buffer: str
    dtype: DType
    extents: tuple[int, ...]
    size: int

    def offset(self, tree: LoopTree, stage: int) -> Index:
        """Offset of a value, over the loops of ``stage``: the producer or a reader.

        Lanes are next to each other.
        """
        axes = dict(tree.index)
        places = [axes[a.name] for a in own_axes(tree.kernel.stages[stage])]
        return _offset(tree, places, self.extents)


@dataclass(frozen=True, slots=True)
class RowScratch:
    """A row of a reduction in scratch, for each point of the shared register loops, and for each
    work-item of shared ones; ``extents`` are of its axes, padded up to what loops cover.
    """

    buffer: str
    dtype: DType
    extents: tuple[int, ...]
    size: int
    space: Literal["thread", "shared"]

    def offset(self, tree: LoopTree, place: Sequence[Index]) -> Index:
        """Offset of the element at ``place``, over loops; lanes are next to each other."""
        return _offset(tree, place, self.extents)


def row_scratch(tree: LoopTree, name: str) -> RowScratch:
    """The scratch of that reduction's row. IllegalAction where it is larger than allowed."""
    made = next(r for r in tree.kernel.reduces if r.name == name)
    extents = tuple(tree.nominal(a.name) for a in made.row)
    size = prod(extents) * prod(x.extent for x in _beside(tree))
    space: Literal["thread", "shared"] = "shared" if tree.target.has_work_items else "thread"
    most = tree.target.shared_bytes if space == "shared" else MAX_SCRATCH_BYTES
    if size * made.dtype.itemsize > most:
        raise IllegalAction(
            f"row {made.name} of kernel {tree.kernel.name}: {size * made.dtype.itemsize} bytes of "
            f"scratch exceed {most}"
        )
    return RowScratch(f"{made.name}{ROW}", made.dtype, extents, size, space)


def _offset(tree: LoopTree, place: Sequence[Index], extents: Sequence[int]) -> Index:
    """The offset of a place for one point of the shared registers; lanes are next to each other."""
    own: Index = as_index(0)
    for i, extent in zip(place, extents, strict=True):
        own = own * extent + i
    shared, count = as_index(0), 1
    registers = _beside(tree)
    for x in sorted(registers, key=lambda x: x.kind is LoopKind.VECTOR):
        shared = shared * x.extent + var(x.name, x.extent)
        count *= x.extent
    if any(x.kind is LoopKind.VECTOR for x in registers):
        return own * count + shared
    return shared * prod(extents) + own


def _beside(tree: LoopTree) -> list[Loop]:
    """The shared loops that have values of their own at a time: registers, and work-items."""
    items = [x for x in tree.loops if x.kind is LoopKind.LOCAL and x.stage < 0]
    return [*items, *tree.shared_registers]


def kept_of(tree: LoopTree, stage: int) -> Kept:
    """Plan how the values of ``stage`` are kept; IllegalAction names the rule that forbids it."""
    where = f"keep(stage={stage})"
    if not 0 <= stage < len(tree.kernel.stages) or not isinstance(
        tree.kernel.stages[stage], Reduce
    ):
        raise IllegalAction(f"{where}: kernel {tree.kernel.name} has no reduction at that place")
    readers = tree.kernel.made_again(stage)
    if not readers:
        raise IllegalAction(
            f"{where}: no later stage of kernel {tree.kernel.name} computes its values again"
        )
    if not tree.target.can_keep or tree.partial:
        rule = "needs a thread with scratch, and no reduce loop around shared loops"
        raise IllegalAction(f"{where}: {rule}")
    stages = [tree.kernel.stages[i] for i in (stage, *readers)]
    extents = tuple(
        max(tree.nominal(own_axes(s)[d].name) for s in stages) for d in range(len(stages[0].axes))
    )
    made = tree.kernel.stages[stage]
    size = prod(extents) * prod(x.extent for x in tree.shared_registers)
    dtype = made.expr.dtype
    if size * dtype.itemsize > tree.target.l2_bytes:
        raise IllegalAction(
            f"{where}: {size * dtype.itemsize} bytes exceed the {tree.target.l2_bytes} of the "
            "L2 cache"
        )
    return Kept(stage, f"kept{stage}", dtype, extents, size)


# ---- epilogues
#
# The way of a group's sums through shared memory before they are stored.
#
#     registers of a unit:  item (row, column) holds rows 8*high + row, columns 2*column + pair
#     what stores want:     neighbouring items hold neighbouring runs of 16 bytes
#
# A slice of the group's results is what its items hold at one point of the register loops that are
# not ``columns``. Its rows are the work-items along the other axes; its columns lie side by side in
# the output, in loops each of which steps over the one before.
#
#     column c of row r lies at  stride * r + 36 * (c // 32) + c % 32
#
# so that neither the 4 x 8 pairs that a warp of a matrix unit stores, nor the runs of 8 columns
# that 8 items load, meet in one of 32 banks of 4 bytes. Loops of columns are powers of two: what is
# shared out along them can then be proved to be stored once.


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
    """Plan the way of sums to the stage that stores ``param``; IllegalAction if none."""
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
    """The loops of an axis that are neighbours in the output, finest first."""
    found: list[Loop] = []
    step = 1
    while True:
        mine = [x for x in loops if x.extent > 1 and offset.coefficient(x.name) == step]
        if not mine or (found and mine[0].axes != found[0].axes):
            return tuple(found)
        found.append(mine[0])
        step *= mine[0].extent
