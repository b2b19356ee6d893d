"""A kernel taken apart: which lists are timed, what is made of their times.

Times are scripted; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from program_hashes import hash_of

from tunegrad.compiling import Payload
from tunegrad.db import Evidence, Store, open_store
from tunegrad.devices import (
    Candidate,
    CompiledCandidate,
    Geometry,
    KernelIO,
    MachineLimits,
)
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.errors import ConfigError
from tunegrad.events import Event, KernelStarted, Warned
from tunegrad.explain.ablation import ScheduleTimer, time_steps
from tunegrad.explain.model import explain_rows, selected
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space, print_actions
from tunegrad.reports import ExplainRow, StepTime
from tunegrad.trial import Fingerprint, Measured, Measurement, Policy, Status, Trial
from tunegrad.tuning.roofline import Roofline
from tunegrad.tuning.workload import KernelUse, Workload, workload_of_function

HERE = Fingerprint((("device", "cpu"),))
TARGET = Target("cpu", "cpu", "x", threads=1, vector_bytes=16, registers=16, l3_bytes=1 << 20)
LIMITS = MachineLimits(((1, 1e9),), ((1, 1e9),), ((1, 1e9),), ((1, 4e9),))
TILE, ORDER, VECTOR = "tile(axis=b, size=4)", "reorder(order=(a, b0, ra, b1))", "vectorize(axis=b1)"
WHOLE = f"{TILE} {ORDER} {VECTOR}"


def workload() -> Workload:
    a, b, c = (np.ones(shape, np.float32) for shape in ((4, 6), (6, 8), (8, 3)))
    return workload_of_function(lambda a, b, c: (a @ b) @ c, (a, b, c))


def use() -> KernelUse:
    first = workload().kernels[0]
    return KernelUse(first.kernel.canonical(), first.key, first.name, 2)


@dataclass
class Scripted:
    """A device that takes the time that the script has for an action list; a list without one does
    not compile.
    """

    seconds: Mapping[str, float | Measurement]
    programs: Mapping[str, str] = field(default_factory=dict)
    clock_s: float = 0.0
    measured: list[str] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)

    def compile(self, candidates: Sequence[Candidate]) -> list[CompiledCandidate | Measured]:
        return [self._compiled(_text(c)) for c in candidates]

    def measure_compiled(
        self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy
    ) -> Measurement:
        text = _text(candidate)
        self.measured.append(text)
        self.limits_s.append(policy.timeout_s)
        self.clock_s += 1.0
        found = self.seconds[text]
        return found if isinstance(found, Measurement) else Measurement(Status.OK, (found,) * 3)

    def _compiled(self, text: str) -> CompiledCandidate | Measured:
        if text not in self.seconds:
            return Measured("", Measurement(Status.COMPILE_ERROR, error="too hard\nreally"))
        return CompiledCandidate(
            b"x", "k", KernelIO(()), (), Geometry(), self.programs.get(text, text), 0.0, 0.0
        )


def _text(candidate: Candidate) -> str:
    assert isinstance(candidate.payload, Payload)
    return candidate.payload.actions


TIMES = {"": 8.0, TILE: 8.0, f"{TILE} {ORDER}": 4.0, WHOLE: 1.0, f"{TILE} {VECTOR}": 2.0}


def apart(
    device: Scripted, deadline_s: float = 100.0
) -> tuple[StepTime | None, tuple[tuple[object, ...], ...]]:
    timer = ScheduleTimer(device, CpuDevice(TARGET), deadline_s, lambda: device.clock_s)
    kernel, schedule = use().kernel, Schedule.parse(WHOLE)
    timer.compile([(kernel, WHOLE)])
    unscheduled, steps = time_steps(timer, kernel, schedule)
    return unscheduled, tuple((s.action, s.after.ms, s.gain, s.without.ms, s.worth) for s in steps)


def test_prefixes_are_timed_in_turn_and_each_action_has_its_factor() -> None:
    unscheduled, steps = apart(Scripted(TIMES))
    assert unscheduled == StepTime(8000.0, off=0.0)
    assert [(action, after, gain) for action, after, gain, *_ in steps] == [
        (TILE, 8000.0, 1.0), (ORDER, 4000.0, 2.0), (VECTOR, 1000.0, 4.0),
    ]  # fmt: skip


def test_list_without_an_action_is_timed_where_it_is_legal() -> None:
    _, steps = apart(Scripted(TIMES))
    assert [(without, worth) for *_, without, worth in steps] == [
        (None, None),
        (2000.0, 2.0),
        (4000.0, 4.0),
    ]


def test_equal_programs_are_timed_once() -> None:
    device = Scripted(TIMES, {TILE: "same", "": "same"})
    apart(device)
    assert sorted(device.measured) == sorted(
        [WHOLE, f"{TILE} {ORDER}", TILE, f"{TILE} {VECTOR}", WHOLE]
    )


def test_whole_list_is_timed_again_and_the_better_time_counts() -> None:
    class Disturbed(Scripted):
        """The first look at the whole list falls into a bad moment."""

        def measure_compiled(
            self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy
        ) -> Measurement:
            found = super().measure_compiled(candidate, compiled, policy)
            return found if self.measured != [WHOLE] else Measurement(Status.OK, (5.0,) * 3)

    _, steps = apart(Disturbed(TIMES))
    assert [after for _, after, *_ in steps] == [8000.0, 4000.0, 1000.0]


def test_kernel_that_is_alone_has_every_list_timed_twice() -> None:
    device = Scripted(TIMES)
    rows_of(device, stored(WHOLE), [use()])
    assert all(device.measured.count(text) >= 2 for text in TIMES)


def test_longest_prefixes_come_first_and_the_budget_ends_the_rest() -> None:
    device = Scripted(TIMES)
    unscheduled, steps = apart(device, deadline_s=2.0)
    assert device.measured == [WHOLE, f"{TILE} {ORDER}"]
    assert unscheduled == StepTime(note="not timed: the budget is spent")
    assert [after for _, after, *_ in steps] == [None, 4000.0, 1000.0]
    assert [gain for _, _, gain, *_ in steps] == [None, None, 4.0]


def test_step_is_stopped_at_its_limit_and_says_that_it_takes_longer() -> None:
    stopped = Measurement(Status.TIMED_OUT, error="running: over 3 s", timing_s=3.0)
    device = Scripted({**TIMES, "": stopped})
    unscheduled, steps = apart(device)
    assert unscheduled == StepTime(3000.0, over=True)
    assert steps[0][2] == 3000.0 / 8000.0
    assert dict(zip(device.measured, device.limits_s, strict=True))[""] == 3.0


def test_step_that_does_not_compile_says_why_in_one_line() -> None:
    times = {text: s for text, s in TIMES.items() if text}
    unscheduled, steps = apart(Scripted(times))
    assert unscheduled == StepTime(note="compile_error: too hard")
    assert steps[0][2] is None


# ---- rows


def stored(text: str, promoted: bool = True) -> Store:
    """A store where this schedule of the kernel is the winner."""
    store = open_store(":memory:", "write")
    kernel = use().kernel
    trials = [
        Trial(
            kernel.key,
            kernel.text,
            HERE,
            actions,
            hash_of(kernel, actions, TARGET),
            SPACE_VERSION,
            Policy(),
            measured,
            "s1",
            origin,
        )
        for actions, measured, origin in (
            ("", Measurement(Status.OK, (8.0,) * 3), "default"),
            (text, Measurement(Status.OK, (1.5,) * 3), "beam"),
        )
    ]
    with store.session("tune", 0, {}, "0", "s1"):
        ids = [store.add(t) for t in trials]
    if promoted:
        store.promote(
            ids[1], Evidence("mannwhitneyu", 0.001, (4.0, 5.0, 6.0), (1.0, 2.0, 3.0), cold=True)
        )
    return store


def rows_of(
    device: Scripted, store: Store | None, uses: Sequence[KernelUse], deadline_s: float = 100.0
) -> list[ExplainRow]:
    timer = ScheduleTimer(device, CpuDevice(TARGET), deadline_s, lambda: device.clock_s)
    return list(
        explain_rows(uses, timer, Roofline(LIMITS, TARGET), store, HERE, lambda event: None)
    )


def test_row_of_a_stored_winner_names_its_evidence() -> None:
    (row,) = rows_of(Scripted(TIMES), stored(WHOLE), [use()])
    assert (row.outcome, row.origin, row.session, row.actions, row.stored_ms) == (
        "hit",
        "beam",
        "s1",
        WHOLE,
        1500.0,
    )
    assert row.promotion is not None
    assert (row.promotion.p_value, row.promotion.incumbent_ms, row.promotion.challenger_ms) == (
        0.001,
        5000.0,
        2000.0,
    )
    assert (row.ms, len(row.steps), row.registers) == (1000.0, 3, "b1:4v")


def test_winner_that_nothing_promoted_has_no_evidence() -> None:
    (row,) = rows_of(Scripted(TIMES), stored(WHOLE, promoted=False), [use()])
    assert (row.outcome, row.promotion) == ("hit", None)


def test_stored_winner_that_is_not_legal_gives_way_to_the_default() -> None:
    default = Space(use().kernel, TARGET).defaults()[0].text
    (row,) = rows_of(Scripted({default: 1.0}), stored("tile(axis=nowhere, size=4)"), [use()])
    assert (row.outcome, row.origin, row.actions) == ("miss", "default", default)
    assert row.differs == ("actions: the stored winner is not legal here",)


def test_bounds_are_arithmetic_over_the_peak_and_bytes_over_the_bandwidth() -> None:
    (row,) = rows_of(Scripted(TIMES), stored(WHOLE), [use()])
    assert (row.flops, row.executed_flops, row.unique_bytes) == (
        2 * 4 * 8 * 6,
        2 * 4 * 8 * 6,
        4 * (24 + 48 + 32),
    )
    assert row.flops_ms == pytest.approx(1e3 * 384 / 1e9)
    assert row.bytes_ms == pytest.approx(1e3 * 416 / 4e9)
    assert (row.bound, row.level) == ("flops", "cache")
    assert row.lost_ms == pytest.approx(2 * (1000.0 - row.flops_ms))
    assert row.pct_bound == pytest.approx(100 * row.flops_ms / 1000.0)


def test_rows_keep_their_order_and_the_heaviest_is_taken_apart_first() -> None:
    light, heavy = (KernelUse(u.kernel, u.key, u.name, 1) for u in workload().kernels)
    defaults = {u.key: Space(u.kernel, TARGET).defaults()[0] for u in (light, heavy)}
    times: dict[str, float] = {}
    for seconds, u in ((1.0, light), (3.0, heavy)):
        actions = defaults[u.key].actions
        times |= {print_actions(actions[:n]): seconds for n in range(1, len(actions) + 1)}
    events: list[Event] = []
    device = Scripted(times)
    timer = ScheduleTimer(device, CpuDevice(TARGET), 2.5, lambda: device.clock_s)
    rows = explain_rows([light, heavy], timer, Roofline(LIMITS, TARGET), None, HERE, events.append)
    assert [r.key for r in rows] == [light.key, heavy.key]
    assert [r.share for r in rows] == pytest.approx([0.25, 0.75])
    assert [bool(r.steps) for r in rows] == [False, True]
    assert rows[0].note == "its actions were not timed: the budget is spent"
    assert [e.key for e in events if isinstance(e, KernelStarted)] == [
        light.key,
        heavy.key,
        heavy.key,
    ]
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "1 of 2 kernels were not taken apart; a larger --budget goes further"
    ]


def test_kernel_is_found_by_name_and_by_the_beginning_of_its_key() -> None:
    work = workload()
    for u in work.kernels:
        assert selected(work, u.name) == selected(work, u.key[:8]) == (u,)
    assert selected(work, "") == work.kernels


def test_unknown_kernel_lists_the_names() -> None:
    work = workload()
    with pytest.raises(ConfigError) as caught:
        selected(work, "conv9x9")
    assert str(caught.value).startswith("kernel 'conv9x9' is not one of model ")
    assert all(u.name in str(caught.value) for u in work.kernels)
