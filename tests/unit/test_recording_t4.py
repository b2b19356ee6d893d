"""T4 JSON: what its schema asks for is there, everything comes back, and what is broken is
reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recordings import small_recording

from benchmarks.recorded import Recording, read_recording, write_t4
from tunegrad.errors import StoreError
from tunegrad.trial import Measurement, Status

Change = Callable[[dict[str, Any]], object]
INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
"""The words that the schema allows."""


def varied() -> Recording:
    """One trial of every status, times with many digits, one text with two paths."""
    base = small_recording()
    first, *rest = base.trials
    statuses = [s for s in Status if s is not Status.OK]
    trials = [
        replace(
            first,
            measurement=Measurement(Status.OK, (1.234567e-5, 3.3e-9, 0.1234567891), max_error=1e-7),
        )
    ]
    for i, trial in enumerate(rest):
        if i < len(statuses):
            m = Measurement(
                statuses[i], error="it broke\n\u00e9", compile_s=0.012345, max_error=math.inf
            )
        else:
            m = replace(
                trial.measurement,
                samples_s=tuple(round(s, 12) for s in trial.measurement.samples_s),
            )
        trials.append(replace(trial, measurement=m))
    last = trials.pop()
    trials[0] = replace(trials[0], paths=trials[0].paths + last.paths)
    return replace(base, trials=tuple(trials))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "space.t4.json"
    write_t4(path, varied())
    return path


def change(path: Path, edit: Change) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def test_t4_has_what_the_schema_asks_for(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema_version"] == "1.0.0"
    assert len(document["results"]) == varied().points
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["configuration"], dict)
        assert isinstance(result["objectives"], list)
        assert result["invalidity"] in INVALIDITY
        assert result["correctness"] in (0, 1)
        assert isinstance(result["times"]["runtimes"], list)
        for name in ("compilation_time", "framework", "validation"):
            assert isinstance(result["times"][name], int | float)
        for measured in result["measurements"]:
            assert isinstance(measured["name"], str)
            assert isinstance(measured["unit"], str)
            assert isinstance(measured["value"], int | float | str | list)


def test_t4_times_are_milliseconds(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))["results"][0]
    assert result["times"]["runtimes"] == [0.01234567, 3.3e-6, 123.4567891]
    assert {"name": "time", "value": 0.01234567, "unit": "ms"} in result["measurements"]
    assert result["objectives"] == ["time"]


def test_t4_gives_back_what_was_written(path: Path) -> None:
    read = read_recording(path)
    assert read.problems == ()
    assert read.recording == varied()


def test_t4_of_a_real_space_gives_back_what_was_written(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "spaces" / "softmax.jsonl.gz"
    recording = read_recording(source).recording
    write_t4(tmp_path / "softmax.t4.json.gz", recording)
    assert read_recording(tmp_path / "softmax.t4.json.gz").recording == recording


def edit_result(place: str, value: object) -> Change:
    def edit(document: dict[str, Any]) -> None:
        result = document["results"][8]
        *way, last = place.split(".")
        for name in way:
            result = result[name]
        result[last] = value

    return edit


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("times", 3, "times is 3: must be an object"),
        ("times.runtimes", "x", "times.runtimes is 'x': must be a list"),
        ("times.runtimes", [-1], "times.runtimes[0] is -1: must be a finite number from 0"),
        (
            "times.compilation_time",
            -5,
            "times.compilation_time is -5: must be a finite number from 0",
        ),
        ("times.validation", True, "times.validation is True: must be a number"),
        ("invalidity", "compile", "invalidity is 'compile'; status ok is 'correct'"),
        ("configuration", {"tile": 99}, "configuration is not what its path says"),
        ("measurements", [], "must have actions"),
        (
            "measurements",
            [{"name": "actions"}],
            "measurements[0] is an object of 1: must have value",
        ),
        ("measurements", {}, "measurements is an object of 0: must be a list"),
    ],
)
def test_t4_broken_result_is_reported_and_left_out(
    path: Path, place: str, value: object, why: str
) -> None:
    change(path, edit_result(place, value))
    read = read_recording(path)
    assert [p.row for p in read.problems] == [8]
    assert why in read.problems[0].text
    assert len(read.recording.trials) == len(varied().trials) - 1


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda d: d.update(tunegrad=3), "tunegrad is 3, not an object"),
        (lambda d: d.update(schema_version="2.0.0"), "schema_version is '2.0.0', not '1.0.0'"),
        (lambda d: d.update(results={}), "it has no list of results"),
        (lambda d: d["tunegrad"].update(questions=[3]), "questions is not a list of objects"),
        (lambda d: d["tunegrad"].update(kernel_key="0"), "is not the hash of kernel_text"),
    ],
)
def test_t4_that_is_no_recorded_space_is_refused(path: Path, edit: Change, why: str) -> None:
    change(path, edit)
    with pytest.raises(StoreError) as caught:
        read_recording(path)
    assert why in str(caught.value)


def test_t4_number_that_overflows_is_reported(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace('"framework": 0.0', '"framework": 1e999', 1), encoding="utf-8")
    assert [str(p) for p in read_recording(path).problems] == [
        "results row 0: times.framework is inf: must be a finite number from 0 to 1.79769e+308"
    ]
