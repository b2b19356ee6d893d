"""T4 results of other tuners: their configurations are a space to search, and nothing in them is
believed.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recorded import Read, RecordedSpace, read_recording
from benchmarks.recorded.bench import find_spaces, search_bench
from tunegrad.errors import IllegalAction
from tunegrad.opts import DefaultChooser, TraceChooser
from tunegrad.trial import Status

# As Kernel Tuner writes it: no header of ours, "compilation" for the schema's "compilation_time",
# correctness always 1.
WRITTEN = """{"results": [
 {"timestamp": "2024-01-01 10:00:00.1+00:00", "configuration": {"block_size_x": 64, "width": 2, "cached": true},
  "times": {"compilation": 120.5, "benchmark": 30.0, "framework": 1.5, "search_algorithm": 0.0, "validation": 2.0,
            "runtimes": [0.52, 0.5, 0.48]},
  "invalidity": "correct", "correctness": 1,
  "measurements": [{"name": "time", "value": 0.5, "unit": "ms"}, {"name": "GFLOP/s", "value": 12.5, "unit": ""}],
  "objectives": ["time"]},
 {"configuration": {"block_size_x": 128, "width": 2, "cached": true},
  "times": {"compilation": 100.0, "framework": 1.0, "runtimes": [0.2]}, "invalidity": "correct", "correctness": 1,
  "measurements": [{"name": "time", "value": 0.2, "unit": "ms"}], "objectives": ["time"]},
 {"configuration": {"block_size_x": 1024, "width": 2, "cached": true}, "times": {"compilation": 90.0, "runtimes": []},
  "invalidity": "runtime", "correctness": 1,
  "measurements": [{"name": "time", "value": "RuntimeFailedConfig", "unit": "ms"}], "objectives": ["time"]},
 {"configuration": {"block_size_x": 64, "width": 16, "cached": false}, "times": {"runtimes": []},
  "invalidity": "compile", "correctness": 1,
  "measurements": [{"name": "time", "value": "CompilationFailedConfig", "unit": "ms"}], "objectives": ["time"]},
 {"configuration": {"block_size_x": 1024, "width": 16, "cached": false}, "times": {"runtimes": []},
  "invalidity": "constraints", "correctness": 1,
  "measurements": [{"name": "time", "value": "InvalidConfig", "unit": "ms"}], "objectives": ["time"]}
], "schema_version": "1.0.0"}"""


def read(place: Path, document: object) -> Read:
    file = place / "vector_add.t4.json"
    file.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return read_recording(file)


def changed(*changes: tuple[str, object]) -> dict[str, Any]:
    """What Kernel Tuner wrote, with other values of its second result."""
    document: dict[str, Any] = json.loads(WRITTEN)
    for place, value in changes:
        at = document["results"][1]
        *way, last = place.split(".")
        for name in way:
            at = at[int(name) if isinstance(at, list) else name]
        at[last] = value
    return document


def test_configurations_become_a_space_of_the_values_that_occur(tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN)
    assert found.problems == ()
    r = found.recording
    assert [(q.name, q.options, q.default) for q in r.questions] == [
        ("block_size_x", (64, 128, 1024), 0),
        ("width", (2, 16), 0),
        ("cached", (False, True), 1),
    ]
    assert (r.kernel_name, r.kernel_text, r.points, r.complete, r.foreign) == (
        "vector_add",
        "",
        4,
        True,
        True,
    )
    assert [t.actions for t in r.trials][:2] == [
        "block_size_x=64 width=2 cached=true",
        "block_size_x=128 width=2 cached=true",
    ]
    assert [t.measurement.status for t in r.trials] == ["ok", "ok", "crashed", "compile_error"]
    first = r.trials[0].measurement
    assert (first.samples_s, first.compile_s, first.lower_s, first.verify_s) == (
        (5e-4,),
        0.1205,
        0.0015,
        0.002,
    )


def test_configuration_that_was_not_measured_is_illegal(tmp_path: Path) -> None:
    space = RecordedSpace(read(tmp_path, WRITTEN).recording)
    texts = []
    for values in product(range(3), range(2), range(2)):
        chooser = TraceChooser(dict(zip(("block_size_x", "width", "cached"), values, strict=True)))
        try:
            texts.append(space.sample(chooser).text)
        except IllegalAction:
            continue
    assert sorted(texts) == sorted(t.actions for t in space.recording.trials)
    assert len(texts) == 4  # not the one that the tuner's constraints rule out
    assert (
        space.defaults()[0].text
        == space.sample(DefaultChooser()).text
        == "block_size_x=64 width=2 cached=true"
    )


def time_of(value: object, unit: str = "ms", name: str = "time") -> dict[str, object]:
    return {"name": name, "value": value, "unit": unit}


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (
            "invalidity",
            "fine",
            "invalidity is 'fine': must be one of correct, correctness, compile, runtime, timeout",
        ),
        ("invalidity", None, "invalidity is None: must be one of correct"),
        ("correctness", "1", "correctness is '1': must be a number"),
        (
            "configuration",
            {},
            "configuration is an object of 0: must have 1 to 100 parameters",
        ),
        (
            "configuration",
            {"width": 2, "cached": True},
            "has other parameters than 'block_size_x', 'width', 'cached'",
        ),
        (
            "configuration.width",
            [2],
            "configuration.width is a list of 1: must be a number or an integer or true or false or a",
        ),
        (
            "configuration.width",
            None,
            "configuration.width is None: must be a number or an integer or true or false or a string",
        ),
        (
            "configuration.width",
            10**400,
            "parameter width is a huge integer, not a number from -1e+300 to 1e+300",
        ),
        (
            "configuration.width",
            "\x1b[2J",
            "configuration.width is '\\x1b[2J': must be printable text",
        ),
        ("times", 3, "times is 3: must be an object"),
        ("times.compilation", -1, "times.compilation is -1: must be a finite number from 0"),
        ("objectives", ["GFLOP/s"], "measurements has no 'GFLOP/s', which is the objective"),
        ("measurements", 7, "measurements is 7: must be a list"),
        (
            "measurements",
            [time_of(2.0, "")],
            "objective 'time' is in '', no unit of time: s, ms, us",
        ),
        (
            "measurements",
            [time_of("RuntimeFailedConfig")],
            "value is 'RuntimeFailedConfig': must be a number",
        ),
        ("measurements", [time_of(0)], "objective 'time' is 0"),
        ("configuration", {"block_size_x": 64, "width": 2, "cached": True}, "have a trial already"),
    ],
)
def test_broken_result_is_reported_and_left_out(
    tmp_path: Path, place: str, value: object, why: str
) -> None:
    found = read(tmp_path, changed((place, value)))
    assert [p.row for p in found.problems] == [1]
    assert why in found.problems[0].text
    assert len(found.recording.trials) == 3
    assert found.recording.complete


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ([("correctness", 0)], Status.WRONG),
        ([("invalidity", "correctness")], Status.WRONG),
        ([("invalidity", "timeout")], Status.TIMED_OUT),
    ],
)
def test_result_that_is_no_good_is_a_failure(
    tmp_path: Path, changes: list[Any], status: Status
) -> None:
    trial = read(tmp_path, changed(*changes)).recording.trials[1]
    assert (trial.measurement.status, trial.measurement.samples_s) == (status, ())


def tuned(place: Path) -> Path:
    """What a tuner found on every one of 240 configurations; three of twenty are ruled out, one of
    ten fails.
    """
    results = []
    for i, (x, y, width, cached) in enumerate(
        product((32, 64, 128, 256, 512), (1, 2, 4, 8), (1, 2, 4), (0, 1))
    ):
        for unroll in (1, 2):
            word = (
                "constraints"
                if x * y > 1024
                else "runtime"
                if (i * 7 + unroll) % 10 == 0
                else "correct"
            )
            ms = (
                0.1
                * (1 + abs(x - 128) / 64)
                * (1 + 0.3 * abs(y - 4))
                * (1.5 - 0.1 * width)
                * (1.2 - 0.1 * cached)
            )
            results.append(
                {
                    "configuration": {"x": x, "y": y, "width": width, "cached": cached,
                        "unroll": unroll},
                    "times": {"runtimes": []}, "invalidity": word, "correctness": 1,
                    "objectives": ["time"],
                    "measurements": [
                    time_of(ms * (1 + 0.05 * unroll) if word == "correct" else "failed")
                ],
                }
            )  # fmt: skip
    file = place / "tuned.t4.json"
    file.write_text(json.dumps({"schema_version": "1.0.0", "results": results}), encoding="utf-8")
    return file


def test_search_bench_reaches_the_optimum_of_another_tuners_results(tmp_path: Path) -> None:
    report = search_bench(
        find_spaces([tuned(tmp_path)]), ["exhaustive", "beam"], seeds=1, trials=1000
    )
    assert report.spaces[0].trials == 203
    assert report.spaces[0].best_ms == pytest.approx(0.1 * 1.0 * 1.0 * 1.1 * 1.1 * 1.05)
    assert {row.curve[-1] for row in report.rows if row.searcher != "random"} == {0.0}
