"""T4 results of other tuners, Kernel Tuner's for one: configurations of tunable parameters, with
what came of each.

    "configuration": {"block_size_x": 64, "unroll": true}
        --> a question for each parameter; the values that occur, sorted, are its options
    "objectives": ["time"], "invalidity": "correct",
    "measurements": [{"name": "time", "value": 0.81, "unit": "ms"}]
        --> the time of the trial

There is no kernel and no action: such a recording can be searched on, and nothing else. What breaks
the tuner's own constraints is no trial, and as illegal as what is not in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from tunegrad.errors import StoreError
from tunegrad.ir.kernel import key_of
from tunegrad.trial import Fingerprint, Measurement, Policy, Status
from tunegrad.untrusted import between, converted, printable, shortened

from .fields import Time
from .space import Option, Question, RecordedTrial, Recording

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
_MOST_PARAMETERS = 100
_MOST_VALUES = 10_000
_LARGEST = 1e300

_Name = Annotated[str, printable(200)]
_Value = (
    Annotated[float, between(-_LARGEST, _LARGEST)] | int | bool | Annotated[str, printable(1000)]
)


class _Times(Struct):
    """In milliseconds; compilation as Kernel Tuner writes it, and as the schema calls it."""

    compilation: Time | None = None
    compilation_time: Time = 0.0
    framework: Time = 0.0
    validation: Time = 0.0
    benchmark: Time = 0.0


class _Measured(Struct):
    name: Any = None
    value: Any = None
    unit: Any = None


class _Said(Struct):
    """Fields of a result that are read."""

    invalidity: Literal["correct", "correctness", "compile", "runtime", "timeout"]
    correctness: Time
    configuration: Annotated[
        dict[_Name, _Value],
        Meta(
            min_length=1,
            max_length=_MOST_PARAMETERS,
            description=f"must have 1 to {_MOST_PARAMETERS} parameters, each named by printable "
            "text of at most 200 characters",
        ),
    ]
    times: _Times = field(default_factory=_Times)
    objectives: tuple[Any, ...] = ()
    measurements: tuple[_Measured, ...] = ()


class _Timed(Struct):
    value: Time


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

    Raises StoreError.
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
                raise StoreError(
                    f"has other parameters than {', '.join(map(shortened, parameters))}"
                )
        except StoreError as error:
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
    """The trial of a result; None for one that the tuner's constraints rule out.

    Raises StoreError.
    """
    if isinstance(found, dict) and found.get("invalidity") == _ILLEGAL:
        return None
    said = converted(_Said, found)
    configuration = {name: _text_of(name, v) for name, v in said.configuration.items()}
    status = _STATUS[said.invalidity]
    if status is Status.OK and said.correctness == 0.0:
        status = Status.WRONG
    samples_s = (_seconds(said),) if status is Status.OK else ()
    times = said.times
    compilation = times.compilation_time if times.compilation is None else times.compilation
    measured = Measurement(
        status, samples_s, "" if samples_s else said.invalidity, 1e-3 * times.framework,
        1e-3 * compilation, 1e-3 * times.validation, 1e-3 * times.benchmark,
    )  # fmt: skip
    return _Result(row, configuration, measured)


def _text_of(name: str, value: float | str) -> str:
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise StoreError(
            f"parameter {name} is {shortened(value)}, not a number from -{_LARGEST:g} to "
            f"{_LARGEST:g}"
        )
    return json.dumps(value)


def _seconds(said: _Said) -> float:
    """The time that a result's first objective names."""
    objective = said.objectives[0] if said.objectives else _OBJECTIVE
    entry = next((m for m in said.measurements if m.name == objective), None)
    if entry is None:
        raise StoreError(f"measurements has no {shortened(objective)}, which is the objective")
    unit = entry.unit
    if not isinstance(unit, str) or unit not in _SECONDS:
        raise StoreError(
            f"objective {shortened(objective)} is in {shortened(unit)}, no unit of time: "
            f"{', '.join(_SECONDS)}"
        )
    seconds = _SECONDS[unit] * converted(_Timed, {"value": entry.value}).value
    if seconds == 0.0:
        raise StoreError(f"objective {shortened(objective)} is 0")
    return seconds


# ---- one parameter
# --------------------------------------------------------------------------------------------------


def _question(parameter: str, sound: list[_Result]) -> Question:
    """The values of a parameter; the default is that of the first result that is correct, else of
    the first one.
    """
    values = _sorted({r.configuration[parameter] for r in sound})
    if len(values) > _MOST_VALUES:
        raise StoreError(
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
    """Name of an option; a number that is not whole goes by its text."""
    found: Any = json.loads(value)
    return value if isinstance(found, float) else found
