"""Proves that a program has no data race: where two actors touch one element between two barriers,
neither writes it.

    actors   the threads of a CPU team; the work-items of a group, and the groups of a GPU
    phase    what can run between two barriers: straight through, around a loop's end, past a branch
    owner    the actor that runs an access, as its thread or local loops share their iterations out

Two accesses of one buffer in one phase, at least one of them a store, are safe where

    same owner  the address tells the iteration of loops that share out all actors (``addresses``),
                alike in both
    disjoint    a digit of their addresses never has the same value
    same value  a store that all actors run, of a value that only depends on what the address tells
                (``values``)

A pipeline is looked at as the loop that it means, in which each iteration copies and then computes.

Loops around a phase that hold its barriers are in one iteration at a time. A program that is not
proved so is refused, and so is a barrier that some of the actors that wait at it may never reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Never

from tunegrad.errors import VerifyError

from .. import program as p
from ..index import Index, Valid, var
from ..pipelines import in_turn
from ..program import For, Instr, Program
from .addresses import Family, narrowed, pinned, split, told
from .prove import Facts, condition_facts, stop_facts
from .same_values import Memory, depends

__all__ = ["verify_races"]


@dataclass(frozen=True, slots=True)
class _Branch:
    """One side of a condition."""

    condition: p.If
    taken: bool


_Around = tuple[For | _Branch, ...]


@dataclass(slots=True)
class _Accesses:
    """Loads, or stores, of memory that others see, at one place: their addresses differ by
    constants.
    """

    instrs: list[p.Load | p.Store]
    around: _Around
    before: tuple[int, ...]
    stretch: int
    mask: Valid | None
    family: Family

    @property
    def is_load(self) -> bool:
        return isinstance(self.instrs[0], p.Load)

    def extended(
        self, i: p.Load | p.Store, around: _Around, stretch: int, mask: Valid | None
    ) -> bool:
        """Note an access if it is of this place; True if it is."""
        one = self.instrs[0]
        same = (
            self.around is around
            and self.stretch == stretch
            and self.mask is mask
            and type(one) is type(i)
        )
        if same and one.buffer == i.buffer and self.family.terms == i.offset.terms:
            self.instrs.append(i)
            self.family.constants.append(i.offset.const)
            return True
        return False


def _facts(around: _Around, mask: Valid | None) -> Facts:
    """Facts that hold inside loops and branches, and where a mask does."""
    found: Facts = ()
    for x in around:
        if isinstance(x, For):
            found += stop_facts(var(x.var, x.extent), x.stops)
        elif x.taken:
            found += condition_facts(x.condition.valid)
    return found if mask is None else found + condition_facts(mask)


def _facts_of(around: _Around, mask: Valid | None) -> Callable[[], Facts]:
    """``_facts``, worked out when first asked for."""
    found: list[Facts] = []

    def facts() -> Facts:
        if not found:
            found.append(_facts(around, mask))
        return found[0]

    return facts


_Key = tuple[object, ...]
_PLAIN = frozenset(
    (
        p.Compute,
        p.Read,
        p.Write,
        p.Register,
        p.Number,
        p.Convert,
        p.Fold,
        p.Select,
        p.Position,
        p.MatMul,
        p.MatLoad,
        p.Shuffle,
        p.TileConfig,
        p.TileZero,
        p.TileMul,
        p.TileStore,
    )
)
"""Instructions that touch no memory that others see; most are."""


def verify_races(program: Program, grouped: bool) -> None:
    """Raise VerifyError, naming the stores or the barrier, unless ``program`` has no race and all
    actors meet.

    ``grouped`` says that it runs in work-groups (GPU) and not as a team of CPU threads.
    """
    if program.threads * program.local < 2:
        return
    program = in_turn(program)
    seen = _Seen(program, grouped)
    if grouped:
        _Level(program, seen, "local", program.local).check()
        _Level(program, seen, "thread", program.threads, barriers=False).check()
    else:
        _Level(program, seen, "thread", program.threads).check()


class _Seen:
    """Every access of memory that is written and not private, and the stretches of code between
    barriers.
    """

    def __init__(self, program: Program, grouped: bool) -> None:
        self.program, self.grouped = program, grouped
        self.watched = {b.name for b in program.params if b.role == "out"}
        self.watched |= {a.name for a in program.allocs if a.space != "thread"}
        self.tests: dict[int, Valid] = {}
        self.accesses: list[_Accesses] = []
        self.parents = [0]
        self.waits: set[int] = set()
        self._now = 0
        self._block(program.body, (), ())

    def stretch(self, number: int) -> int:
        """The stretch that one is part of."""
        while self.parents[number] != number:
            number = self.parents[number]
        return number

    def _join(self, a: int, b: int) -> None:
        self.parents[self.stretch(a)] = self.stretch(b)

    def _block(self, body: tuple[Instr, ...], around: _Around, before: tuple[int, ...]) -> None:
        for i in body:
            if type(i) in _PLAIN:
                continue
            if isinstance(i, p.Load | p.Store):
                if i.buffer in self.watched:
                    self._access(i, around, before)
            elif isinstance(i, p.TileLoad):
                for row in range(i.rows if i.buffer in self.watched else 0):
                    self._access(i.line(row), around, before)
            elif isinstance(i, p.Test):
                self.tests[i.id] = i.valid
            elif isinstance(i, p.Splat):
                if i.arg in self.tests:
                    self.tests[i.id] = self.tests[i.arg]
            elif isinstance(i, For):
                first = self._now
                self._block(i.body, (*around, i), (*before, first))
                if self._now != first and not _once(i):  # from its end it goes on at its beginning
                    self.waits.add(id(i))
                    self._join(self._now, first)
            elif isinstance(i, p.If):
                first = self._now
                self._block(i.body, (*around, _Branch(i, True)), before)
                last, self._now = self._now, first
                self._block(i.orelse, (*around, _Branch(i, False)), before)
                if last != self._now:
                    self._join(last, self._now)
            elif isinstance(i, p.Barrier):
                self._meet(around)
                self._now = len(self.parents)
                self.parents.append(self._now)

    def _meet(self, around: _Around) -> None:
        """Raise VerifyError where some of the actors that wait for each other may not arrive."""
        kind = "local" if self.grouped else "thread"
        mine: set[str] = set()
        for x in around:
            stops = x.stops if isinstance(x, For) else ()
            names = (
                x.condition.valid.names()
                if isinstance(x, _Branch)
                else frozenset().union(*map(Index.names, stops))
            )
            apart = isinstance(x, For) and x.kind == kind and not (self.grouped and _once(x))
            if apart or not mine.isdisjoint(names):
                raise VerifyError(f"program {self.program.name}: `barrier`: not all threads arrive")
            if isinstance(x, For) and x.kind == kind:
                mine.add(x.var)

    def _access(self, i: p.Load | p.Store, around: _Around, before: tuple[int, ...]) -> None:
        mask = None if i.mask is None else self.tests.get(i.mask)
        if self.accesses and self.accesses[-1].extended(i, around, self._now, mask):
            return
        family = Family(i.offset.terms, _facts_of(around, mask), [i.offset.const])
        self.accesses.append(_Accesses([i], around, before, self._now, mask, family))


class _Level:
    """The proof for one kind of actor."""

    def __init__(
        self,
        program: Program,
        seen: _Seen,
        kind: Literal["thread", "local"],
        actors: int,
        barriers: bool = True,
    ) -> None:
        self.program, self.seen, self.kind, self.actors, self.barriers = (
            program,
            seen,
            kind,
            actors,
            barriers,
        )
        own_group = {a.name for a in program.allocs if a.space == "shared"}
        self.watched = seen.watched - own_group if kind == "thread" else seen.watched
        self.values: dict[int, frozenset[str] | None] | None = None
        self.pinned: dict[int, dict[str, int]] = {}

    def check(self) -> None:
        """Raise VerifyError unless no two of the actors race."""
        if self.actors < 2:
            return
        phases: dict[tuple[str, int], list[_Accesses]] = {}
        for a in self.seen.accesses:
            if a.instrs[0].buffer in self.watched:
                phases.setdefault((a.instrs[0].buffer, self._phase(a.stretch)), []).append(a)
        self.stored = {key for key, found in phases.items() if not all(a.is_load for a in found)}
        for key, found in phases.items():
            if key in self.stored:
                self._phase_is_safe(found)

    def _phase(self, stretch: int) -> int:
        return self.seen.stretch(stretch) if self.barriers else 0

    def _phase_is_safe(self, accesses: list[_Accesses]) -> None:
        """Raise VerifyError unless it is; the variables that masks leave one value are looked for
        where that helps.
        """
        try:
            self._compared(accesses)
        except VerifyError:
            known = {id(a): pinned(a.family) for a in accesses}
            if not any(known.values()):
                raise
            self.pinned = known
            self._compared(accesses)

    def _compared(self, accesses: list[_Accesses]) -> None:
        split([a.family for a in accesses])
        owners: dict[_Key, list[tuple[_Accesses, int]]] = {}
        for a in accesses:
            known = told(a.family.digits) | self._fixed(a) | self.pinned.get(id(a), {}).keys()
            shares = self._shares(a, known)
            if shares is None and not a.is_load:
                self._same_value(a, known)
            for n, constants in enumerate(a.family.constants_of):
                where = (
                    (id(a), n)
                    if shares is None
                    else tuple(constants[d] for _, digits in shares for d in digits)
                )
                owners.setdefault((shares, where), []).append((a, n))
        for ours, theirs in combinations(owners.values(), 2):
            for x in ours:
                for y in theirs:
                    self._apart(*x, *y)

    def _shares(
        self, a: _Accesses, known: frozenset[str]
    ) -> tuple[tuple[_Key, tuple[int, ...]], ...] | None:
        """The way in which loops around an access share all actors out, and the digits that say so;
        None where they do not.

        Accesses with one answer, and equal constants of those digits, are run by one actor where
        they meet.
        """
        found: dict[tuple[int, int], tuple[_Key, tuple[int, ...]]] = {}
        for x in a.around:
            if not isinstance(x, For) or x.kind != self.kind or x.count < 2:
                continue
            alone = x.extent == 1  # one iteration, which one of them runs
            names = frozenset(() if alone else (x.var,)).union(*(s.names() for s in x.stops))
            if names <= known:
                where = [
                    n
                    for n, d in enumerate(a.family.digits)
                    if any(names & atom.names for atom, _ in d)
                ]
                text = tuple((n, Index(a.family.digits[n], 0).key) for n in where)
                text += tuple((v, n) for n, v in self.pinned.get(id(a), {}).items() if n in names)
                found[x.inner, x.count] = (
                    (x.inner, x.count, x.var, tuple(s.key for s in x.stops), text),
                    tuple(where),
                )
        reached = 1
        for inner, count in sorted(found):
            if inner != reached:
                return None
            reached *= count
        return tuple(found[k] for k in sorted(found)) if reached >= self.actors else None

    def _fixed(self, a: _Accesses) -> frozenset[str]:
        """Loops that all actors are in the same iteration of, in one phase."""
        loops = [x for x in a.around if isinstance(x, For)]
        fixed = [
            x.var
            for x in loops
            if self.kind == "local" and x.kind == "thread" and x.count >= x.extent
        ]
        if self.barriers:
            for x, first in zip(loops, a.before, strict=True):
                if id(x) in self.seen.waits and self._phase(first) != self._phase(a.stretch):
                    fixed.append(x.var)
        return frozenset(fixed)

    def _same_value(self, a: _Accesses, known: frozenset[str]) -> None:
        """Stores that several actors run: each element has one value, whichever writes it and
        when.
        """
        if self.values is None:
            named = {b.name for b in self.program.params} | {k.name for k in self.program.packs}
            memory = Memory(self._stable(), frozenset(named - self.seen.watched), self.kind)
            self.values = depends(self.program.body, memory)
        for i in a.instrs:
            needs = self.values[id(i)]
            if needs is None or not needs <= known:
                self._race(i, i)

    def _stable(self) -> frozenset[int]:
        """Loads of memory that no actor writes in their phase."""
        return frozenset(
            id(i)
            for a in self.seen.accesses
            if a.instrs[0].buffer in self.watched
            and (a.instrs[0].buffer, self._phase(a.stretch)) not in self.stored
            for i in a.instrs
        )

    def _apart(self, a: _Accesses, n: int, b: _Accesses, m: int) -> None:
        if a.is_load and b.is_load:
            return
        ours = [Index(t, c) for t, c in zip(a.family.digits, a.family.constants_of[n], strict=True)]
        theirs = [
            Index(t, c) for t, c in zip(b.family.digits, b.family.constants_of[m], strict=True)
        ]
        if any(
            x.hi < y.lo or y.hi < x.lo for x, y in zip(ours, theirs, strict=True)
        ) or self._either(a, b):
            return
        at, to = a.family.facts(), b.family.facts()
        narrow = [(narrowed(x, at), narrowed(y, to)) for x, y in zip(ours, theirs, strict=True)]
        if not any(x.hi < y.lo or y.hi < x.lo for x, y in narrow):
            self._race(a.instrs[n], b.instrs[m])

    def _either(self, a: _Accesses, b: _Accesses) -> bool:
        """True if they stand in the two branches of a condition that holds for all actors in a
        phase, or for none.
        """
        fixed = self._fixed(a) & self._fixed(b)
        sides = {id(x.condition): x.taken for x in a.around if isinstance(x, _Branch)}
        return any(
            sides.get(id(x.condition), x.taken) != x.taken and x.condition.valid.names() <= fixed
            for x in b.around
            if isinstance(x, _Branch)
        )

    def _race(self, a: Instr, b: Instr) -> Never:
        actors = "work-items" if self.kind == "local" else "threads"
        lines = " and ".join(f"`{line}`" for line in dict.fromkeys(_lines((a, b))))
        raise VerifyError(
            f"program {self.program.name}: {lines}: can not be proved to be run by one of the "
            f"{self.actors} {actors} "
            "alone for each element between two barriers"
        )


def _once(loop: For) -> bool:
    """True if every actor runs exactly one iteration."""
    return (
        loop.kind != "serial"
        and loop.count == loop.extent
        and all(s.lo >= loop.extent for s in loop.stops)
    )


def _lines(instrs: Iterable[Instr]) -> Iterator[str]:
    for i in instrs:
        yield Program("", (), (), (), (i,)).text.splitlines()[1].strip()
