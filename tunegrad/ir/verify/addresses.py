"""The digits of an address, and the variables of the loops around it that they fix.

    97*m + 32*n0 + n1     with 0 <= 32*n0+n1 < 97 and 0 <= n1 < 32      -->      digits m, n0, n1

A sum ``g*high + low`` with ``0 <= low < g`` is the same number only where ``high`` and ``low`` both
are. So two accesses that split by the same moduli touch one element only where all their digits are
equal, and a digit ``v`` that both have says that they are in the same iteration of loop ``v``.
Bounds of ``low`` come from the variables' ranges, and from the masks, stops and branches around the
access (``prove``).

The accesses of a register tile differ by constants: they are one family, and split at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..index import Atom, FloorDiv, Index, Mod, Var
from .prove import Facts, below

__all__ = ["Family", "narrowed", "pinned", "split", "told"]

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
    if (index.hi + most < g or _below(index + most, g, facts)) and (
        index.lo + least >= 0 or _below(-index - least, 1, facts)
    ):
        return low
    return None


def _below(index: Index, limit: int, facts: Callable[[], Facts]) -> bool:
    known = facts()
    return narrowed(index, known).hi < limit or below(index, limit, known)


def narrowed(index: Index, facts: Facts) -> Index:
    """The sum where the facts hold: each variable has the range that one fact at a time leaves
    it.
    """
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
    """The variables of its terms that facts leave one value, with it; they are taken out of the
    terms.
    """
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
    """The atoms of a sum that are digits of its own: ``g*high + low`` tells both where ``low``
    spans less than g.
    """
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
    """n, where n // d and m % d are known, n - m is the same modulo d always, and ``new`` is one of
    them
    """
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
