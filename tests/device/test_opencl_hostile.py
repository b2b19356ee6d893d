"""Hostile OpenCL candidates: one row each, the next one is OK, and no process is left."""

from __future__ import annotations

from collections.abc import Iterator

import hostile
import hostile_opencl as bad
import pytest

from tests.opencl_device import opencl_device
from tunegrad.devices import Device
from tunegrad.devices.job import Hooks, Limits
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Measurement, Policy, Status

pytestmark = pytest.mark.timing

HOOKS = Hooks(reference="hostile:reference")
LIMITS = Limits(compile_s=20.0)


@pytest.fixture(scope="module")
def device() -> Device:
    return opencl_device()


@pytest.fixture(scope="module")
def measurer(device: Device) -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(device, HOOKS, LIMITS, compile_workers=1) as measurer:
        measurer.measure([bad.candidate(bad.GOOD)], hostile.QUICK)
        yield measurer


def row_between_good_ones(
    measurer: DeviceMeasurer, text: str, items: int = 1, policy: Policy = hostile.QUICK
) -> Measurement:
    """Measures good, bad, good: one row each, the good ones OK, and as many processes as before."""
    processes = hostile.children()
    after = bad.candidate(bad.GOOD.replace(" k(", " after("), "after")
    batch = [bad.candidate(bad.GOOD), bad.candidate(text, items=items), after]
    outcomes = measurer.measure(batch, policy)
    rows = [o.measurement for o in outcomes if o is not None]
    assert len(rows) == len(batch)
    first, middle, last = rows
    assert [(r.status, r.error, r.attempts) for r in (first, last)] == [(Status.OK, "", 1)] * 2
    assert middle.samples_s == ()
    assert hostile.eventually(lambda: len(hostile.children()) <= len(processes)), "none is left"
    return middle


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(bad.PAST_THE_END, "out: wrote past its end", id="past"),
        pytest.param(bad.BEFORE_THE_START, "out: wrote before its start", id="before"),
        pytest.param(bad.WRITES_INPUT, "x: the candidate wrote to this buffer", id="input"),
        pytest.param(bad.WRITES_CONSTANT, "y: the candidate wrote to this buffer", id="constant"),
        pytest.param(bad.WRONG, "out[7]: got 1000000, expected ", id="result"),
        pytest.param(bad.UNWRITTEN, "out[999]: got ", id="unwritten"),
    ],
)
def test_opencl_candidate_that_writes_what_it_may_not_is_wrong(measurer, text, told):
    row = row_between_good_ones(measurer, text)
    assert row.status is Status.WRONG
    assert row.error.startswith(told)


def test_opencl_candidate_that_never_ends_times_out(measurer):
    row = row_between_good_ones(measurer, bad.ENDLESS, policy=hostile.SHORT)
    assert (row.status, row.error) == (Status.TIMED_OUT, "running: over 1 s")


def test_opencl_candidate_that_writes_far_away_is_a_crash_tried_twice(device, measurer):
    if dict(device.fingerprint().fields)["opencl_type"] != "cpu":
        pytest.skip(f"device {device.name} has memory of its own")
    row = row_between_good_ones(measurer, bad.FAR_AWAY)
    assert (row.status, row.attempts) == (Status.CRASHED, 2)
    assert row.error.startswith("running: the worker ended with SIG")


def test_opencl_candidate_with_too_much_local_memory_is_out_of_resources(measurer):
    row = row_between_good_ones(measurer, bad.MUCH_LOCAL)
    assert row.status is Status.OUT_OF_RESOURCES, row.error


def test_opencl_candidate_with_too_large_a_group_is_out_of_resources(device, measurer):
    row = row_between_good_ones(measurer, bad.GOOD, items=device.target.max_local + 1)
    assert row.status is Status.OUT_OF_RESOURCES, row.error


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(bad.BAD_TEXT, "no_such_function", id="text"),
        pytest.param(bad.NO_SYMBOL, "k", id="name"),
    ],
)
def test_opencl_candidate_that_does_not_compile_is_a_compile_error(measurer, text, told):
    row = row_between_good_ones(measurer, text)
    assert row.status is Status.COMPILE_ERROR
    assert told in row.error


def test_opencl_workers_are_gone_after_the_session(device):
    before = hostile.children()
    with DeviceMeasurer(device, HOOKS, LIMITS, compile_workers=1) as measurer:
        (outcome,) = measurer.measure([bad.candidate(bad.ENDLESS)], hostile.SHORT)
        assert outcome is not None
        assert outcome.measurement.status is Status.TIMED_OUT
    assert hostile.eventually(lambda: hostile.children() <= before)
