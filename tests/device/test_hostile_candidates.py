"""Hostile candidates: each costs exactly one row with the right status, and the next candidate
succeeds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver

import hostile
import pytest
from hostile_programs import unguarded

from tests.time_enough import with_time_enough
from tunegrad.devices import host_device
from tunegrad.devices.bench import Bench
from tunegrad.devices.job import Candidate, Hooks, Limits, Lowered
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.devices.processes.channel import Died
from tunegrad.devices.verifying.referee import Referee
from tunegrad.errors import CompileFailure
from tunegrad.trial import Measurement, Policy, Status

pytestmark = pytest.mark.timing

LIMITS = Limits(compile_s=1.0, compile_memory_bytes=256 << 20, worker_start_s=30.0)


@pytest.fixture(scope="module")
def measurer() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(
        unguarded(2), Hooks(reference="hostile:reference"), LIMITS, compile_workers=1
    ) as measurer:
        yield measurer


def _one_between_two(
    measurer: DeviceMeasurer, bad: str, workspace_bytes: int = 64, policy: Policy = hostile.QUICK
) -> Measurement:
    """Measure good, bad, good, one after the other; the good ones must be OK."""
    batch = [
        (hostile.candidate(hostile.GOOD), hostile.QUICK),
        (hostile.candidate(bad, workspace_bytes=workspace_bytes), policy),
        (hostile.candidate(hostile.GOOD.replace("@k", "@after"), "after"), hostile.QUICK),
    ]
    before, middle, after = (measurer.measure([c], asked)[0] for c, asked in batch)
    assert before is not None
    assert middle is not None
    assert after is not None
    assert [before.measurement.status, after.measurement.status] == [Status.OK, Status.OK], (
        after.measurement.error
    )
    assert middle.measurement.samples_s == () or middle.measurement.status == Status.OK
    return middle.measurement


def test_good_candidate_is_verified_and_timed(measurer):
    (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    assert outcome.measurement.status is Status.OK
    assert outcome.measurement.error == ""
    assert 0 < outcome.measurement.seconds < 1e-3
    assert outcome.measurement.max_error < 1e-6
    assert len(outcome.program_hash) == 32


def test_infinite_loop_times_out(measurer):
    row = _one_between_two(measurer, hostile.ENDLESS, policy=hostile.SHORT)
    assert (row.status, row.error) == (Status.TIMED_OUT, "running: over 1 s")


def test_null_store_is_a_crash(measurer):
    row = _one_between_two(measurer, hostile.CRASH)
    assert (row.status, row.error) == (Status.CRASHED, "running: the worker ended with SIGSEGV")


def test_endless_output_times_out(measurer):
    row = _one_between_two(measurer, hostile.flood(1, 1 << 40), policy=hostile.SHORT)
    assert (row.status, row.error) == (Status.TIMED_OUT, "running: over 1 s")


def test_abort_is_a_crash(measurer):
    row = _one_between_two(measurer, hostile.ABORT)
    assert (row.status, row.error) == (Status.CRASHED, "running: the worker ended with SIGABRT")


def test_write_past_an_output_is_wrong(measurer):
    row = _one_between_two(measurer, hostile.PAST_THE_END)
    assert row.status is Status.WRONG
    assert "past its end" in row.error


def test_write_before_an_output_is_wrong(measurer):
    row = _one_between_two(measurer, hostile.BEFORE_THE_START)
    assert row.status is Status.WRONG
    assert "bytes before its start" in row.error


@pytest.mark.parametrize(
    ("bad", "name"), [(hostile.WRITES_INPUT, "x"), (hostile.WRITES_CONSTANT, "y")]
)
def test_write_to_an_input_is_wrong(measurer, bad, name):
    row = _one_between_two(measurer, bad)
    assert row.status is Status.WRONG
    assert row.error.startswith(f"{name}: the candidate wrote to this")


def test_wrong_result_names_index_got_and_expected(measurer):
    row = _one_between_two(measurer, hostile.WRONG)
    assert row.status is Status.WRONG
    assert row.error.startswith("out[7]: got 1000000, expected ")
    assert row.max_error > 9e5


def test_nan_is_wrong(measurer):
    row = _one_between_two(measurer, hostile.NAN)
    assert row.status is Status.WRONG
    assert row.error.startswith("out[9]: got nan")


def test_unwritten_output_is_wrong(measurer):
    row = _one_between_two(measurer, hostile.UNWRITTEN)
    assert row.status is Status.WRONG
    assert row.error.startswith("out[999]: got 1.30577")


def test_reading_uninitialised_scratch_is_wrong(measurer):
    row = _one_between_two(measurer, hostile.UNINITIALISED)
    assert row.status is Status.WRONG


def test_bad_ir_is_a_compile_error_with_llvms_text(measurer):
    row = _one_between_two(measurer, hostile.BAD_IR)
    assert row.status is Status.COMPILE_ERROR
    assert "undefined value" in row.error


@pytest.mark.parametrize(
    "between", [" ", "", "\t", "\n  ", " sideeffect\talignstack ", ' ; "comment"\n ;\r']
)
def test_inline_assembly_is_illegal_however_it_is_spaced(between):
    call = f'entry:\n  call void asm{between}"nop", ""()'
    lowered = hostile.candidate(hostile.GOOD.replace("entry:", call, 1)).payload
    assert isinstance(lowered, Lowered)
    assert unguarded(2).compile(lowered)
    with pytest.raises(CompileFailure, match="no word or function of a kernel"):
        host_device(2).compile(lowered)


def test_missing_kernel_is_a_compile_error(measurer):
    row = _one_between_two(measurer, hostile.NO_SYMBOL)
    assert row.status is Status.COMPILE_ERROR
    assert row.error.startswith("linking k")


def test_enormous_compile_times_out(measurer):
    row = _one_between_two(measurer, hostile.huge(60_000))
    assert (row.status, row.error) == (Status.TIMED_OUT, "compiling: over 1 s")


def test_enormous_text_is_out_of_resources(measurer):
    row = _one_between_two(measurer, hostile.GOOD + ";" * LIMITS.text_bytes)
    assert row.status is Status.OUT_OF_RESOURCES


def test_enormous_workspace_is_out_of_resources(measurer):
    row = _one_between_two(
        measurer, hostile.text("  store i8 0, ptr %workspace"), workspace_bytes=1 << 44
    )
    assert row.status is Status.OUT_OF_RESOURCES


def test_memory_bomb_while_running_is_contained():
    limits = Limits(run_memory_bytes=512 << 20)
    with DeviceMeasurer(
        unguarded(1), Hooks(reference="hostile:reference"), limits, compile_workers=1
    ) as measurer:
        row = _one_between_two(
            measurer, hostile.HOARD, policy=replace(hostile.QUICK, timeout_s=30.0)
        )
    assert (row.status, row.error) == (Status.CRASHED, "running: the worker ended with SIGSEGV")


def test_crash_is_told_as_tried_twice(measurer):
    row = _one_between_two(measurer, hostile.CRASH)
    assert (row.status, row.attempts) == (Status.CRASHED, 2)


def test_crash_that_does_not_come_again_is_no_row(measurer, monkeypatch):
    call, died = measurer._bench.call, []

    def once_dead(function, *arguments, **rest):
        if arguments[:1] == (Bench.load,) and not died:
            died.append(call(os._exit, 3, limit_s=5.0, reply_type=None))
            return died[0]
        return call(function, *arguments, **rest)

    monkeypatch.setattr(measurer._bench, "call", once_dead)
    (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    assert died == [Died(3)]
    assert (outcome.measurement.status, outcome.measurement.attempts) == (Status.OK, 2)


@pytest.mark.parametrize("asked", [Referee.judge, Referee.prepare], ids=lambda m: m.__name__)
def test_referee_that_dies_while_it_is_asked_costs_no_candidate_its_row(
    measurer, monkeypatch, asked
):
    unseen = Candidate(f"for {asked.__name__}", Lowered(hostile.GOOD, "k", hostile.IO))
    judge = measurer._referee(unseen.kernel_key)
    call, died = judge.call, []

    def once_dead(function, *arguments, **rest):
        if arguments[:1] == (asked,) and not died:
            died.append(call(os._exit, 3, limit_s=5.0, reply_type=None))
            return died[0]
        return call(function, *arguments, **rest)

    monkeypatch.setattr(judge, "call", once_dead)
    (outcome,) = measurer.measure([unseen], hostile.QUICK)
    assert died == [Died(3)]
    assert (outcome.measurement.status, outcome.measurement.attempts) == (Status.OK, 1)


def test_innocent_candidate_after_a_killed_fork_server_is_ok(measurer):
    (before,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    server = forkserver._forkserver._forkserver_pid
    os.kill(server, signal.SIGKILL)
    # until it is gone, a start is handed to it, and waits for all of LIMITS.worker_start_s
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    (after,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    assert (before.measurement.status, after.measurement.status) == (Status.OK, Status.OK), (
        after.measurement.error
    )


def test_what_a_candidate_spoils_for_the_next_one_is_not_the_next_ones_row(measurer):
    (outcome,) = measurer.measure([hostile.candidate(hostile.OPENS_ITS_INPUT)], hostile.QUICK)
    (innocent,) = measurer.measure(
        [hostile.candidate(hostile.GOOD.replace("@k", "@after"), "after")], hostile.QUICK
    )
    assert outcome.measurement.status is Status.WRONG, (
        "it made the pages of x writable, and spoilt them after its sum"
    )
    assert (innocent.measurement.status, innocent.measurement.attempts) == (Status.OK, 2)


def test_program_known_already_is_not_measured(measurer):
    good = hostile.candidate(hostile.GOOD)
    (first,) = measurer.measure([good], hostile.QUICK)
    assert measurer.measure([good], hostile.QUICK, known=[first.program_hash]) == [None]


def test_program_twice_in_a_batch_is_measured_once(measurer):
    good = hostile.candidate(hostile.GOOD)
    first, second = measurer.measure([good, good], hostile.QUICK)
    assert first.measurement.status is Status.OK
    assert second is None


def test_clear_loser_is_stopped_early(measurer):
    policy = hostile.QUICK
    (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], policy, best_s=1e-12)
    assert outcome.measurement.status is Status.OK
    assert len(outcome.measurement.samples_s) == 1


def test_lowering_runs_in_the_worker_and_its_faults_are_rows():
    hooks = Hooks(lower="hostile:lower", reference="hostile:reference")

    def measured(times: float) -> list[Measurement]:
        """Two seconds are the limit at first: a busy machine fills the memory in more."""
        limits = replace(LIMITS, compile_s=2.0 * times)
        payloads = ("GOOD", "bug", "sleep", "memory", "WRONG")
        with DeviceMeasurer(unguarded(1), hooks, limits, compile_workers=1) as measurer:
            found = measurer.measure([Candidate("add", p) for p in payloads], hostile.QUICK)
        return [outcome.measurement for outcome in found]

    rows = with_time_enough(measured, lambda rows: rows[3].status is not Status.TIMED_OUT)
    assert [row.status for row in rows] == [
        Status.OK, Status.COMPILE_ERROR, Status.TIMED_OUT, Status.OUT_OF_RESOURCES, Status.WRONG
    ]  # fmt: skip
    assert "no such axis" in rows[1].error
    assert rows[0].lower_s > 0
