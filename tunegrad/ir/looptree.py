"""The loop tree: a kernel in some order, before it is lowered for a target.

The state is a flat list of loops, outermost first, plus what is staged where. The nest follows from
the list by four rules, so an action only edits the list:

1. ``upcast``, ``vectorize``, ``unroll`` and ``group`` loops are register loops: wherever they stand
   in the list, they run innermost.
2. The *region* begins after the last serial, thread or local loop of a shared axis. Inside it every
   accumulator is a register. Each stage runs there in turn, over its own loops.
3. A reduce loop before the region (K-blocking) makes partial sums live in the output between its
   iterations; the epilogue runs in the last one, while the tile is still in registers.
4. A local loop of one stage's own begins with the stage, wherever it stands: its place among the
   other local loops only says how work-items are numbered, the innermost fastest.

    for k0 in 4:                                 # outside the region: partial sums live in C
        copy B -> B.k0 (n0, k1, n1, n2)
        for m0 in 8 on threads:
            copy A -> A.m0 (m1, m2, k1)
            for n0 in 32:
                for m1 in 12:                    # the region: 12 x 2 accumulators of 16 lanes
                    v0 = 0 or C
                    for k1 in 256:
                        v0[m2, n1, n2] += ...
                    C = epilogue(v0) or v0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from math import prod

from tunegrad.errors import IllegalAction
from tunegrad.lazy import dataclass

from .expr import Load
from .index import Index
from .kernel import Kernel, Reduce, Stage, Store, loads
from .target import MatrixUnit, Target, TileUnit


class LoopKind(StrEnum):
    """The way in which the iterations of a loop run."""

    SERIAL = "serial"
    UNROLL = "unroll"
    UPCAST = "upcast"
    VECTOR = "vector"
    GROUP = "group"
    THREAD = "thread"
    LOCAL = "local"
    MATRIX = "matrix"

    is_register: bool
    """True if its iterations are instructions or lanes rather than trips of a loop."""

    def __init__(self, text: str) -> None:
        self.is_register = text in ("unroll", "upcast", "vector", "group", "matrix")


LANES = (LoopKind.VECTOR, LoopKind.GROUP)
"""The kinds whose iterations are lanes of a vector."""


@dataclass(frozen=True, slots=True)
class Loop:
    """``extent`` steps of one or (fused) several axes.

    ``stage`` is -1 on shared axes, else the stage that owns it.
    """

    name: str
    extent: int
    axes: tuple[str, ...]
    stage: int
    reduce: bool
    kind: LoopKind = LoopKind.SERIAL
    count: int = 1

    def renamed(self, name: str) -> Loop:
        """The same loop under another name."""
        return self.resized(name, self.extent)

    def resized(self, name: str, extent: int) -> Loop:
        """A loop of another name and extent over the same axes."""
        return Loop(name, extent, self.axes, self.stage, self.reduce, self.kind, self.count)

    def run_as(self, kind: LoopKind, count: int = 1) -> Loop:
        """The same loop, its iterations of another kind."""
        return Loop(self.name, self.extent, self.axes, self.stage, self.reduce, kind, count)


@dataclass(frozen=True, slots=True)
class Staged:
    """The region of ``param`` used inside loop ``at``, copied to scratch.

    ``at`` is "" for the whole nest, and "load" for once, when the model is loaded. ``layout`` names
    the loops that index the copy, outermost first; without it the copy keeps the parameter's own
    dimensions, padding zero-filled.
    """

    param: str
    at: str
    layout: tuple[str, ...] = ()

    @property
    def buffer(self) -> str:
        """Name of the copy."""
        return f"{self.param}.{self.at or 'root'}"


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """The loops that a matrix unit runs: of m ``high`` registers and ``row`` work-items, of n
    ``column`` work-items and a ``pair`` of registers, and all of k.
    """

    unit: MatrixUnit
    high: str
    row: str
    column: str
    pair: str
    k: str


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The loops that a thread's tile registers hold: the rows ``m``, the lanes ``n``, and ``k``."""

    unit: TileUnit
    m: str
    n: str
    k: str


def check(t: LoopTree) -> None:
    """IllegalAction, naming the loop and the rule, where the list breaks one."""
    _check_order(t)
    _check_lanes(t)
    _check_items(t)
    _check_partial(t)
    _check_rows(t)
    _check_matrix(t)
    _check_pipelined(t)


def _check_order(t: LoopTree) -> None:
    around: dict[str, Loop] = {}
    for x in t.loops:
        if x.kind.is_register or len(x.axes) > 1 or x.extent == 1:
            continue
        axis = x.axes[0]
        if axis in around:
            index = t.axis_index(axis)
            if (index.coefficient(around[axis].name) or 0) < (index.coefficient(x.name) or 0):
                raise IllegalAction(
                    f"loop {x.name} stands inside a finer loop of its own axis {axis}; outer "
                    "tiles go first"
                )
        around[axis] = x


def _check_lanes(t: LoopTree) -> None:
    every = [x for x in t.loops if x.kind in LANES]
    for i in range(len(t.kernel.stages) if len(every) > 1 else 0):
        lanes = [x for x in every if x.stage in (-1, i)]
        if len(lanes) > 1:
            names = " and ".join(x.name for x in lanes)
            raise IllegalAction(
                f"loops {names} would both be vector lanes of stage {i}; a stage has one lane loop"
            )


def _check_items(t: LoopTree) -> None:
    """A stage has one local loop of its own at most; those of all stages take one place."""
    local = [x for x in t.loops if x.kind is LoopKind.LOCAL]
    own = [x for x in local if x.stage >= 0]
    if not own:
        return
    most, shared = t.own_items, len(local) - len(own)
    for x in own:
        name = f"loop {x.name} shares its stage over work-items"
        if any(y.stage == x.stage and y is not x for y in own):
            raise IllegalAction(f"{name}, so no other loop of the stage can be local")
        if t.partial:
            raise IllegalAction(f"{name}, so no reduce loop can be around it")
        if shared and most % x.extent:
            rule = f"its extent {x.extent} does not divide {most}, that of another stage"
            raise IllegalAction(f"{name}: {rule}")
    if own not in (local[: len(own)], local[shared:]):
        rule = "some local loops of stages stand inside shared ones, and some around"
        raise IllegalAction(f"loop {own[0].name}: {rule}")


def _check_partial(t: LoopTree) -> None:
    k, partial = t.kernel, t.partial
    if not partial:
        return
    names = ", ".join(x.name for x in partial)
    for source, out in k.overwritten.items():
        raise IllegalAction(
            f"reduce loops {names} around shared loops: partial sums in {out} would replace "
            f"{source}, over which it may lie, before it is read"
        )
    if len(k.reduces) != 1 or any(s.axes for s in k.stores):
        raise IllegalAction(
            f"reduce loops {names} around shared loops: only a kernel of one reduction and its "
            "epilogue may"
        )
    if not any(k.param(s.param).dtype == k.reduces[0].dtype and s.valid.always for s in k.stores):
        raise IllegalAction(
            f"reduce loops {names} around shared loops: no output has the accumulator's dtype "
            "to hold partial sums, "
            "or it is not stored at every point"
        )
    outer = {x.name for x in t.outer}
    for x in partial:
        tail = {a for a in x.axes if t.nominal(a) != t.extent(a)}
        if not tail:
            continue
        step = t.axis_index(x.axes[0]).coefficient(x.name) or 0
        inner = [
            y for y in t.loops if y.name not in outer and y.extent > 1 and tail.intersection(y.axes)
        ]
        if any((t.axis_index(x.axes[0]).coefficient(y.name) or 0) > step for y in inner):
            raise IllegalAction(
                f"reduce loop {x.name} around shared loops: its axis has a tail and coarser "
                "loops inside"
            )
    if any(x.kind is not LoopKind.SERIAL for x in partial):
        raise IllegalAction(f"reduce loops {names} around shared loops must be serial")


def _check_rows(t: LoopTree) -> None:
    """A row is made element by element: its loops stand around those of what is folded."""
    for i, s in enumerate(t.kernel.stages):
        if not isinstance(s, Reduce) or not s.rows:
            continue
        folding = ""
        for x in t.own(i):
            if x.kind.is_register or x.extent == 1:
                continue
            if x.kind is LoopKind.LOCAL and x.reduce:
                raise IllegalAction(
                    f"loop {x.name} of row {s.name} is folded: work-items share the row, not a sum"
                )
            if x.reduce:
                folding = x.name
            elif folding:
                raise IllegalAction(
                    f"loop {x.name} of row {s.name} stands inside {folding}, which folds one of "
                    "its elements"
                )


def _check_matrix(t: LoopTree) -> None:
    """The items of a matrix unit are the innermost ones, and nothing of it is a vector."""
    m = t.matrix
    if m is None:
        return
    if isinstance(m, TileLoops):
        _check_tiles(t, m)
        return
    local = [x.name for x in t.loops if x.kind is LoopKind.LOCAL]
    if local[-2:] != [m.row, m.column] or any(
        x.kind is LoopKind.LOCAL and x.stage >= 0 for x in t.loops
    ):
        raise IllegalAction(
            f"loops {m.row} and {m.column} are the items of a matrix unit; local loops stand "
            "around them"
        )
    lanes = [x.name for x in t.loops if x.kind in LANES]
    if lanes:
        raise IllegalAction(f"loop {lanes[0]} can not be vector lanes beside a matrix unit")


def _check_tiles(t: LoopTree, m: TileLoops) -> None:
    """The loops of a tile are rows, lanes and terms, and all tiles have registers."""
    found = [t.loop(name) for name in (m.m, m.n, m.k)]
    kinds = (LoopKind.UPCAST, LoopKind.VECTOR, LoopKind.MATRIX)
    for x, kind in zip(found, kinds, strict=True):
        if x.kind is not kind:
            raise IllegalAction(f"loop {x.name} of {m.unit} is {x.kind}, not {kind}")
    stage = found[2].stage
    for x in t.loops:
        if x.stage == stage and x.kind in (LoopKind.UPCAST, LoopKind.GROUP):
            raise IllegalAction(f"loop {x.name} can not be {x.kind} beside {m.unit}")
    tiles = prod([x.extent for x in t.shared_registers if x.name not in (m.m, m.n)])
    if tiles + 2 > m.unit.registers:
        raise IllegalAction(
            f"{tiles} tiles of results and two operands: {m.unit} has {m.unit.registers} registers"
        )


def _check_pipelined(t: LoopTree) -> None:
    """A loop whose copies run ahead is one reduction's own, serial, and runs to its end."""
    if t.pipelined is None:
        return
    name, slots = t.pipelined
    x = t.loop(name)
    if x.kind is not LoopKind.SERIAL or not x.reduce or x in t.outer:
        raise IllegalAction(f"pipelined loop {name} is not a serial reduce loop of a stage alone")
    if x.extent < slots:
        raise IllegalAction(f"pipelined loop {name} of {x.extent} iterations: {slots} slots")
    for axis in x.axes:
        if t.nominal(axis) != t.extent(axis) and axis not in t.padded:
            raise IllegalAction(f"pipelined loop {name}: axis {axis} has a tail; pad it")


def lines(t: LoopTree) -> Iterator[str]:
    """The lines of ``t``, outer loops first."""
    if t.epilogue:
        yield f"sums go through shared memory to the items that store neighbours of {t.epilogue}"
    if t.pipelined is not None:
        yield f"copies of {t.pipelined[0]} run ahead, {t.pipelined[1]} slots"
    if t.matrix is not None:
        m = t.matrix
        if isinstance(m, TileLoops):
            yield f"{m.unit} on {m.m} x {m.n} x {m.k}"
        else:
            yield f"{m.unit} on {m.high}, {m.row} x {m.column}, {m.pair} x {m.k}"
    yield from (f"prefetch {name}, {ahead} bytes ahead" for name, ahead in t.prefetched)
    yield from (f"stream {name}" for name in t.streamed)
    yield from (f"keep the values of stage {i}" for i in t.kept)
    pad = ""
    for s in t.staged:
        if s.at in ("", "load"):
            yield (
                f"copy {s.param} -> {s.buffer} "
                f"({', '.join(s.layout) or 'region'}){' once, at load' if s.at else ''}"
            )
    for x in t.outer:
        how = (
            f" on {x.count} threads"
            if x.kind is LoopKind.THREAD
            else ""
            if x.kind is LoopKind.SERIAL
            else f" {x.kind}"
        )
        yield f"{pad}for {x.name} in {x.extent}{how}:"
        pad += "    "
        for s in t.staged:
            if s.at == x.name:
                yield f"{pad}copy {s.param} -> {s.buffer} ({', '.join(s.layout) or 'region'})"
    registers = t.shared_registers
    if registers:
        yield f"{pad}# registers: " + " x ".join(
            f"{x.name}:{x.extent}{'v' if x.kind is LoopKind.VECTOR else ''}" for x in registers
        )
    for i, stage in enumerate(t.kernel.stages):
        yield from _stage_lines(t, i, stage, pad)


def _stage_lines(t: LoopTree, i: int, s: Stage, pad: str) -> Iterator[str]:
    own, inner = t.own(i), pad
    around = [x for x in own if isinstance(s, Reduce) and not (x.reduce or x.kind.is_register)]
    for x in around:
        yield from _loop_lines(t, x, inner)
        inner += "    "
    name = f"{s.name}{_place(s)}" if isinstance(s, Reduce) else f"{s.param}{_place(s)}"
    if isinstance(s, Reduce):
        yield f"{inner}{name} = identity" + (f" or {t.kernel.stores[0].param}" if t.partial else "")
    for x in own[len(around) :]:
        yield from _loop_lines(t, x, inner)
        inner += "" if x.kind.is_register else "    "
    yield f"{inner}{name} = " + (
        f"{s.op}({name}, {s.expr})" if isinstance(s, Reduce) else f"{s.expr}"
    )


def _place(s: Stage) -> str:
    """The place in a row, or in an output, that a stage writes."""
    if isinstance(s, Store):
        return f"[{', '.join(x.key for x in s.index)}]"
    return f"[{', '.join(a.name for a in s.row)}]" if s.rows else ""


def _loop_lines(t: LoopTree, x: Loop, pad: str) -> Iterator[str]:
    if x.kind.is_register:
        yield f"{pad}# {x.kind} {x.name}:{x.extent}"
        return
    yield f"{pad}for {x.name} in {x.extent}{' local' if x.kind is LoopKind.LOCAL else ''}:"
    for staged in t.staged:
        if staged.at == x.name:
            yield (
                f"{pad}    copy {staged.param} -> {staged.buffer} "
                f"({', '.join(staged.layout) or 'region'})"
            )


@dataclass(frozen=True, slots=True)
class LoopTree:
    """A schedule's state.

    ``index`` gives each axis as a sum over loop names; ``padded`` axes run to a multiple, masked.
    """

    kernel: Kernel
    target: Target
    loops: tuple[Loop, ...]
    index: tuple[tuple[str, Index], ...]
    staged: tuple[Staged, ...] = ()
    padded: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    streamed: tuple[str, ...] = ()
    prefetched: tuple[tuple[str, int], ...] = ()
    matrix: MatrixTile | TileLoops | None = None
    pipelined: tuple[str, int] | None = None
    """The loop whose copies run ahead, and how many iterations have a place in shared memory."""
    epilogue: str = ""
    """The output whose neighbours decide which item stores which of a group's sums; "" where each
    stores what it holds.
    """
    _region: int = field(default=-1, init=False, repr=False, compare=False)

    def loop(self, name: str) -> Loop:
        """The loop of that name; IllegalAction lists the ones there are."""
        for found in self.loops:
            if found.name == name:
                return found
        names = ", ".join(x.name for x in self.loops)
        raise IllegalAction(f"no loop {name!r} in kernel {self.kernel.name}; its loops are {names}")

    def position(self, name: str) -> int:
        """Position of the loop in the list."""
        for i, found in enumerate(self.loops):
            if found.name == name:
                return i
        return self.loops.index(self.loop(name))  # there is none: this says so

    def axis_index(self, axis: str) -> Index:
        """The axis as a sum over loops."""
        for name, index in self.index:
            if name == axis:
                return index
        raise KeyError(axis)

    def extent(self, axis: str) -> int:
        """The axis's true extent."""
        return next(a.extent for a in self.kernel.all_axes() if a.name == axis)

    def nominal(self, axis: str) -> int:
        """The extent that its loops cover; more than ``extent`` when a tile does not divide it."""
        return self.axis_index(axis).hi + 1

    def with_loop(self, old: Loop, *new: Loop) -> LoopTree:
        """The tree with one loop replaced in place."""
        at = self.position(old.name)
        return self.with_loops(self.loops[:at] + new + self.loops[at + 1 :])

    def with_loops(
        self, loops: tuple[Loop, ...], index: tuple[tuple[str, Index], ...] | None = None
    ) -> LoopTree:
        """The tree with other loops, and the axes as sums over them; all else stays."""
        return LoopTree(  # many a microsecond faster than replace()
            self.kernel, self.target, loops, self.index if index is None else index,
            self.staged, self.padded, self.kept, self.streamed, self.prefetched, self.matrix,
            self.pipelined, self.epilogue,
        )  # fmt: skip

    @property
    def region(self) -> int:
        """Position in the list where the region begins."""
        if self._region < 0:  # once: most rules ask
            begin = 0
            for i, loop in enumerate(self.loops):
                if loop.stage < 0 and not loop.kind.is_register:
                    begin = i + 1
            object.__setattr__(self, "_region", begin)
        return self._region

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops around the region, outermost first."""
        return tuple([x for x in self.loops[: self.region] if _is_around(x)])

    @property
    def partial(self) -> tuple[Loop, ...]:
        """The reduce loops around the region: those between which partial sums live in memory."""
        own = [x for x in self.loops[: self.region] if x.stage >= 0 and x.extent > 1]
        return tuple([x for x in own if _is_around(x)])

    @property
    def shared_registers(self) -> tuple[Loop, ...]:
        """Register loops of shared axes, in list order."""
        return tuple([x for x in self.loops if x.stage < 0 and x.kind.is_register])

    def own(self, stage: int) -> tuple[Loop, ...]:
        """The loops of a stage inside the region: serial, then register ones, in list order."""
        begin = self.region
        mine = [x for x in self.loops[begin:] if x.stage == stage and not x.kind.is_register]
        if self.target.max_local:  # work-items begin with the stage
            before = [x for x in self.loops[:begin] if x.stage == stage]
            mine = [*(x for x in before if x.kind is LoopKind.LOCAL), *mine]
        return (*mine, *[x for x in self.loops if x.stage == stage and x.kind.is_register])

    @property
    def items(self) -> int:
        """Work-items of a group: those of shared loops, for each of a stage's own."""
        shared = prod([x.extent for x in self.loops if x.kind is LoopKind.LOCAL and x.stage < 0])
        return shared * self.own_items

    @property
    def own_items(self) -> int:
        """The most work-items among which a stage shares out its own loops."""
        local = [x for x in self.loops if x.kind is LoopKind.LOCAL]
        return max([x.extent for x in local if x.stage >= 0], default=1)

    def item_stride(self, loop: Loop) -> int:
        """Distance between neighbouring iterations of a local loop, in numbers of work-items.

        Loops that stand further in vary faster. All stages' own loops take one place: inside the
        shared ones, or around them.
        """
        local = [x for x in self.loops if x.kind is LoopKind.LOCAL]
        own_inside = not any(x.stage >= 0 for x in local[:1])
        if loop.stage >= 0:
            return 1 if own_inside else self.items // self.own_items
        later = prod([x.extent for x in local[local.index(loop) + 1 :] if x.stage < 0])
        return later * (self.own_items if own_inside else 1)

    def lane_loop(self, stage: int) -> Loop | None:
        """The loop whose iterations are vector lanes in this stage."""
        for x in self.loops:
            if x.kind in LANES and x.stage in (-1, stage):
                return x
        return None

    def inside(self, at: str) -> tuple[Loop, ...]:
        """The loops inside loop ``at``: those after it, and register loops; "" and "load": all."""
        if at in ("", "load"):
            return self.loops
        begin = self.position(at)
        return tuple(x for i, x in enumerate(self.loops) if i > begin or x.kind.is_register)

    def checked(self) -> LoopTree:
        """The tree itself, or IllegalAction when the list breaks a rule of its form."""
        check(self)
        return self

    def __str__(self) -> str:
        return "\n".join(lines(self))


def _is_around(loop: Loop) -> bool:
    """True if a loop that stands before the end of the shared ones is around the region.

    Registers are not, nor are work-items that share out a stage: they begin with the stage.
    """
    return not loop.kind.is_register and not (loop.kind is LoopKind.LOCAL and loop.stage >= 0)


def loop_tree(kernel: Kernel, target: Target) -> LoopTree:
    """The unscheduled nest: every axis a serial loop, shared axes first, then each stage's."""
    loops = [Loop(a.name, a.extent, (a.name,), -1, False) for a in kernel.axes]
    for i, s in enumerate(kernel.stages):
        folds = s.folds if isinstance(s, Reduce) else ()
        loops += [Loop(a.name, a.extent, (a.name,), i, a in folds) for a in s.axes]
    return LoopTree(
        kernel, target, tuple(loops), tuple((a.name, a.index) for a in kernel.all_axes())
    )


def operand(tree: LoopTree, param: str) -> tuple[int, Load]:
    """The first stage that loads ``param`` and its one load there, which staging replaces; other
    stages keep theirs.

    IllegalAction when that stage loads it in several places or at elements of another one, whose
    values no region bounds, or none does.
    """
    found: list[tuple[Stage, Load]] = []
    for s, x in loads(tree.kernel):
        if x.param == param and (not found or (found[0][0] is s and (s, x) not in found)):
            found.append((s, x))
    if len(found) != 1:
        raise IllegalAction(
            f"stage(param={param}): a stage of kernel {tree.kernel.name} loads it in "
            f"{len(found)} places; needs one"
        )
    if any(True for i in found[0][1].index for _ in i.elements()):
        raise IllegalAction(f"stage(param={param}): where it is read depends on data")
    return tree.kernel.stages.index(found[0][0]), found[0][1]


def accumulators(t: LoopTree, stage: int) -> int:
    """Register variables that the accumulators of a reduce stage take (each one lane-loop wide)."""
    lane = t.lane_loop(stage)
    inner = [x for x in t.own(stage) if x.kind is LoopKind.UPCAST or not x.reduce]
    inner = [x for x in inner if x.kind.is_register]
    return prod(x.extent for x in (*t.shared_registers, *inner) if x is not lane)
