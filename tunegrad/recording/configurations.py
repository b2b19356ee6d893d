"""T4 results of other tuners, Kernel Tuner's for one: configurations of tunable parameters, with
what came of each.

    "configuration": {"block_size_x": 64, "unroll": true}   --> a question for each parameter; the
                                                            values that occur,
    "objectives": ["time"], "invalidity": "correct",            sorted, are its options
    "measurements": [{"name": "time", "value": 0.81, "unit": "ms"}]   --> the time of the trial

There is no kernel and no action: such a recording can be searched on, and nothing else. What breaks
the tuner's own constraints is no trial, and as illegal as what is not in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunegrad.ir.keys import key_of
from tunegrad.search import Option, Question, RecordedTrial, Recording
from tunegrad.trial import Fingerprint, Measurement, Policy, Status
from tunegrad.untrusted import Fault, shortened, text

from .fields import real

__all__ = ["parse_configurations"]

_STATUS = {
    "correct": Status.OK,
    "correctness": Status.WRONG,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.CRASHED,
    "timeout": Status.TIMED_OUT,
}
_ILLEGAL = "constraints"
_OBJECTIVE = "time"
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}
_SECONDS |= {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
_DURATIONS = {
    "compile_s": (
        "compilation",
        "compilation_time",
    ),  # as Kernel Tuner writes it, and as the schema calls it
    "lower_s": ("framework",),
    "verify_s": ("validation",),
    "timing_s": ("benchmark",),
}
_MOST_PARAMETERS = 100
_MOST_VALUES = 10_000
_LARGEST = 1e300

_name = text(200)
_value = text(1000)

Parsed = tuple[Recording, dict[int, Question], list[RecordedTrial], list[tuple[int, str]]]
Configuration = Mapping[str, str]
"""The JSON text of each parameter's value: 1, 1.0 and true are three values."""


@dataclass(frozen=True, slots=True)
class _Result:
    row: int
    configuration: Configuration
    measurement: Measurement


def parse_configurations(results: list[object], name: str) -> Parsed:
    """The recording of a tuner's results, by parts as from ``t4.parse_t4``; ``name`` is the
    kernel's.

    Raises Fault.
    """
    sound: list[_Result] = []
    bad: list[tuple[int, str]] = []
    parameters: tuple[str, ...] = ()
    for row, found in enumerate(results):
        try:
            result = _result(row, found)
            if result is None:
                continue
            parameters = parameters or tuple(result.configuration)
            if result.configuration.keys() != set(parameters):
                raise Fault(f"has other parameters than {', '.join(map(shortened, parameters))}")
        except Fault as error:
            bad.append((row, str(error)))
        else:
            sound.append(result)
    questions = {i: _question(p, sound) for i, p in enumerate(parameters)}
    places = {
        p: {text: c for c, text in enumerate(_sorted({r.configuration[p] for r in sound}))}
        for p in parameters
    }
    trials = [_trial(r, parameters, places) for r in sound]
    described = "\n".join(f"{q.name} {json.dumps(q.options)}" for q in questions.values())
    points = len({t.actions for t in trials})
    head = Recording(
        name, key_of(described), "", Fingerprint(()), Policy(), 0, points, (), (), foreign=True
    )
    return head, questions, trials, bad


def _trial(
    result: _Result, parameters: tuple[str, ...], places: Mapping[str, Mapping[str, int]]
) -> RecordedTrial:
    said = " ".join(f"{p}={result.configuration[p]}" for p in parameters)
    path = tuple((i, places[p][result.configuration[p]]) for i, p in enumerate(parameters))
    return RecordedTrial(said, key_of(said), result.measurement, (path,))


# ---- one result
# --------------------------------------------------------------------------------------------------


def _result(row: int, found: object) -> _Result | None:
    """What a result says; None where it is one that the tuner's constraints rule out.

    Raises Fault.
    """
    if not isinstance(found, dict):
        raise Fault("is not an object")
    word = found.get("invalidity")
    if word == _ILLEGAL:
        return None
    if not isinstance(word, str) or word not in _STATUS:
        raise Fault(f"invalidity is {shortened(word)}, none of {', '.join((*_STATUS, _ILLEGAL))}")
    configuration, status = _configuration(found.get("configuration")), _STATUS[word]
    if status is Status.OK and real(found, "correctness") == 0.0:
        status = Status.WRONG
    times = found.get("times", {})
    if not isinstance(times, dict):
        raise Fault(f"times is {shortened(times)}, not an object")
    costs = {
        ours: next((1e-3 * real(times, theirs) for theirs in names if theirs in times), 0.0)
        for ours, names in _DURATIONS.items()
    }
    samples_s = (_seconds(found),) if status is Status.OK else ()
    measured = Measurement(
        status, samples_s, "" if samples_s else word, costs["lower_s"], costs["compile_s"],
        costs["verify_s"],
        costs["timing_s"],
    )  # fmt: skip
    return _Result(row, configuration, measured)


def _configuration(value: object) -> Configuration:
    if not isinstance(value, dict) or not 1 <= len(value) <= _MOST_PARAMETERS:
        raise Fault(
            f"configuration is {shortened(value)}, not an object of 1 to {_MOST_PARAMETERS} "
            "parameters"
        )
    return {_name("a parameter's name", name): _text_of(name, v) for name, v in value.items()}


def _text_of(name: str, value: object) -> str:
    if not isinstance(value, bool | int | float | str):
        raise Fault(f"parameter {name} is {shortened(value)}, not a number, a text, true or false")
    if isinstance(value, str):
        _value(f"parameter {name}", value)
    elif not -_LARGEST <= value <= _LARGEST:
        raise Fault(
            f"parameter {name} is {shortened(value)}, not a number from -{_LARGEST:g} to "
            f"{_LARGEST:g}"
        )
    return json.dumps(value)


def _seconds(found: Mapping[str, Any]) -> float:
    """The time that a result's first objective names."""
    objectives = found.get("objectives", [_OBJECTIVE])
    objective = objectives[0] if isinstance(objectives, list) and objectives else _OBJECTIVE
    measurements = found.get("measurements")
    entries = measurements if isinstance(measurements, list) else []
    entry = next((e for e in entries if isinstance(e, dict) and e.get("name") == objective), None)
    if entry is None:
        raise Fault(f"measurements has no {shortened(objective)}, which is the objective")
    unit = entry.get("unit")
    if not isinstance(unit, str) or unit not in _SECONDS:
        raise Fault(
            f"objective {shortened(objective)} is in {shortened(unit)}, no unit of time: "
            f"{', '.join(_SECONDS)}"
        )
    seconds = _SECONDS[unit] * real(entry, "value")
    if seconds == 0.0:
        raise Fault(f"objective {shortened(objective)} is 0")
    return seconds


# ---- one parameter
# --------------------------------------------------------------------------------------------------


def _question(parameter: str, sound: list[_Result]) -> Question:
    """The values of a parameter; the default is that of the first result that is correct, else of
    the first one.
    """
    values = _sorted({r.configuration[parameter] for r in sound})
    if len(values) > _MOST_VALUES:
        raise Fault(
            f"parameter {parameter} has {len(values):,} values; at most {_MOST_VALUES:,} are read"
        )
    first = next((r for r in sound if r.measurement.ran), sound[0])
    return Question(
        parameter, tuple(map(_option, values)), values.index(first.configuration[parameter])
    )


def _sorted(values: set[str]) -> list[str]:
    """Values as JSON texts in a fixed order: false and true, numbers by size, texts."""

    def place(value: str) -> tuple[int, float, str]:
        found = json.loads(value)
        number = isinstance(found, int | float)
        return (
            0 if isinstance(found, bool) else 1 if number else 2,
            float(found) if number else 0.0,
            value,
        )

    return sorted(values, key=place)


def _option(value: str) -> Option:
    """What an option is called; a number that is not whole goes by its text."""
    found: Any = json.loads(value)
    return value if isinstance(found, float) else found
