"""A batch that compiles in the background has ended before anything is timed, and a worker that
dies costs its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest

from tunegrad.devices import (
    Candidate,
    CompiledCandidate,
    DeviceMeasurer,
    Hooks,
    Limits,
    Lowered,
    host_device,
)
from tunegrad.trial import Measured, Status

pytestmark = pytest.mark.timing

SLOW_S, COMPILE_S, LONG_S = 0.5, 4.0, 60.0


def lower(payload: object) -> Lowered:
    """A good candidate, after a while, or once a file is there; or none."""
    if isinstance(payload, Path):
        payload.with_suffix(".begun").touch()
        wait_until(payload.exists)
        return Lowered(hostile.GOOD, "k", hostile.IO, (64,))
    time.sleep(SLOW_S)
    if payload == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if payload == "hangs":
        time.sleep(60.0)
    return Lowered(hostile.GOOD, "k", hostile.IO, (64,))


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def candidates(*payloads: object) -> list[Candidate]:
    return [Candidate("sum", payload) for payload in payloads]


def measurer(compile_s: float) -> DeviceMeasurer:
    """A device that compiles in one worker."""
    hooks = Hooks(lower="test_cpu_background:lower", reference="hostile:reference")
    limits = Limits(compile_s=compile_s)
    return DeviceMeasurer(host_device(1), hooks, limits, compile_workers=1)


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceMeasurer]:
    with measurer(COMPILE_S) as device:
        yield device


@pytest.fixture(scope="module")
def patient() -> Iterator[DeviceMeasurer]:
    with measurer(LONG_S) as device:
        yield device


@pytest.fixture
def good(device: DeviceMeasurer) -> CompiledCandidate:
    (code,) = device.compile(candidates("good"))
    assert isinstance(code, CompiledCandidate)
    return code


def test_compiling_goes_on_while_the_caller_works(patient, good, tmp_path):
    compiling = patient.begin_compile(candidates(tmp_path / "go"))
    (tmp_path / "go").touch()  # without this the candidate would end at its limit
    wait_until(lambda: all(future.done() for future in compiling._started.futures))
    (code,) = compiling.wait()
    assert code.program_hash == good.program_hash


@pytest.mark.parametrize(
    "alone",
    [
        lambda device, good: device.measure_compiled(candidates("good")[0], good, hostile.QUICK),
        lambda device, _: device.machine_limits(again=True),
    ],
    ids=["measure_compiled", "machine_limits"],
)
def test_nothing_compiles_while_something_is_timed(
    device, good, monkeypatch, alone: Callable[..., object]
):
    device.measure_compiled(candidates("good")[0], good, hostile.QUICK)  # its inputs are there
    compiling = device.begin_compile(candidates("good", "good"))
    futures, calls, call = compiling._started.futures, [], device._bench.call

    def timing(*arguments, **limits):
        calls.append(all(future.done() for future in futures))
        return call(*arguments, **limits)

    monkeypatch.setattr(device._bench, "call", timing)
    assert not all(future.done() for future in futures)
    alone(device, good)
    assert calls
    assert all(calls)
    assert [code.program_hash for code in compiling.wait()] == [good.program_hash] * 2


def test_second_batch_compiles_after_the_first_which_keeps_its_code(device, good):
    first, second = (
        device.begin_compile(candidates("good")),
        device.begin_compile(candidates("good", "dies")),
    )
    assert [code.program_hash for code in first.wait()] == [good.program_hash]
    assert [type(code) for code in second.wait()] == [CompiledCandidate, Measured]


def test_worker_that_dies_or_hangs_in_the_background_costs_its_own_candidate(device):
    compiling = device.begin_compile(candidates("good", "dies", "hangs", "good"))
    time.sleep(SLOW_S)
    found = compiling.wait()
    assert [type(code) for code in found] == [
        CompiledCandidate,
        Measured,
        Measured,
        CompiledCandidate,
    ]
    statuses = [code.measurement.status for code in found if isinstance(code, Measured)]
    assert statuses == [Status.CRASHED, Status.TIMED_OUT]
    assert found[2].measurement.compile_s == COMPILE_S


def test_crash_in_the_background_is_compiled_once_more_after_what_was_begun_since(device, good):
    first = device.begin_compile(candidates("dies", "good"))
    device.wait_idle()
    second = device.begin_compile(candidates("good"))
    crashed, fine = first.wait()
    assert (crashed.measurement.status, crashed.measurement.attempts) == (Status.CRASHED, 2)
    assert [code.program_hash for code in (fine, *second.wait())] == [good.program_hash] * 2


def test_references_are_computed_after_what_compiles(device, good):
    compiling = device.begin_compile(candidates("good"))
    device.refer([(Candidate("another", "good"), good.io)])
    assert len(compiling.wait()) == 1


def test_closed_batch_does_not_hold_up_what_is_timed(patient, good, tmp_path):
    waiting = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    compiling = patient.begin_compile(candidates(*waiting))
    wait_until((tmp_path / "a.begun").exists)
    compiling.close()
    measured = patient.measure_compiled(candidates("good")[0], good, hostile.QUICK)
    assert measured.status is Status.OK
    # One worker: if the batch went on, the others would have begun before anything is timed.
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["a.begun"]
