"""A recording as T4 JSON, the results format of the auto-tuning community (schema 1.0.0), and back.

The schema is ``results-schema.json`` of https://github.com/odgaard/TuningSchema, branch T4. Times
are in milliseconds, as Kernel Tuner writes them. One result for each path to a trial.
docs/SEARCH_BENCH.md lists the fields that are filled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tunegrad.errors import StoreError
from tunegrad.trial import Status
from tunegrad.untrusted import converted, shortened

from .configurations import parse_configurations
from .fields import (
    MOST_PATHS,
    Samples,
    Time,
    check_own,
    header_of,
    header_record,
    question_of,
    question_record,
    trial_of,
    write_whole,
)
from .space import Question, RecordedTrial, Recording

__all__ = ["SCHEMA_VERSION", "parse_t4", "t4_document", "write_t4"]

SCHEMA_VERSION = "1.0.0"

INVALIDITY = {
    Status.OK: "correct",
    Status.WRONG: "correctness",
    Status.COMPILE_ERROR: "compile",
    Status.CRASHED: "runtime",
    Status.TIMED_OUT: "timeout",
    Status.OUT_OF_RESOURCES: "runtime",
}
"""T4's word for each status; the status itself is among the measurements."""

_DIGITS_S = 12
"""Decimals of a time in seconds that come back exactly through milliseconds."""

_MOST_RESULTS = 1_000_000


class _Times(Struct):
    runtimes: Samples
    compilation_time: Time = 0.0
    framework: Time = 0.0
    validation: Time = 0.0
    benchmark: Time = 0.0


class _Named(Struct):
    name: str
    value: Any


class _Result(Struct):
    times: _Times
    measurements: tuple[_Named, ...]
    invalidity: Any = None
    configuration: Any = None


Parsed = tuple[Recording, dict[int, Question], list[RecordedTrial], list[tuple[int, str]]]


def write_t4(path: Path, recording: Recording) -> None:
    """Write the T4 file, gzipped if its name ends in ``.gz``, whole or not at all.

    Raises StoreError.
    """
    check_own(recording)
    write_whole(
        path,
        json.dumps(t4_document(recording), ensure_ascii=True, indent=1, allow_nan=False).encode(),
    )


def t4_document(recording: Recording) -> dict[str, Any]:
    """The document: T4's ``results``, and under ``tunegrad`` what the schema has no place for."""
    head = {
        **header_record(recording),
        "questions": [question_record(q) for q in recording.questions],
    }
    results = [
        _result(recording, trial, i) for trial in recording.trials for i in range(len(trial.paths))
    ]
    return {"schema_version": SCHEMA_VERSION, "results": results, "tunegrad": head}


def _result(recording: Recording, trial: RecordedTrial, path: int) -> dict[str, Any]:
    m, answers = trial.measurement, trial.paths[path]
    asked = [(recording.questions[q], choice) for q, choice in answers]
    measured: list[dict[str, Any]] = [
        {"name": "actions", "value": trial.actions, "unit": ""},
        {"name": "program", "value": trial.program_hash, "unit": ""},
        {"name": "status", "value": str(m.status), "unit": ""},
        {"name": "error", "value": m.error, "unit": ""},
        {"name": "path", "value": [list(a) for a in answers], "unit": ""},
    ]
    if math.isfinite(m.max_error):
        measured.append({"name": "max_error", "value": m.max_error, "unit": ""})
    if m.samples_s:
        measured.insert(0, {"name": "time", "value": _ms(m.seconds), "unit": "ms"})
    return {
        "configuration": {q.name: q.options[choice] for q, choice in asked},
        "objectives": ["time"],
        "times": {
            "compilation_time": _ms(m.compile_s),
            "framework": _ms(m.lower_s),
            "validation": _ms(m.verify_s),
            "benchmark": _ms(m.timing_s),
            "runtimes": [_ms(s) for s in m.samples_s],
        },
        "invalidity": INVALIDITY[m.status],
        "correctness": 1 if m.status is Status.OK else 0,
        "measurements": measured,
    }


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, _DIGITS_S - 3)


# ---- reading
# --------------------------------------------------------------------------------------------------


def parse_t4(document: object, name: str) -> Parsed:
    """Header, questions by number, trials, and (result, why) of each that is broken.

    Results of other tuners have no header of ours: their configurations are the space, ``name``
    stands for a kernel's. Raises StoreError.
    """
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise StoreError("it has no list of results")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise StoreError(
            f"schema_version is {document.get('schema_version')!r}, not {SCHEMA_VERSION!r}"
        )
    head, results = document.get("tunegrad"), document["results"]
    if len(results) > _MOST_RESULTS:
        raise StoreError(f"it has {len(results):,} results; at most {_MOST_RESULTS:,} are read")
    if "tunegrad" not in document:
        return parse_configurations(results, name)
    if not isinstance(head, dict):
        raise StoreError(f"tunegrad is {shortened(head)}, not an object")
    recording = header_of(head)
    asked = head.get("questions")
    if not isinstance(asked, list) or not all(isinstance(q, dict) for q in asked):
        raise StoreError("questions is not a list of objects")
    questions = {i: question_of(q) for i, q in enumerate(asked)}
    trials: dict[str, RecordedTrial] = {}
    bad: list[tuple[int, str]] = []
    for row, result in enumerate(results):
        try:
            _join(trials, _trial(result, questions))
        except StoreError as error:
            bad.append((row, str(error)))
    return recording, questions, list(trials.values()), bad


def _join(trials: dict[str, RecordedTrial], found: RecordedTrial) -> None:
    """Results of one action text are one trial with several paths."""
    known = trials.get(found.actions)
    if known is None:
        trials[found.actions] = found
        return
    if (known.program_hash, known.measurement) != (found.program_hash, found.measurement):
        raise StoreError("another result has the same actions and another measurement")
    if len(known.paths) >= MOST_PATHS:
        raise StoreError(f"is past the {MOST_PATHS:,} results that one text of actions may have")
    paths = known.paths + found.paths
    trials[found.actions] = RecordedTrial(
        known.actions, known.program_hash, known.measurement, paths
    )


def _trial(result: object, questions: Mapping[int, Question]) -> RecordedTrial:
    said = converted(_Result, result)
    times = said.times
    measured = {m.name: m.value for m in said.measurements}
    record: dict[str, Any] = {
        "samples_s": [_s(x) for x in times.runtimes],
        "compile_s": _s(times.compilation_time),
        "lower_s": _s(times.framework),
        "verify_s": _s(times.validation),
        "timing_s": _s(times.benchmark),
        "max_error": measured.get("max_error"),
        "paths": [measured.get("path")],
    }
    trial = trial_of(measured | record, questions)
    _check_words(said, trial, questions)
    return trial


def _check_words(result: _Result, trial: RecordedTrial, questions: Mapping[int, Question]) -> None:
    """Check that a result says in T4's words what it says in ours."""
    word = INVALIDITY[trial.measurement.status]
    if result.invalidity != word:
        raise StoreError(
            f"invalidity is {shortened(result.invalidity)}; status {trial.measurement.status} is "
            f"{word!r}"
        )
    says = {questions[q].name: _plain(questions[q].options[choice]) for q, choice in trial.paths[0]}
    if result.configuration != says:
        raise StoreError("configuration is not what its path says")


def _plain(option: object) -> object:
    return [_plain(o) for o in option] if isinstance(option, tuple) else option


def _s(ms: float) -> float:
    return round(ms / 1e3, _DIGITS_S)
