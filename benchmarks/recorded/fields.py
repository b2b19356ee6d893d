"""The records of a recording: made of it, and read back from an untrusted file by the rules of
``tunegrad.untrusted``.

Unlike an export of a store, a record may have fields that are not read: T4 files carry those of
other tools.
"""

from __future__ import annotations

import gzip
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tunegrad.errors import IllegalAction, StoreError
from tunegrad.ir.kernel import key_of
from tunegrad.opts import Schedule
from tunegrad.trial import Cache, Fingerprint, Measurement, Policy, Status
from tunegrad.untrusted import FieldFault, at_most, between, converted, free_text, shortened
from tunegrad.untrusted import whole as from_to

from .space import Question, RecordedTrial, Recording

__all__ = [
    "MOST_PATHS",
    "Answers",
    "Samples",
    "Text",
    "Time",
    "check_own",
    "header_of",
    "header_record",
    "question_of",
    "question_record",
    "trial_of",
    "trial_record",
    "write_whole",
]

MOST_CHARACTERS = 200_000
"""Of one text; a kernel's text and a compiler's message are far below it."""

MOST_SAMPLES = 10_000
MOST_OPTIONS = 10_000
MOST_PATHS = 10_000
MOST_ANSWERS = 200
_DURATIONS = ("lower_s", "compile_s", "verify_s", "timing_s")

Text = Annotated[str, free_text(MOST_CHARACTERS)]
Count = Annotated[int, from_to(0, 1 << 40)]
Time = Annotated[float, between(0.0, sys.float_info.max)]
Samples = Annotated[tuple[Time, ...], at_most(MOST_SAMPLES)]
_Pair = Annotated[tuple[Text, Text], Meta(description="must be a [name, value] pair of texts")]
_Answer = Annotated[tuple[int, int], Meta(description="must be a [question, option] pair")]
Answers = Annotated[tuple[_Answer, ...], at_most(MOST_ANSWERS)]


class _Policy(Struct, forbid_unknown_fields=True):
    cache: Cache
    statistic: Literal["median", "min"]
    clock: Text
    min_samples: Count
    max_samples: Count
    tolerance: Time
    budget_s: Time
    timeout_s: Time


class _Header(Struct):
    kernel: Text
    kernel_key: Text
    kernel_text: Text
    fingerprint: Annotated[tuple[_Pair, ...], at_most(1000)]
    policy: _Policy
    space_version: Count
    points: Count


class _Question(Struct):
    name: Text
    options: Annotated[tuple[Any, ...], at_most(MOST_OPTIONS, 1)]
    default: Count


class _Trial(Struct):
    actions: Text
    program: Text
    status: Status
    samples_s: Samples
    error: Text
    lower_s: Time
    compile_s: Time
    verify_s: Time
    timing_s: Time
    paths: Annotated[tuple[Answers, ...], at_most(MOST_PATHS, 1)]
    max_error: Time | None


# ---- the header
# --------------------------------------------------------------------------------------------------


def header_record(recording: Recording) -> dict[str, Any]:
    """Header of a recording, by name: all but its questions and trials."""
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
    """The inverse. Raises StoreError."""
    said = converted(_Header, record)
    if key_of(said.kernel_text) != said.kernel_key:
        raise StoreError(f"kernel_key {shortened(said.kernel_key)} is not the hash of kernel_text")
    names = [name for name, _ in said.fingerprint]
    if names != sorted(set(names)):
        raise StoreError("fingerprint has names that are not sorted and distinct")
    return Recording(
        kernel_name=said.kernel,
        kernel_key=said.kernel_key,
        kernel_text=said.kernel_text,
        fingerprint=Fingerprint(said.fingerprint),
        policy=Policy(**asdict(said.policy)),
        space_version=said.space_version,
        points=said.points,
        questions=(),
        trials=(),
    )


# ---- questions and trials
# --------------------------------------------------------------------------------------------


def question_record(question: Question) -> dict[str, Any]:
    """A question by its fields; tuples become lists."""
    return {"name": question.name, "options": question.options, "default": question.default}


def question_of(record: Mapping[str, Any]) -> Question:
    """The inverse. Raises StoreError."""
    said = converted(_Question, record)
    if said.default >= len(said.options):
        raise FieldFault("default", said.default, f"must be from 0 to {len(said.options) - 1}")
    return Question(said.name, tuple(_option(value, 0) for value in said.options), said.default)


def _option(value: object, depth: int) -> Any:
    if isinstance(value, list) and depth < 4:
        return tuple(_option(v, depth + 1) for v in value)
    if isinstance(value, str | int):
        return value
    raise StoreError(
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
    """The inverse; every answer is to one of ``questions``. Raises StoreError."""
    said = converted(_Trial, record)
    try:
        printed = Schedule.parse(said.actions).text
    except IllegalAction as error:
        raise StoreError(f"actions: {error}") from error
    if printed != said.actions:
        raise StoreError(f"actions print as {shortened(printed)}, not as {shortened(said.actions)}")
    if (said.status is Status.OK) != bool(said.samples_s):
        raise StoreError(
            f"status is {said.status} with {len(said.samples_s)} samples; an ok trial has some, "
            "any other has none"
        )
    if 0.0 in said.samples_s:
        raise StoreError("samples_s has a time of 0")
    for question, choice in {answer for path in said.paths for answer in path}:
        if question not in questions:
            raise StoreError(f"paths has an answer to question {question}, which there is not")
        if not 0 <= choice < len(questions[question].options):
            raise StoreError(
                f"paths has option {choice} of question {question}, which has "
                f"{len(questions[question].options)}"
            )
    measured = Measurement(
        said.status, said.samples_s, said.error, said.lower_s, said.compile_s, said.verify_s,
        said.timing_s, math.inf if said.max_error is None else said.max_error,
    )  # fmt: skip
    return RecordedTrial(said.actions, said.program, measured, said.paths)


def check_own(recording: Recording) -> None:
    """Raises StoreError for another tuner's recording: without kernel and actions, a file of ours
    can not hold it.
    """
    if recording.foreign:
        raise StoreError(
            f"{recording.kernel_name}: results of another tuner are read for search-bench, and "
            "not written"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` into a file, gzipped if its name ends in ``.gz``, whole or not at all.

    Raises StoreError.
    """
    data = gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{path}: can not be written: {error.strerror}") from error
