"""Values as C variables: one for a scalar or a vector, one a lane where there is no such vector."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import DType
from tunegrad.ir.program import Instr, VType

from .c_dialect import Dialect

__all__ = ["CValues", "Names", "word_of"]


def word_of(name: str) -> str:
    """A name as a C identifier, or the end of one."""
    return re.sub(r"\W", "_", name)


class Names:
    """Distinct C identifiers for names of one kind."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, name: str) -> str:
        made = self._made.get(name)
        if made is None:
            made = word = f"{self._prefix}{word_of(name)}"
            n = 0
            while made in self._taken:
                n += 1
                made = f"{word}__{n}"
            self._taken.add(made)
            self._made[name] = made
        return made


class CValues:
    """The lines so far, and the types of the values that they define.

    ``used`` and ``wrapped`` collect the helper functions and wrappers that the text calls.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.used: set[str] = set()
        self.wrapped: set[str] = set()
        self.types: dict[int, VType] = {}
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def parts(self, name: str, t: VType) -> list[str]:
        """The C variables that hold a value: one, or one a lane."""
        if t.lanes == 1 or self.dialect.is_vector(t.dtype, t.lanes):
            return [name]
        return [f"{name}_{k}" for k in range(t.lanes)]

    def names(self, value: int) -> list[str]:
        return self.parts(f"v{value}", self.types[value])

    def lane(self, value: int, k: int) -> str:
        """Lane ``k`` of a value."""
        t = self.types[value]
        if t.lanes == 1:
            return f"v{value}"
        return (
            self.dialect.lane(f"v{value}", k)
            if self.dialect.is_vector(t.dtype, t.lanes)
            else f"v{value}_{k}"
        )

    def c_type(self, t: VType) -> str:
        scalar = self.dialect.values[t.dtype.name]
        return self.dialect.vector(scalar, t.lanes) if self.is_vector(t) else scalar

    def is_vector(self, t: VType) -> bool:
        return t.lanes > 1 and self.dialect.is_vector(t.dtype, t.lanes)

    # syntax, which is C's here

    def constant(self, kind: str, name: str, text: str) -> str:
        """The statement that names a value."""
        return f"const {kind} {name} = {text};"

    def variables(self, kind: str, names: list[str]) -> str:
        """The statement that declares variables."""
        return f"{kind} {', '.join(names)};"

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"{condition} ? {yes} : {no}"

    def cast(self, dtype: DType, text: str) -> str:
        """A value of another type, where the language has that conversion."""
        return f"({self.dialect.values[dtype.name]}){text}"

    # values

    def define(self, number: int, t: VType, lane: Callable[[int], str], whole: str = "") -> None:
        """Value ``number`` = ``whole`` where its type is a vector and ``whole`` is given, else lane
        by lane.
        """
        self.types[number] = t
        kind = self.c_type(t)
        if self.is_vector(t):
            scalar = self.dialect.values[t.dtype.name]
            built = whole or self.dialect.build(scalar, t.lanes, [lane(k) for k in range(t.lanes)])
            self.line(self.constant(kind, f"v{number}", built))
        else:
            for k, name in enumerate(self.parts(f"v{number}", t)):
                self.line(self.constant(kind, name, lane(k)))

    def splat(self, text: str, t: VType) -> str:
        return self.dialect.build(self.dialect.values[t.dtype.name], t.lanes, [text])

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        if dtype.is_bool:
            return self.dialect.truth[bool(value)]
        if dtype.is_word:
            return f"{int(value) & 0xFFFFFFFF}u"
        if dtype.is_int:
            suffix = self.dialect.long_suffix if dtype.bits == 64 else ""
            if not dtype.signed:
                return f"{int(value)}{'u' if dtype.bits >= 32 else ''}{suffix}"
            if value == -(1 << (dtype.bits - 1)):
                return f"(-{int(value) * -1 - 1}{suffix} - 1)"
            return f"{int(value)}{suffix}" if value >= 0 else f"({int(value)}{suffix})"
        if dtype.is_half:
            return self.converted(self.literal(value, dtype.compute), dtype.compute, dtype)
        kind = self.dialect.values[dtype.name]
        if not math.isfinite(value):
            word = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
            return f"(({kind}){word})"
        text = float(value).hex() + ("f" if dtype.bits == 32 else "")
        return f"({text})" if text.startswith("-") else text

    def converted(self, text: str, source: DType, to: DType) -> str:
        if source == to:
            return text
        if source.is_half:
            self.used.add(f"from_{source}")
            return self.converted(f"tg_from_{source}({text})", source.compute, to)
        if to.is_bool:
            return f"({text} != 0)"
        if to.is_half:
            self.used.add(f"to_{to}")
            return f"tg_to_{to}({self.converted(text, source, to.compute)})"
        if to.is_int and source.is_float:
            self.used.add(f"{source}_to_{to}")
            return f"tg_{source}_to_{to}({text})"
        return self.cast(to, text)

    def wrapper(self, name: str, i: Instr) -> str:
        """The function that does what ``i`` is, which the text then has."""
        if self.dialect.wrappers is None:
            raise InternalError(f"{self.dialect.name} has no text for {i!r}")
        self.wrapped.add(f"tg_{name}")
        return f"tg_{name}"
