"""Values of an untrusted file, checked one by one: what breaks its rule is named, and nothing is run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from tunegrad.errors import IllegalAction, StoreError
from tunegrad.opts import Schedule
from tunegrad.search import Question, RecordedTrial, Recording
from tunegrad.trial import Fingerprint, Measurement, Policy, Status

__all__ = [
    "MOST_PATHS",
    "Fault",
    "header_of",
    "header_record",
    "load_json",
    "question_of",
    "question_record",
    "real",
    "samples",
    "text",
    "trial_of",
    "trial_record",
    "whole",
]

MOST_CHARACTERS = 200_000
"""Of one text; a kernel's text and a compiler's message are far below it."""

MOST_SAMPLES = 10_000
MOST_OPTIONS = 10_000
MOST_PATHS = 10_000
MOST_ANSWERS = 200
_DURATIONS = ("lower_s", "compile_s", "verify_s", "timing_s")


class Fault(StoreError):
    """A value that breaks its rule. Never leaves this package: it becomes a Problem."""


def load_json(line: str | bytes) -> Any:
    """One JSON value. Raises Fault; NaN and infinities, which are no JSON, are refused too."""

    def refuse(name: str) -> float:
        raise Fault(f"is not JSON: {name}")

    try:
        return json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Fault(f"is not JSON: {error}") from error


# ---- values ----------------------------------------------------------------------------------------------------------


def text(record: Mapping[str, Any], name: str) -> str:
    """The text of that name."""
    value = _field(record, name)
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        raise Fault(f"{name} is {_short(value)}, not a text of at most {MOST_CHARACTERS:,} characters")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Fault(f"{name} is not valid Unicode: {error}") from error
    return value


def whole(record: Mapping[str, Any], name: str, most: int = 1 << 40) -> int:
    """The whole number of that name, 0 to ``most``."""
    value = _field(record, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Fault(f"{name} is {_short(value)}, not a whole number from 0 to {most}")
    return value


def real(record: Mapping[str, Any], name: str, least: float = 0.0) -> float:
    """The finite number of that name, at least ``least``."""
    return _real(name, _field(record, name), least)


def samples(record: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """The list of finite times of that name."""
    value = _list(name, _field(record, name), MOST_SAMPLES)
    return tuple(_real(f"{name}[{i}]", v, 0.0) for i, v in enumerate(value))


def _real(name: str, value: object, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Fault(f"{name} is {_short(value)}, not a number")
    try:
        found = float(value)
    except OverflowError as error:
        raise Fault(f"{name} is {_short(value)}, not a finite number") from error
    if not (math.isfinite(found) and found >= least):
        raise Fault(f"{name} is {found!r}, not a finite number >= {least:g}")
    return found


def _field(record: Mapping[str, Any], name: str) -> object:
    if name not in record:
        raise Fault(f"{name} is missing")
    return record[name]


def _list(name: str, value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Fault(f"{name} is {_short(value)}, not a list of at most {most:,}")
    return value


def _short(value: object) -> str:
    shown = repr(value) if not isinstance(value, list | dict) else f"a {type(value).__name__} of {len(value)}"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# ---- the header ------------------------------------------------------------------------------------------------------


def header_record(recording: Recording) -> dict[str, Any]:
    """What a recording says of itself, by name: all but its questions and trials."""
    return {
        "kernel": recording.kernel_name,
        "kernel_key": recording.kernel_key,
        "kernel_text": recording.kernel_text,
        "fingerprint": recording.fingerprint.fields,
        "policy": {f.name: getattr(recording.policy, f.name) for f in fields(recording.policy)},
        "space_version": recording.space_version,
        "points": recording.points,
    }


def header_of(record: Mapping[str, Any]) -> Recording:
    """The inverse. Raises Fault."""
    kernel_text, key = text(record, "kernel_text"), text(record, "kernel_key")
    if hashlib.sha256(kernel_text.encode()).hexdigest()[:32] != key:
        raise Fault(f"kernel_key {key!r} is not the hash of kernel_text")
    return Recording(
        kernel_name=text(record, "kernel"),
        kernel_key=key,
        kernel_text=kernel_text,
        fingerprint=_fingerprint(_field(record, "fingerprint")),
        policy=_policy(_field(record, "policy")),
        space_version=whole(record, "space_version"),
        points=whole(record, "points"),
        questions=(),
        trials=(),
    )


def _fingerprint(value: object) -> Fingerprint:
    pairs = _list("fingerprint", value, 1000)
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)):
            raise Fault(f"fingerprint has {_short(pair)}, not a [name, value] pair of texts")
    names = [name for name, _ in pairs]
    if names != sorted(set(names)):
        raise Fault("fingerprint has names that are not sorted and distinct")
    return Fingerprint(tuple((name, found) for name, found in pairs))


def _policy(value: object) -> Policy:
    hints = get_type_hints(Policy)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise Fault(f"policy does not have the fields {', '.join(hints)}")
    read = {int: whole, float: real}
    found: dict[str, Any] = {name: read.get(kind, text)(value, name) for name, kind in hints.items()}
    for name, valid in (("cache", ("cold", "warm")), ("statistic", ("median", "min"))):
        if found[name] not in valid:
            raise Fault(f"policy.{name} is {_short(found[name])}, not {' or '.join(valid)}")
    return Policy(**found)


# ---- questions and trials --------------------------------------------------------------------------------------------


def question_record(question: Question) -> dict[str, Any]:
    """A question by its fields; tuples become lists."""
    return {"name": question.name, "options": question.options, "default": question.default}


def question_of(record: Mapping[str, Any]) -> Question:
    """The inverse. Raises Fault."""
    raw = _list("options", _field(record, "options"), MOST_OPTIONS)
    if not raw:
        raise Fault("options is empty")
    options = tuple(_option(value, 0) for value in raw)
    return Question(text(record, "name"), options, whole(record, "default", len(options) - 1))


def _option(value: object, depth: int) -> Any:
    if isinstance(value, list) and depth < 4:
        return tuple(_option(v, depth + 1) for v in value)
    if isinstance(value, str | int):
        return value
    raise Fault(f"options has {_short(value)}, not a text, a whole number, true, false or a list of these")


def trial_record(trial: RecordedTrial) -> dict[str, Any]:
    """A trial by its fields."""
    m = trial.measurement
    return {
        "actions": trial.actions,
        "program": trial.program_hash,
        "status": str(m.status),
        "samples_s": m.samples_s,
        "error": m.error,
        **{name: getattr(m, name) for name in _DURATIONS},
        "max_error": m.max_error if math.isfinite(m.max_error) else None,
        "paths": trial.paths,
    }


def trial_of(record: Mapping[str, Any], questions: Mapping[int, Question]) -> RecordedTrial:
    """The inverse; every answer is to one of ``questions``. Raises Fault."""
    actions = text(record, "actions")
    try:
        printed = Schedule.parse(actions).text
    except IllegalAction as error:
        raise Fault(f"actions: {error}") from error
    if printed != actions:
        raise Fault(f"actions print as {_short(printed)}, not as {_short(actions)}")
    return RecordedTrial(actions, text(record, "program"), _measurement(record), _paths(record, questions))


def _measurement(record: Mapping[str, Any]) -> Measurement:
    status, times = text(record, "status"), samples(record, "samples_s")
    if status not in tuple(Status):
        raise Fault(f"status is {_short(status)}, none of {', '.join(Status)}")
    if (status == Status.OK) != bool(times):
        raise Fault(f"status is {status} with {len(times)} samples; an ok trial has some, any other has none")
    if any(s == 0.0 for s in times):
        raise Fault("samples_s has a time of 0")
    unknown = record.get("max_error", 0.0) is None
    return Measurement(
        status=Status(status),
        samples_s=times,
        error=text(record, "error"),
        max_error=math.inf if unknown else real(record, "max_error"),
        **{name: real(record, name) for name in _DURATIONS},
    )


def _paths(record: Mapping[str, Any], questions: Mapping[int, Question]) -> tuple[tuple[tuple[int, int], ...], ...]:
    raw = _list("paths", _field(record, "paths"), MOST_PATHS)
    if not raw:
        raise Fault("paths is empty")
    return tuple(tuple(_answer(a, questions) for a in _list("paths", path, MOST_ANSWERS)) for path in raw)


def _answer(value: object, questions: Mapping[int, Question]) -> tuple[int, int]:
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)):
        raise Fault(f"paths has {_short(value)}, not a [question, option] pair")
    question, choice = value
    if question not in questions:
        raise Fault(f"paths has an answer to question {question}, which there is not")
    if not 0 <= choice < len(questions[question].options):
        raise Fault(f"paths has option {choice} of question {question}, which has {len(questions[question].options)}")
    return question, choice
