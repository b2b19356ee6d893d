"""Values on their way into a row and out of it: JSON, numbers, texts, checked when they are read.

Rows are data. What breaks a rule is a RowFault, which the store turns into a Problem and never lets
out.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from tunegrad.errors import StoreError
from tunegrad.trial import Properties

__all__ = [
    "RowFault",
    "checksum",
    "clean_text",
    "dump",
    "dump_properties",
    "is_utf8",
    "plain_properties",
    "properties_faults",
    "real",
    "sample_faults",
    "take_choice",
    "take_flag",
    "take_integer",
    "take_json",
    "take_properties",
    "take_real",
    "take_samples",
    "take_text",
]


class RowFault(StoreError):
    """A value of a row that breaks its rule. Never leaves the store: it becomes a Problem."""


# ---- rules


def clean_text(text: str, limit: int | None = None) -> str:
    """Text as valid UTF-8, lone surrogates as escapes, cut to ``limit`` characters, and saying
    so.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if limit is None or len(text) <= limit:
        return text
    note = f" ... [{len(text)} characters in all]"
    return text[: limit - len(note)] + note


def is_utf8(text: str) -> bool:
    """True for valid Unicode: a text without lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def sample_faults(name: str, samples: Iterable[float]) -> Iterator[str]:
    """Every sample that is no time."""
    for index, sample in enumerate(samples):
        if not (math.isfinite(sample) and sample >= 0):
            yield f"{name}[{index}] is {sample!r}, not a finite time >= 0"


def properties_faults(name: str, properties: Properties) -> Iterator[str]:
    """Every rule that named numbers and words break."""
    names = [key for key, _ in properties]
    if any(a >= b for a, b in pairwise(names)):
        yield f"{name} are not sorted and distinct: {names}"
    for key, value in properties:
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{name} {key} is {value!r}, not finite"
        if not is_utf8(f"{key}{value}"):
            yield f"{name} {key!r} is not valid Unicode: {value!r}"


# ---- into rows


def real(value: float) -> float:
    """The number as SQLite gives it back: a float, and zero without a sign."""
    return float(value) + 0.0


def dump(value: object) -> str:
    """The value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain_properties(properties: Properties) -> Properties:
    """The same with every number as a float."""
    return tuple((name, v if isinstance(v, str) else float(v)) for name, v in properties)


def dump_properties(properties: Properties) -> str:
    """Named numbers and words as one JSON object."""
    return dump(dict(properties))


def checksum(content: tuple[object, ...]) -> int:
    """CRC-32 of everything that a row says: a flipped bit makes it damaged, not wrong."""
    return zlib.crc32(dump(content).encode("utf-8", "surrogatepass"))


# ---- out of rows


def take_text(name: str, value: object) -> str:
    """The value, which is text. Raises RowFault, as all below."""
    if not isinstance(value, str):
        raise RowFault(f"{name} is {value!r}, not text")
    return value


def take_real(name: str, value: object) -> float:
    """The value as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowFault(f"{name} is {value!r}, not a number")
    return float(value)


def take_integer(name: str, value: object) -> int:
    """The value, which is an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowFault(f"{name} is {value!r}, not an integer")
    return value


def take_flag(name: str, value: object) -> bool:
    """0 or 1 as a truth value."""
    if value not in (0, 1) or not isinstance(value, int):
        raise RowFault(f"{name} is {value!r}, not 0 or 1")
    return bool(value)


def take_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """The value, which is one of the choices."""
    if value not in tuple(choices):
        raise RowFault(f"{name} {value!r} is none of {', '.join(choices)}")
    return str(value)


def take_json(name: str, value: object) -> Any:
    """Value of a JSON text."""
    try:
        return json.loads(take_text(name, value))
    except (ValueError, RecursionError) as error:
        raise RowFault(f"{name} is not JSON: {error}") from error


def take_samples(name: str, value: object) -> tuple[float, ...]:
    """A JSON list of numbers."""
    if not isinstance(value, list):
        raise RowFault(f"{name} is {value!r}, not a list")
    return tuple(take_real(f"{name}[{i}]", v) for i, v in enumerate(value))


def take_properties(name: str, value: object) -> Properties:
    """The inverse of ``dump_properties``."""
    found = take_json(name, value)
    if not isinstance(found, dict):
        raise RowFault(f"{name} is {value!r}, not a JSON object")
    pairs = tuple(
        (key, v if isinstance(v, str) else take_real(f"{name} {key}", v))
        for key, v in found.items()
    )
    if faults := list(properties_faults(name, pairs)):
        raise RowFault("; ".join(faults))
    return pairs
