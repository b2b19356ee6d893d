"""What the driver waits for is charged to what the workers did meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from search_surface import kernel

from tunegrad.compiling import Payload
from tunegrad.devices import (
    Candidate,
    CompiledCandidate,
    Geometry,
    KernelIO,
    Limits,
    MachineLimits,
    host_device,
    usable_cores,
)
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Schedule, Space
from tunegrad.trial import Measured, Measurement, Policy, Status
from tunegrad.tuning.budget import Costs
from tunegrad.tuning.executor import CandidateMeasurer


class Device:
    """Takes the time that it is told to; the clock is its own."""

    device = host_device(1)

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def begin_compile(self, candidates: Sequence[Candidate], known: Collection[str]) -> Device:
        self.count = len(candidates)
        return self

    def wait(self) -> list[CompiledCandidate | Measured]:
        self.now_s += 4.0
        failed = Measured("", Measurement(Status.COMPILE_ERROR, lower_s=0.5, compile_s=0.0))
        code = [
            CompiledCandidate(b"x", "k", KernelIO(()), (), Geometry(), f"h{i}", 0.5, 1.0)
            for i in range(self.count)
        ]
        return [*code[:-1], failed]

    def measure_compiled(self, *_: object) -> Measurement:
        self.now_s += 3.0
        return Measurement(
            Status.OK, (1e-3,), lower_s=0.5, compile_s=1.0, verify_s=0.25, timing_s=2.0
        )


def test_measuring_charges_what_the_workers_did_and_the_rest_as_waiting() -> None:
    device = Device()
    costs = Costs(device.clock)
    measurer = CandidateMeasurer(device, Policy(), costs=costs)  # type: ignore[arg-type]  # what it asks of a device
    schedules = [
        Schedule.parse(text) for text in ("", "tile(axis=i, size=4)", "tile(axis=i, size=8)")
    ]
    found = list(measurer.measure(kernel("k"), schedules, float("inf"), ()))
    assert [m is not None and m.measurement.status for m in found] == [
        Status.OK,
        Status.OK,
        Status.COMPILE_ERROR,
    ]
    busy = min(3, usable_cores())
    seconds = costs.seconds
    assert seconds["lowering"] == pytest.approx(1.5 / busy)
    assert seconds["compiling"] == pytest.approx(2.0 / busy)
    assert seconds["timing"] == pytest.approx(4.0)
    # The kernel's inputs and references are made the first time: 0.75 s more.
    assert seconds["verifying"] == pytest.approx(0.25 + 0.25 + 0.75)
    assert seconds["waiting"] == pytest.approx(4.0 - 3.5 / busy + 0.75)
    assert sum(seconds.values()) == pytest.approx(device.now_s)


class SlowCompiler(Device):
    """Its compiler needs 40 seconds for anything. ``asked``: what was compiled in which time."""

    limits = Limits(compile_s=3.0)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[str], float]] = []

    def begin_compile(
        self,
        candidates: Sequence[Candidate],
        known: Collection[str],
        limit_s: float | None = None,
    ) -> SlowCompiler:
        limit_s = limit_s or self.limits.compile_s
        self.asked.append(([str(c.payload.actions) for c in candidates], limit_s))  # type: ignore[attr-defined]  # a Payload
        return self

    def compile(
        self, candidates: Sequence[Candidate], known: Collection[str], limit_s: float | None = None
    ) -> list[CompiledCandidate | Measured]:
        return self.begin_compile(candidates, known, limit_s).wait()

    def wait(self) -> list[CompiledCandidate | Measured]:
        texts, limit_s = self.asked[-1]
        late = Measured("", Measurement(Status.TIMED_OUT, error="late", compile_s=limit_s))
        code = [
            CompiledCandidate(b"x", "k", KernelIO(()), (), Geometry(), f"h{t}", 0.5, 40.0)
            for t in texts
        ]
        return [late] * len(texts) if limit_s < 40.0 else [*code]

    def refer(self, kernels: object) -> None:
        pass


@pytest.mark.parametrize("primed", [False, True])
def test_defaults_that_could_not_be_compiled_in_time_are_given_more_and_nothing_else_is(
    primed: bool,
) -> None:
    device = SlowCompiler()
    measurer = CandidateMeasurer(device, Policy(), costs=Costs(device.clock))  # type: ignore[arg-type]  # what it asks of a device
    kind = kernel("k")
    default = Space(kind, device.device.target).defaults()[0]
    other = Schedule.parse("tile(axis=i, size=4) tile(axis=i0, size=2)")
    if primed:
        measurer.prime([(kind, default), (kind, other)])
    found = list(measurer.measure(kind, [default, other], float("inf"), ()))
    assert [m is not None and m.measurement.status for m in found] == [
        Status.OK,
        Status.TIMED_OUT,
    ]
    assert device.asked[:2] == [([default.text, other.text], 3.0), ([default.text], 60.0)]


def test_what_stands_in_a_model_has_the_time_that_it_needs_to_compile() -> None:
    """In another session its code is not at hand: the model did not run, and nothing was raced."""
    device = SlowCompiler()
    measurer = CandidateMeasurer(device, Policy(), costs=Costs(device.clock))  # type: ignore[arg-type]  # what it asks of a device
    kind = kernel("k")
    schedules = (Space(kind, device.device.target).defaults()[0], Schedule.parse("unroll(axis=k)"))
    wanted = [Candidate(kind.key, Payload(kind, s.text, device.device)) for s in schedules]  # type: ignore[arg-type]
    assert all(isinstance(code, CompiledCandidate) for code in measurer.code(wanted))
    assert [limit_s for _, limit_s in device.asked] == [3.0, 60.0]


class Fast(Device):
    """What it measures takes a picosecond; its peaks are those of the second look."""

    limits = Limits()

    def __init__(self, flops: float) -> None:
        super().__init__()
        self.flops, self.looks = flops, list[bool]()

    def machine_limits(self, again: bool = False) -> MachineLimits:
        self.looks.append(again)
        rate = self.flops if again else 1e9
        return MachineLimits(((1, rate),), ((1, rate),), (), ((1, rate),))

    def measure_compiled(self, *_: object) -> Measurement:
        return Measurement(Status.OK, (1e-7,))

    def wait(self) -> list[CompiledCandidate | Measured]:
        return [CompiledCandidate(b"x", "k", KernelIO(()), (), Geometry(), "h", 0.5, 1.0)]


@pytest.mark.parametrize(("flops", "status"), [(1e10, Status.WRONG), (1e13, Status.OK)])
def test_a_time_below_what_the_machine_can_is_wrong_once_its_peaks_were_looked_at_again(
    flops: float, status: Status
) -> None:
    device = Fast(flops)
    measurer = CandidateMeasurer(device, Policy(), costs=Costs(device.clock))  # type: ignore[arg-type]  # what it asks of a device
    x = Tensor.input("x", (32, 32), "f32")
    product = schedule(((x @ Tensor.input("y", (32, 32), "f32")).node,)).launches[0].kernel
    (found,) = measurer.measure(product, [Schedule(())], float("inf"), ())
    assert found is not None
    assert found.measurement.status is status
    assert device.looks == [False, True]
    assert ("as the machine was measured" in found.measurement.error) == (status is Status.WRONG)
