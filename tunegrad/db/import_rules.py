"""What each field of an exported file may be: type, range and length, by the kind of its row."""

from __future__ import annotations

import re
from typing import Any

from tunegrad import untrusted
from tunegrad.db.records import LATENCY_KINDS, QUESTIONS, Properties
from tunegrad.trial import CACHES, Status
from tunegrad.untrusted import (
    FieldFault,
    exact,
    flag,
    free_text,
    integer,
    listing,
    number,
    record,
    text,
    word,
)

__all__ = ["ROWS", "upgraded"]

_KERNEL_CHARACTERS = 1 << 20
_ACTION_CHARACTERS = 1 << 14
_NAME_CHARACTERS = 4000
_MOST_PROPERTIES = 100
_LARGEST = 1e15
_WORD = re.compile(r"\w+")

_name = text(_NAME_CHARACTERS)
_key = word(32)
_time = number()
_samples = listing(100_000, _time)
_space = integer(0, 2**31)
_actions = text(_ACTION_CHARACTERS)


def _largest_error(name: str, value: Any) -> float:
    """A number, or what is none: an error may be infinite, or not a number at all."""
    return float(
        exact("inf", "nan")(name, value) if isinstance(value, str) else number()(name, value)
    )


def _limit(name: str, value: Any) -> float:
    """A number, or no limit."""
    return float(exact("inf")(name, value) if isinstance(value, str) else number()(name, value))


def _pair(name: str, value: Any) -> tuple[str, str]:
    pair = listing(2, _name)(name, value)
    if len(pair) != 2:
        raise FieldFault(name, value, "must be a pair of a name and a value")
    return pair[0], pair[1]


def _choice(name: str, value: Any) -> str:
    found = text(64)(name, value)
    if not _WORD.fullmatch(found):
        raise FieldFault(name, value, "must be a name: letters, digits and _")
    return str(found)


def _property(name: str, value: Any) -> float | str:
    return (
        str(text(200)(name, value))
        if isinstance(value, str)
        else float(number(-_LARGEST, _LARGEST)(name, value))
    )


def _properties(name: str, value: Any) -> Properties:
    """An object of numbers and words, sorted by name."""
    if not isinstance(value, dict) or len(value) > _MOST_PROPERTIES:
        raise FieldFault(name, value, f"must be an object of at most {_MOST_PROPERTIES} fields")
    if list(value) != sorted(value):
        raise FieldFault(name, value, "must be sorted by name")
    return tuple(
        (str(text(100)(name, key)), _property(f"{name}.{key}", v)) for key, v in value.items()
    )


def _optional(rule: untrusted.Rule) -> untrusted.Rule:
    """None, or what the rule says."""
    return lambda name, value: None if value is None else rule(name, value)


_POLICY = {
    "cache": exact(*CACHES),
    "statistic": exact("median", "min"),
    "clock": text(100),
    "min_samples": integer(0, 10**6),
    "max_samples": integer(0, 10**6),
    "tolerance": _limit,
    "budget_s": _limit,
    "timeout_s": _limit,
}
_NAMED = {
    "kernel": _key,
    "machine": word(16),
    "actions": _actions,
    "policy": text(1000),
    "space_version": _space,
    "measured_by": _optional(_name),
    "measured_s": _optional(_time),
}
_EVIDENCE = {
    "test": text(100),
    "p_value": number(0.0, 1.0),
    "incumbent_samples_s": _samples,
    "challenger_samples_s": _samples,
    "cold": flag,
}
ROWS: dict[str, untrusted.Rule] = {
    "kernel": record({"key": _key, "text": text(_KERNEL_CHARACTERS, lines=True), "name": _name}),
    "machine": record({"id": word(16), "fields": listing(200, _pair)}),
    "session": record(
        {
            "id": _name,
            "started_s": _time,
            "ended_s": _optional(_time),
            "command": free_text(100_000),
            "seed": integer(-(2**63), 2**63 - 1),
            "settings": text(1 << 20),
            "version": text(200),
            "versions": _properties,
            "state": _properties,
        }
    ),
    "trial": record(
        {
            "kernel": _key,
            "machine": word(16),
            "actions": _actions,
            "program_hash": text(200),
            "space_version": _space,
            "policy": record(_POLICY),
            "status": exact(*(s.value for s in Status)),
            "samples_s": _samples,
            "error": free_text(20_000),
            "lower_s": _time,
            "compile_s": _time,
            "verify_s": _time,
            "timing_s": _time,
            "max_error": _largest_error,
            "attempts": integer(1, 1000),
            "reference_samples_s": _samples,
            "reference_program": text(200),
            "reference_s": _time,
            "facts": _properties,
            "state": _properties,
            "session": _name,
            "origin": text(200),
            "created_s": _time,
        }
    ),
    "promotion": record({**_NAMED, "evidence": record(_EVIDENCE), "created_s": _time}),
    "spend": record(
        {"model": _name, "machine": word(16), "settings": text(1 << 20), "seconds": _time}
    ),
    "withdrawal": record(
        {**_NAMED, "reason": free_text(5000), "session": _name, "created_s": _time}
    ),
    "decision": record(
        {
            "kind": exact(*QUESTIONS),
            "kernel": _key,
            "machine": word(16),
            "space_version": _space,
            "choice": _choice,
            "chosen": flag,
            "evidence": record(_EVIDENCE),
            "status": exact(*(s.value for s in Status)),
            "error": free_text(20_000),
            "policy": text(1000),
            "session": _name,
            "created_s": _time,
        }
    ),
    "latency": record(
        {
            "model": _name,
            "model_key": _key,
            "kind": exact(*LATENCY_KINDS),
            "machine": word(16),
            "samples_s": _samples,
            "default_samples_s": _samples,
            "session": _name,
            "created_s": _time,
            "versions": _properties,
            "state": _properties,
        }
    ),
}
"""The fields of each kind of row, and the rule of each."""


def upgraded(kind: str, row: dict[str, Any], version: int) -> dict[str, Any]:
    """A row of an older version in the fields of the newest; decisions are still trials."""
    if version == 1 and kind == "trial":
        row.setdefault("attempts", 1)
    if version < 3 and kind == "trial":
        row = {"reference_samples_s": [], "reference_program": "", "reference_s": 0.0, **row}
    if version < 4 and kind == "trial":
        row = {"facts": {}, "state": {}, **row}
    if version < 3 and kind == "session":
        row = {"versions": {}, "state": {}, **row}
    if version < 3 and kind in ("promotion", "withdrawal"):
        row = {"measured_by": None, "measured_s": None, **row}
    return row
