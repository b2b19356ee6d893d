"""A compiler that takes its process down costs one row, and the session goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hostile
import pytest
from hand_programs import vector_add

from tests.crashing_device import CrashingDevice
from tunegrad.devices import Candidate, DeviceMeasurer
from tunegrad.devices.job import Hooks
from tunegrad.trial import Measurement, Status


@pytest.fixture(autouse=True, scope="module")
def _fork_server() -> None:
    """It and its tracker of resources start with the first worker, and stay."""
    rows_of(CrashingDevice(), "first", left=2)


def rows_of(
    device: CrashingDevice, *entries: str, compile_workers: int = 1, left: int = 0
) -> list[Measurement]:  # fmt: skip
    """One program under several names, measured in one batch; no process is ``left`` afterwards."""
    before = hostile.children()
    program = vector_add(hostile.N, 4, 1)
    lowered = {e: device.lower(replace(program, name=e)) for e in entries}
    candidates = [Candidate("add", replace(lowered[e], entry=e)) for e in entries]
    with DeviceMeasurer(device, Hooks(), compile_workers=compile_workers) as measurer:
        outcomes = measurer.measure(candidates, hostile.QUICK)
    assert hostile.eventually(lambda: len(hostile.children() - before) <= left)
    assert len(outcomes) == len(entries)
    return [o.measurement for o in outcomes if o is not None]


@pytest.mark.parametrize("compile_workers", [1, 2])
def test_compiler_that_crashes_costs_one_row_tried_twice(compile_workers):
    names = ("first", "deadly", "second", "third")
    rows = rows_of(CrashingDevice(), *names, compile_workers=compile_workers)
    crashed = (Status.CRASHED, "compiling: the worker ended with SIGSEGV", 2)
    good = (Status.OK, "", 1)
    assert [(r.status, r.error, r.attempts) for r in rows] == [good, crashed, good, good]
    assert rows[1].samples_s == ()


def test_crash_of_a_compiler_that_does_not_come_again_is_no_row(tmp_path: Path):
    device = CrashingDevice(once=str(tmp_path / "crashed"))
    rows = rows_of(device, "first", "deadly")
    assert (tmp_path / "crashed").exists()
    assert [(r.status, r.attempts) for r in rows] == [(Status.OK, 1)] * 2


def test_batch_after_a_crash_of_the_compiler_is_measured():
    device, program = CrashingDevice(), vector_add(hostile.N, 4, 1)

    def candidate(entry: str) -> Candidate:
        return Candidate("add", replace(device.lower(program), entry=entry))

    with DeviceMeasurer(device, Hooks(), compile_workers=1) as measurer:
        (crash,) = measurer.measure([candidate("deadly")], hostile.QUICK)
        (after,) = measurer.measure([candidate("after")], hostile.QUICK)
    assert crash is not None
    assert after is not None
    assert crash.measurement.status is Status.CRASHED
    assert (after.measurement.status, after.measurement.error) == (Status.OK, "")
