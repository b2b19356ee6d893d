"""T4 JSON: what its schema asks for is there, everything comes back, and what is broken is
reported.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from recordings import small_recording

from benchmarks.recorded import Recording, read_recording, write_t4
from tunegrad.trial import Measurement, Status


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


def test_t4_gives_back_what_was_written(path: Path) -> None:
    read = read_recording(path)
    assert read.problems == ()
    assert read.recording == varied()


def test_t4_of_a_real_space_gives_back_what_was_written(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "spaces" / "softmax.jsonl.gz"
    recording = read_recording(source).recording
    write_t4(tmp_path / "softmax.t4.json.gz", recording)
    assert read_recording(tmp_path / "softmax.t4.json.gz").recording == recording
