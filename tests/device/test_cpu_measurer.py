"""The measurer on well-meant candidates: packed constants, in-place parameters, threads, policies,
machine limits.
"""

from __future__ import annotations

import math
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
from local_bench import LocalBench

from tunegrad.devices import examine, host_device
from tunegrad.devices import measurer as measuring
from tunegrad.devices.bench import Bench
from tunegrad.devices.cpu.engine import CpuEngine
from tunegrad.devices.examine import Unprepared
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Launch
from tunegrad.devices.job import (
    Candidate,
    CompiledCandidate,
    Geometry,
    Hooks,
    KernelIO,
    Limits,
    Lowered,
    Parameter,
    Ran,
    Reference,
    Verdict,
    digest,
    identity,
)
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.devices.processes.isolated import IsolatedWorker
from tunegrad.devices.verifying.handover import output_places
from tunegrad.devices.verifying.referee import Referee
from tunegrad.errors import DeviceError, InternalError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import Valid, as_index, var
from tunegrad.ir.program import Pack
from tunegrad.trial import Measurement, Policy, Status

pytestmark = pytest.mark.timing

HOOKS = Hooks(reference="hostile:reference")
N = hostile.N

# out[i] = x[i] + reversed[i], where `reversed` is the constant y packed backwards.
PACKED = hostile.GOOD.replace("ptr %buffers, i64 2", "ptr %buffers, i64 3").replace(
    "getelementptr ptr, ptr %buffers, i64 1", "getelementptr ptr, ptr %buffers, i64 2"
)
PACK = Pack("r", "y", F32, ("v",), (N,), as_index(N - 1) - var("v", N), Valid(()))
PACKED_IO = KernelIO(
    (*hostile.IO.params[:2], Parameter("r", "f32", N, "pack"), hostile.IO.params[2]), (PACK,)
)

# Thread t of two writes its half.
HALVES = """
define void @k(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {
entry:
  %x = load ptr, ptr %buffers
  %yp = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %yp
  %op = getelementptr ptr, ptr %buffers, i64 2
  %out = load ptr, ptr %op
  %first = mul i64 %tid, 500
  %end = add i64 %first, 500
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %i1, %loop ]
  %xi = getelementptr float, ptr %x, i64 %i
  %a = load float, ptr %xi
  %yi = getelementptr float, ptr %y, i64 %i
  %b = load float, ptr %yi
  %sum = fadd float %a, %b
  %oi = getelementptr float, ptr %out, i64 %i
  store float %sum, ptr %oi
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %tail
tail:
  ret void
}
"""

# x[i] += y[i]
IN_PLACE = hostile.GOOD.replace("float, ptr %out, i64 %i", "float, ptr %x, i64 %i").replace(
    "  %op = getelementptr ptr, ptr %buffers, i64 2\n  %out = load ptr, ptr %op\n", ""
)
IN_PLACE_IO = KernelIO((Parameter("x", "f32", N, "inout"), Parameter("y", "f32", N, "in")))


def reversed_reference(
    payload: object, inputs: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Reference]:
    return {"out": Reference(inputs["x"].astype(np.float64) + inputs["y"][::-1])}


def in_place_reference(
    payload: object, inputs: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Reference]:
    return {"x": Reference(inputs["x"].astype(np.float64) + inputs["y"])}


def compiled(ir: str, io: KernelIO, threads: int = 1) -> CompiledCandidate:
    return CompiledCandidate(
        compile_llvm(ir, host_target(2)), "k", io, (), Geometry(threads), "hash"
    )


@pytest.fixture(autouse=True)
def _unpinned() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)  # a Bench pins its process
    yield
    os.sched_setaffinity(0, allowed)


def _measure(
    reference: str, ir: str, io: KernelIO, threads: int = 1, policy: Policy = hostile.QUICK
) -> Measurement:
    candidate = Candidate("kernel", None)
    with LocalBench(reference) as local:
        local.prepare(candidate, io)
        return local.measure(candidate, compiled(ir, io, threads), policy)


def test_referee_that_is_done_takes_the_next_kernel_whatever_another_one_still_works_at():
    asked: dict[str, list[str]] = {"slow": [], "quick": []}

    class Judge:
        """Answers at once, or once the other one has three kernels."""

        def __init__(self, name: str) -> None:
            self.name, (self.here, self.there) = name, socket.socketpair()

        def begin(self, _, __, candidate, *___, limit_s, reply_type):
            asked[self.name].append(candidate.kernel_key)
            if self.name == "quick":
                self.there.send(b"!")
            if len(asked["quick"]) == 3:
                slow.there.send(b"!")
            return lambda: self.here.recv(1)

        def fileno(self) -> int:
            return self.here.fileno()

        def close(self) -> None:
            self.here.close()
            self.there.close()

    slow, quick = Judge("slow"), Judge("quick")
    with DeviceMeasurer(host_device(2), HOOKS, Limits(reference_s=60.0), 2) as measurer:
        measurer._referees = slow, quick  # type: ignore[assignment]
        measurer.refer([(Candidate(str(n), None), hostile.IO) for n in range(4)])
        measurer.refer([])
        assert asked == {"slow": ["0"], "quick": ["1", "2", "3"]}
        assert [measurer._referee(str(n)) is quick for n in range(4)] == [False, True, True, True]


@pytest.mark.parametrize("stopped", [TimeoutError, KeyboardInterrupt])
def test_references_that_a_deadline_leaves_are_not_lost(monkeypatch, stopped):
    kernels = [(Candidate(str(n), None), hostile.IO) for n in range(4)]
    first = IsolatedWorker.first_to_answer

    def ends(*_: object) -> IsolatedWorker:
        monkeypatch.setattr(IsolatedWorker, "first_to_answer", first)
        raise stopped

    with DeviceMeasurer(host_device(2), HOOKS, Limits(), 2) as measurer:
        measurer.refer(kernels[:2])
        pids = [j._running.process.pid for j in measurer._referees]
        monkeypatch.setattr(IsolatedWorker, "first_to_answer", ends)
        with pytest.raises(stopped):
            measurer.refer(kernels[2:])
        measurer.wait_idle()
        running = [j._running.process.pid for j in measurer._referees if j._running is not None]
        assert running == (pids if stopped is TimeoutError else [])


def test_packed_constant_is_filled_from_its_source():
    row = _measure("test_cpu_measurer:reversed_reference", PACKED, PACKED_IO)
    assert (row.status, row.error) == (Status.OK, "")


def _outcome(ir: str, io: KernelIO, reference: str) -> Measurement:
    """What a measurer, with processes of its own, says of a candidate."""
    lowered = Lowered(ir, "k", io)
    with DeviceMeasurer(host_device(2), Hooks(reference=reference)) as measurer:
        (outcome,) = measurer.measure(
            [Candidate("kernel", lowered)], replace(hostile.QUICK, timeout_s=20.0)
        )
    return outcome.measurement


def test_write_to_a_packed_constant_is_wrong():
    spoiler = PACKED.replace("tail:", "tail:\n  store float 0.0, ptr %y")
    row = _outcome(spoiler, PACKED_IO, "test_cpu_measurer:reversed_reference")
    assert (row.status, row.error) == (Status.WRONG, "r: the candidate wrote to this pack buffer")


def test_in_place_parameter_is_drawn_and_compared():
    row = _measure("test_cpu_measurer:in_place_reference", IN_PLACE, IN_PLACE_IO)
    assert (row.status, row.error) == (Status.OK, "")


def test_two_threads_share_a_kernel():
    row = _measure("hostile:reference", HALVES, hostile.IO, threads=2)
    assert (row.status, row.error) == (Status.OK, "")


def test_half_of_the_team_leaves_half_unwritten():
    row = _measure("hostile:reference", HALVES, hostile.IO, threads=1)
    assert row.error.startswith("out[500]: got 1.30577")


def test_cold_policy_is_measured_by_single_launches():
    policy = Policy(cache="cold", min_samples=3, max_samples=3, budget_s=0.5)
    row = _measure("hostile:reference", hostile.GOOD, hostile.IO, policy=policy)
    assert row.status is Status.OK
    assert len(row.samples_s) == 3


@pytest.mark.parametrize(
    ("cache", "buffers", "parted"), [("warm", 0, 0), ("constants", 1, 2), ("cold", 4, 0)]
)
def test_what_is_evicted_is_as_the_policy_says(monkeypatch, cache, buffers, parted):
    candidate, evicted, parts = Candidate("kernel", None), set[int](), dict[int, None]()
    policy = Policy(cache=cache, min_samples=3, max_samples=3, budget_s=0.5)
    with LocalBench("test_cpu_measurer:reversed_reference") as local:
        team = local.bench.engine.team
        time = team.time

        def spied(
            launch: Launch,
            samples: int,
            inner: int = 1,
            cold: Sequence[tuple[int, int]] = (),
            near: Sequence[tuple[int, int]] = (),
        ) -> tuple[float, ...]:
            evicted.update(address for address, _ in cold)
            parts.update(dict.fromkeys(address for address, _ in near))
            return time(launch, samples, inner, cold, near)

        monkeypatch.setattr(team, "time", spied)
        local.prepare(candidate, PACKED_IO)
        assert local.measure(candidate, compiled(PACKED, PACKED_IO), policy).status is Status.OK
        bound = local.bench._bound
        names = [p.name for p in bound.io.params]
        at = dict(zip((b.address for b in bound.buffers[0]), names, strict=True))
    assert len(evicted) == buffers, "of x, y, r (y packed, the only constant that is read) and out"
    assert [at[address] for address in parts] == ["out", "x"][:parted], "inputs are nearest"


def test_a_kernel_is_verified_on_three_different_input_sets():
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), hostile.IO)
        expected = local.referee._kernels.get("kernel").references
    assert len(expected) == 3
    assert (expected[0]["out"].values != expected[1]["out"].values).any()


def test_the_bench_has_no_expected_values_and_the_referee_no_inputs():
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), hostile.IO)
        runs, judges = local.bench._datasets.get("kernel"), local.referee._kernels.get("kernel")
    assert [sorted(s.inputs) for s in runs.sets] == [["x", "y"]] * 3
    assert [s.references for s in runs.sets] == [{}, {}, {}]
    assert [s.inputs for s in judges.sets] == [{}, {}, {}]


def test_unprepared_kernel_is_told_apart():
    with LocalBench("hostile:reference") as local:
        found = local.examine(
            Candidate("never seen", None), compiled(hostile.GOOD, hostile.IO), hostile.QUICK
        )
    assert found == Unprepared()


def test_more_threads_than_the_target_is_an_internal_error():
    with pytest.raises(InternalError, match="3 threads, the target has 2"):
        _measure("hostile:reference", HALVES, hostile.IO, threads=3)


def test_unknown_hook_is_an_internal_error():
    told = pytest.raises(InternalError, match="hook 'hostile:no_such_function'")
    with LocalBench("hostile:no_such_function") as local, told:
        local.prepare(Candidate("kernel", None), hostile.IO)


def test_unknown_hook_is_an_internal_error_of_the_measurer_too():
    hooks = Hooks(reference="hostile:no_such_function")
    told = pytest.raises(
        InternalError,
        match="reference of kernel add: InternalError: hook 'hostile:no_such_function'",
    )
    with DeviceMeasurer(host_device(1), hooks, Limits(), compile_workers=1) as measurer, told:
        measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)


def test_two_hundred_candidates_do_not_grow_the_process():
    candidate, one = Candidate("kernel", None), compiled(hostile.GOOD, hostile.IO)
    policy = Policy(min_samples=1, max_samples=1, budget_s=0.0)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        for _ in range(100):
            local.measure(candidate, one, policy, 1.0)
        before = resident()
        for _ in range(200):
            assert local.measure(candidate, one, policy, 1.0).status is Status.OK
        assert resident() - before < 8 << 20


@pytest.mark.parametrize(
    ("asked", "machine", "kept"), [(1 << 20, 24 << 30, 1 << 20), (4 << 30, 8 << 30, 1 << 30)]
)
def test_what_is_kept_of_kernels_is_a_share_of_the_machines_memory(
    monkeypatch, asked, machine, kept
):
    monkeypatch.setattr(measuring, "machine_bytes", lambda: machine)
    with DeviceMeasurer(host_device(1), HOOKS, Limits(cache_bytes=asked)) as measurer:
        assert measurer.limits == Limits(cache_bytes=kept)


def test_machine_limits_come_from_the_worker_and_are_kept():
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=1) as measurer:
        assert measurer.machine_limits() is measurer.machine_limits()
        assert measurer.machine_limits().flops(1) > 1e9


def test_machine_limits_that_take_too_long_are_an_error_of_the_machine(monkeypatch):
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=1) as measurer:
        monkeypatch.setattr("tunegrad.devices.measurer._PEAKS_S", 0.001)
        with pytest.raises(DeviceError, match=r"peaks can not be measured: over 0\.001 s, others"):
            measurer.machine_limits()
        monkeypatch.undo()
        found = measurer.machine_limits()
        monkeypatch.setattr("tunegrad.devices.measurer._PEAKS_S", 0.001)
        assert measurer.machine_limits(again=True) is found


def test_payload_without_a_lowering_hook_must_be_lowered():
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=1) as measurer:
        (outcome,) = measurer.measure([Candidate("k", "text")], hostile.QUICK)
    assert outcome.measurement.status is Status.COMPILE_ERROR
    assert "str is not a Lowered" in outcome.measurement.error


def test_hash_depends_on_the_program_only():
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=1) as measurer:
        a, b, c = measurer.compile(
            [
                Candidate("one", Lowered(hostile.GOOD, "k", hostile.IO)),
                Candidate("two", Lowered(hostile.GOOD, "k", hostile.IO)),
                Candidate("one", Lowered(hostile.WRONG, "k", hostile.IO)),
            ]
        )
    assert a.program_hash == b.program_hash != c.program_hash


def test_references_are_computed_once_though_the_bench_is_replaced():
    with LocalBench("hostile:reference") as local:
        candidate = Candidate("kernel", None)
        local.prepare(candidate, hostile.IO)
        first = local.referee._kernels.get("kernel").references
        local.prepare(candidate, hostile.IO)
        again = local.referee._kernels.get("kernel").references
    assert all(a["out"] is b["out"] for a, b in zip(first, again, strict=True))


def test_references_that_were_computed_ahead_are_taken():
    with LocalBench("hostile:reference") as local:
        several = [(Candidate(key, None), hostile.IO) for key in ("a", "b", "c", "b")]
        for candidate, io in several:
            local.referee.refer(candidate, io)
        ahead = {key: local.referee._kernels.get(key).references for key in ("a", "b", "c")}
        local.prepare(Candidate("b", None), hostile.IO)
        taken = local.referee._kernels.get("b").references
    assert all(x["out"] is y["out"] for x, y in zip(ahead["b"], taken, strict=True))
    assert (ahead["a"][0]["out"].values != ahead["b"][0]["out"].values).any()


def test_a_kernel_whose_reference_dies_ahead_costs_no_other_its_row():
    hooks = Hooks(reference="test_cpu_measurer:dies_of_one_kernel")
    bad = Candidate("bad", Lowered(hostile.WRONG, "k", hostile.IO))
    with DeviceMeasurer(host_device(1), hooks, Limits(), compile_workers=1) as measurer:
        measurer.refer([(bad, hostile.IO)])
        (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    assert outcome.measurement.status is Status.OK


def test_references_ahead_are_shared_out_between_referees():
    kernels = [(Candidate(key, Lowered(hostile.GOOD, "k", hostile.IO)), hostile.IO) for key in "ab"]
    hooks = Hooks(reference="hostile:reference")
    with DeviceMeasurer(host_device(1), hooks, Limits(), compile_workers=2) as measurer:
        measurer.refer([*kernels, kernels[0]])
        assert [judge.started for judge in measurer._referees] == [1, 1]
        assert measurer._referee("a") is not measurer._referee("b")
        outcomes = measurer.measure([c for c, _ in kernels], hostile.QUICK)
        alone = measurer.measure([kernels[1][0]], hostile.QUICK)
    ran = [o.measurement.status for o in (*outcomes, *alone) if o is not None]
    assert ran == [Status.OK] * len(ran)
    assert len(ran) >= 2


def dies_of_one_kernel(
    payload: Lowered, inputs: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Reference]:
    if payload.text == hostile.WRONG:
        os._exit(3)
    return hostile.reference(payload, inputs)


def test_a_candidate_alone_is_timed_again_where_the_clock_has_moved(monkeypatch):
    clocks, timed, pairs = iter((4000.0, 3900.0, 3910.0, 4000.0, 4001.0)), [], Bench._pairs

    def counted(self: Bench, *rest: Any) -> Any:
        timed.append(rest)
        return pairs(self, *rest)

    monkeypatch.setattr(Bench, "_state", lambda _: {"clock_mhz": next(clocks)})
    monkeypatch.setattr(Bench, "_pairs", counted)
    candidate = Candidate("kernel", None)
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        row = local.measure(candidate, compiled(hostile.GOOD, hostile.IO), hostile.QUICK)
        assert (len(timed), row.state) == (2, (("clock_mhz", 3910.0),))
        row = local.measure(candidate, compiled(hostile.GOOD, hostile.IO), hostile.QUICK)
    assert (len(timed), row.state) == (3, (("clock_mhz", 4001.0),))


def test_an_element_of_an_input_changes_between_timed_samples(monkeypatch):
    seen, time = [], CpuEngine.time
    candidate = Candidate("kernel", None)
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)

        def watched(engine: CpuEngine, launch: Any, *rest: Any) -> tuple[float, ...]:
            seen.append(local.bench._bound.buffers[0][0].array("f32").copy() if timing else None)
            return time(engine, launch, *rest)

        timing, pairs = [], Bench._pairs

        def timed(self: Bench, *rest: Any) -> Any:
            timing.append(True)
            found = pairs(self, *rest)
            timing.clear()
            return found

        monkeypatch.setattr(CpuEngine, "time", watched)
        monkeypatch.setattr(Bench, "_pairs", timed)
        row = local.measure(candidate, compiled(hostile.GOOD, hostile.IO), hostile.QUICK)
        buffer = local.bench._bound.buffers[0][0]
        first, protected = buffer.array("f32").copy(), buffer._protected
    samples = [x for x in seen if x is not None]
    assert row.status is Status.OK
    assert len(samples) >= 3
    assert all((a != b).sum() == 1 for a, b in pairwise(samples))
    assert all((x != first).sum() <= 1 and (x[:16] == first[:16]).all() for x in samples)
    assert protected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="cycles of its products are not known")
def test_a_row_says_the_clock_of_its_timing():
    candidate = Candidate("kernel", None)
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        row = local.measure(candidate, compiled(hostile.GOOD, hostile.IO), hostile.QUICK)
    state = dict(row.state)
    assert 100.0 < state.pop("clock_mhz") < 10_000.0
    assert all(name == "launch_ns" and ns > 0.0 for name, ns in state.items())


def test_the_same_bytes_are_judged_again_only_where_they_may_win(monkeypatch):
    judged, candidate = [], Candidate("kernel", None)
    off = hostile.text("  store float 3.0, ptr %out")
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        judge = local.referee.judge

        def counted(_: Referee, key: str, outputs: tuple[Parameter, ...], index: int) -> Verdict:
            judged[-1].append(index)
            return judge(key, outputs, index)

        def measure(ir: str, best_s: float) -> Measurement:
            judged.append([])
            return local.measure(candidate, compiled(ir, hostile.IO), hostile.QUICK, best_s)

        monkeypatch.setattr(Referee, "judge", counted)
        won = measure(hostile.GOOD, math.inf)
        lost = measure(hostile.GOOD, 1e-12)
        monkeypatch.setattr(examine, "CONTENDING", 1e12)
        near = measure(hostile.GOOD, 1e-12)
        wrong = [measure(off, best_s) for best_s in (math.inf, 1e-12)]
        again = measure(hostile.GOOD, math.inf)
    assert [row.status for row in (won, lost, near, again)] == [Status.OK] * 4
    assert [row.status for row in wrong] == [Status.WRONG] * 2
    assert judged == [[0, 0, 2, 1, 1, 2, 0], [], [], [0], [0], [0, 2, 1, 1, 2, 0]]
    assert won.max_error == lost.max_error == near.max_error


def test_what_is_right_for_one_set_is_not_right_for_another(monkeypatch):
    monkeypatch.setattr(examine, "CONTENDING", 1e12)
    candidate, code = Candidate("kernel", None), compiled(hostile.GOOD, hostile.IO)
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        good = local.measure(candidate, code, hostile.QUICK)
        run = local.bench.run

        def stale(_: Bench, index: int) -> Ran:
            return replace(run(0), measured=identity(digest(code.image), "kernel", index))

        monkeypatch.setattr(Bench, "run", stale)
        row = local.measure(candidate, code, hostile.QUICK, best_s=1e-12)
    assert good.status is Status.OK
    assert (row.status, row.error.split("[")[0]) == (Status.WRONG, "out")


def test_right_outputs_do_not_stay_where_candidates_can_read_them():
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), hostile.IO)
        outputs = tuple(p for p in hostile.IO.params if p.role == "out")
        ((_, memory),) = output_places(outputs, local.referee._memory)
        memory[:] = local.referee._kernels.get("kernel").references[0]["out"].values
        verdict = local.referee.judge("kernel", outputs, 0)
        left = memory.copy()
    assert (verdict.error, left.any()) == ("", False)


def test_constants_are_one_array_for_all_input_sets():
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), hostile.IO)
        first, *others = (s.inputs for s in local.bench._datasets.get("kernel").sets)
    assert len(others) == 2
    assert all(first["y"] is other["y"] for other in others)
    assert all((first["x"] != other["x"]).any() for other in others)


# Does something bad where the first input is that of one set.
ONCE = """  %n = load float, ptr %x
  %spoil = fcmp oeq float %n, {value}
  br i1 %spoil, label %bad, label %fine
bad:
  %far = getelementptr float, ptr %{name}, i64 999
  store float 7.0, ptr %far
  br label %fine
fine:"""


def _first_value(index: int) -> float:
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), hostile.IO)
        return float(local.bench._datasets.get("kernel").sets[index].inputs["x"][0])


def _once(index: int, name: str) -> str:
    value = f"0x{np.float64(_first_value(index)).view(np.uint64):016X}"
    return hostile.text(ONCE.format(value=value, name=name))


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("name", "role"), [("x", "in"), ("y", "const")])
def test_input_spoilt_in_one_set_only_is_found(index, name, role):
    row = _outcome(_once(index, name), hostile.IO, "hostile:reference")
    assert row.status is Status.WRONG
    assert row.error == f"{name}: the candidate wrote to this {role} buffer"


@pytest.mark.parametrize(("best_s", "status"), [(float("inf"), Status.WRONG), (1e-9, Status.OK)])
def test_who_may_win_is_verified_on_every_input_set_and_others_on_the_first(best_s, status):
    candidate = Candidate("kernel", None)
    with LocalBench("hostile:reference") as local:
        local.prepare(candidate, hostile.IO)
        row = local.measure(candidate, compiled(_once(1, "out"), hostile.IO), hostile.QUICK, best_s)
    assert row.status is status
    assert ("out[999]: got 7, expected " in row.error) == (status is Status.WRONG)


@pytest.mark.slow
def test_compile_workers_that_wait_do_not_disturb_timing():
    policy = Policy(min_samples=200, max_samples=200, tolerance=0.0, budget_s=10.0, timeout_s=30.0)
    states = (
        "waiting",
        "gone",
        "gone still",
    )  # the last two differ by what this machine can not tell apart
    medians: dict[str, list[float]] = {state: [] for state in states}
    spreads: dict[str, list[float]] = {state: [] for state in states}
    candidate = hostile.candidate(hostile.GOOD)
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=2) as measurer:
        for _ in range(20):
            one, _ = measurer.compile([candidate, candidate])
            for state in states:
                if state == "gone":
                    measurer._compilers.close()
                samples = np.sort(measurer.measure_compiled(candidate, one, policy).samples_s)
                medians[state].append(float(samples[100]))
                spreads[state].append(float((samples[150] - samples[50]) / samples[100]))

    def gap(values: dict[str, list[float]], a: str, b: str) -> float:
        return abs(float(np.median(values[a]) - np.median(values[b])))

    idle_s = float(np.median(medians["gone"]))
    assert (
        gap(medians, "waiting", "gone") / idle_s
        < 0.02 + gap(medians, "gone", "gone still") / idle_s
    )
    assert gap(spreads, "waiting", "gone") < 0.02 + gap(spreads, "gone", "gone still")
