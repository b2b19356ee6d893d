"""Parts of buffers that kernels read are views: one kernel, whichever part it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.graph_builders import add, held, relu, run_schedule, scale, tensor
from tests.pair_builders import DOT
from tunegrad.errors import VerifyError
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, I64
from tunegrad.ir.fusion import Buffer, LaunchPlan, schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.planning import prepared

X = tensor("x", 6, 4, 8)


def rows(x: Node, begin: int, end: int) -> Node:
    return g.shrink(x, ((begin, end), *((0, s) for s in x.shape[1:])))


def checked(*outputs: Node, view_bytes: int = 1) -> LaunchPlan:
    """The schedule, after its result has been compared with the graph's."""
    plan = schedule(outputs, view_bytes=view_bytes)
    rng = np.random.default_rng(0)
    inputs = {
        str(n.arg): rng.integers(0, 6, n.shape).astype(n.dtype.numpy)
        for n in g.topological(outputs)
        if n.op is g.GraphOp.INPUT
    }
    for got, want in zip(run_schedule(plan, inputs), evaluate(outputs, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    return plan


def views(plan: LaunchPlan) -> list[tuple[int, tuple[int, ...]]]:
    """(first byte, shape) of each."""
    return [(b.start, b.shape) for b in plan.buffers if b.role == "view"]


def keys(plan: LaunchPlan) -> int:
    return len(plan.kernels())


def test_steps_that_read_one_row_each_share_a_kernel() -> None:
    plan = checked(*(scale(rows(X, t, t + 1), 2.0) for t in range(6)))
    assert (keys(plan), len(plan.launches)) == (1, 6)
    assert views(plan) == [(128 * t, (32,)) for t in range(6)]
    (kernel, _) = next(iter(plan.kernels().values()))
    assert kernel.text.splitlines()[2:] == [
        "  param p1 f32[32] in row", "  axis a:32", "  store p0[a] = mul(p1[a], 2.0:f32)",
    ]  # fmt: skip


def test_a_kernel_of_a_view_is_that_of_a_tensor_of_its_size() -> None:
    part, whole = checked(relu(rows(X, 2, 4))), checked(relu(tensor("y", 2, 4, 8)))
    assert part.kernels().keys() == whole.kernels().keys()
    assert views(part) == [(256, (64,))]


def test_a_recurrence_over_rows_is_one_kernel_but_for_its_first_step() -> None:
    h = relu(rows(X, 0, 1))
    for t in range(1, 6):
        h = g.contiguous(relu(add(rows(X, t, t + 1), h)))
    assert keys(checked(h)) == 2


def test_launches_that_read_the_same_part_share_a_view() -> None:
    part = rows(X, 1, 2)
    assert len(views(checked(scale(part, 2.0), scale(part, 3.0)))) == 1


def test_a_view_of_two_rows_of_one_buffer_holds_both() -> None:
    steps = [add(rows(X, t, t + 1), scale(rows(X, t + 2, t + 3), 2.0)) for t in (0, 1)]
    plan = checked(*steps)
    assert keys(plan) == 1
    assert views(plan) == [(128 * t, (3, 32)) for t in (0, 1)]


def test_views_begin_where_the_device_lets_them() -> None:
    x = tensor("x", 8, 12)  # rows of 48 bytes
    steps = [scale(rows(x, t, t + 1), 2.0) for t in range(8)]
    assert keys(checked(*steps, view_bytes=16)) == 1
    plan = checked(*steps, view_bytes=64)
    assert keys(plan) == 4, "the rest of the distance is in the kernel's index"
    assert {start for start, _ in views(plan)} == {0, 192}


def test_what_a_condition_guards_and_what_is_looked_up_is_no_view() -> None:
    plan = checked(add(g.pad(rows(X, 0, 5), ((1, 0), (0, 0), (0, 0))), X))
    assert not views(plan)
    at = g.graph_input("i", (3, 4), I64)
    table = g.graph_input("t", (6, 4), F32)
    plan = checked(g.gather(table, g.shrink(at, ((1, 2), (0, 4))), 0))
    assert not views(plan)


def test_a_window_that_leaves_the_last_row_out_reads_the_whole() -> None:
    rows_read = g.shrink(g.window(tensor("x", 9, 4), 0, 1, 2, 1), ((0, 4), (0, 4), (0, 1)))
    assert not views(checked(scale(rows_read, 2.0)))


def test_constants_have_no_views() -> None:
    w = g.const(np.arange(24, dtype=np.float32).reshape(6, 4), F32, "w")
    assert not views(checked(add(rows(w, 2, 3), tensor("x", 1, 4))))


def test_views_of_pairs_lie_in_the_numbers_that_are_paired() -> None:
    a, b = Tensor.input("a", (3, 6, 8), "bf16"), Tensor.input("b", (8, 4), "bf16")
    parts = [(a[t].cast("f32") @ b.cast("f32")).node for t in range(3)]
    plan = schedule(prepared(tuple(parts), "bf16-dot", DOT, "bf16"), view_bytes=1)
    found = [x for x in plan.buffers if x.role == "view"]
    assert found
    assert {plan.buffers[x.base or 0].name for x in found} == {"a"}
    assert sorted({x.start for x in found}) == [0, 96, 192]


def test_a_view_prints_what_it_is_a_part_of() -> None:
    plan = checked(scale(rows(X, 3, 4), 2.0))
    assert "buffer 2 f32[32] view x+384 of 0 from byte 384" in str(plan)


def changed(plan: LaunchPlan, **fields: object) -> LaunchPlan:
    """The plan with another view."""
    buffers = tuple(
        replace(b, **fields) if b.role == "view" else b  # type: ignore[arg-type]
        for b in plan.buffers
    )
    return replace(plan, buffers=buffers)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"start": 700}, "elements of 4 bytes inside of 768"),
        ({"start": -4}, "elements of 4 bytes inside of 768"),
        ({"start": 385}, "elements of 4 bytes inside of 768"),
        ({"base": 2}, "a view is a part of an input, temp or output"),
        ({"base": 9}, "a view is a part of an input, temp or output"),
        ({"base": None}, "exactly the views are parts of a buffer"),
    ],
)
def test_views_outside_of_a_buffer_are_refused(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        changed(checked(scale(rows(X, 3, 4), 2.0)), **fields).verify()


def test_a_view_of_what_is_not_written_is_refused() -> None:
    inner = g.contiguous(scale(X, 3.0))
    plan = checked(scale(rows(inner, 3, 4), 2.0))
    assert [b.role for b in plan.buffers if b.id == plan.memory(plan.launches[1].args[1])] == [
        "temp"
    ]
    with pytest.raises(VerifyError, match="is read before it is written"):
        replace(plan, launches=plan.launches[::-1]).verify()


def test_the_elements_of_a_view_are_those_of_its_buffer() -> None:
    plan = checked(scale(rows(X, 3, 4), 2.0))
    memory = {0: np.arange(192, dtype=np.float32)}
    at = plan.launches[0].args[1]
    np.testing.assert_array_equal(held(plan, memory, at), np.arange(96, 128))
    assert isinstance(plan.buffers[at], Buffer)
