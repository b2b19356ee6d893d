"""Scalars that lie side by side, as one access: what unrolled loops read and write.

    %1 = x[8*i], %2 = x[8*i+1], %3 = x[8*i+2], %4 = x[8*i+3]     -->    one load of 16 bytes

Loads are made at the place of the first of them, stores at that of the last, within a stretch of
code that has no loop, branch, barrier, or access between that could tell. Only what is proved to be
aligned is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tunegrad.ir import program as p
from tunegrad.ir.program import Instr

__all__ = ["Joined", "joined"]

Widths = Callable[[p.Load | p.Store], Iterable[int]]
"""The widths that an access may begin, the widest first; none where neighbours are not joined."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Accesses of one buffer, each an element after the one before."""

    parts: tuple[p.Load, ...] | tuple[p.Store, ...]


def joined(body: tuple[Instr, ...], widths: Widths) -> Iterator[Instr | Joined]:
    """The block, with accesses that are side by side joined."""
    starts: dict[int, Joined] = {}
    gone: set[int] = set()
    for stretch in _stretches(body):
        for group in (*_loads(body, stretch), *_stores(body, stretch)):
            for parts in _windows(body, group, widths):
                made = tuple(body[n] for n in parts)
                at = min(parts) if isinstance(made[0], p.Load) else max(parts)
                starts[at] = Joined(made)  # type: ignore[arg-type]  # of one kind, as groups are
                gone.update(parts)
    for n, i in enumerate(body):
        if n in starts:
            yield starts[n]
        elif n not in gone:
            yield i


def _stretches(body: tuple[Instr, ...]) -> Iterator[range]:
    """Runs of instructions between loops, branches, barriers and what warps do together."""
    first = 0
    parting = p.For | p.If | p.Pipeline | p.Barrier | p.CopyAsync | p.Commit | p.Await
    for n, i in enumerate(body):
        if isinstance(i, parting):
            yield range(first, n)
            first = n + 1
    yield range(first, len(body))


_Key = tuple[str, tuple[object, ...]]


def _key(i: p.Load | p.Store) -> _Key:
    return i.buffer, i.offset.terms


def _alone(i: p.Load | p.Store) -> bool:
    return i.vtype.lanes == 1 and i.mask is None


def _loads(body: tuple[Instr, ...], stretch: range) -> Iterator[list[int]]:
    """Loads that may change places: nothing is stored to their buffer between them."""
    open_: dict[_Key, list[int]] = {}
    for n in stretch:
        i = body[n]
        if isinstance(i, p.Load) and _alone(i):
            open_.setdefault(_key(i), []).append(n)
        elif isinstance(i, p.Store):
            for key in [k for k in open_ if k[0] == i.buffer]:
                yield open_.pop(key)
    yield from open_.values()


def _stores(body: tuple[Instr, ...], stretch: range) -> Iterator[list[int]]:
    """Stores that may change places: their buffer is not touched otherwise between them."""
    open_: dict[_Key, list[int]] = {}
    for n in stretch:
        i = body[n]
        if isinstance(i, p.Store) and _alone(i):
            for key in [k for k in open_ if k[0] == i.buffer and k != _key(i)]:
                yield open_.pop(key)
            open_.setdefault(_key(i), []).append(n)
        elif isinstance(i, p.Load | p.Store | p.MatLoad):
            for key in [k for k in open_ if k[0] == i.buffer]:
                yield open_.pop(key)
    yield from open_.values()


def _windows(body: tuple[Instr, ...], group: list[int], widths: Widths) -> Iterator[list[int]]:
    """Places of neighbours that one access takes, in the order of their elements."""
    at: dict[int, int] = {}
    for n in group:
        i = body[n]
        assert isinstance(i, p.Load | p.Store)
        if i.offset.const in at:  # an element twice over stays as it is
            return
        at[i.offset.const] = n
    for const in sorted(at):
        if const not in at:
            continue
        first = body[at[const]]
        assert isinstance(first, p.Load | p.Store)
        for width in widths(first):
            parts = [at.get(const + k) for k in range(width)]
            if None not in parts:
                yield [n for n in parts if n is not None]
                for k in range(width):
                    del at[const + k]
                break
