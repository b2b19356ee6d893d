"""Stages shared out over work-items: rounds, places among shared loops, vectors."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import GPU, conv3x3, gemm, row_sum, softmax
from tests.schedule_checks import assert_agrees
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Barrier, For, Program, walk
from tunegrad.opts import Schedule, Space

ROWS = "tile(axis=p, size={p}) tile(axis=q, size={p}) tile(axis=t, size={t}) "
SHARED = "group(axis=p1) group(axis=q1) local(axis=t1)"


def lowered(kernel: Kernel, text: str) -> Program:
    return Space(kernel, GPU).lower(Schedule.parse(text))


ON_ROWS = "thread(axis=i0) local(axis=i1) " + SHARED
VECTORS = "tile(axis=t1, size=4) vectorize(axis=t2) thread(axis=i) "
AROUND = (
    "tile(axis=m, size=4) tile(axis=n, size=8) tile(axis=n1, size=4) tile(axis=k, size=9) "
    "group(axis=k0) reorder(order=(m0, n0, k0, m1, n1, n2, k1)) thread(axis=m0) "
    "thread(axis=n0) upcast(axis=m1) local(axis=n1) vectorize(axis=n2)"
)
CASES = {
    "one_round": (row_sum(5, 77), "tile(axis=k, size=16) thread(axis=i) group(axis=k1)"),
    "two_rounds": (row_sum(5, 200), "tile(axis=k, size=64) thread(axis=i) group(axis=k1)"),
    "a_prime_number": (row_sum(3, 74), "tile(axis=k, size=37) thread(axis=i) group(axis=k1)"),
    "a_row": (softmax(3, 150), ROWS.format(p=32, t=32) + "thread(axis=i) " + SHARED),
    "several_rows": (
        softmax(7, 150),
        "tile(axis=i, size=4) " + ROWS.format(p=32, t=32) + ON_ROWS,
    ),
    "a_stage_with_fewer_items": (
        softmax(7, 150),
        "tile(axis=i, size=4) " + ROWS.format(p=32, t=16) + ON_ROWS,
    ),
    "vectors_of_a_store": (
        softmax(7, 150),
        f"{ROWS.format(p=32, t=64)}{VECTORS}{SHARED}",
    ),
    "rows_in_registers": (
        softmax(7, 150),
        f"tile(axis=i, size=2) {ROWS.format(p=32, t=32)}thread(axis=i0) upcast(axis=i1) {SHARED}",
    ),
    "in_a_serial_loop": (
        row_sum(6, 70),
        "tile(axis=i, size=3) tile(axis=k, size=8) thread(axis=i0) group(axis=k1)",
    ),
    "in_a_serial_loop_in_two_rounds": (
        row_sum(6, 140),
        "tile(axis=i, size=3) tile(axis=k, size=32) thread(axis=i0) group(axis=k1)",
    ),
    "around_the_items_of_results": (gemm(9, 21, 70), AROUND),
    "with_masks": (conv3x3(12, 5, 4), "thread(axis=y) local(axis=x) upcast(axis=o) group(axis=c)"),
}


@pytest.mark.parametrize("case", CASES)
def test_lowering_shared_stage_agrees(case):
    kernel, text = CASES[case]
    assert_agrees(kernel, lowered(kernel, text), text)


def barriers(case: str) -> int:
    return sum(isinstance(i, Barrier) for i in walk(lowered(*CASES[case]).body))


def test_lowering_shares_wait_no_more_often_than_they_must():
    assert barriers("one_round") == 1
    assert barriers("two_rounds") == 2
    assert barriers("in_a_serial_loop") == 2, "the next shares wait for the readers of these"
    assert barriers("in_a_serial_loop_in_two_rounds") == 2, "the second round is such a wait"


def test_lowering_shares_of_256_items_are_folded_by_16():
    program = lowered(row_sum(4, 1024), "tile(axis=k, size=256) thread(axis=i) group(axis=k1)")
    loops = {i.var: i.extent for i in walk(program.body) if isinstance(i, For)}
    assert {n: e for n, e in loops.items() if n.startswith("v0.")} == {"v0.i": 16, "v0.t": 16}
    assert {a.name: a.size for a in program.allocs} == {"v0.items": 256, "v0.parts": 16}


def strides(text: str) -> dict[str, int]:
    tree = Space(gemm(64, 64, 64), GPU).tree(Schedule.parse(text))
    return {x.name: tree.item_stride(x) for x in tree.loops if x.kind == "local"}


def test_lowering_the_innermost_local_loop_varies_fastest():
    tiles = "tile(axis=m, size=2) tile(axis=n, size=4) tile(axis=k, size=8) "
    inside = tiles + "local(axis=m1) local(axis=n1) group(axis=k1)"
    assert strides(inside) == {"m1": 32, "n1": 8, "k1": 1}
    around = "group(axis=k0) reorder(order=(k0, m0, m1, n0, n1)) local(axis=m1) local(axis=n1)"
    assert strides(tiles + around) == {"k0": 8, "m1": 4, "n1": 1}
