"""A pipeline as the loop that runs: copies are ahead of what uses them.

    pipeline k in 8 slots 3:           -->    A.k[..] = A[.. k=0 ..]         commit
      async A.k[i] = A[4*k + i]               A.k[4 + ..] = A[.. k=1 ..]     commit
    then:                                     for k in 8:
      %1 = A.k[j]                               await 1; barrier
                                                if k + 2 < 8:
                                                  async A.k[4*((k+2) % 3) + i] = A[4*(k+2) + i]
                                                commit
                                                %1 = A.k[4*(k % 3) + j]

At the barrier every item has the batch of iteration k, and is done with iteration k-1, whose place
is the one that is written next: one barrier an iteration. Before the first copies stands a barrier
where the pipeline runs again. Copies that are plain loads and stores need no batches; the rest is
the same.

The proof that a program has no race looks at the pipeline, where each iteration copies and then
computes. This text is what makes it so for copies that run ahead: iteration k reads place k % slots
alone, and what is in flight then is for the slots-1 iterations after it, at other places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace

from tunegrad.lazy import dataclass

from . import program as p
from .index import Index, Range, Valid, as_index, var
from .program import Instr, Program

WARP = 32
"""Work-items that multiply, load fragments and shuffle together."""
COPY_BYTES, ROW_BYTES, REGISTER_BYTES = (4, 8, 16), 16, 4
"""Of an asynchronous copy, of a row of a small matrix, and of what an item gets of one."""

_ALIGNED_BYTES, _BANKS_BYTES = 16, 128


def ring_buffers(program: Program) -> dict[str, int]:
    """The places of each buffer that a pipeline copies into."""
    found = {}
    for i in p.walk(program.body):
        if isinstance(i, p.Pipeline):
            found.update(dict.fromkeys(stored_buffers(i.copies), i.slots))
    return found


def is_aligned(offset: Index, width: int) -> bool:
    """True if an offset is a multiple of ``width`` elements, whatever its variables are."""
    return not (offset.const % width or any(c % width for _, c in offset.terms))


def in_turn(program: Program) -> Program:
    """Rewrite pipelines into loops that mean the same: each iteration copies, and then computes.

    Loads and copies of warps become plain loads and stores, besides: rows whose place one item
    gives are read by all.
    """
    kinds = {type(i) for i in p.walk(program.body)}
    if kinds.isdisjoint((p.Pipeline, p.MatLoad)):
        return program
    top = max((n for i in p.walk(program.body) for n in p.defined(i)), default=0)
    return replace(program, body=_InTurn(top).block(program.body, {}))


@dataclass(slots=True)
class _InTurn:
    """The last number of a value. Mutable."""

    last: int

    def block(self, body: tuple[Instr, ...], items: Mapping[str, int]) -> tuple[Instr, ...]:
        """A block; ``items`` are the local loops around it, with their extents."""
        made: list[Instr] = []
        for i in body:
            match i:
                case p.Pipeline():
                    copies, rest = self.block(i.copies, items), self.block(i.body, items)
                    inner = (p.Barrier(), *copies, p.Barrier(), *rest)
                    made.append(p.For(i.var, i.extent, (as_index(i.extent),), inner))
                case p.For():
                    mine = {**items, i.var: i.extent} if i.kind == "local" else items
                    made.append(replace(i, body=self.block(i.body, mine)))
                case p.CopyAsync():
                    self.last += 1
                    lane = i.lane if i.vtype.lanes > 1 else ""
                    made.append(p.Load(self.last, i.source, i.offset, i.vtype, lane))
                    made.append(p.Store(i.buffer, i.into, self.last, i.vtype, lane))
                case p.MatLoad():
                    made += [self._rows(i, items), i]
                case _:
                    made.append(p.mapped(i, lambda body: self.block(body, items)))
        return tuple(made)

    def _rows(self, i: p.MatLoad, items: Mapping[str, int]) -> Instr:
        """A load of the rows that all items give, by each."""
        self.last += 1
        width = ROW_BYTES // i.vtype.dtype.itemsize
        all_items = {n: e for n, e in items.items() if n in i.offset.names()}
        env = {n: var(f"{n}.all", e) for n, e in all_items.items()}
        at = i.offset.substitute(env) + var(_COLUMN, width)
        made: Instr = p.Load(self.last, i.buffer, at, p.VType(i.vtype.dtype, width), _COLUMN)
        for n, e in all_items.items():
            made = p.For(f"{n}.all", e, (as_index(e),), (made,))
        return made


_COLUMN = "matrix.column"


def expand_pipelines(program: Program) -> Program:
    """The program without ``Pipeline``s; the same object where it has none.

    Scratch that a pipeline copies into grows by the number of its places.
    """
    rings = ring_buffers(program)
    if not rings:
        return program
    sizes = {a.name: _place(a) for a in program.allocs}
    top = max((n for i in p.walk(program.body) for n in p.defined(i)), default=0)
    body = _Expansion(sizes, top).block(program.body, again=False)
    allocs = tuple(
        replace(a, size=sizes[a.name] * rings[a.name]) if a.name in rings else a
        for a in program.allocs
    )
    return replace(program, body=body, allocs=allocs)


def _place(a: p.Alloc) -> int:
    """Elements of one place, up to where the widest vector, or a swizzled row, may begin."""
    nbytes = max(_BANKS_BYTES, a.swizzled) if a.swizzled else _ALIGNED_BYTES
    least = max(1, nbytes // a.dtype.itemsize)
    return -(-a.size // least) * least


def stored_buffers(body: tuple[Instr, ...]) -> set[str]:
    """The names of all that a block writes."""
    return {i.buffer for i in p.walk(body) if isinstance(i, p.Store | p.CopyAsync)}


@dataclass(slots=True)
class _Expansion:
    """Sizes of one place of each buffer; the last number of a value. Mutable."""

    sizes: Mapping[str, int]
    last: int

    def block(self, body: tuple[Instr, ...], again: bool) -> tuple[Instr, ...]:
        """A block without pipelines; ``again`` says that it runs more than once."""
        made: list[Instr] = []
        for i in body:
            match i:
                case p.Pipeline():
                    made += self._pipeline(i, again)
                case p.For():
                    inside = again or (i.kind == "serial" and i.extent > 1)
                    made.append(replace(i, body=self.block(i.body, inside)))
                case _:
                    made.append(p.mapped(i, lambda body: self.block(body, again)))
        return tuple(made)

    def _pipeline(self, i: p.Pipeline, again: bool) -> list[Instr]:
        ahead, now = i.slots - 1, var(i.var, i.extent)
        waits = any(isinstance(x, p.CopyAsync) for x in p.walk(i.copies))
        commit: list[Instr] = [p.Commit()] if waits else []
        made: list[Instr] = [p.Barrier()] if again else []
        for first in range(ahead):
            if first < i.extent:
                made += self._copies(i, as_index(first))
            made += commit
        later = now + ahead
        body: list[Instr] = [p.Await(ahead - 1)] if waits else []
        body.append(p.Barrier())
        if ahead < i.extent:
            more = Valid((Range(later, 0, i.extent),))
            body.append(p.If(more, tuple(self._copies(i, later))))
        body += commit
        use = _Rewrite({}, self._places(i, now), {}, lambda: 0)
        body += self.block(use.block(i.body), again=True)
        made.append(p.For(i.var, i.extent, (as_index(i.extent),), tuple(body)))
        return made

    def _copies(self, i: p.Pipeline, at: Index) -> list[Instr]:
        """The copies of iteration ``at``, with values of their own."""

        def new() -> int:
            self.last += 1
            return self.last

        return list(_Rewrite({i.var: at}, self._places(i, at), {}, new).block(i.copies))

    def _places(self, i: p.Pipeline, at: Index) -> dict[str, Index]:
        """Offsets in the pipeline's buffers where the place of iteration ``at`` begins."""
        return {name: (at % i.slots) * self.sizes[name] for name in stored_buffers(i.copies)}


@dataclass(slots=True)
class _Rewrite:
    """Instructions with other sums for variables, buffers that begin elsewhere, and values of new
    numbers.

    ``new`` numbers the values that are defined inside; those of outside keep theirs.
    """

    env: Mapping[str, Index]
    places: Mapping[str, Index]
    ids: dict[int, int] = field(default_factory=dict)
    new: Callable[[], int] = lambda: 0

    def block(self, body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        return tuple(self._one(i) for i in body)

    def _one(self, i: Instr) -> Instr:
        for n in p.defined(i):
            number = self.new()
            self.ids[n] = number or n
        changed: dict[str, object] = {}
        for f in fields(i):
            old = getattr(i, f.name)
            if f.name in ("id", "ids") or (f.name in p.USES and not isinstance(i, p.Number)):
                changed[f.name] = self._ids(old)
            elif isinstance(old, Index | Valid):
                changed[f.name] = old.substitute(self.env)
            elif f.name == "stops":
                changed["stops"] = tuple(s.substitute(self.env) for s in old)
            elif f.name in ("body", "orelse", "copies"):
                changed[f.name] = self.block(old)
        if isinstance(i, p.Load | p.Store | p.MatLoad) and i.buffer in self.places:
            changed["offset"] = i.offset.substitute(self.env) + self.places[i.buffer]
        if isinstance(i, p.CopyAsync):
            changed["into"] = i.into.substitute(self.env) + self.places[i.buffer]
        return replace(i, **changed)  # type: ignore[arg-type]

    def _ids(self, old: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
        if isinstance(old, tuple):
            return tuple(self.ids.get(n, n) for n in old)
        return None if old is None else self.ids.get(old, old)
