"""Recording a space with the real device: verified, complete, and gone on with where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import space as space_command
from benchmarks.recorded import RecordedSpace, Recording, ReplayMeasurer, read_recording, recorder
from tests.time_enough import with_time_enough
from tunegrad.trial import Status

MODEL = "row_models:softmax_rows"
KERNEL = "softmax 64x33"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are looked for in this folder."""
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(
        recorder, "_DISTURBED", float("inf")
    )  # how steady this machine is, is not what is tested


def record(out: Path, *more: str) -> int:
    vary = ["--vary", "stage0.copies:2", "--vary", "stage1.copies:2", "--vary", "thread"]
    return space_command.main(
        [
            "record",
            MODEL,
            "--kernel",
            KERNEL,
            "--threads",
            "2",
            "--out",
            str(out),
            *vary,
            *more,
        ]
    )


@pytest.mark.usefixtures("here")
def test_record_measures_every_point_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "softmax.jsonl.gz"
    assert record(out, "--budget", "0.000001") == 1
    assert "the budget ended before anything was recorded" in capsys.readouterr().err

    def recorded(_: float) -> Recording:
        out.unlink(missing_ok=True)
        assert record(out, "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["points"], report["recorded"], report["complete"]) == (8, 8, True)
        return read_recording(out).recording

    def is_sampled(read: Recording) -> bool:
        return all(len(t.measurement.samples_s) >= 3 for t in read.trials)

    read = with_time_enough(recorded, is_sampled)
    assert {t.measurement.status for t in read.trials} == {Status.OK}
    assert is_sampled(read)
    space, measurer = RecordedSpace(read), ReplayMeasurer(read)
    (default,) = space.defaults()
    found = measurer.take(default.text, set())
    assert found is not None
    assert found.measurement.status is Status.OK
    written = out.read_bytes()
    assert record(out) == 0
    assert out.read_bytes() == written
