"""Hostile CUDA candidates on cuda-host: one row each, the next one is OK; no process is left."""

from __future__ import annotations

from collections.abc import Iterator

import hostile
import pytest

from tests.cuda_host import cuda_host
from tools.gpu_checks import ENDLESS
from tunegrad.devices import Device
from tunegrad.devices.job import Candidate, Geometry, Hooks, Limits, Lowered
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Measurement, Policy, Status

pytestmark = pytest.mark.timing

HOOKS = Hooks(reference="hostile:reference")
LIMITS = Limits(compile_s=20.0)
_TEXT = """
extern "C" __global__ void k(float *x, float *y, float *out, float *scratch) {{
  {head}
  if (threadIdx.x == 0) for (int i = 0; i < {count}; ++i) out[i] = x[i] + y[i];
  {tail}
}}
"""


def text(tail: str = "", count: int = hostile.N, head: str = "") -> str:
    return _TEXT.format(tail=tail, count=count, head=head)


GOOD = text()


def candidate(body: str, name: str = "k", items: int = 1) -> Candidate:
    return Candidate("add", Lowered(body, name, hostile.IO, (64,), Geometry(1, items)))


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda_host()


@pytest.fixture(scope="module")
def measurer(device: Device) -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(device, HOOKS, LIMITS, compile_workers=1) as measurer:
        measurer.measure([candidate(GOOD)], hostile.QUICK)
        yield measurer


def row_between_good_ones(
    measurer: DeviceMeasurer, body: str, items: int = 1, policy: Policy = hostile.QUICK
) -> Measurement:
    """Measures good, bad, good: one row each, the good ones OK, and as many processes as before."""
    processes = hostile.children()
    after = candidate(GOOD.replace(" k(", " after("), "after")
    batch = [candidate(GOOD), candidate(body, items=items), after]
    rows = [o.measurement for o in measurer.measure(batch, policy) if o is not None]
    assert len(rows) == len(batch)
    first, middle, last = rows
    assert [(r.status, r.error, r.attempts) for r in (first, last)] == [(Status.OK, "", 1)] * 2
    assert middle.samples_s == ()
    assert hostile.eventually(lambda: len(hostile.children()) <= len(processes)), "none is left"
    return middle


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(text(count=hostile.N + 1), "out: wrote past its end", id="past"),
        pytest.param(text("out[-1] = 1.0f;"), "out: wrote before its start", id="before"),
        pytest.param(text("x[0] = 1.0f;"), "x: the candidate wrote to this buffer", id="input"),
        pytest.param(text("y[7] = 1.0f;"), "y: the candidate wrote to this buffer", id="constant"),
        pytest.param(text("out[7] = 1e6f;"), "out[7]: got 1000000, expected ", id="result"),
        pytest.param(text(count=hostile.N - 1), "out[999]: got ", id="unwritten"),
    ],
)
def test_cuda_candidate_that_writes_what_it_may_not_is_wrong(measurer, body, told):
    row = row_between_good_ones(measurer, body)
    assert row.status is Status.WRONG
    assert row.error.startswith(told)


def test_cuda_candidate_that_never_ends_times_out(measurer):
    row = row_between_good_ones(measurer, text(ENDLESS), policy=hostile.SHORT)
    assert (row.status, row.error) == (Status.TIMED_OUT, "running: over 1 s")


def test_cuda_candidate_that_writes_far_away_is_a_crash_tried_twice(measurer):
    row = row_between_good_ones(measurer, text("((volatile float *)out)[1l << 44] = 1.0f;"))
    assert (row.status, row.attempts) == (Status.CRASHED, 2)
    assert "block 0, thread 0: illegal address" in row.error


def test_cuda_candidate_whose_threads_part_ways_at_a_barrier_says_where(measurer):
    body = text("if (threadIdx.x < 5) __syncthreads();")
    row = row_between_good_ones(measurer, body, items=64)
    assert (row.status, row.attempts) == (Status.CRASHED, 2)
    assert "block 0, thread 0 waits at __syncthreads" in row.error


def test_cuda_candidate_with_too_large_a_group_is_out_of_resources(device, measurer):
    row = row_between_good_ones(measurer, GOOD, items=device.target.max_local + 1)
    assert row.status is Status.OUT_OF_RESOURCES, row.error


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(text("no_such_function(out);"), "no_such_function", id="text"),
        pytest.param(GOOD.replace(" k(", " other("), "k", id="name"),
    ],
)
def test_cuda_candidate_that_does_not_compile_is_a_compile_error(measurer, body, told):
    row = row_between_good_ones(measurer, body)
    assert row.status is Status.COMPILE_ERROR
    assert told in row.error
