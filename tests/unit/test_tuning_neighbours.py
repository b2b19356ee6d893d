"""Schedules one action away: what the store has of them, and why others are not legal."""

from __future__ import annotations

import pytest

from tests.kernel_corpus import corpus_kernel
from tests.report_stores import HERE
from tunegrad.explain.ablation import neighbours
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule
from tunegrad.reports import Neighbour
from tunegrad.trial import Measurement, Policy, Status, Trial

TARGET = Target("cpu", "cpu", "x", threads=2, vector_bytes=16, registers=16, l3_bytes=1 << 20)
KERNEL = corpus_kernel("gemm")
TILE, ORDER, VECTOR = "tile(axis=b, size=4)", "reorder(order=(a, b0, ra, b1))", "vectorize(axis=b1)"
WHOLE = f"{TILE} {ORDER} {VECTOR}"


def trial(actions: str, seconds: float = 0.0, error: str = "") -> Trial:
    status = Status.CRASHED if error else Status.OK
    measured = Measurement(status, () if error else (seconds,) * 3, error)
    return Trial(KERNEL.key, str(KERNEL.canonical()), HERE, actions, actions, 2, Policy(), measured,
        "s1", "beam")  # fmt: skip


def near(*trials: Trial, of: str = WHOLE) -> dict[str, Neighbour]:
    found = neighbours(KERNEL, TARGET, Schedule.parse(of), trials)
    return {n.change: n for n in found}


def test_tried_ones_have_their_cost_over_the_schedule_itself() -> None:
    found = near(trial(WHOLE, 1e-3), trial(f"tile(axis=b, size=8) {ORDER} {VECTOR}", 1.5e-3))
    changed = found[f"{TILE}  ->  tile(axis=b, size=8)"]
    assert (changed.kind, changed.ms, changed.origin) == ("tried", 1.5, "beam")
    assert changed.cost == pytest.approx(1.5)


def test_left_out_and_added_actions_are_neighbours() -> None:
    found = near(trial(f"{TILE} {ORDER}", 4e-3), trial(f"{WHOLE} unroll(axis=ra)", 2e-3))
    assert found[f"without {VECTOR}"].kind == "tried"
    assert found["with unroll(axis=ra)"].kind == "tried"
    assert found[f"without {VECTOR}"].cost is None  # the schedule itself was not timed


def test_two_changes_are_no_neighbour() -> None:
    found = near(trial(f"tile(axis=b, size=8) {ORDER}", 1e-3))
    assert not [n for n in found.values() if n.kind == "tried"]


def test_failed_ones_say_how() -> None:
    found = near(trial(f"{WHOLE} unroll(axis=ra)", error="signal 11\nmore"))
    assert (found["with unroll(axis=ra)"].kind, found["with unroll(axis=ra)"].why) == (
        "failed", "crashed: signal 11",
    )  # fmt: skip


def test_illegal_ones_say_which_rule_they_break() -> None:
    found = near()
    without = found[f"without {TILE}"]
    assert without.kind == "illegal"
    assert without.why.startswith("reorder(order=(a, b0, ra, b1)): no loop 'b0'")


def test_legal_ones_that_nobody_tried_are_said() -> None:
    assert near()[f"{TILE}  ->  tile(axis=b, size=8)"].kind == "not tried"


def test_the_fastest_is_first_and_what_was_not_tried_last() -> None:
    slow, fast = f"tile(axis=b, size=8) {ORDER} {VECTOR}", f"{TILE} {ORDER}"
    found = neighbours(
        KERNEL, TARGET, Schedule.parse(WHOLE), [trial(slow, 3e-3), trial(fast, 2e-3)]
    )
    kinds = [n.kind for n in found]
    assert [n.ms for n in found[:2]] == [2.0, 3.0]
    assert kinds == sorted(kinds, key=["tried", "failed", "illegal", "not tried"].index)


def test_rows_whose_actions_do_not_parse_are_passed_over() -> None:
    assert near(trial("fly(axis=b)", 1e-3)) == near()
