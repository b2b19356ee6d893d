"""Indices and conditions as C text, in 32 bits wherever every intermediate result fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tunegrad.ir.dtypes import DType
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Valid, Var
from tunegrad.ir.program import Program, indices

__all__ = ["IndexPrinter", "fits_32_bits", "passes_32_bits"]

_LIMIT = 1 << 31


def fits_32_bits(program: Program) -> bool:
    """True if every buffer has less than 2**31 elements and no part of an index can leave 32
    bits.
    """
    sizes = (
        [b.size for b in program.params]
        + [a.size for a in program.allocs]
        + [k.size for k in program.packs]
    )
    return max(sizes, default=0) < _LIMIT and not any(map(passes_32_bits, indices(program)))


def passes_32_bits(index: Index) -> bool:
    """True if a part of an index can leave 32 bits."""
    return _magnitude(index) >= _LIMIT


def _magnitude(index: Index) -> int:
    """A bound of every partial sum, and of every sum inside a division."""
    total = abs(index.const)
    inside = 0
    for atom, c in index.terms:
        total += abs(c) * max(abs(atom.lo), abs(atom.hi))
        if not isinstance(atom, Var):
            inside = max(inside, _magnitude(atom.num), atom.den)
    return max(total, inside)


class _Names(Protocol):
    def __getitem__(self, name: str, /) -> str: ...


class IndexPrinter:
    """Prints indices over C variables; ``used`` collects the helper functions that the text
    calls.
    """

    __slots__ = ("_buffers", "_dtypes", "_suffix", "_truth", "names", "used")

    def __init__(
        self,
        suffix: str,
        used: set[str],
        buffers: _Names,
        dtypes: Mapping[str, DType],
        truth: tuple[str, str],
    ) -> None:
        """``buffers`` gives a buffer's C name, ``dtypes`` what it holds; ``truth`` are the words
        for false and true.
        """
        self._truth = truth
        self._buffers, self._dtypes = buffers, dtypes
        self.names: dict[str, str] = {}
        self._suffix = suffix
        self.used = used

    def number(self, value: int) -> str:
        """An integer literal of the index type."""
        return f"{value}{self._suffix}" if value >= 0 else f"({value}{self._suffix})"

    def index(self, index: Index) -> str:
        """A C expression, in parentheses unless it is one term."""
        text = self.sum(index)
        return (
            f"({text})"
            if len(index.terms) + bool(index.const) > 1 or text.startswith("-")
            else text
        )

    def sum(self, index: Index) -> str:
        """A C expression without parentheses around it."""
        parts: list[str] = []
        for atom, c in index.terms:
            text = self._atom(atom)
            sign = "-" if c < 0 else "+"
            scaled = text if abs(c) == 1 else f"{self.number(abs(c))} * {text}"
            parts.append(f" {sign} {scaled}" if parts else (f"-{scaled}" if c < 0 else scaled))
        if index.const or not parts:
            sign = "-" if index.const < 0 else "+"
            parts.append(
                f" {sign} {self.number(abs(index.const))}" if parts else self.number(index.const)
            )
        return "".join(parts)

    def condition(self, valid: Valid) -> str:
        """A C condition."""
        if valid.never:
            return self._truth[False]
        tests: list[str] = []
        for r in valid:
            text = self.index(r.index)
            if r.lo > r.index.lo:
                tests.append(f"{text} >= {self.number(r.lo)}")
            if r.hi <= r.index.hi:
                tests.append(f"{text} < {self.number(r.hi)}")
        return " && ".join(tests) or self._truth[True]

    def least(self, stops: tuple[Index, ...]) -> str:
        """The least of the stops."""
        text = self.index(stops[0])
        for stop in stops[1:]:
            text = f"tg_least({text}, {self.index(stop)})"
            self.used.add("least")
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return self.names[atom.name]
        if isinstance(atom, Element):
            return self._element(atom)
        divides = isinstance(atom, FloorDiv)
        num, den = self.index(atom.num), self.number(atom.den)
        if atom.num.lo >= 0:
            return f"({num} {'/' if divides else '%'} {den})"
        helper = "index_floordiv" if divides else "index_mod"
        self.used.add(helper)
        return f"tg_{helper}({num}, {den})"

    def _element(self, e: Element) -> str:
        """An integer from memory as an index: wrapped once, then clamped."""
        at = self.sum(e.num)
        if not e.inside:
            self.used.add("index_inside")
            at = f"tg_index_inside({at}, {self.number(e.size)})"
        helper = "index_element" if self._dtypes[e.buffer].signed else "index_least"
        self.used.add(helper)
        return f"tg_{helper}({self._buffers[e.buffer]}[{at}], {self.number(e.den)})"
