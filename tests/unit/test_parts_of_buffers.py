"""Tensors that lie one after another are parts of one buffer, which their launches write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunegrad.errors import VerifyError, WrongPlan
from tunegrad.frontend import Tensor, functions
from tunegrad.ir.fusion import LaunchPlan, joined, schedule, separated
from tunegrad.ir.validate import validated
from tunegrad.ir.verify.kernel import verify_kernel

X = Tensor.input("x", (12, 16))


def _gradient(columns: int) -> Tensor:
    return (X.T @ Tensor.input(f"g{columns}", (12, columns))).reshape(-1)


def _plan(*parts: Tensor) -> LaunchPlan:
    whole = functions.cat(parts, 0).contiguous()
    w = Tensor.input("w", whole.shape)
    return schedule(((w - whole * 0.5).node,), view_bytes=1)


def _joined() -> LaunchPlan:
    return joined(_plan(_gradient(2), _gradient(5), _gradient(3)), 1)


def test_a_concatenation_is_no_launch():
    plan = _plan(_gradient(2), _gradient(5), _gradient(3))
    made = joined(plan, 1)
    assert (len(plan.launches), len(made.launches)) == (5, 4)
    ((whole, parts),) = made.parts.items()
    assert made.buffers[whole].nbytes == 4 * 16 * 10
    assert [made.buffers[i].start // 64 for i in parts] == [0, 2, 7]


def test_parts_are_taken_apart_and_joined_again():
    made = _joined()
    apart = separated(made)
    apart.verify()
    assert not apart.parts
    assert joined(apart, 1) == made


def test_a_plan_without_parts_is_the_same_object():
    plan = schedule(((X + 1.0).node,))
    assert joined(plan, 1) is plan
    assert separated(plan) is plan


@pytest.mark.parametrize(
    "parts",
    [
        (_gradient(2), Tensor.input("y", (5,))),
        (_gradient(2), _gradient(2)),
        (_gradient(2), _gradient(5) * 0.0 + 1.0, Tensor.constant([1.0, 2.0])),
    ],
    ids=["an input", "the same tensor twice", "a constant"],
)
def test_what_no_launch_writes_for_it_alone_is_copied(parts: tuple[Tensor, ...]):
    plan = _plan(*parts)
    assert not joined(plan, 1).parts


def test_parts_begin_where_a_device_can_use_them():
    plan = _plan(_gradient(2), _gradient(5), _gradient(3))
    assert joined(plan, 64).parts
    assert not joined(plan, 256).parts


def test_a_concatenation_of_concatenations_is_copied():
    inner = functions.cat([_gradient(2), _gradient(5)], 0).contiguous()
    outer = functions.cat([inner, _gradient(3)], 0).contiguous()
    plan = schedule(((outer * inner.sum()).node,), view_bytes=1)
    made = joined(plan, 1)
    ((_, parts),) = made.parts.items()
    assert len(parts) == 2
    validated(made)


def _moved(plan: LaunchPlan, at: int, start: int) -> LaunchPlan:
    buffers = tuple(replace(b, start=start) if b.id == at else b for b in plan.buffers)
    return replace(plan, buffers=buffers)


def test_parts_that_overlap_or_leave_gaps_are_an_error():
    plan = _joined()
    ((_, (first, *_)),) = plan.parts.items()
    with pytest.raises(VerifyError, match="have to make it up"):
        _moved(plan, first, 4).verify()


def test_a_whole_is_read_after_all_of_its_parts_are_written():
    plan = _joined()
    *parts, last = plan.launches
    with pytest.raises(VerifyError, match="is read before it is written"):
        replace(plan, launches=(*parts[:-1], last, parts[-1])).verify()


def test_a_part_at_the_place_of_another_one_is_a_wrong_plan():
    plan = joined(_plan(_gradient(4), (X.T @ Tensor.input("h", (12, 4))).reshape(-1)), 1)
    ((_, (a, b)),) = plan.parts.items()
    turned = _moved(_moved(plan, a, plan.buffers[b].start), b, 0)
    turned.verify()
    validated(plan)
    with pytest.raises(WrongPlan):
        validated(turned)


def test_a_launch_that_stores_a_concatenation_beside_others_reads_it():
    parts = [_gradient(2 + i) for i in range(20)]
    whole = functions.cat(parts, 0)
    w, m = (Tensor.input(n, whole.shape) for n in "wm")
    m = m * 0.9 + whole
    plan = schedule(((w - m * whole).node, m.node), view_bytes=1)
    both = next(x for x in plan.launches if len(x.args) > 20 and len(x.kernel.outputs) > 1)
    made = joined(plan, 1)
    assert len(made.launches) == len(plan.launches)
    ((stored, views),) = made.parts.items()
    assert len(views) == 20
    assert stored in both.args
    less = next(x for x in made.launches if stored in x.args)
    assert len(less.args) == len(both.args) - 20
    verify_kernel(less.kernel)
    validated(made)
    assert validated(separated(made)).parts == {}


def test_a_launch_that_reads_a_concatenation_keeps_the_buffer_of_its_positions():
    """A rate is looked up for each element of what gradients are added to."""
    whole = functions.cat([_gradient(2 + i) for i in range(20)], 0)
    w, m = (Tensor.input(n, whole.shape) for n in "wm")
    kinds = Tensor.input("k", whole.shape, "i32")
    m = m * Tensor.input("rates", (7,))[kinds] + whole
    plan = schedule(((w - m * whole).node, m.node), view_bytes=1)
    made = joined(plan, 1)
    ((stored, _),) = made.parts.items()
    (at,) = (b.id for b in plan.buffers if b.name == "k")
    assert any({stored, at} <= {*x.args} for x in made.launches)
    for launch in made.launches:
        verify_kernel(launch.kernel)
    validated(made)
