"""Extents that no tile divides: where the body is split, where a mask stands, how far loops run."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import AVX512, GPU, gemm, row_sum, softmax
from tests.schedule_checks import assert_agrees
from tests.verifiers.program import verify_program
from tunegrad.frontend import Tensor, functions
from tunegrad.ir.fusion import schedule
from tunegrad.ir.program import For, If, Load, Store, walk
from tunegrad.ir.program import Test as Condition
from tunegrad.opts import Schedule, Space


def lowered(kernel, text, target=AVX512):
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert_agrees(kernel, program, text)
    assert verify_program(program) == (), "every access is proved in bounds"
    return program


def loops(program):
    return {i.var: i for i in walk(program.body) if isinstance(i, For)}


def count(program, kind):
    return sum(isinstance(i, kind) for i in walk(program.body))


def masked(program):
    return sum(isinstance(i, Load | Store) and i.mask is not None for i in walk(program.body))


def test_lowering_serial_tail_stops_early_without_a_mask():
    program = lowered(gemm(7, 4, 5), "tile(axis=m, size=3)")
    assert [str(s) for s in loops(program)["m1"].stops] == ["3", "-3*m0+7"]
    assert (count(program, If), masked(program)) == (0, 0)


def test_lowering_two_levels_of_tail_stop_early():
    program = lowered(gemm(15, 2, 3), "tile(axis=m, size=6) tile(axis=m1, size=2)")
    assert [str(s) for s in loops(program)["m1"].stops] == ["3", "-3*m0+8"]
    assert [str(s) for s in loops(program)["m2"].stops] == ["2", "-6*m0+-2*m1+15"]


def test_lowering_register_tail_is_a_second_body():
    program = lowered(gemm(7, 4, 5), "tile(axis=m, size=3) upcast(axis=m1)")
    (branch,) = (i for i in walk(program.body) if isinstance(i, If))
    stores = [
        sum(isinstance(i, Store) for i in walk(body)) for body in (branch.body, branch.orelse)
    ]
    assert stores == [3, 1]
    assert masked(program) == 0


def test_lowering_two_register_tails_are_four_bodies():
    program = lowered(
        gemm(7, 5, 4), "tile(axis=m, size=3) tile(axis=n, size=2) upcast(axis=m1) upcast(axis=n1)"
    )
    assert (count(program, If), count(program, Store)) == (3, 3 * 2 + 3 * 1 + 1 * 2 + 1)


def test_lowering_lane_tail_masks_only_the_remainder():
    program = lowered(gemm(3, 21, 4), "tile(axis=n, size=16) vectorize(axis=n1)")
    (branch,) = (i for i in walk(program.body) if isinstance(i, If))
    assert not any(isinstance(i, Load | Store) and i.mask is not None for i in walk(branch.body))
    assert all(i.mask is not None for i in walk(branch.orelse) if isinstance(i, Store))


def test_lowering_lanes_wider_than_the_axis_are_always_masked():
    program = lowered(gemm(3, 5, 4), "tile(axis=n, size=16) vectorize(axis=n1)")
    assert count(program, If) == 0
    assert all(i.mask is not None for i in walk(program.body) if isinstance(i, Store))


def test_lowering_reduce_tail_of_registers_is_peeled():
    program = lowered(row_sum(3, 70), "tile(axis=k, size=16) group(axis=k1)")
    assert [str(s) for s in loops(program)["k0"].stops] == ["4"]
    assert count(program, Condition) == 1


def test_lowering_reduce_tail_of_unrolled_steps_is_peeled():
    program = lowered(gemm(2, 3, 11), "tile(axis=k, size=4) unroll(axis=k1)")
    assert [str(s) for s in loops(program)["k0"].stops] == ["2"]
    assert count(program, Load) == 2 * (4 + 3)
    assert masked(program) == 0


def test_lowering_upcast_reduce_tail_keeps_every_accumulator():
    program = lowered(
        row_sum(3, 70), "tile(axis=k, size=32) tile(axis=k1, size=8) upcast(axis=k1) group(axis=k2)"
    )
    assert [str(s) for s in loops(program)["k0"].stops] == ["2"]


def test_lowering_padded_axis_runs_over_and_masks():
    program = lowered(gemm(5, 4, 3), "pad(axis=m, multiple=4) tile(axis=m, size=4)")
    assert [str(s) for s in loops(program)["m0"].stops] == ["2"]
    assert [str(s) for s in loops(program)["m1"].stops] == ["4"]


def test_lowering_padded_reduction_drops_what_is_past_the_end():
    for text in (
        "pad(axis=k, multiple=16)",
        "pad(axis=k, multiple=16) tile(axis=k, size=16) group(axis=k1)",
    ):
        lowered(row_sum(3, 70), text)
        lowered(softmax(2, 70), text.replace("k", "p"))


def test_lowering_work_item_tail_is_masked_or_guarded():
    program = lowered(gemm(13, 4, 5), "tile(axis=m, size=8) thread(axis=m0) local(axis=m1)", GPU)
    assert program.local == 8
    assert masked(program) + count(program, If) > 0


def test_lowering_blocked_reduction_with_a_tail_epilogue_runs_in_the_last_block():
    text = "tile(axis=k, size=4) reorder(order=(k0, m, n, k1))"
    program = lowered(gemm(3, 4, 11), text)
    assert [str(i.valid) for i in walk(program.body) if isinstance(i, If)] == ["0<=k0<1", "2<=k0<3"]
    assert [str(s) for s in loops(program)["k1"].stops] == ["4", "-4*k0+11"]


PRIMES = [
    (
        "tile(axis=m, size=5) tile(axis=n, size=8) tile(axis=k, size=4) reorder(order=(k0, "
        "m0, n0, k1, m1, n1)) "
        "upcast(axis=m1) vectorize(axis=n1)"
    ),
    (
        "tile(axis=m, size=4) tile(axis=m1, size=2) tile(axis=n, size=16) upcast(axis=m2) "
        "vectorize(axis=n1) "
        "thread(axis=m0)"
    ),
    (
        "pad(axis=n, multiple=16) tile(axis=n, size=16) vectorize(axis=n1) tile(axis=k, "
        "size=3) unroll(axis=k1)"
    ),
    "tile(axis=k, size=8) group(axis=k1) tile(axis=m, size=3) upcast(axis=m1)",
    (
        "tile(axis=m, size=6) tile(axis=n, size=4) reorder(order=(n0, m0, m1, n1)) "
        "vectorize(axis=n1) unroll(axis=k) "
        "stage(param=B, at=n0, layout=(k, n1)) stage(param=A, at=m0, layout=())"
    ),
]


@pytest.mark.parametrize("shape", [(7, 17, 13), (2, 19, 5), (23, 3, 11), (13, 37, 2), (2, 3, 31)])
@pytest.mark.parametrize("text", PRIMES, ids=range(len(PRIMES)))
def test_lowering_of_prime_extents_agrees(shape, text):
    lowered(gemm(*shape), text)


def test_lowering_bools_that_are_never_loaded_are_false():
    q = Tensor.input("q", (12, 4), "bool")
    turned = functions.cat([q[1:], q[:1]], 0).to("i32")
    (launch,) = schedule((turned.node,)).launches
    lowered(launch.kernel, "tile(axis=a, size=8) upcast(axis=a1)")
