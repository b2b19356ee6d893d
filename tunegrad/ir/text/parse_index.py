"""Index sums and conditions from their canonical texts.

    index      := [term ("+" term)*] ["+" integer] | integer
    term       := [integer "*"] atom
    atom       := axis | "(" index ")//" integer | "(" index ")%" integer
                | buffer "[" index "]@" integer
    condition  := range ("&" range)* | "never" | "always"
    range      := integer "<=" index "<" integer

Only what the index algebra would print is accepted: terms in order, nothing left to simplify. So a
text has one reading, and an index has one text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NoReturn

from tunegrad.errors import KernelTextError

from ..index import ALWAYS, NEVER, Atom, Element, FloorDiv, Index, Mod, Range, Valid, Var

LARGEST = 1 << 40
"""No number of a text is larger: extents, strides and limits of conditions are far below."""

_SHOWN = 24

_INTEGER = re.compile(r"-?[0-9]{1,14}(?![0-9])")


class Scanner:
    """A text and a place in it. Mutable.

    A missing token is a KernelTextError, which says what stands there instead, and where.
    """

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        """Raise KernelTextError for what stands here, or at ``at``."""
        at = self.at if at is None else at
        rest = self.text[at : at + _SHOWN].split("\n", 1)[0]
        found = ascii(rest) if rest else "the end of a line" if at < len(self.text) else "the end"
        raise KernelTextError(at, found, expected)

    def sees(self, token: str) -> bool:
        """True if the text goes on with ``token``."""
        return self.text.startswith(token, self.at)

    def skips(self, token: str) -> bool:
        """Go past ``token`` if the text goes on with it; True if so."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def take(self, token: str) -> None:
        """Go past ``token``, which must stand here."""
        if not self.skips(token):
            self.fail(ascii(token))

    def find(self, pattern: re.Pattern[str]) -> str:
        """The match of the pattern here, or ''. Goes nowhere."""
        m = pattern.match(self.text, self.at)
        return m.group() if m else ""

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Go past what the pattern matches here; it must match."""
        found = self.find(pattern)
        if not found:
            self.fail(expected)
        self.at += len(found)
        return found

    def integer(self, low: int = -LARGEST) -> int:
        """An integer from ``low`` to ``LARGEST``."""
        at = self.at
        value = int(self.match(_INTEGER, f"an integer of at most {LARGEST}"))
        if not low <= value <= LARGEST:
            self.fail(f"an integer from {low} to {LARGEST}", at)
        return value


NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")

_DEPTH = 8
"""Divisions inside divisions."""

_TERMS = 24

_RANGES = 32

_EXACT = 1 << 62
"""Sums stay below it, whatever their terms: evaluated in 64 bits, they are right."""


def parse_index(
    text: Scanner, axes: Mapping[str, int], buffers: Mapping[str, int], depth: int = 0
) -> Index:
    """The index that stands here, over axes of those extents. Raises KernelTextError."""
    begin = text.at
    terms: list[tuple[Atom, int]] = []
    const = 0
    while True:
        at, c = text.at, 1
        number = text.sees("-") or text.text[at : at + 1].isdecimal()
        if number:
            c = text.integer()
        if number and not text.skips("*"):
            const = c
            if terms and c == 0:
                text.fail("no zero in a sum", at)
            break
        if number and c in (0, 1):
            text.fail("no factor of 0 or 1", at)
        terms.append((_atom(text, axes, buffers, depth), c))
        if len(terms) > _TERMS:
            text.fail(f"at most {_TERMS} terms", at)
        if not text.skips("+"):
            break
    found = Index(tuple(terms), const)
    if any(a.key >= b.key for (a, _), (b, _) in pairwise(terms)):
        text.fail("terms in order, each once", begin)
    if sum(abs(c) * max(abs(a.lo), abs(a.hi)) for a, c in terms) + abs(const) >= _EXACT:
        text.fail("an index that 64 bits hold", begin)
    # Adding the last term joins moduli with their quotients, if there are such.
    if len(terms) > 1 and Index(tuple(terms[:-1]), const) + Index((terms[-1],), 0) != found:
        text.fail("an index with nothing to simplify", begin)
    return found


def _atom(text: Scanner, axes: Mapping[str, int], buffers: Mapping[str, int], depth: int) -> Atom:
    begin = text.at
    if not text.skips("("):
        name = text.match(NAME, "an axis, a number or '('")
        if name in buffers and text.sees("["):
            return _element(text, name, axes, buffers, depth)
        extent = axes.get(name)
        if extent is None or extent < 2:
            text.fail(
                "an axis with an extent above 1 "
                f"({', '.join(n for n, e in axes.items() if e > 1)})",
                begin,
            )
        return Var(name, 0, extent - 1)
    if depth >= _DEPTH:
        text.fail(f"divisions at most {_DEPTH} deep", begin)
    inner = parse_index(text, axes, buffers, depth + 1)
    text.take(")")
    divides = text.skips("//")
    if not divides and not text.skips("%"):
        text.fail("'//' or '%'")
    den = text.integer(low=2)
    atom = FloorDiv(inner, den) if divides else Mod(inner, den)
    if (inner // den if divides else inner % den) != Index(((atom, 1),), 0):
        text.fail("an index with nothing to simplify", begin)
    return atom


def _element(
    text: Scanner, name: str, axes: Mapping[str, int], buffers: Mapping[str, int], depth: int
) -> Element:
    if depth >= _DEPTH:
        text.fail(f"elements at most {_DEPTH} deep")
    text.take("[")
    at = parse_index(text, axes, buffers, depth + 1)
    text.take("]@")
    return Element(name, at, buffers[name], text.integer(low=2))


def parse_condition(text: Scanner, axes: Mapping[str, int], buffers: Mapping[str, int]) -> Valid:
    """The condition that stands here. Raises KernelTextError."""
    begin = text.at
    if text.skips("never"):
        return NEVER
    if text.skips("always"):
        return ALWAYS
    ranges = []
    while True:
        low = text.integer()
        text.take("<=")
        index = parse_index(text, axes, buffers)
        text.take("<")
        ranges.append(Range(index, low, text.integer()))
        if len(ranges) > _RANGES:
            text.fail(f"at most {_RANGES} ranges", begin)
        if not text.skips("&"):
            break
    found = Valid(ranges)
    if repr(found) != text.text[begin : text.at]:
        text.fail("a condition with nothing to simplify", begin)
    return found
