"""Reductions in parts: f32 sums in blocks (``Cut``), and shares of work-items (``Exchange``,
``Shares``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from tunegrad.ir.dtypes import F32, F64, DType
from tunegrad.ir.expr import Apply, Op, leaves, names_of
from tunegrad.ir.index import ALWAYS, Index, as_index, var
from tunegrad.ir.kernel import Kernel, Reduce, identity
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.pipelines import WARP
from tunegrad.ir.program import Alloc, Barrier, For, Instr, Shuffle, VType, Write
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from .builder import Builder, Known

BLOCK = 16
"""Terms of a block of a sum, and blocks that are added in f32: as long chains as PyTorch's, whose
results add up levels of 16 each.
"""

DOT_BLOCK, PANEL = 160, 256
"""The same of a contraction, whose accumulators fill the registers, and leave them between blocks;
and the terms of a panel, after which they go to memory anyway. MKL's blocks have up to 192.
"""

ROW_PARTIALS = 1024
"""Partial sums in memory that are added in f32 where a matrix is read once, which PyTorch adds in
one chain: f64 costs a row of 4,096 times a matrix 14 %.
"""

LONG_DOT = 8192
"""Products above which accumulators are cut that can not leave their registers for a while: those
of tiles, and of work-items.
"""

LANES = 64
"""Lanes and copies of an accumulator, about, which are folded in f32."""


def longest_chain(target: Target) -> int:
    """Additions that a term of an f32 sum goes through one after the other, at most, under any
    schedule: in its block, among blocks, among partial sums in memory, and in the fold of lanes;
    where accumulators can not leave their registers, in a contraction that is not cut.
    """
    blocks = PANEL + DOT_BLOCK + ROW_PARTIALS + LANES
    return LONG_DOT + blocks if target.has_work_items or target.units else blocks


@dataclass(frozen=True, slots=True)
class Cut:
    """After every ``step`` iterations of ``loop``, accumulators are added to the sums before them,
    in type ``wide``.

    A chain of n additions in f32 has an error of up to n u sum|x|, u = 2^-24, and from 2^24 equal
    terms on it stands still. So a sum whose accumulators would take many terms is cut, wherever its
    accumulators live:

    registers                                     memory (reduce loops around the region)
        v0 = 0                                        for k0 in many:
        for r in R:                                       C = C + sum over k1
            v0 += x[r]
            -->                                           -->
        v0 = 0                                        for k0 in many:
        for r.block in R / b:                             v0.partial[..] += sum over k1    (f64)
            before = v0;  v0 = 0                      C = v0.partial[..]                   (last k0)
            for r.step in b:
                v0 += x[r.block * b + r.step]
            v0 = before + v0

    A compiler keeps ``before`` on the stack around the inner loop. Many blocks are added in f64:
    ``x.sum()`` of 2^31 numbers in one serial loop is

        for r.block in 134217728:
            v0 = 0
            for r.step in 16: v0 += x[16 * r.block + r.step]
            v0.wide += f64(v0)
        out = f32(v0.wide)

    Every lane and every copy of an ``upcast`` reduce loop has a ``.wide`` of its own; lanes and
    copies are few, and are folded in f32 as ever. The loop that is cut is the one in which the
    terms of an iteration and of all loops inside it first exceed a block; a partial iteration that
    is peeled off after it is a block of its own. Where one iteration is longer than a block, each
    accumulator begins another after ``copies`` of its terms, too (0: never); there, and in a
    pipeline, the sums before are registers as those of f64 are.

    Of b terms a block and m blocks, the error of an accumulator is at most (b + m - 2) u, or
    (b - 1) u + m 2^-53 + u, of sum|x|, to first order (N. J. Higham, Accuracy and Stability of
    Numerical Algorithms, section 4.2: blocks), where one chain of n terms has (n - 1) u. Integers,
    f64, MAX, MIN and PROD are never cut.
    """

    loop: str
    step: int
    copies: int = 0
    wide: DType = F64


def cut_of(tree: LoopTree, stage: int) -> Cut | None:
    """The cut of a reduce stage's chain inside the region; None where the chain is short or
    exact.
    """
    own, block = _chain(tree, stage), _block(tree, stage)
    terms = prod(x.extent for x in own)
    if block is None or terms <= block:
        return None
    inside = prod(x.extent for x in own if x.kind is LoopKind.UNROLL)
    copies = block if inside > block else 0
    serial = [x for x in own if x.kind is LoopKind.SERIAL and x.extent > 1]
    for loop in reversed(serial):
        if inside * loop.extent > block:
            step = _step(loop.extent, max(1, block // inside))
            return Cut(loop.name, step, copies, _wide(terms, copies or step * inside, block))
        inside *= loop.extent
    return Cut("", 1, copies, _wide(terms, copies, block))


def has_wide_partials(tree: LoopTree, stage: int) -> bool:
    """True if the partial sums that a reduce stage keeps in memory are f64."""
    block, s = _block(tree, stage), tree.kernel.stages[stage]
    if block is None or not isinstance(s, Reduce):
        return False
    most = (BLOCK, ROW_PARTIALS, DOT_BLOCK)[_read_again(tree.kernel, s)]
    return prod(x.extent for x in tree.partial) > most


def _block(tree: LoopTree, stage: int) -> int | None:
    """Terms of a block of a reduce stage's sum; None where it is exact, or a short contraction."""
    s = tree.kernel.stages[stage]
    block = chained_terms(tree.kernel, s) if isinstance(s, Reduce) else None
    if block is None or block == BLOCK:
        return block
    terms = prod(x.extent for x in _chain(tree, stage))
    if tree.target.has_work_items or tree.matrix is not None:
        return PANEL if terms * prod(x.extent for x in tree.partial) > LONG_DOT else None
    return PANEL if tree.partial and terms <= PANEL else DOT_BLOCK


def chained_terms(kernel: Kernel, s: Reduce) -> int | None:
    """Terms of a reduction that one accumulator of a thread takes in turn, uncut, in whichever
    loops they are; None: all.
    """
    if s.op is not Op.ADD or s.dtype != F32:
        return None
    return DOT_BLOCK if _read_again(kernel, s) else BLOCK


def _wide(terms: int, size: int, few: int) -> DType:
    """The type in which blocks of a chain are added: as many as a block has terms in f32."""
    return F32 if -(-terms // size) <= few else F64


def _read_again(kernel: Kernel, s: Reduce) -> int:
    """Factors of a sum of products, 0 to 2, that are read again for other results: it is a
    contraction if one is.
    """
    x = s.expr
    if not isinstance(x, Apply) or x.op not in (Op.MUL, Op.DOT2):
        return 0
    summed = {a.name for a in s.folds if a.extent > 1}
    shared = {a.name for a in (*kernel.axes, *s.row) if a.extent > 1}
    factors = [frozenset[str]().union(*map(names_of, leaves(y))) for y in x.args]
    return sum(summed <= names and not shared <= names for names in factors)


def _chain(tree: LoopTree, stage: int) -> list[Loop]:
    """The loops whose iterations add to one accumulator in turn."""
    kinds = (LoopKind.SERIAL, LoopKind.UNROLL)
    return [x for x in tree.own(stage) if x.kind in kinds and x.reduce]


def _step(extent: int, most: int) -> int:
    """Iterations of a block: a divisor of the extent above a quarter of the most, where there is
    one, else as many as make blocks nearly even.
    """
    even = -(-extent // -(-extent // most))
    return next((d for d in range(most, most // 4, -1) if extent % d == 0), even)


_ONE_ROUND = 16
"""Shares that each item folds alone: a second round would cost a barrier, about as long as that."""


def on_items(
    tree: LoopTree, b: Builder, loop: Loop, emit: Callable[[], None], *, once: bool = False
) -> None:
    """Emit the code of ``emit`` for each iteration of a stage's own local loop.

    Where other stages have more work-items, several run one iteration, or only the first of them
    (``once``): what it stores, no other one stores.
    """
    b.open()
    emit()
    stop = (as_index(loop.extent),)
    body, stride = b.close(), tree.item_stride(loop)
    if once:
        body = _by_one(body, tree.own_items // loop.extent, loop.extent * stride)
    b.add(For(loop.name, loop.extent, stop, body, "local", loop.extent, stride))


def _by_one(body: tuple[Instr, ...], among: int, stride: int) -> tuple[Instr, ...]:
    """A block for the first of so many work-items, which are a stride apart."""
    if among == 1:
        return body
    return (For("first", 1, (as_index(1),), body, "local", among, stride),)


def on_first(tree: LoopTree, b: Builder, emit: Callable[[], None]) -> None:
    """Emit the code of ``emit`` for the first of the work-items that share out a stage: a value
    that all of them know is stored by one.
    """
    own = next((x for x in tree.loops if x.kind is LoopKind.LOCAL and x.stage >= 0), None)
    if own is None or tree.own_items == 1:
        emit()
        return
    b.open()
    emit()
    b.extend(_by_one(b.close(), tree.own_items, tree.item_stride(own)))


def exchanges(tree: LoopTree) -> bool:
    """True if the work-items that share out reductions can exchange their shares: whole warps of
    neighbours, and for each stage as many as a power of two.

    All stages do or none does: an exchanged value is known by the items that exchanged it, and a
    proof that all store the same needs to know more.
    """
    warp = tree.target.warp
    own = [x for x in tree.loops if x.kind is LoopKind.LOCAL and x.stage >= 0 and x.reduce]
    return (
        warp == WARP
        and tree.items % warp == 0
        and all(tree.item_stride(x) == 1 for x in own)
        and all(x.extent & (x.extent - 1) == 0 and x.extent <= warp * warp for x in own)
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    """A reduce stage whose shares are exchanged, and where in shared memory they lie: those of each
    work-item of shared loops apart.

    Where work-items next to each other are a warp, they exchange their shares until each has the
    total; where there are several warps, one of each keeps its total in shared memory, and every
    warp exchanges those:

        v0 = sum over k of X[k], k1 on 256 work-items     -->

        for k1 in 256 local:
            v0 = sum over k0 of X[256*k0 + k1]
            v0 += v0 of item ^ 1, v0 += v0 of item ^ 2 ... item ^ 16
        for the first of each 32:  v0.warps[k1 / 32] = v0
        barrier
        for v0.w in 8 local:       v0 = v0.warps[v0.w];  v0 += v0 of item ^ 1 ... item ^ 4

    Elsewhere shares are in shared memory, and are folded in one or two rounds:

    for k1 in 256 local:
        v0 = sum over k0 of X[256*k0 + k1];  v0.items[k1] = v0
    barrier
    for v0.i in 16 of 256 local:                       neighbours read neighbours, of other banks
        v0.parts[v0.i] = sum over v0.t in 16 of v0.items[16*v0.t + v0.i]
    barrier
    v0.total = sum over v0.i in 16 of v0.parts[v0.i]   every item, for what comes after

    Shared local loops have shares of their own: they come before ``k1`` in the index of a share.
    Nothing is folded across vector lanes, which are neighbouring results.
    """

    tree: LoopTree
    b: Builder
    stage: Reduce
    loop: Loop
    vtype: VType
    lane: str

    def _read(self, register: str) -> Known:
        return self.b.read(register, self.vtype)

    def _size(self, count: int, points: int) -> int:
        """Elements of so many shares of each of ``points`` results."""
        return count * prod([x.extent for x in self._around]) * points * self.vtype.lanes

    def _offset(self, count: int, item: Index, point: int) -> Index:
        """Offset of one share: point, shared work-item, the one that shares, lane."""
        around, stride = as_index(0), 1
        for x in reversed(self._around):
            around = around + var(x.name, x.extent) * stride
            stride *= x.extent
        offset = (around + point * stride) * count + item
        lanes = self.vtype.lanes
        return offset * lanes + var(self.lane, lanes) if lanes > 1 else offset

    @property
    def _around(self) -> list[Loop]:
        return [x for x in self.tree.outer if x.kind is LoopKind.LOCAL]


@dataclass(frozen=True, slots=True)
class Exchange(_Shared):
    """The shares of a reduce stage in registers, one for each of ``registers``, which hold totals
    afterwards, for every work-item. Results that a stage's work-items share stay apart.
    """

    registers: list[str]

    @property
    def warps(self) -> int:
        """Warps that share out the reduction."""
        return max(1, self.loop.extent // WARP)

    @property
    def allocs(self) -> list[Alloc]:
        """Shared memory for the totals of warps."""
        if self.warps == 1:
            return []
        size = self._size(self.warps, len(self.registers))
        return [Alloc(self._buffer, self.stage.dtype, size, "shared")]

    def keep(self, totals: list[Known]) -> None:
        """One work-item's shares become those of its warp. All items are there."""
        for register, total in zip(self.registers, totals, strict=True):
            value = self._folded(total, min(WARP, self.loop.extent))
            self.b.add(Write(register, value[0], self.vtype))

    def fold(self) -> list[Known]:
        """The results, known to every work-item."""
        if self.warps > 1:
            self._fold_warps()
        return [self._read(r) for r in self.registers]

    def _fold_warps(self) -> None:
        b, t, count = self.b, self.vtype, self.warps
        w = f"{self.stage.name}.w"
        b.open()
        for j, register in enumerate(self.registers):
            at = self._offset(count, var(w, count), j)
            b.store(self._buffer, at, ALWAYS, self._read(register), t.dtype, self.lane, t.lanes)
        lane = (For(f"{w}.lane", 1, (as_index(1),), b.close(), "local", WARP, 1),)
        first = _by_one(lane, self.tree.own_items // self.loop.extent, self.loop.extent)
        b.add(For(w, count, (as_index(count),), first, "local", count, WARP))
        b.add(Barrier())
        b.open()
        for j, register in enumerate(self.registers):
            at = self._offset(count, var(w, count), j)
            part = b.load(self._buffer, at, ALWAYS, t.dtype, self.lane, t.lanes)
            b.add(Write(register, self._folded(part, count)[0], t))
        b.add(For(w, count, (as_index(count),), b.close(), "local", count, 1))
        if any(x.kind is LoopKind.SERIAL and x.extent > 1 for x in self.tree.outer):
            b.add(Barrier())  # before the next shares

    def _folded(self, value: Known, among: int) -> Known:
        """The value of so many neighbours, folded."""
        b, s, across = self.b, self.stage, 1
        while across < among:
            other = b.new()
            b.add(Shuffle(other, value[0], across, self.vtype))
            value = b.compute(s.op, [value, (other, value[1])], [s.dtype] * 2, s.dtype)
            across *= 2
        return value

    @property
    def _buffer(self) -> str:
        return f"{self.stage.name}.warps"


@dataclass(frozen=True, slots=True)
class Shares(_Shared):
    """The shares of a reduce stage: ``points`` results for each work-item of shared loops."""

    points: int

    @property
    def few(self) -> int:
        """Number of work-items that fold the shares in the first round; 1 where there is none."""
        n = self.loop.extent
        if n <= _ONE_ROUND:
            return 1
        return max(d for d in range(1, isqrt(n) + 1) if n % d == 0)

    @property
    def allocs(self) -> list[Alloc]:
        """Shared memory for the shares of both rounds."""
        made = [self._alloc("items", self.loop.extent)]
        return [*made, self._alloc("parts", self.few)] if self.few > 1 else made

    def _alloc(self, what: str, count: int) -> Alloc:
        size = self._size(count, self.points)
        return Alloc(f"{self.stage.name}.{what}", self.stage.dtype, size, "shared")

    def keep(self, totals: list[Known]) -> None:
        """Store the shares of one work-item."""
        self._store("items", self.loop.extent, var(self.loop.name, self.loop.extent), totals)

    def fold(self) -> list[Known]:
        """The results, known to every work-item."""
        tree, b, few, n = self.tree, self.b, self.few, self.loop.extent
        i = f"{self.stage.name}.i"
        b.add(Barrier())
        if few == 1:
            totals = self._folded("items", n, i, lambda item: item, n)
            if any(x.kind is LoopKind.SERIAL and x.extent > 1 for x in tree.outer):
                b.add(Barrier())  # before the next shares; two rounds have one in between
            return totals
        b.open()
        t, mine = f"{self.stage.name}.t", var(i, few)
        parts = self._folded("items", n, t, lambda step: step * few + mine, n // few)
        self._store("parts", few, mine, parts)
        body = b.close()
        b.add(For(i, few, (as_index(few),), body, "local", n, tree.item_stride(self.loop)))
        b.add(Barrier())
        return self._folded("parts", few, i, lambda item: item, few)

    def _folded(
        self, what: str, count: int, name: str, at: Callable[[Index], Index], steps: int
    ) -> list[Known]:  # fmt: skip
        """The results of folding shares ``at`` every step, in a loop called ``name``."""
        b, s, t = self.b, self.stage, self.vtype
        registers = [f"{s.name}.{what}.total{j}" for j in range(self.points)]
        for r in registers:
            b.register(r, t, identity(s.op, s.dtype))
        b.open()
        for j, r in enumerate(registers):
            offset = self._offset(count, at(var(name, steps)), j)
            part = b.load(f"{s.name}.{what}", offset, ALWAYS, s.dtype, self.lane, t.lanes)
            new = b.compute(s.op, [self._read(r), part], [s.dtype] * 2, s.dtype)
            b.add(Write(r, new[0], t))
        b.add(For(name, steps, (as_index(steps),), b.close()))
        return [self._read(r) for r in registers]

    def _store(self, what: str, count: int, item: Index, totals: list[Known]) -> None:
        b, s, t = self.b, self.stage, self.vtype
        for j, total in enumerate(totals):
            offset = self._offset(count, item, j)
            b.store(f"{s.name}.{what}", offset, ALWAYS, total, s.dtype, self.lane, t.lanes)
