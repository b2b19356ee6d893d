"""Hostile candidates as CUDA C++, on cuda-host, and as OpenCL C: one row each, the next one is OK,
and no process is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import hostile
import pytest

from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tools.gpu_checks import ENDLESS
from tunegrad.devices import Device
from tunegrad.devices.job import Candidate, Geometry, Hooks, Limits, Lowered
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Measurement, Policy, Status

pytestmark = pytest.mark.timing

HOOKS = Hooks(reference="hostile:reference")
LIMITS = Limits(compile_s=20.0)


class HostileSuite:
    """Subclasses give ``opened``, and what their language has other words for: ``begin`` of the
    text, an ``endless`` loop, and ``(float *)`` of memory. ``crash`` is the error of a stray write.
    """

    begin: str
    endless: str
    floats = "(float *)"
    crash: str

    @classmethod
    def text(cls, tail: str = "", count: int = hostile.N, head: str = "") -> str:
        loop = f"for (int i = 0; i < {count}; ++i) out[i] = x[i] + y[i];"
        return "\n".join((cls.begin.format(head=head), loop, tail, "}"))

    @staticmethod
    def candidate(body: str, name: str = "k", items: int = 1) -> Candidate:
        return Candidate("add", Lowered(body, name, hostile.IO, (64,), Geometry(1, items)))

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls) -> Device:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def measurer(cls, opened: Device) -> Iterator[DeviceMeasurer]:
        with DeviceMeasurer(opened, HOOKS, LIMITS, compile_workers=1) as measurer:
            measurer.measure([cls.candidate(cls.text())], hostile.QUICK)
            yield measurer

    def row(
        self,
        measurer: DeviceMeasurer,
        body: str,
        items: int = 1,
        policy: Policy = hostile.QUICK,
    ) -> Measurement:
        """The row of a bad candidate between good ones, which are OK; no process is left."""
        processes = hostile.children()
        after = self.candidate(self.text().replace(" k(", " after("), "after")
        batch = [self.candidate(self.text()), self.candidate(body, items=items), after]
        rows = [o.measurement for o in measurer.measure(batch, policy) if o is not None]
        assert len(rows) == len(batch)
        first, middle, last = rows
        assert [(r.status, r.error, r.attempts) for r in (first, last)] == [(Status.OK, "", 1)] * 2
        assert middle.samples_s == ()
        assert hostile.eventually(lambda: len(hostile.children()) <= len(processes)), "none is left"
        return middle

    @pytest.mark.parametrize(
        ("tail", "count", "told"),
        [
            pytest.param("", hostile.N + 1, "out: wrote past its end", id="past"),
            pytest.param("out[-1] = 1.0f;", hostile.N, "out: wrote before its start", id="before"),
            pytest.param("({}x)[0] = 1.0f;", hostile.N, "x: the candidate wrote to", id="input"),
            pytest.param("({}y)[7] = 1.0f;", hostile.N, "y: the candidate wrote to", id="constant"),
            pytest.param("out[7] = 1e6f;", hostile.N, "out[7]: got 1000000, expected", id="result"),
            pytest.param("", hostile.N - 1, "out[999]: got ", id="unwritten"),
        ],
    )
    def test_candidate_that_writes_what_it_may_not_is_wrong(self, measurer, tail, count, told):
        row = self.row(measurer, self.text(tail.format(self.floats), count))
        assert row.status is Status.WRONG
        assert row.error.startswith(told)

    def test_candidate_that_never_ends_times_out(self, measurer):
        row = self.row(measurer, self.text(self.endless), policy=hostile.SHORT)
        assert (row.status, row.error) == (Status.TIMED_OUT, "running: over 1 s")

    def test_candidate_that_writes_far_away_is_a_crash_tried_twice(self, opened, measurer):
        if dict(opened.fingerprint().fields).get("opencl_type", "cpu") != "cpu":
            pytest.skip(f"device {opened.name} has memory of its own")
        stray = f"((volatile {self.floats[1:-1]})out)[1l << 44] = 1.0f;"
        row = self.row(measurer, self.text(stray))
        assert (row.status, row.attempts) == (Status.CRASHED, 2)
        assert self.crash in row.error

    def test_candidate_with_too_large_a_group_is_out_of_resources(self, opened, measurer):
        row = self.row(measurer, self.text(), items=opened.target.max_local + 1)
        assert row.status is Status.OUT_OF_RESOURCES, row.error

    @pytest.mark.parametrize(
        ("tail", "name", "told"),
        [("no_such_function(out);", " k(", "no_such_function"), ("", " other(", "k")],
        ids=["text", "name"],
    )
    def test_candidate_that_does_not_compile_is_a_compile_error(self, measurer, tail, name, told):
        row = self.row(measurer, self.text(tail).replace(" k(", name))
        assert row.status is Status.COMPILE_ERROR
        assert told in row.error


class TestCuda(HostileSuite):
    begin = """extern "C" __global__ void k(float *x, float *y, float *out, float *scratch) {{
        {head} if (threadIdx.x == 0)"""
    endless = ENDLESS
    crash = "block 0, thread 0: illegal address"

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls) -> Device:
        return cuda_host()

    def test_candidate_whose_threads_part_ways_at_a_barrier_says_where(self, measurer):
        row = self.row(measurer, self.text("if (threadIdx.x < 5) __syncthreads();"), items=64)
        assert (row.status, row.attempts) == (Status.CRASHED, 2)
        assert "block 0, thread 0 waits at __syncthreads" in row.error


class TestOpenCl(HostileSuite):
    begin = """__kernel void k(__global const float *x, __global const float *y,
        __global float *out, __global float *scratch) {{ {head}"""
    endless = "volatile int more = 1; while (more) scratch[0] += 1.0f;"
    floats = "(__global float *)"
    crash = "running: the worker ended with SIG"

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls) -> Device:
        return opencl_device()

    def test_candidate_with_too_much_local_memory_is_out_of_resources(self, measurer):
        """It asks for 256 MiB, and is right otherwise."""
        head = f"__local volatile float s[{1 << 26}]; s[0] = x[0] + y[0];"
        row = self.row(
            measurer, self.text("barrier(CLK_LOCAL_MEM_FENCE); out[0] = s[0];", head=head)
        )
        assert row.status is Status.OUT_OF_RESOURCES, row.error

    def test_workers_are_gone_after_the_session(self, opened):
        before = hostile.children()
        with DeviceMeasurer(opened, HOOKS, LIMITS, compile_workers=1) as measurer:
            bad = self.candidate(self.text(self.endless))
            (outcome,) = measurer.measure([bad], hostile.SHORT)
            assert outcome is not None
            assert outcome.measurement.status is Status.TIMED_OUT
        assert hostile.eventually(lambda: hostile.children() <= before)
