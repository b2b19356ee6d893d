"""Reductions shared over work-items, next to other loops of the same reduction: found by fuzzing,
kept by name.
"""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import GPU, conv3x3, row_sum
from tests.schedule_checks import assert_agrees
from tunegrad.ir.program import For, walk
from tunegrad.opts import Schedule, Space

CASES = {
    # The tail of r was not peeled inside the work-items' loop, and its last taps were dropped.
    "tail_of_another_axis_in_registers": (
        conv3x3(3, 1, 3),
        (
            "tile(axis=r, size=4) tile(axis=c, size=2) group(axis=s) unroll(axis=c1) "
            "upcast(axis=x) upcast(axis=r1)"
        ),
    ),
    "tail_of_another_axis_with_a_staged_operand": (
        conv3x3(3, 1, 3),
        (
            "tile(axis=r, size=4) tile(axis=c, size=2) group(axis=s) unroll(axis=c1) "
            "upcast(axis=x) "
            "stage(param=X, at=y, layout=(r1, s, c0, x, c1)) thread(axis=y) upcast(axis=r1)"
        ),
    ),
    "two_tails_in_registers": (
        conv3x3(5, 2, 3),
        "tile(axis=c, size=2) tile(axis=r, size=2) group(axis=s) unroll(axis=c1) upcast(axis=r1)",
    ),
    # A loop of one step counted to a stop that named a loop inside it.
    "outer_loop_of_one_step": (
        conv3x3(1, 3, 4),
        (
            "thread(axis=x) tile(axis=s, size=2) upcast(axis=s1) tile(axis=s0, size=4) "
            "thread(axis=o) upcast(axis=y) "
            "group(axis=r)"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lowering_shared_reduction_agrees(case):
    kernel, text = CASES[case]
    assert_agrees(kernel, Space(kernel, GPU).lower(Schedule.parse(text)), text)


def test_lowering_loops_of_one_step_are_no_loops():
    text = "tile(axis=k, size=16) tile(axis=k0, size=8) group(axis=k2)"
    program = Space(row_sum(3, 70), GPU).lower(Schedule.parse(text))
    loops = [i for i in walk(program.body) if isinstance(i, For)]
    assert all(i.extent > 1 for i in loops if i.kind == "serial")
