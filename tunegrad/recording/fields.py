"""The records of a recording: made of it, and read back from an untrusted file by the rules of
``tunegrad.untrusted``.

Unlike an export of a store, a record may have fields that nobody asks for: T4 files carry those of
other tools.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from tunegrad.errors import IllegalAction
from tunegrad.ir.keys import key_of
from tunegrad.opts import Schedule
from tunegrad.search import Question, RecordedTrial, Recording
from tunegrad.trial import CACHES, Fingerprint, Measurement, Policy, Status
from tunegrad.untrusted import Fault, anything, free_text, integer, listing, number, shortened

__all__ = [
    "MOST_PATHS",
    "header_of",
    "header_record",
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

_text = free_text(MOST_CHARACTERS)
_time = number(0.0, sys.float_info.max)
_answers = listing(MOST_ANSWERS, anything)


# ---- values
# --------------------------------------------------------------------------------------------------


def text(record: Mapping[str, Any], name: str) -> str:
    """The text of that name."""
    return str(_text(name, _field(record, name)))


def whole(record: Mapping[str, Any], name: str, most: int = 1 << 40) -> int:
    """The whole number of that name, 0 to ``most``."""
    return int(integer(0, most)(name, _field(record, name)))


def real(record: Mapping[str, Any], name: str) -> float:
    """The finite number of that name, at least 0."""
    return float(_time(name, _field(record, name)))


def samples(record: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """The list of finite times of that name."""
    return tuple(listing(MOST_SAMPLES, _time)(name, _field(record, name)))


def _field(record: Mapping[str, Any], name: str) -> object:
    if name not in record:
        raise Fault(f"{name} is missing")
    return record[name]


# ---- the header
# --------------------------------------------------------------------------------------------------


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
    if key_of(kernel_text) != key:
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
    pairs = listing(1000, anything)("fingerprint", value)
    for pair in pairs:
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
        ):
            raise Fault(f"fingerprint has {shortened(pair)}, not a [name, value] pair of texts")
    names = [name for name, _ in pairs]
    if names != sorted(set(names)):
        raise Fault("fingerprint has names that are not sorted and distinct")
    return Fingerprint(tuple((name, found) for name, found in pairs))


def _policy(value: object) -> Policy:
    hints = get_type_hints(Policy)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise Fault(f"policy does not have the fields {', '.join(hints)}")
    read = {int: whole, float: real}
    found: dict[str, Any] = {
        name: read.get(kind, text)(value, name) for name, kind in hints.items()
    }
    for name, valid in (("cache", CACHES), ("statistic", ("median", "min"))):
        if found[name] not in valid:
            raise Fault(f"policy.{name} is {shortened(found[name])}, not {' or '.join(valid)}")
    return Policy(**found)


# ---- questions and trials
# --------------------------------------------------------------------------------------------


def question_record(question: Question) -> dict[str, Any]:
    """A question by its fields; tuples become lists."""
    return {"name": question.name, "options": question.options, "default": question.default}


def question_of(record: Mapping[str, Any]) -> Question:
    """The inverse. Raises Fault."""
    raw = listing(MOST_OPTIONS, anything)("options", _field(record, "options"))
    if not raw:
        raise Fault("options is empty")
    options = tuple(_option(value, 0) for value in raw)
    return Question(text(record, "name"), options, whole(record, "default", len(options) - 1))


def _option(value: object, depth: int) -> Any:
    if isinstance(value, list) and depth < 4:
        return tuple(_option(v, depth + 1) for v in value)
    if isinstance(value, str | int):
        return value
    raise Fault(
        f"options has {shortened(value)}, not a text, a whole number, true, false or a list "
        "of these"
    )


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
        raise Fault(f"actions print as {shortened(printed)}, not as {shortened(actions)}")
    return RecordedTrial(
        actions, text(record, "program"), _measurement(record), _paths(record, questions)
    )


def _measurement(record: Mapping[str, Any]) -> Measurement:
    status, times = text(record, "status"), samples(record, "samples_s")
    if status not in tuple(Status):
        raise Fault(f"status is {shortened(status)}, none of {', '.join(Status)}")
    if (status == Status.OK) != bool(times):
        raise Fault(
            f"status is {status} with {len(times)} samples; an ok trial has some, any other "
            "has none"
        )
    if any(s == 0.0 for s in times):
        raise Fault("samples_s has a time of 0")
    unknown = record.get("max_error", 0.0) is None
    return Measurement(
        status=Status(status),
        samples_s=times,
        error=text(record, "error"),
        max_error=math.inf if unknown else real(record, "max_error"),
        lower_s=real(record, "lower_s"),
        compile_s=real(record, "compile_s"),
        verify_s=real(record, "verify_s"),
        timing_s=real(record, "timing_s"),
    )


def _paths(
    record: Mapping[str, Any], questions: Mapping[int, Question]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    raw = listing(MOST_PATHS, _answers)("paths", _field(record, "paths"))
    if not raw:
        raise Fault("paths is empty")
    return tuple(tuple(_answer(a, questions) for a in path) for path in raw)


def _answer(value: object, questions: Mapping[int, Question]) -> tuple[int, int]:
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)):
        raise Fault(f"paths has {shortened(value)}, not a [question, option] pair")
    question, choice = value
    if question not in questions:
        raise Fault(f"paths has an answer to question {question}, which there is not")
    if not 0 <= choice < len(questions[question].options):
        raise Fault(
            f"paths has option {choice} of question {question}, which has "
            f"{len(questions[question].options)}"
        )
    return question, choice
