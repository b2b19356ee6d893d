"""Bounds of an index where conditions hold: what masks, loop stops and branches say about an
address.

A fact is an index that is >= 0. Adding ``c >= 0`` times a fact to an index only raises it, so

    max(t)  <=  max(t + c * fact)        with c chosen to cancel an atom of t

Facts are combined up to a small depth, and a quotient is replaced by what it is taken of. A claim
that can not be proved so is unknown, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..index import FloorDiv, Index, Valid

__all__ = ["Facts", "below", "condition_facts", "stop_facts", "within"]

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


def within(index: Index, size: int, facts: Facts) -> bool:
    """True if the facts prove ``0 <= index < size``."""
    return below(index, size, facts) and below(-index, 1, facts)


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
    )


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
