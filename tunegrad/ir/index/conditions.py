"""Conditions on indices: ranges, and conjunctions of them; bounds decide what they can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .atoms import NO_NAMES, FloorDiv
from .sums import Index

__all__ = ["ALWAYS", "NEVER", "Range", "Valid"]


class Range:
    """The condition ``lo <= index < hi``."""

    __slots__ = ("hi", "index", "lo")

    def __init__(self, index: Index, lo: int, hi: int) -> None:
        self.index, self.lo, self.hi = index, lo, hi

    @property
    def key(self) -> str:
        """Its canonical text."""
        return f"{self.lo}<={self.index.key}<{self.hi}"

    def __reduce__(self) -> tuple[object, ...]:
        return Range, (self.index, self.lo, self.hi)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Range) and (self.lo, self.hi, self.index) == (
            other.lo,
            other.hi,
            other.index,
        )

    def __hash__(self) -> int:
        return hash((self.lo, self.hi, self.index))

    @property
    def always(self) -> bool:
        """True if bounds prove it."""
        return self.lo <= self.index.lo and self.index.hi < self.hi

    @property
    def never(self) -> bool:
        """True if bounds refute it."""
        return self.index.hi < self.lo or self.index.lo >= self.hi or self.lo >= self.hi


def _plain(r: Range) -> Range:
    """lo <= a//d + c < hi -> d*(lo-c) <= a < d*(hi-c);  the constant moves into the limits; -a < hi
    flips
    """
    index, lo, hi = r.index, r.lo - r.index.const, r.hi - r.index.const
    terms = index.terms
    if len(terms) == 1:
        atom, c = terms[0]
        if c < 0:
            return _plain(Range(Index(((atom, -c),), 0), 1 - hi, 1 - lo))
        if c > 1:
            lo, hi = -(-lo // c), -(-hi // c)
        if isinstance(atom, FloorDiv):
            return _plain(Range(atom.num, lo * atom.den, hi * atom.den))
        index = Index(((atom, 1),), 0)
    else:
        index = Index(terms, 0)
    return Range(index, max(lo, index.lo), min(hi, index.hi + 1))


class Valid:
    """A conjunction of ranges, simplified: proved ones dropped, one refuted makes it ``NEVER``."""

    __slots__ = ("_key", "never", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged: dict[Index, Range] = {}
        never = False
        for r in ranges:
            if not r.index.terms:
                never = never or not r.lo <= r.index.const < r.hi
                continue
            r = _plain(r)
            old = merged.get(r.index)
            if old is not None:
                r = Range(r.index, max(r.lo, old.lo), min(r.hi, old.hi))
            merged[r.index] = r
        never = never or any(r.never for r in merged.values())
        kept = [] if never else [r for r in merged.values() if not r.always]
        if len(kept) > 1:
            kept.sort(key=lambda r: r.index.key)
        self.ranges: tuple[Range, ...] = tuple(kept)
        self.never = never
        self._key: str | None = None

    @property
    def key(self) -> str:
        """Its canonical text; '' where nothing is left to hold."""
        if self._key is None:
            self._key = "never" if self.never else "&".join(r.key for r in self.ranges)
        return self._key

    def __reduce__(self) -> tuple[object, ...]:
        return Valid, ((Range(Index((), 0), 1, 1),) if self.never else self.ranges,)

    def __repr__(self) -> str:
        return self.key or "always"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Valid) and self.never == other.never and self.ranges == other.ranges
        )

    def __hash__(self) -> int:
        return hash((self.never, self.ranges))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    @property
    def always(self) -> bool:
        return not self.never and not self.ranges

    def __and__(self, other: Valid) -> Valid:
        if self.never or other.always:
            return self
        if other.never or self.always:
            return other
        return Valid(self.ranges + other.ranges)

    def substitute(self, env: Mapping[str, Index]) -> Valid:
        """The condition with variables replaced."""
        if not self.ranges or not env or env.keys().isdisjoint(self.names()):
            return self
        return Valid(Range(r.index.substitute(env), r.lo, r.hi) for r in self.ranges)

    def reading(self, buffers: Mapping[str, str]) -> Valid:
        """The condition with the buffers of its elements renamed."""
        if not any(True for r in self.ranges for _ in r.index.elements()):
            return self
        return Valid(Range(r.index.reading(buffers), r.lo, r.hi) for r in self.ranges)

    def at(self, point: Mapping[str, int]) -> Valid:
        """The condition with variables at fixed values."""
        if not self.ranges or point.keys().isdisjoint(self.names()):
            return self
        return Valid(Range(r.index.at(point), r.lo, r.hi) for r in self.ranges)

    def names(self) -> frozenset[str]:
        """Names of every variable it depends on."""
        return NO_NAMES.union(*(r.index.names() for r in self.ranges)) if self.ranges else NO_NAMES

    def holds(self, env: Mapping[str, int]) -> bool:
        """Its truth for the variables' values in ``env``."""
        return not self.never and all(r.lo <= r.index.evaluate(env) < r.hi for r in self.ranges)


ALWAYS = Valid()
NEVER = Valid((Range(Index((), 0), 1, 1),))
