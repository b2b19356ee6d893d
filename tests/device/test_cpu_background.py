"""A batch that compiles in the background has ended before anything is timed, and a worker that
dies costs its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import hostile
import pytest

from tunegrad.devices import (
    Candidate,
    CompiledCandidate,
    DeviceMeasurer,
    Hooks,
    Limits,
    Lowered,
    Outcome,
    host_device,
)
from tunegrad.trial import Status

SLOW_S, COMPILE_S, HANGING = 0.5, 2.0, 10


def lower(payload: object) -> Lowered:
    """A good candidate, after a while; or none."""
    time.sleep(SLOW_S)
    if payload == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if payload == "hangs":
        time.sleep(60.0)
    return Lowered(hostile.GOOD, "k", hostile.IO, (64,))


def candidates(*payloads: str) -> list[Candidate]:
    return [Candidate("sum", payload) for payload in payloads]


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceMeasurer]:
    hooks = Hooks(lower="test_cpu_background:lower", reference="hostile:reference")
    with DeviceMeasurer(
        host_device(1), hooks, Limits(compile_s=COMPILE_S), compile_workers=1
    ) as device:
        yield device


@pytest.fixture
def good(device: DeviceMeasurer) -> CompiledCandidate:
    (code,) = device.compile(candidates("good"))
    assert isinstance(code, CompiledCandidate)
    return code


def test_compiling_goes_on_while_the_caller_works(device, good):
    compiling = device.begin_compile(candidates("good"))
    time.sleep(2 * SLOW_S)
    begin_s = time.monotonic()
    (code,) = compiling.wait()
    assert time.monotonic() - begin_s < SLOW_S
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
    assert [type(code) for code in second.wait()] == [CompiledCandidate, Outcome]


def test_worker_that_dies_or_hangs_in_the_background_costs_its_own_candidate(device):
    compiling = device.begin_compile(candidates("good", "dies", "hangs", "good"))
    time.sleep(SLOW_S)
    found = compiling.wait()
    assert [type(code) for code in found] == [
        CompiledCandidate,
        Outcome,
        Outcome,
        CompiledCandidate,
    ]
    statuses = [code.measurement.status for code in found if isinstance(code, Outcome)]
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


def test_closed_batch_does_not_hold_up_what_is_timed(device, good):
    compiling = device.begin_compile(candidates(*["hangs"] * HANGING))
    time.sleep(2 * SLOW_S)
    compiling.close()
    begin_s = time.monotonic()
    measured = device.measure_compiled(candidates("good")[0], good, hostile.QUICK)
    # One worker: if the batch went on, each of the others would take its whole limit.
    assert time.monotonic() - begin_s < (HANGING - 1) * COMPILE_S
    assert measured.status is Status.OK
