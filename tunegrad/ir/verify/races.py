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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import combinations, pairwise
from typing import Literal, Never

from tunegrad.errors import VerifyError
from tunegrad.lazy import dataclass

from .. import program as p
from ..index import Atom, FloorDiv, Index, Mod, Valid, Var, var
from ..pipelines import in_turn
from ..program import For, Instr, Program

# ---- bounds
#
# Bounds of an index where conditions hold: what masks, loop stops and branches say about an
# address.
#
# A fact is an index that is >= 0. Adding ``c >= 0`` times a fact to an index only raises it, so
#
#     max(t)  <=  max(t + c * fact)        with c chosen to cancel an atom of t
#
# Facts are combined up to a small depth, and a quotient is replaced by what it is taken of. A
# claim that can not be proved so is unknown, never wrong.


Facts = tuple[Index, ...]

_DEPTH = 3


def condition_facts(valid: Valid) -> Facts:
    """Facts that hold where ``valid`` does.

    ``16*a + b >= 32`` with ``b < 16`` also gives ``a >= 2``, and ``16*a + 8*b >= 7`` gives ``2*a +
    b >= 1``.
    """
    facts: list[Index] = []
    for r in valid:
        for fact in (r.index - r.lo, r.hi - 1 - r.index):
            facts.append(fact)
            if len(fact.terms) > 1:
                facts += _whole(fact)
                facts += _divided(fact)
    return tuple(facts)


def _divided(fact: Index) -> Iterator[Index]:
    """g * m + rest >= 0  ->  m + max(rest) // g >= 0, for sums of several atoms"""
    for g in {abs(c) for _, c in fact.terms} - {1}:
        m = Index(tuple((a, c // g) for a, c in fact.terms if c % g == 0), 0)
        if len(m.terms) > 1:
            yield m + (fact - m * g).hi // g


def _whole(fact: Index) -> Iterator[Index]:
    """Bounds of single atoms, rounded to integers, that a fact gives and their own do not."""
    for atom, c in fact.terms:
        x = Index(((atom, 1),), 0)
        most = (fact - x * c).hi
        if c > 1 and -(most // c) > atom.lo:
            yield x + most // c
        elif c < -1 and most // -c < atom.hi:
            yield most // -c - x


def stop_facts(var: Index, stops: Iterable[Index]) -> Facts:
    """Facts that hold inside a loop: its variable is below every stop.

    ``a // d > v`` also gives ``a >= d * (v + 1)``.
    """
    facts: list[Index] = []
    for stop in stops:
        gap = stop - var - 1
        facts.append(gap)
        for atom, c in gap.terms:
            if isinstance(atom, FloorDiv) and c == 1:
                rest = gap - Index(((atom, 1),), 0)
                facts.append(atom.num + rest * atom.den)
    return tuple(f for f in facts if f.terms)


def below(index: Index, limit: int, facts: Facts) -> bool:
    """True if the facts prove ``index < limit``."""
    return _below(index, limit, facts, _DEPTH)


def _below(index: Index, limit: int, facts: Facts, depth: int) -> bool:
    if index.hi < limit:
        return True
    if not depth:
        return False
    ours = dict(index.terms)
    for fact in facts:
        for atom, k in fact.terms:
            c = ours.get(atom, 0)
            cancels = c * k < 0 and c % k == 0
            if cancels and _below(index + fact * (c // -k), limit, facts, depth - 1):
                return True
    quotients = [(a, c) for a, c in index.terms if isinstance(a, FloorDiv)]
    return any(
        _quotient_below(index, a, c, limit, facts, depth)
        or _coarser_below(index, a, c, limit, facts, depth)
        if c > 0
        else _quotient_above(index, a, c, limit, facts, depth)
        for a, c in quotients
    ) or any(_by_digit_below(index, a, c, limit, facts, depth) for a, c in quotients)


def _coarser_below(
    index: Index, atom: FloorDiv, c: int, limit: int, facts: Facts, depth: int
) -> bool:  # fmt: skip
    """n // d <= k * (n // (k*d)) + k - 1, of which a fact may say more"""
    for known in {a for fact in facts for a, _ in fact.terms if isinstance(a, FloorDiv)}:
        k = known.den // atom.den
        if k > 1 and known.num == atom.num and known.den == k * atom.den:
            coarse = index + Index(((atom, -c),), 0) + Index(((known, c * k),), c * (k - 1))
            if _below(coarse, limit, facts, depth - 1):
                return True
    return False


def _by_digit_below(
    index: Index, atom: FloorDiv, c: int, limit: int, facts: Facts, depth: int
) -> bool:  # fmt: skip
    """n // d = k * (n // (k*d)) + n // d % k, with a fact that bounds the digit"""
    whole = Index(((atom, 1),), 0)
    for fact in facts:
        for digit, k in fact.terms:
            if isinstance(digit, Mod) and digit.num == whole and c * k < 0 and c % k == 0:
                bound = Index(((digit, c),), 0) + fact * (c // -k)
                above = atom.num // (digit.den * atom.den) * digit.den
                if _below(index + (above - whole) * c + bound, limit, facts, depth - 1):
                    return True
    return False


def _quotient_below(
    index: Index, atom: FloorDiv, c: int, limit: int, facts: Facts, depth: int
) -> bool:  # fmt: skip
    """x + c * (n // d) < limit,  c > 0

    where d * x + c * n < d * limit; or where n < d * (q + 1), and x + c * q < limit whatever x is.
    """
    rest = index - Index(((atom, c),), 0)
    most = (limit - 1 - rest.hi) // c
    return _below(atom.num, (most + 1) * atom.den, facts, depth - 1) or _below(
        rest * atom.den + atom.num * c, limit * atom.den, facts, depth - 1
    )


def _quotient_above(
    index: Index, atom: FloorDiv, c: int, limit: int, facts: Facts, depth: int
) -> bool:  # fmt: skip
    """x + c * (n // d) < limit,  c < 0

    where n >= d * q, and x + c * q < limit whatever x is; or where d * x + c * (n - d + 1) < d *
    limit.
    """
    rest = index - Index(((atom, c),), 0)
    least = -((limit - 1 - rest.hi) // -c)
    return _below(-atom.num, 1 - least * atom.den, facts, depth - 1) or _below(
        rest * atom.den + (atom.num - atom.den + 1) * c, limit * atom.den, facts, depth - 1
    )


# ---- addresses
#
# The digits of an address, and the variables of the loops around it that they fix.
#
#     97*m + 32*n0 + n1     with 0 <= 32*n0+n1 < 97 and 0 <= n1 < 32      -->      digits m, n0, n1
#
# A sum ``g*high + low`` with ``0 <= low < g`` is the same number only where ``high`` and ``low``
# both are. So two accesses that split by the same moduli touch one element only where all their
# digits are equal, and a digit ``v`` that both have says that they are in the same iteration of
# loop ``v``. Bounds of ``low`` come from the variables' ranges, and from the masks, stops and
# branches around the access (``prove``).
#
# The accesses of a register tile differ by constants: they are one family, and split at once.


_Terms = tuple[tuple[Atom, int], ...]


@dataclass(slots=True)
class Family:
    """Addresses ``terms + constant``, at which ``facts`` hold.

    ``split`` sets ``digits``, the terms of each digit, most significant first, and
    ``constants_of``, theirs for each address.
    """

    terms: _Terms
    facts: Callable[[], Facts]
    constants: list[int] = field(default_factory=list)
    digits: tuple[_Terms, ...] = ()
    constants_of: list[tuple[int, ...]] = field(default_factory=list)


def split(families: Sequence[Family]) -> None:
    """Take all addresses apart by the same moduli."""
    every = {c for f in families for c in f.constants}
    moduli = {abs(c) for f in families for _, c in f.terms} | _steps(every)
    rests = [(f.terms, f.constants) for f in families]
    digits: list[list[_Terms]] = [[] for _ in families]
    constants: list[list[list[int]]] = [[] for _ in families]
    for g in sorted(moduli - {1}, reverse=True):
        if not any(c % g == 0 for terms, _ in rests for _, c in terms) and all(
            0 <= c < g for _, x in rests for c in x
        ):
            continue
        parts: list[_Terms] = []
        for (terms, x), f in zip(rests, families, strict=True):
            low = _low(terms, x, g, f.facts)
            if low is None:
                break
            parts.append(low)
        if len(parts) < len(families):
            continue
        for n, (terms, x) in enumerate(rests):
            digits[n].append(tuple([(a, c // g) for a, c in terms if c % g == 0]))
            constants[n].append([c // g for c in x])
        rests = [(low, [c % g for c in x]) for low, (_, x) in zip(parts, rests, strict=True)]
    for n, (f, (terms, x)) in enumerate(zip(families, rests, strict=True)):
        f.digits = (*digits[n], terms)
        f.constants_of = list(zip(*constants[n], x, strict=True))


def _steps(constants: set[int]) -> set[int]:
    """Distances at which the constants of a register tile begin a new row: after a wider gap than
    any before it.
    """
    ordered = sorted(constants)
    found, widest = set(), 0
    for a, b in pairwise(ordered):
        if b - a > widest:
            widest = b - a
            found.add(b - ordered[0])
    return found


def _low(terms: _Terms, constants: list[int], g: int, facts: Callable[[], Facts]) -> _Terms | None:
    """The terms that ``g`` does not divide; None where they can not be proved to stay in [0, g)."""
    low = tuple([t for t in terms if t[1] % g])
    rests = [c % g for c in constants]
    index, least, most = Index(low, 0), min(rests), max(rests)
    if (index.hi + most < g or _is_below(index + most, g, facts)) and (
        index.lo + least >= 0 or _is_below(-index - least, 1, facts)
    ):
        return low
    return None


def _is_below(index: Index, limit: int, facts: Callable[[], Facts]) -> bool:
    known = facts()
    return narrowed(index, known).hi < limit or below(index, limit, known)


def narrowed(index: Index, facts: Facts) -> Index:
    """The sum where the facts hold: each variable in the range that one fact leaves it."""
    limits: dict[str, tuple[int, int]] = {}
    for fact in facts:
        for v, k in fact.terms:
            if isinstance(v, Var) and v.name in index.names():
                lo, hi = limits.get(v.name, (v.lo, v.hi))
                rest = fact.hi - max(k * v.lo, k * v.hi)
                limits[v.name] = (max(lo, -(rest // k)), hi) if k > 0 else (lo, min(hi, rest // -k))
    known = {
        n: Index(((Var(n, lo, hi), 1),), 0) if lo < hi else Index((), lo)
        for n, (lo, hi) in limits.items()
    }
    return index.substitute(known)


def pinned(family: Family) -> dict[str, int]:
    """The variables that facts leave one value, with it; they are taken out of the terms."""
    facts = family.facts()
    found = {}
    for v, _ in family.terms:
        if isinstance(v, Var) and (only := narrowed(Index(((v, 1),), 0), facts)).is_const:
            found[v.name] = only.const
    if found:
        rest = Index(family.terms, 0).at(found)
        family.terms, family.constants = rest.terms, [c + rest.const for c in family.constants]
    return found


def told(sums: Iterable[_Terms]) -> frozenset[str]:
    """The variables that are known once the values of some sums are; constants do not matter."""
    atoms: set[Atom] = set()
    left = list(sums)
    while left:
        for atom in _alone(left.pop()):
            if atom not in atoms:
                atoms.add(atom)
                left += _wholes(atom, atoms)
    return frozenset(a.name for a in atoms if isinstance(a, Var))


def _alone(terms: _Terms) -> Iterable[Atom]:
    """The atoms of a sum that are its digits: ``g*high + low`` tells both if ``low`` is below g."""
    for g in sorted({abs(c) for _, c in terms} - {1}, reverse=True) if len(terms) > 1 else ():
        low = tuple([t for t in terms if t[1] % g])
        index = Index(low, 0)
        if index.hi - index.lo < g:
            high = tuple([(a, c // g) for a, c in terms if c % g == 0])
            if len(high) == 1:
                yield high[0][0]
            terms = low
    if len(terms) == 1:
        yield terms[0][0]


def _wholes(new: Atom, atoms: set[Atom]) -> list[_Terms]:
    """n, where n // d and m % d are known and n - m is constant modulo d; ``new`` is one of them"""
    found = []
    for m in [a for a in ((new,) if isinstance(new, Mod) else atoms) if isinstance(a, Mod)]:
        if atoms.issuperset(a for a, _ in (m.num // m.den).terms):
            found.append(m.num.terms)
        quotients = [
            a for a in ((new,) if isinstance(new, FloorDiv) else atoms) if isinstance(a, FloorDiv)
        ]
        found += [
            q.num.terms for q in quotients if q.den == m.den and not ((q.num - m.num) % m.den).terms
        ]
    return found


# ---- same values
#
# Finds what the stored values of a program depend on: loop variables, where that is all; or the
# actor.
#
# loaded from                                             depends on
#     read-only memory, memory not written meanwhile      variables of the address and the mask
#     private memory, memory that others write            the actor
# a register after a loop that wrote it
#     over threads or work-items                          the actor: each ran other iterations
#     of any other kind                                   all but the loop's variable


Depends = frozenset[str] | None
"""Names of the variables that a value is a function of; None: it depends on the actor, too."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Loads that read the same in every actor: ``stable`` ones, by identity, and those of
    ``read_only`` buffers.

    Loops of kind ``actors`` give every actor other iterations.
    """

    stable: frozenset[int]
    read_only: frozenset[str]
    actors: Literal["thread", "local"]


def depends(body: tuple[Instr, ...], memory: Memory) -> dict[int, Depends]:
    """By the identity of a store, what the value it stores depends on."""
    found = _Values(memory)
    found.block(body)
    return found.stores


class _Values:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.values: dict[int, Depends] = {}
        self.registers: dict[str, Depends] = {}
        self.stores: dict[int, Depends] = {}

    def block(self, body: tuple[Instr, ...]) -> None:
        for i in body:
            if isinstance(i, p.For):
                self._for(i)
            elif isinstance(i, p.If):
                self._if(i)
            elif isinstance(i, p.Write):
                self.registers[i.name] = self.values[i.value]
            elif isinstance(i, p.Store):
                self.stores[id(i)] = _both(
                    self.stores.get(id(i), frozenset()), self.values[i.value]
                )
            elif isinstance(i, p.MatMul | p.MatLoad | p.Shuffle):  # of what other items hold
                self.values |= dict.fromkeys(p.defined(i))
            elif isinstance(i, p.Valued):
                self.values[i.id] = self._value(i)

    def _value(self, i: Instr) -> Depends:
        if isinstance(i, p.Load):
            if i.buffer not in self.memory.read_only and id(i) not in self.memory.stable:
                return None
            return _both(i.offset.names(), frozenset() if i.mask is None else self.values[i.mask])
        if isinstance(i, p.Position):
            return i.index.names()
        if isinstance(i, p.Test):
            return i.valid.names()
        if isinstance(i, p.Read):
            return self.registers.get(i.name)
        if isinstance(i, p.Number):
            return frozenset()
        found: Depends = frozenset()
        for a in p.used(i):
            found = _both(found, self.values[a])
        return found

    def _for(self, i: p.For) -> None:
        stops = frozenset[str]().union(*(s.names() for s in i.stops))
        written = _written(i.body)
        while True:  # each round adds names, or the actor: it ends
            start = dict(self.registers)
            self.block(i.body)
            self.registers = {
                n: _both(start[n], d) if n in start else d for n, d in self.registers.items()
            }
            if self.registers == start:
                break
        shared_out = i.kind in ("local", self.memory.actors)
        for name in written:
            left = self.registers[name]
            self.registers[name] = None if left is None or shared_out else left - {i.var} | stops

    def _if(self, i: p.If) -> None:
        before = dict(self.registers)
        self.block(i.body)
        yes, self.registers = self.registers, before
        self.block(i.orelse)
        for name in _written(i.body) | _written(i.orelse):
            either = _both(yes.get(name, frozenset()), self.registers.get(name, frozenset()))
            self.registers[name] = _both(either, i.valid.names())


def _written(body: tuple[Instr, ...]) -> set[str]:
    return {i.name for i in p.walk(body) if isinstance(i, p.Write)}


def _both(a: Depends, b: Depends) -> Depends:
    return None if a is None or b is None else a | b


# ---- races


@dataclass(frozen=True, slots=True)
class _Branch:
    """One side of a condition."""

    condition: p.If
    taken: bool


_Around = tuple[For | _Branch, ...]


@dataclass(slots=True)
class _Accesses:
    """Loads, or stores, of shared memory at one place: their addresses differ by constants."""

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
    program = _in_place(in_turn(program))
    seen = _Seen(program, grouped)
    if grouped:
        _Level(program, seen, "local", program.local).check()
        _Level(program, seen, "thread", program.threads, barriers=False).check()
    else:
        _Level(program, seen, "thread", program.threads).check()


def _in_place(program: Program) -> Program:
    """The program with loads of what an output may lie over as loads of that output."""
    over = program.overwritten
    if not over:
        return program

    def block(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        return tuple(
            replace(i, buffer=over[i.buffer])
            if isinstance(i, p.Load | p.TileLoad) and i.buffer in over
            else p.mapped(i, block)
            for i in body
        )

    return replace(program, body=block(program.body))


class _Seen:
    """Every access of written memory that is not private, and the code between barriers."""

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
        """True if they stand in the two branches of a condition that is the same for all actors."""
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
