"""Checks a program: the rules of its form, and which of its accesses are in bounds.

Typing, ``T`` a dtype, ``xL`` lanes; an instruction's own type is its ``vtype``:

    Number       T xL; an int for ints, a bool for bool, any number for floats
    Load         T xL from a buffer of T; mask bool xL; L > 1 names its lane variable
    Store        T xL to an output or scratch of T, from a value T xL; mask bool xL; each lane its
                 own element
    Compute      what op_types gives for the arguments' dtypes, in the arguments' lanes
    Convert      T xL of U xL                        Splat    T xL of T x1
    Fold         T x1 of T xL, L > 1                 Select   T xL of bool xL, T xL, T xL
    Position     T xL, T an int or float             Test     bool xL
    Read, Write  the register's T xL
    MatMul       T x1 each, of sums T x1 and operands U xP, as many as the unit says
    MatLoad      T xL each, 4 bytes, of rows of 16 aligned bytes of shared memory of T
    Shuffle      T xL of T xL
    CopyAsync    T xL, 4, 8 or 16 bytes, aligned, from what is never written to shared memory of T
    Pipeline     copies write only shared memory that nothing else writes, at least 2 slots
    TileConfig   rows of every register of a unit of the target, on a CPU
    TileLoad     as many rows as the register has, of neighbours of T, equally far apart
    TileMul      rows m += m * k, of registers that were written
    TileStore    as TileLoad, to scratch of the thread's own

Nothing computes in f16 or bf16. Ids are defined once, and used in their block or inside it, after
the definition. A loop variable is unique on its path, its range is ``[0, extent)`` everywhere. A
register's first use writes it. Barriers stand where all of them arrive: never inside ``local``
loops that some work-items skip, nor inside ``thread`` loops of a CPU team, nor under a condition or
stop on their variables. Between two barriers no thread or work-item touches what another writes, by
proof (``races``); lowering asks for that proof too, of every program.

Products, fragments and shuffles are of whole warps, all of which arrive. Asynchronous copies stand
in pipelines alone: batches and waits are what ``expand_pipelines`` makes of those.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Never

from tunegrad.errors import VerifyError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL, DTYPES, DType
from tunegrad.ir.expr import Op, fold_takes, result_type
from tunegrad.ir.index import Index, Valid, as_index, var
from tunegrad.ir.pipelines import (
    COPY_BYTES,
    REGISTER_BYTES,
    ROW_BYTES,
    WARP,
    is_aligned,
    stored_buffers,
)
from tunegrad.ir.program import Instr, Program, TileInstr, VType, is_grouped
from tunegrad.ir.target import Target, TileUnit
from tunegrad.ir.verify.races import Facts, below, condition_facts, stop_facts, verify_races
from tunegrad.lazy import dataclass

__all__ = ["Scope", "describe", "verify_program"]


def describe(instr: Instr) -> str:
    """The instruction as the program prints it, without its body."""
    return Program("", (), (), (), (instr,)).text.splitlines()[1].strip()


@dataclass(slots=True)
class Scope:
    """Names that are visible in one block: it copies its parent's tables, so leaving a block
    forgets.
    """

    types: dict[int, VType] = field(default_factory=dict)
    tests: dict[int, Valid] = field(default_factory=dict)
    registers: dict[str, VType] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    loops: tuple[p.For, ...] = ()
    facts: Facts = ()
    divergent: frozenset[str] = frozenset()
    alone: str = ""
    dead: bool = False
    ahead: bool = False
    tiles: tuple[int, ...] = ()

    def inner(self) -> Scope:
        return Scope(
            dict(self.types), dict(self.tests), dict(self.registers), dict(self.extents),
            self.loops, self.facts, self.divergent, self.alone, self.dead, self.ahead,
            self.tiles,
        )  # fmt: skip


def verify_program(program: Program, target: Target | None = None) -> tuple[Instr, ...]:
    """Check ``program`` against the rules of its form (and of ``target``).

    Returns the accesses that could not be proved in bounds and the loops that could not be proved
    to stay within their extent: the interpreter checks those on small shapes. Raises VerifyError,
    naming the instruction, for a broken rule, and for a race that can not be ruled out.
    """
    return _Verifier(program, target).run()


def within(index: Index, size: int, facts: Facts) -> bool:
    """True if the facts prove ``0 <= index < size``."""
    return below(index, size, facts) and below(-index, 1, facts)


def without(body: tuple[Instr, ...], out: p.Pipeline) -> tuple[Instr, ...]:
    """A block without one pipeline."""
    return tuple(p.mapped(i, partial(without, out=out)) for i in body if i is not out)


def _name(tile: int) -> str:
    return f"tile {tile}"


class _Verifier:
    """One program, and what was seen of it so far. Mutable."""

    def __init__(self, program: Program, target: Target | None) -> None:
        self.program, self.target = program, target
        self.grouped = is_grouped(program) if target is None else target.has_work_items
        self.buffers: dict[str, tuple[DType, int, bool]] = {}
        self.ids: set[int] = set()
        self.written: set[str] = set()
        self.unproved: list[Instr] = []

    def run(self) -> tuple[Instr, ...]:
        self._memory()
        self._resources()
        self._block(self.program.body, Scope())
        verify_races(self.program, self.grouped)
        return tuple(self.unproved)

    # buffers and the target

    def _memory(self) -> None:
        for b in self.program.params:
            self._buffer(b.name, b.dtype, b.size, b.role == "out")
        for a in self.program.allocs:
            self._buffer(a.name, a.dtype, a.size, True)
            if a.space == "shared" and not self.grouped:
                self._broken(
                    f"alloc {a.name}", "shared memory is a work-group's; a CPU team has space team"
                )
        for k in self.program.packs:
            known = self.buffers.get(k.name)
            if known is None:
                self._buffer(k.name, k.dtype, k.size, False)
            elif known != (k.dtype, k.size, False):
                self._broken(
                    f"pack {k.name}",
                    f"{k.dtype}[{k.size}] is not the parameter {known[0]}[{known[1]}]",
                )
            source = self.buffers.get(k.source)
            if source is None or source[0] != k.dtype:
                self._broken(
                    f"pack {k.name}", f"its source {k.source} is not a parameter of dtype {k.dtype}"
                )
            if set(k.variables) < k.offset.names() | k.valid.names():
                self._broken(
                    f"pack {k.name}",
                    f"its offset or condition uses more than {', '.join(k.variables)}",
                )
        for b in self.program.params:
            if b.role == "pack" and all(k.name != b.name for k in self.program.packs):
                self._broken(f"parameter {b.name}", "has role pack, but no pack fills it")

    def _buffer(self, name: str, dtype: DType, size: int, writable: bool) -> None:
        if name in self.buffers:
            self._broken(f"buffer {name}", "is declared twice")
        if size < 1:
            self._broken(f"buffer {name}", f"size {size}: at least 1 element")
        self.buffers[name] = (dtype, size, writable)

    def _resources(self) -> None:
        program, t = self.program, self.target
        if program.threads < 1 or program.local < 1:
            self._broken(
                "program", f"threads={program.threads} local={program.local}: at least 1 each"
            )
        if not self.grouped and program.local != 1:
            self._broken("program", f"local={program.local}: work-items are a GPU's")
        if t is None or not t.has_work_items:
            return
        if program.local > t.max_local:
            self._broken(
                "program",
                f"local={program.local}: target {t.name} has groups of up to {t.max_local}",
            )
        shared = sum(a.size * a.dtype.itemsize for a in program.allocs if a.space == "shared")
        if t.shared_bytes and shared > t.shared_bytes:
            self._broken(
                "program", f"{shared} bytes of shared memory: target {t.name} has {t.shared_bytes}"
            )

    # blocks

    def _block(self, body: tuple[Instr, ...], s: Scope) -> None:
        for i in body:
            if isinstance(i, p.For):
                self._for(i, s)
            elif isinstance(i, p.If):
                self._if(i, s)
            elif isinstance(i, p.Pipeline):
                self._pipeline(i, s)
            elif isinstance(i, p.Commit | p.Await):
                self._broken(i, "a program has pipelines, whose batches and waits follow from them")
            elif isinstance(i, p.Barrier):
                if s.alone:
                    self._broken(i, f"inside {s.alone}, where not all threads arrive")
            elif isinstance(i, p.Register):
                if i.name in s.registers:
                    self._broken(i, "is declared twice")
                s.registers[i.name] = i.vtype
                self.written.discard(i.name)
            elif isinstance(i, TileInstr):
                self._of_tiles(i, s)
            else:
                self._plain(i, s)

    def _for(self, i: p.For, s: Scope) -> None:
        if i.var in s.extents:
            self._broken(i, f"{i.var} is the variable of a loop around it")
        if i.extent < 1 or not i.stops:
            self._broken(i, f"extent {i.extent} and {len(i.stops)} stops: at least 1 each")
        for stop in i.stops:
            self._names(i, stop, s)
        if not any(below(stop, i.extent + 1, s.facts) for stop in i.stops):
            if any(stop.lo > i.extent for stop in i.stops) and len(i.stops) == 1:
                self._broken(i, f"its stop {i.stops[0]} is past its extent {i.extent}")
            self.unproved.append(i)
        inner = s.inner()
        inner.extents[i.var] = i.extent
        inner.facts += stop_facts(var(i.var, i.extent), i.stops)
        inner.dead = s.dead or any(stop.hi < 1 for stop in i.stops)
        if any(stop.names() & s.divergent for stop in i.stops):
            inner.alone = inner.alone or f"loop {i.var}, whose stop differs between threads"
        if i.kind != "serial":
            self._parallel(i, s, inner)
        self._block(i.body, inner)

    def _parallel(self, i: p.For, s: Scope, inner: Scope) -> None:
        local = i.kind == "local"
        if local and not self.grouped:
            self._broken(i, "local loops run on the work-items of a GPU")
        team = self.program.local if local else self.program.threads
        if i.count < 1 or i.inner < 1 or i.count * i.inner > team:
            self._broken(
                i,
                f"count {i.count} x inner {i.inner}: of {team} "
                f"{'work-items' if local else 'threads'}",
            )
        if self.grouped and i.count < i.extent:
            self._broken(i, f"extent {i.extent}: one iteration for each of {i.count}, on a GPU")
        for o in s.loops:
            apart = o.inner % (i.count * i.inner) == 0 or i.inner % (o.count * o.inner) == 0
            if o.kind == i.kind and not apart and min(o.extent, i.extent) > 1:
                self._broken(
                    i,
                    f"shares its threads with loop {o.var} around it: some iterations would "
                    "never run",
                )
        inner.loops += (i,)
        if local or not self.grouped:
            inner.divergent |= {i.var}
            whole = (
                local
                and i.count == i.extent
                and all(x.is_const and x.const >= i.extent for x in i.stops)
            )
            if (
                not whole
            ):  # ids wrap around `count`, so a full loop over work-items has every item in it
                inner.alone = inner.alone or f"{i.kind} loop {i.var}"

    def _if(self, i: p.If, s: Scope) -> None:
        for r in i.valid:
            self._names(i, r.index, s)
        yes, no = s.inner(), s.inner()
        if i.valid.names() & s.divergent:
            yes.alone = no.alone = s.alone or f"`{describe(i)}`, which differs between threads"
        yes.facts += condition_facts(i.valid)
        yes.dead, no.dead = s.dead or i.valid.never, s.dead or i.valid.always
        self._block(i.body, yes)
        self._block(i.orelse, no)

    # instructions

    def _plain(self, i: Instr, s: Scope) -> None:
        match i:
            case p.Number(_, value, t):
                self._number(i, value, t.dtype)
            case p.Load() | p.Store():
                self._access(i, s)
            case p.Compute(_, op, args, t):
                self._compute(i, op, [self._use(i, a, s) for a in args], t)
            case p.Convert(_, arg, t):
                self._lanes(i, self._use(i, arg, s), t.lanes)
            case p.Splat(_, arg, t):
                self._same(i, "the argument", self._use(i, arg, s), VType(t.dtype))
                if arg in s.tests:
                    s.tests[i.id] = s.tests[arg]
            case p.Fold(_, op, arg, t):
                self._fold(i, op, self._use(i, arg, s), t)
            case p.Select(_, mask, yes, no, t):
                self._same(i, "the mask", self._use(i, mask, s), VType(BOOL, t.lanes))
                for a in (yes, no):
                    self._same(i, f"%{a}", self._use(i, a, s), t)
            case p.Position(_, index, t, lane):
                self._names(i, index, s, lane, t.lanes)
                if t.dtype.is_bool or t.dtype.compute != t.dtype:
                    self._broken(i, f"a position has no {t.dtype}")
            case p.Test(_, valid, lanes, lane):
                for r in valid:
                    self._names(i, r.index, s, lane, lanes)
                s.tests[i.id] = valid
            case p.MatMul() | p.MatLoad() | p.Shuffle() | p.CopyAsync():
                self._of_groups(i, s)
            case p.Read(_, name, t):
                self._register(i, name, t, s)
                if name not in self.written:
                    self._broken(i, "nothing has written the register before")
            case p.Write(name, value, t):
                self._register(i, name, t, s)
                self._same(i, f"%{value}", self._use(i, value, s), t)
                self.written.add(name)
            case _:
                self._broken(i, "is not an instruction")
        self._define(i, s)

    def _define(self, i: Instr, s: Scope) -> None:
        if not isinstance(i, p.Valued | p.MatMul | p.MatLoad):
            return
        t = VType(BOOL, i.lanes) if isinstance(i, p.Test) else i.vtype
        if t.lanes < 1:
            self._broken(i, f"{t.lanes} lanes: at least 1")
        for made in p.defined(i):
            if made in self.ids:
                self._broken(i, f"%{made} is defined twice")
            self.ids.add(made)
            s.types[made] = t

    def _number(self, i: Instr, value: float | int | bool, dtype: DType) -> None:
        fits = isinstance(value, bool) if dtype.is_bool else isinstance(value, int | float)
        if dtype.is_int or dtype.is_word:
            fits = isinstance(value, int) and dtype.least <= value <= dtype.greatest
        if not fits:
            self._broken(i, f"{value!r} is not of type {dtype}")

    def _register(self, i: Instr, name: str, t: VType, s: Scope) -> None:
        have = s.registers.get(name)
        if have is None:
            self._broken(i, f"register {name} is not declared before it, in its block or around it")
        self._same(i, f"register {name}", have, t)

    def _compute(self, i: Instr, op: Op, args: list[VType], t: VType) -> None:
        if len(args) != op.arity:
            self._broken(i, f"{len(args)} arguments: {op} takes {op.arity}")
        dtypes = [a.dtype for a in args]
        gives = result_type(op, dtypes)
        if gives is None:
            self._broken(i, f"{op} has no meaning on {', '.join(str(d) for d in dtypes)}")
        self._same(i, "the result", t, VType(gives, t.lanes))
        for a in args:
            self._lanes(i, a, t.lanes)
            if a.dtype.compute != a.dtype and op is not Op.PAIR:
                self._broken(
                    i, f"nothing computes in {a.dtype}: convert to {a.dtype.compute} first"
                )

    def _fold(self, i: Instr, op: Op, arg: VType, t: VType) -> None:
        if not fold_takes(op, arg.dtype):
            self._broken(i, f"lanes of {arg.dtype} do not fold with {op}")
        self._same(i, "the result", t, VType(arg.dtype))
        if arg.lanes < 2:
            self._broken(i, "the argument has one lane: nothing to fold")

    # memory accesses

    def _access(self, i: p.Load | p.Store, s: Scope) -> None:
        known = self.buffers.get(i.buffer)
        if known is None:
            self._broken(i, f"no buffer {i.buffer}; there are {', '.join(self.buffers)}")
        dtype, size, writable = known
        if i.vtype.dtype != dtype:
            self._broken(i, f"{i.buffer} holds {dtype}")
        self._names(i, i.offset, s, i.lane, i.vtype.lanes)
        if i.vtype.lanes > 1 and not i.lane:
            self._broken(i, f"{i.vtype.lanes} lanes need a lane variable")
        if isinstance(i, p.Store):
            self._same(i, "the value", self._use(i, i.value, s), i.vtype)
            if not writable:
                self._broken(i, f"{i.buffer} is read only")
            if i.vtype.lanes > 1 and i.offset.coefficient(i.lane) == 0:
                self._broken(i, "all lanes store to one element")
        facts = s.facts
        if i.mask is not None:
            self._same(i, "the mask", self._use(i, i.mask, s), VType(BOOL, i.vtype.lanes))
            facts += condition_facts(s.tests.get(i.mask, Valid()))
        if not within(i.offset, size, facts):
            if i.mask is None and not s.dead and (i.offset.lo >= size or i.offset.hi < 0):
                self._broken(i, f"always out of bounds: {i.buffer} has {size} elements")
            self.unproved.append(i)

    # what every rule asks

    def _broken(self, what: Instr | str, why: str) -> Never:
        place = what if isinstance(what, str) else f"`{describe(what)}`"
        raise VerifyError(f"program {self.program.name}: {place}: {why}")

    def _use(self, i: Instr, value: int, s: Scope) -> VType:
        t = s.types.get(value)
        if t is None:
            self._broken(i, f"%{value} is not defined before it, in its block or around it")
        return t

    def _same(self, i: Instr, what: str, have: VType, want: VType) -> None:
        if have != want:
            self._broken(i, f"{what} is {have}, not {want}")

    def _lanes(self, i: Instr, have: VType, lanes: int) -> None:
        if have.lanes != lanes:
            self._broken(i, f"the argument has {have.lanes} lanes, not {lanes}")

    def _names(self, i: Instr, index: Index, s: Scope, lane: str = "", lanes: int = 1) -> None:
        """Every variable is in scope, and means the range that its loop or lane gives it; what is
        read from memory is read from an input of integers.
        """
        for e in index.elements():
            known = self.buffers.get(e.buffer)
            if known is None or known[2] or not known[0].is_int or known[1] != e.size:
                self._broken(i, f"{e}: {e.buffer} is not an input of {e.size} integers")
        if lane and lane in s.extents:
            self._broken(i, f"its lane variable {lane} is the variable of a loop around it")
        for v in index.variables():
            extent = lanes if v.name == lane else s.extents.get(v.name)
            if extent is None:
                self._broken(i, f"{v.name} is not a loop around it, nor its lane variable")
            if (v.lo, v.hi) != (0, extent - 1):
                self._broken(i, f"{v.name} runs over [0, {extent}), not [{v.lo}, {v.hi + 1})")

    # what work-groups do together; whole warps run it, all of which arrive

    def _of_groups(self, i: p.MatMul | p.MatLoad | p.Shuffle | p.CopyAsync, s: Scope) -> None:
        match i:
            case p.MatMul():
                self._matrices(i, s)
            case p.MatLoad():
                self._mat_load(i, s)
            case p.Shuffle(_, arg, across, t):
                self._warps(i, s)
                self._same(i, f"%{arg}", self._use(i, arg, s), t)
                if across < 1 or across & (across - 1) or across >= WARP:
                    self._broken(i, f"across {across}: a power of two below {WARP}")
            case p.CopyAsync():
                self._copy_async(i, s)

    def _warps(self, i: Instr, s: Scope) -> None:
        """Whole warps run it together."""
        if s.alone:
            self._broken(i, f"inside {s.alone}, where not all threads arrive")
        if self.program.local % WARP:
            self._broken(i, f"groups of {self.program.local} work-items: it takes {WARP} together")

    def _matrices(self, i: p.MatMul, s: Scope) -> None:
        """Whole warps run it together, and each item holds what the unit says."""
        unit, gives = i.unit, i.unit.dtypes[1]
        self._warps(i, s)
        if self.target is not None and unit not in self.target.units:
            self._broken(i, f"target {self.target.name} has no {unit}")
        operand = VType(DTYPES[unit.held], unit.packed)
        counts = unit.highs * unit.steps, unit.steps, unit.highs * unit.pair
        for name, values, count in zip("abc", (i.a, i.b, i.c), counts, strict=True):
            if len(values) != count:
                self._broken(i, f"{len(values)} registers of {name}: {unit} takes {count}")
            for value in values:
                want = i.vtype if name == "c" else operand
                self._same(i, f"%{value}", self._use(i, value, s), want)
        self._same(i, "the result", i.vtype, VType(DTYPES[gives]))
        if len(i.ids) != len(i.c):
            self._broken(i, f"{len(i.ids)} results of {len(i.c)} sums")

    def _mat_load(self, i: p.MatLoad, s: Scope) -> None:
        self._warps(i, s)
        if self.target is not None and not self.target.loads_matrices:
            self._broken(i, f"target {self.target.name} has no such load")
        size, t = i.vtype.dtype.itemsize, i.vtype
        if len(i.ids) not in (1, 2, 4):
            self._broken(i, f"{len(i.ids)} matrices: 1, 2 or 4")
        if t.lanes * size != REGISTER_BYTES or (i.transposed and size != 2):
            self._broken(i, f"{t}: 4 bytes, of 2 each where it is transposed")
        width = self._shared_row(i, i.buffer, i.offset, s)
        if not within(i.offset + (width - 1), self.buffers[i.buffer][1], s.facts) or not within(
            i.offset, self.buffers[i.buffer][1], s.facts
        ):
            self.unproved.append(i)

    def _shared_row(self, i: p.MatLoad, name: str, offset: Index, s: Scope) -> int:
        """Elements of a row, which lies in shared memory at a multiple of its size."""
        if all(a.name != name or a.space != "shared" for a in self.program.allocs):
            self._broken(i, f"{name} is not shared memory")
        if self.buffers[name][0] != i.vtype.dtype:
            self._broken(i, f"{name} holds {self.buffers[name][0]}")
        self._names(i, offset, s)
        width = ROW_BYTES // i.vtype.dtype.itemsize
        if not is_aligned(offset, width):
            self._broken(i, f"offset {offset} is not a multiple of {width} elements")
        return width

    def _copy_async(self, i: p.CopyAsync, s: Scope) -> None:
        if not s.ahead:
            self._broken(i, "stands outside the copies of a pipeline")
        if self.target is not None and not self.target.copies_ahead:
            self._broken(i, f"target {self.target.name} has no such copy")
        t = i.vtype
        if t.lanes * t.dtype.itemsize not in COPY_BYTES:
            self._broken(i, f"{t.lanes * t.dtype.itemsize} bytes: 4, 8 or 16")
        if i.source in stored_buffers(self.program.body):
            self._broken(i, f"copies from {i.source}, which the program writes")
        if all(a.name != i.buffer or a.space != "shared" for a in self.program.allocs):
            self._broken(i, f"copies to {i.buffer}, which is not shared memory")
        if i.mask is not None:
            self._same(i, "the mask", self._use(i, i.mask, s), VType(BOOL))
        for name, index in ((i.buffer, i.into), (i.source, i.offset)):
            known = self.buffers.get(name)
            if known is None:
                self._broken(i, f"no buffer {name}; there are {', '.join(self.buffers)}")
            if known[0] != t.dtype:
                self._broken(i, f"{name} holds {known[0]}")
            self._names(i, index, s, i.lane, t.lanes)
            if t.lanes > 1 and index.coefficient(i.lane) != 1:
                self._broken(i, f"{index} is not a row of neighbours")
            first = index.substitute({i.lane: as_index(0)}) if i.lane else index
            if not is_aligned(first, t.lanes):
                self._broken(i, f"{index} is not a multiple of {t.lanes} elements")
            facts = s.facts
            if i.mask is not None and name == i.source:
                facts += condition_facts(s.tests.get(i.mask, Valid()))
            if not within(index, known[1], facts):
                self.unproved.append(i)

    def _pipeline(self, i: p.Pipeline, s: Scope) -> None:
        """Copies run ahead of other iterations: nothing else writes what they write."""
        if not self.grouped:
            self._broken(i, "copies ahead to memory that a work-group shares")
        if s.alone:
            self._broken(i, f"inside {s.alone}, where not all threads arrive")
        if i.extent < 1 or i.slots < 2:
            self._broken(i, f"{i.extent} iterations, {i.slots} slots: at least 1 and 2")
        if i.var in s.extents:
            self._broken(i, f"{i.var} is the variable of a loop around it")
        ahead = stored_buffers(i.copies)
        spaces = {a.name: a.space for a in self.program.allocs}
        for name in sorted(ahead):
            if spaces.get(name) != "shared":
                self._broken(i, f"copies to {name}, which is not shared memory")
        written = stored_buffers(without(self.program.body, i))
        for name in sorted(ahead & (written | stored_buffers(i.body))):
            self._broken(i, f"{name} is written outside its copies, too")
        read = {x.buffer for x in p.walk(i.copies) if isinstance(x, p.Load)}
        for name in sorted(read & stored_buffers(self.program.body)):
            self._broken(i, f"its copies read {name}, which the program writes")
        for x in p.walk(i.copies):
            if isinstance(x, p.Read | p.Write | p.Register | p.Barrier | p.Pipeline | p.MatMul):
                self._broken(x, "in the copies of a pipeline")
        inner = s.inner()
        inner.extents[i.var] = i.extent
        copies = inner.inner()
        copies.ahead = True
        self._block(i.copies, copies)
        self._block(i.body, inner)

    # tile registers: how they are set up, and what may be where

    def _of_tiles(self, i: TileInstr, s: Scope) -> None:
        match i:
            case p.TileConfig():
                self._config(i, s)
            case p.TileZero(tile):
                self._rows(i, tile, s)
                self.written.add(_name(tile))
            case p.TileLoad(tile):
                self._moves(i, s)
                self.written.add(_name(tile))
            case p.TileStore(tile):
                self._moves(i, s)
                self._held(i, tile)
                spaces = {a.name: a.space for a in self.program.allocs}
                if spaces.get(i.buffer) != "thread":
                    self._broken(i, f"{i.buffer} is not scratch of a thread's own")
            case p.TileMul():
                self._mul(i, s)

    def _config(self, i: p.TileConfig, s: Scope) -> None:
        self._known(i, i.unit)
        if self.grouped:
            self._broken(i, "tile registers are a thread's of a CPU")
        most = i.unit.most_rows
        if len(i.rows) != i.unit.registers or any(not 0 <= r <= most for r in i.rows):
            self._broken(i, f"{i.unit} has {i.unit.registers} registers of up to {most} rows")
        s.tiles = i.rows
        self.written -= {_name(t) for t in range(len(i.rows))}

    def _known(self, i: TileInstr, unit: TileUnit) -> None:
        if self.target is not None and unit not in self.target.units:
            self._broken(i, f"target {self.target.name} has no {unit}")

    def _rows(self, i: TileInstr, tile: int, s: Scope) -> int:
        """Number of rows of a register."""
        if not 0 <= tile < len(s.tiles) or not s.tiles[tile]:
            self._broken(i, f"tile{tile} is not set up before it, in its block or around it")
        return s.tiles[tile]

    def _held(self, i: TileInstr, tile: int) -> None:
        if _name(tile) not in self.written:
            self._broken(i, f"nothing has written tile{tile} before")

    def _moves(self, i: p.TileLoad | p.TileStore, s: Scope) -> None:
        """Rows of neighbours, all of them within their buffer, as many as the register has."""
        if self._rows(i, i.tile, s) != i.rows:
            self._broken(i, f"{i.rows} rows: tile{i.tile} has {s.tiles[i.tile]}")
        if i.offset.coefficient(i.lane) != 1 or i.offset.coefficient(i.row) is None:
            self._broken(i, f"{i.offset} is not rows of neighbours, equally far apart")
        for row in range(i.rows):
            self._access(p.Load(-1, i.buffer, i.offset.at({i.row: row}), i.vtype, i.lane), s)

    def _mul(self, i: p.TileMul, s: Scope) -> None:
        self._known(i, i.unit)
        m, a, b = (self._rows(i, t, s) for t in (i.tile, i.a, i.b))
        k = i.unit.shape[2]
        if a != m or b != k:
            self._broken(i, f"{m} rows += {a} rows * {b} rows: {m}, {m} and {k} fit")
        for t in (i.tile, i.a, i.b):
            self._held(i, t)
