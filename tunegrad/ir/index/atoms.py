"""Terms of sums: variables, floor divisions, moduli, and elements of buffers; and lists of them
with coefficients, in order of their text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .sums import Index

__all__ = ["NO_NAMES", "Atom", "Element", "FloorDiv", "Mod", "Terms", "Var", "merged", "term_key"]

NO_NAMES: frozenset[str] = frozenset()


class Var:
    """An integer variable with inclusive bounds ``lo <= value <= hi``.

    Equal names must mean equal bounds.
    """

    __slots__ = ("hi", "key", "lo", "name", "names")

    def __init__(self, name: str, lo: int, hi: int) -> None:
        self.name, self.lo, self.hi = name, lo, hi
        self.key = name
        self.names = frozenset((name,))

    def __reduce__(self) -> tuple[object, ...]:
        return Var, (self.name, self.lo, self.hi)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Var) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class FloorDiv:
    """``num // den`` that no law could simplify further."""

    __slots__ = ("den", "hi", "key", "lo", "names", "num")

    def __init__(self, num: Index, den: int) -> None:
        self.num, self.den = num, den
        self.lo, self.hi = num.lo // den, num.hi // den
        self.key = f"({num.key})//{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return FloorDiv, (self.num, self.den)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, FloorDiv) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Mod:
    """``num % den`` that no law could simplify further."""

    __slots__ = ("den", "hi", "key", "lo", "names", "num")

    def __init__(self, num: Index, den: int) -> None:
        self.num, self.den = num, den
        self.lo, self.hi = 0, den - 1
        self.key = f"({num.key})%{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return Mod, (self.num, self.den)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mod) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Element:
    """``buffer[num]`` as an index below ``den``: an integer read from memory that is not written
    meanwhile.

    Negative ones count from the end, as numpy's; beyond either end they are the first or the last.
    An offset ``num`` outside the ``size`` elements of the buffer stands for 0. So it is an index
    whatever the memory holds and wherever it is worked out: ``0 <= value < den``.
    """

    __slots__ = ("buffer", "den", "hi", "key", "lo", "names", "num", "size")

    def __init__(self, buffer: str, num: Index, size: int, den: int) -> None:
        self.buffer, self.num, self.size, self.den = buffer, num, size, den
        self.lo, self.hi = 0, den - 1
        self.key = f"{buffer}[{num.key}]@{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return Element, (self.buffer, self.num, self.size, self.den)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Element) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def inside(self) -> bool:
        """True if bounds prove that its offset is inside the buffer."""
        return self.num.lo >= 0 and self.num.hi < self.size

    def value(self, memory: Any, at: Any) -> Any:
        """Its value, for a flat array and an offset (or arrays of them)."""
        if not self.inside:
            at = np.where((at >= 0) & (at < self.size), at, 0)
        found = memory[at]
        if memory.dtype.kind == "u":
            return np.minimum(found, found.dtype.type(min(self.hi, np.iinfo(found.dtype).max)))
        found = found.astype(np.int64)
        return np.clip(np.where(found < 0, found + self.den, found), 0, self.hi)


Atom = Var | FloorDiv | Mod | Element

Terms = tuple[tuple[Atom, int], ...]
"""Atoms and their coefficients, sorted by ``term_key``, none of them twice, none zero."""


def term_key(term: tuple[Atom, int]) -> str:
    """The key that terms are sorted by."""
    return term[0].key


def merged(a: Terms, b: Terms) -> list[tuple[Atom, int]]:
    """The terms of a sum, in order."""
    found: list[tuple[Atom, int]] = []
    i, j = 0, 0
    while i < len(a) and j < len(b):
        (x, cx), (y, cy) = a[i], b[j]
        if x.key == y.key:
            if cx + cy:
                found.append((x, cx + cy))
            i += 1
            j += 1
        elif x.key < y.key:
            found.append(a[i])
            i += 1
        else:
            found.append(b[j])
            j += 1
    found.extend(a[i:])
    found.extend(b[j:])
    return found
