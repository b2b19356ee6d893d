"""Schedules: what is realised, what inputs and outputs may be, and what the verifier refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import fuzzing
from tests.graph_builders import (
    Array,
    add,
    conv,
    conv_bn,
    layer_norm,
    matmul,
    relu,
    run_schedule,
    scale,
    softmax,
    tensor,
    weight,
)
from tests.graph_fuzzer import random_graph
from tunegrad.errors import ShapeError, VerifyError
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, I32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate


def checked(*outputs: Node, **inputs: Array) -> LaunchPlan:
    """The schedule, after its result has been compared with the graph's."""
    plan = schedule(outputs)
    rng = np.random.default_rng(0)
    for n in g.topological(outputs):
        if n.op is g.GraphOp.INPUT:
            inputs.setdefault(str(n.arg), rng.standard_normal(n.shape).astype(n.dtype.numpy))
    for got, want in zip(run_schedule(plan, inputs), evaluate(outputs, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return plan


def count(*outputs: Node) -> int:
    return len(checked(*outputs).launches)


def test_graph_schedule_copies_an_input_that_is_an_output() -> None:
    x = tensor("x", 2, 3)
    plan = checked(x)
    assert [launch.name for launch in plan.launches] == ["copy 2x3"]
    assert [plan.buffers[i].role for i in (*plan.inputs, *plan.outputs)] == ["input", "output"]


def test_graph_schedule_gives_a_constant_that_is_an_output_as_it_is() -> None:
    w = weight("w", 3)
    plan = checked(w, scale(tensor("x", 3), 2), w)
    assert len(plan.launches) == 1
    assert [plan.buffers[i].role for i in plan.outputs] == ["const", "output", "const"]
    assert len(checked(add(tensor("x", 3), w), w).launches) == 1, "which a kernel reads, too"


def test_graph_schedule_copies_views() -> None:
    assert count(g.permute(tensor("x", 2, 3), (1, 0))) == 1
    assert count(g.permute(weight("w", 2, 3), (1, 0))) == 1
    assert count(g.contiguous(g.flip(tensor("x", 3), (0,)))) == 1


def test_graph_schedule_fills_an_output_that_is_one_number() -> None:
    plan = checked(g.full(2.5, (3, 4), F32))
    assert [launch.name for launch in plan.launches] == ["fill 3x4"]
    assert not plan.inputs


def test_graph_schedule_counts_without_inputs() -> None:
    checked(
        g.iota((3, 4), 1, I64),
        g.cast(g.iota((6,), 0, I32), F32),
        g.reshape(g.iota((12,), 0, I32), (3, 4)),
    )


def test_graph_schedule_of_an_empty_output_launches_nothing() -> None:
    plan = checked(relu(tensor("x", 0, 3)), g.shrink(tensor("y", 4), ((2, 2),)))
    assert not plan.launches
    assert [plan.buffers[i].shape for i in plan.outputs] == [(0, 3), (0,)]


def test_graph_schedule_of_a_reduction_over_nothing_fills_the_identity() -> None:
    plan = checked(g.reduce(Op.MAX, tensor("x", 2, 0), (1,)))
    assert len(plan.launches) == 1
    assert not plan.launches[0].kernel.reduces


def test_graph_schedule_of_a_padded_empty_tensor_is_zero() -> None:
    (launch,) = checked(g.pad(tensor("x", 0), ((2, 1),))).launches
    assert [p.role for p in launch.kernel.params] == ["out"]


def test_graph_schedule_of_a_scalar() -> None:
    plan = checked(g.reshape(g.reduce(Op.ADD, tensor("x", 4, 5), (0, 1)), ()))
    (launch,) = plan.launches
    assert launch.kernel.params[0].shape == ()
    assert launch.kernel.axes == ()


def test_graph_schedule_gives_one_buffer_to_an_output_named_twice() -> None:
    y = relu(tensor("x", 3))
    plan = schedule((y, y))
    assert len(plan.launches) == 1
    assert plan.outputs[0] == plan.outputs[1]


def test_graph_schedule_needs_a_name_per_output() -> None:
    with pytest.raises(ShapeError, match="1 outputs need as many names, got 2"):
        schedule((tensor("x", 3),), ("a", "b"))


def test_graph_schedule_refuses_two_inputs_of_one_name() -> None:
    with pytest.raises(ShapeError, match="share the name 'x'"):
        schedule((tensor("x", 3), tensor("x", 4)))


def test_graph_schedule_keeps_inputs_that_nothing_reads() -> None:
    x = tensor("x", 3)
    plan = checked(add(tensor("y", 3), g.pad(g.shrink(x, ((0, 0),)), ((3, 0),))))
    assert [plan.buffers[i].name for i in plan.inputs] == ["y", "x"]


def test_graph_schedule_removes_reductions_of_one_element() -> None:
    (launch,) = checked(relu(g.reduce(Op.ADD, tensor("x", 4, 1), (1,)))).launches
    assert not launch.kernel.reduces


def test_graph_schedule_repeats_cheap_work_and_stores_dear_work() -> None:
    x, w = tensor("x", 8, 6), tensor("w", 6, 5)
    assert count(matmul(scale(x, 2.0), w)) == 1
    assert count(matmul(g.elementwise(Op.EXP, x), w)) == 2
    cheap, dear = scale(x, 2.0), g.elementwise(Op.EXP, x)
    assert count(g.reduce(Op.MAX, cheap, (0,)), g.reduce(Op.MAX, cheap, (1,))) == 2
    assert count(g.reduce(Op.MAX, dear, (0,)), g.reduce(Op.MAX, dear, (1,))) == 3


def test_graph_schedule_computes_a_shared_reduction_once() -> None:
    y = relu(conv_bn(tensor("x", 1, 3, 6, 6), "w", 4))
    assert count(conv_bn(y, "a", 4), conv_bn(y, "b", 4)) == 3
    assert count(add(conv_bn(y, "a", 4), y)) == 2
    z = matmul(tensor("a", 4, 5), tensor("b", 5, 6))
    assert count(relu(z), g.elementwise(Op.TANH, z)) == 2


def test_graph_schedule_stores_a_split_product_once() -> None:
    y = matmul(tensor("x", 4, 5), tensor("w", 5, 6))
    parts = [g.contiguous(relu(g.shrink(y, ((0, 4), (2 * i, 2 * i + 2))))) for i in range(3)]
    assert count(*parts) == 4


@pytest.mark.parametrize("rows", [1, 4])
def test_graph_schedule_stores_a_product_whose_halves_meet(rows: int) -> None:
    both = matmul(tensor("x", rows, 6), weight("w", 6, 10))
    ends = [g.shrink(both, ((0, rows), at)) for at in ((0, 5), (5, 10))]
    assert count(add(*(g.elementwise(Op.MUL, e, e) for e in ends))) == 2


@pytest.mark.parametrize(("kept", "launches"), [(12, 1), (9, 2)])
def test_graph_schedule_cuts_a_transposed_product_after_it_is_stored(
    kept: int, launches: int
) -> None:
    product = matmul(tensor("x", 2, 4, 6), g.expand(weight("w", 1, 6, 3), (2, 6, 3)))
    row = g.reshape(g.permute(product, (0, 2, 1)), (2, 12))
    plan = checked(relu(g.shrink(row, ((0, 2), (0, kept)))))
    assert len(plan.launches) == launches
    (sums,) = (x.kernel for x in plan.launches if x.kernel.reduces)
    assert "%" not in str(sums)  # of loops over what is left no schedule is a product's


def test_graph_schedule_stores_what_a_convolution_gathers() -> None:
    at = g.graph_input("at", (8,), I64)
    rows = g.gather(weight("w", 20, 3), g.expand(g.reshape(at, (8, 1)), (8, 3)), 0)
    image = g.reshape(g.permute(rows, (1, 0)), (1, 3, 2, 4))
    taps = conv(image, weight("k", 5, 3, 2, 2))
    assert len(checked(taps, at=np.arange(8) % 20).launches) == 2


def test_graph_schedule_keeps_contractions_apart() -> None:
    x = tensor("x", 1, 4, 6, 6)
    assert count(relu(add(conv_bn(x, "a", 4), conv_bn(x, "b", 4, 1)))) == 2


def test_graph_schedule_keeps_reductions_over_different_rows_apart() -> None:
    x = tensor("x", 6, 8)
    rows = g.expand(g.reduce(Op.MAX, x, (1,)), (6, 8))
    columns = g.expand(g.reduce(Op.MAX, x, (0,)), (6, 8))
    assert count(g.elementwise(Op.SUB, g.elementwise(Op.SUB, x, rows), columns)) == 2
    product = matmul(tensor("a", 6, 5), tensor("b", 5, 8))
    assert count(g.elementwise(Op.SUB, product, rows)) == 2


def test_graph_schedule_normalises_columns_in_one_kernel() -> None:
    x = tensor("x", 6, 8)
    y = softmax(g.permute(x, (1, 0)))
    assert count(g.permute(y, (1, 0))) == 1


def test_graph_schedule_shares_long_rows_among_kernels() -> None:
    # one row of 40,000 elements could use one core only: maximum, exponentials, sum, quotients
    assert count(softmax(tensor("x", 1, 40_000))) == 4
    assert count(softmax(tensor("x", 8, 40_000))) == 1


def test_graph_schedule_reads_two_norms_and_their_sum() -> None:
    x = tensor("x", 6, 8)
    assert count(add(layer_norm(x, "a"), layer_norm(x, "b"))) == 1
    assert count(layer_norm(layer_norm(x, "a"), "b")) == 2


def test_graph_schedule_breaks_long_chains() -> None:
    x = y = tensor("x", 4)
    for i in range(300):
        y = g.elementwise(Op.MIN, scale(y, 1.0 + i % 3), g.full(9, (4,), F32))
    assert 5 < count(y) < 30
    y = x
    for _ in range(30):
        y = add(y, g.elementwise(Op.MIN, y, g.full(1, (4,), F32)))
    assert all(len(launch.kernel.text) < 10_000 for launch in checked(y).launches)


def plan_of_two() -> LaunchPlan:
    return schedule((matmul(matmul(tensor("a", 4, 5), tensor("b", 5, 6)), tensor("c", 6, 3)),))


def test_graph_schedule_verifier_refuses_a_wrong_order() -> None:
    plan = plan_of_two()
    with pytest.raises(VerifyError, match="is read before it is written"):
        replace(plan, launches=plan.launches[::-1]).verify()


def test_graph_schedule_verifier_refuses_a_missing_launch() -> None:
    plan = plan_of_two()
    with pytest.raises(VerifyError, match="is not written by any launch"):
        replace(plan, launches=plan.launches[:1]).verify()


def test_graph_schedule_verifier_refuses_a_second_write() -> None:
    plan = plan_of_two()
    with pytest.raises(VerifyError, match="is already written"):
        replace(plan, launches=(plan.launches[0], *plan.launches)).verify()


def test_graph_schedule_verifier_refuses_wrong_buffers() -> None:
    plan = plan_of_two()
    first = plan.launches[0]
    out, a, b = first.args
    with pytest.raises(VerifyError, match="does not fit parameter"):
        replace(plan, launches=(replace(first, args=(out, b, a)), plan.launches[1])).verify()
    with pytest.raises(VerifyError, match="need as many buffers"):
        replace(plan, launches=(replace(first, args=(out, a)), plan.launches[1])).verify()
    with pytest.raises(VerifyError, match="is a different buffer from all"):
        replace(plan, launches=(replace(first, args=(out, out, b)), plan.launches[1])).verify()


def test_graph_schedule_verifier_refuses_a_kernel_that_nobody_reads() -> None:
    plan = plan_of_two()
    again = replace(plan.buffers[plan.launches[0].args[0]], id=len(plan.buffers), name="again")
    unread = replace(plan.launches[0], args=(again.id, *plan.launches[0].args[1:]))
    with pytest.raises(VerifyError, match="no later launch reads what it writes"):
        replace(plan, buffers=(*plan.buffers, again), launches=(unread, *plan.launches)).verify()


def test_graph_schedule_has_no_kernel_that_nobody_reads() -> None:
    for case in range(fuzzing.count(240)):
        schedule(random_graph(fuzzing.rng("all are read", case), 12)).verify()
