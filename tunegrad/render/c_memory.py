"""Loads and stores as C text: as vectors where neighbours lie together, else element by element."""

from __future__ import annotations

from tunegrad.ir import program as p
from tunegrad.ir.dtypes import DType
from tunegrad.ir.index import Index, as_index
from tunegrad.ir.pipelines import is_aligned
from tunegrad.ir.program import Program

from .c_dialect import Dialect
from .c_index import IndexPrinter, fits_32_bits
from .c_operations import COperations
from .c_values import Names
from .c_wide import Joined

__all__ = ["CMemory", "fixed"]

_CHUNK_BYTES, _BANKS_BYTES = 16, 128


def fixed(index: Index, lane: str, k: int) -> Index:
    """An index at lane ``k``."""
    return index.substitute({lane: as_index(k)}) if lane else index


class CMemory(COperations):
    """Prints accesses; ``spaces`` says where each declared buffer lies."""

    def __init__(self, program: Program, dialect: Dialect) -> None:
        super().__init__(dialect)
        narrow = fits_32_bits(program)
        self.index_type = dialect.int_type if narrow else dialect.long_type
        self.buffers = Names("b_")
        dtypes = {b.name: b.dtype for b in program.params}
        suffix = "" if narrow else dialect.long_suffix
        self.at = IndexPrinter(suffix, self.used, self.buffers, dtypes, dialect.truth)
        self.spaces: dict[str, str] = {}
        self.swizzled = {a.name: a for a in program.allocs if a.swizzled}

    def place(self, buffer: str, index: Index) -> str:
        """An offset, as text: where the element lies."""
        text, a = self.at.sum(index), self.swizzled.get(buffer)
        if a is None:
            return text
        chunk = _CHUNK_BYTES // a.dtype.itemsize
        row = max(_BANKS_BYTES, a.swizzled) // a.dtype.itemsize
        others = min(_BANKS_BYTES, a.swizzled) // _CHUNK_BYTES - 1
        self.used.add("swizzle")
        return f"tg_swizzle({text}, {row.bit_length() - 1}, {others}, {chunk.bit_length() - 1})"

    def load(self, i: p.Load) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        step = i.offset.coefficient(i.lane) if i.lane else 0

        def lane(k: int) -> str:
            text = f"{b}[{self.place(i.buffer, fixed(i.offset, i.lane, k))}]"
            text = f"({text} != 0)" if t.dtype.is_bool else text
            return (
                text
                if i.mask is None
                else f"{self.lane(i.mask, k)} ? {text} : {self._literal_zero(t.dtype)}"
            )

        whole = ""
        if i.mask is None and self.is_vector(t):
            if step == 1:
                whole = self._vector_load(i, 0, t.lanes)
            elif step == 0:
                whole = self.splat(lane(0), t)
        elif pieces := self._pieces(i):
            self._load_pieces(i, pieces)
            return
        self.define(i.id, t, lane, whole)

    def widths(self, i: p.Load | p.Store) -> list[int]:
        """Lanes of the vectors that may begin at a scalar access, the widest first."""
        t, d = i.vtype, self.dialect
        if t.dtype.is_bool or t.dtype.is_word or i.buffer not in self.spaces:
            return []
        fits = [n for n in d.widths if n * t.dtype.itemsize <= d.vector_bytes]
        return [n for n in sorted(fits, reverse=True) if is_aligned(i.offset, n)]

    def joined(self, i: Joined) -> None:
        """Neighbours in one access."""
        first, lanes = i.parts[0], len(i.parts)
        stored = self.dialect.stored[first.vtype.dtype.name]
        at = self.place(first.buffer, first.offset)
        if isinstance(first, p.Load):
            word = f"w{first.id}"
            vector = self.dialect.vector(stored, lanes)
            self.line(f"const {vector} {word} = {self._wide(first, 'const', lanes, at)};")
            for k, part in enumerate(i.parts):
                assert isinstance(part, p.Load)
                text = self.dialect.lane(word, k)
                self.define(part.id, part.vtype, lambda _, text=text: text)  # type: ignore[misc]
        else:
            values = [self.lane(part.value, 0) for part in i.parts if isinstance(part, p.Store)]
            built = self.dialect.build(stored, lanes, values)
            self.line(f"{self._wide(first, '', lanes, at)} = {built};")

    def _pieces(self, i: p.Load | p.Store) -> range:
        """First lanes of the vectors in memory that neighbours are, which are no vector as values.

        One a step of the range; empty where they are moved one by one.
        """
        t, d = i.vtype, self.dialect
        if i.mask is not None or t.dtype.is_bool or i.offset.coefficient(i.lane) != 1:
            return range(0)
        for lanes in sorted(d.widths, reverse=True):
            fits = lanes * t.dtype.itemsize <= d.vector_bytes and t.lanes % lanes == 0
            if fits and (d.unaligned or self.is_aligned(i, lanes)):
                return range(0, t.lanes, lanes)
        return range(0)

    def is_aligned(self, i: p.Load | p.Store, lanes: int) -> bool:
        """True if the first neighbour always lies at a multiple of so many elements."""
        first = fixed(i.offset, i.lane, 0)
        known = i.buffer in self.spaces
        return known and not (first.const % lanes or any(c % lanes for _, c in first.terms))

    def _load_pieces(self, i: p.Load, pieces: range) -> None:
        kind, lanes = self.dialect.stored[i.vtype.dtype.name], pieces.step
        words = [f"w{i.id}_{k}" if len(pieces) > 1 else f"w{i.id}" for k in pieces]
        for k, word in zip(pieces, words, strict=True):
            vector = self.dialect.vector(kind, lanes)
            self.line(f"const {vector} {word} = {self._vector_load(i, k, lanes)};")
        self.define(i.id, i.vtype, lambda k: self.dialect.lane(words[k // lanes], k % lanes))

    def _vector_load(self, i: p.Load, first: int, lanes: int) -> str:
        """So many neighbours from lane ``first`` on, as a vector."""
        kind, b, at = self._moved(i, first)
        if self.is_aligned(i, lanes):
            return self._wide(i, "const", lanes, at)
        return self.dialect.load(kind, lanes, b, at)

    def _vector_store(self, i: p.Store, first: int, lanes: int, value: str) -> None:
        """Store so many neighbours from lane ``first`` on."""
        kind, b, at = self._moved(i, first)
        if self.is_aligned(i, lanes):
            self.line(f"{self._wide(i, '', lanes, at)} = {value};")
        else:
            self.line(self.dialect.store(kind, lanes, b, at, value))

    def _moved(self, i: p.Load | p.Store, first: int) -> tuple[str, str, str]:
        """The type in memory, the buffer and the offset of lane ``first``, as text."""
        at = self.place(i.buffer, fixed(i.offset, i.lane, first))
        return self.dialect.stored[i.vtype.dtype.name], self.buffers[i.buffer], at

    def _wide(self, i: p.Load | p.Store, qualifier: str, lanes: int, at: str) -> str:
        """So many neighbours at ``at``, which is aligned."""
        vector = self.dialect.vector(self.dialect.stored[i.vtype.dtype.name], lanes)
        where = f"{self.spaces[i.buffer]} {qualifier}".strip()
        return self.dialect.wide(where, vector, self.buffers[i.buffer], at)

    def _literal_zero(self, dtype: DType) -> str:
        return "0" if dtype.is_half else self.literal(0, dtype)

    def store(self, i: p.Store) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        if i.mask is None and self.is_vector(t) and i.offset.coefficient(i.lane) == 1:
            self._vector_store(i, 0, t.lanes, f"v{i.value}")
            return
        if pieces := self._pieces(i):
            for first in pieces:
                lanes = [self.lane(i.value, first + k) for k in range(pieces.step)]
                kind = self.dialect.stored[t.dtype.name]
                built = self.dialect.build(kind, pieces.step, lanes)
                self._vector_store(i, first, pieces.step, built)
            return
        for k in range(t.lanes):
            guard = "" if i.mask is None else f"if ({self.lane(i.mask, k)}) "
            self.line(
                f"{guard}{b}[{self.place(i.buffer, fixed(i.offset, i.lane, k))}] = "
                f"{self.lane(i.value, k)};"
            )
