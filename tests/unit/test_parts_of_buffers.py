"""Tensors that lie one after another are parts of one buffer, which their launches write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunegrad.errors import VerifyError, WrongPlan
from tunegrad.frontend import Tensor, functions
from tunegrad.ir.fusion import LaunchPlan, joined, least_memory, schedule, separated, sliced
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


def test_a_concatenation_of_more_than_a_kernel_takes_is_no_launch_either():
    parts = [_gradient(n) for n in range(1, 121)]
    plan = _plan(*parts)
    assert sum("where" in x.name for x in plan.launches) > 1  # it is several there
    made = joined(plan, 1)
    assert not any("where" in x.name or "concatenation" in x.name for x in made.launches)
    ((_, found),) = made.parts.items()
    assert len(found) == len(parts)
    validated(made)


def test_a_long_concatenation_that_is_copied_stays_several_launches():
    plan = _plan(*(Tensor.input(f"i{n}", (n,)) for n in range(1, 121)))
    assert joined(plan, 1) is plan


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


def test_a_tensor_that_comes_twice_is_copied_beside_parts():
    one, other = _gradient(2), _gradient(3)
    made = joined(_plan(one, other, one), 1)
    made.verify()
    ((_, parts),) = made.parts.items()
    assert len(parts) == 3
    assert sum(len(x.kernel.params) == 2 and x.kernel.flops == 0 for x in made.launches) == 1
    validated(made)
    least_memory(made).verify()


def _sliced(start: int, view_bytes: int = 1) -> tuple[LaunchPlan, LaunchPlan]:
    row = Tensor.input("row", (400,))
    part = row[start : start + 192].reshape(16, 12).contiguous([0, 1])
    plan = schedule(((part @ X).node, (part.sum() * 2.0).node), view_bytes=view_bytes)
    return plan, sliced(plan, view_bytes)


@pytest.mark.parametrize("start", [0, 16, 5, 208])
def test_a_slice_of_an_input_is_read_where_it_lies(start: int):
    plan, made = _sliced(start)
    assert len(made.launches) == len(plan.launches) - 1
    made.verify()
    validated(made)
    alone = (Tensor.input("w", (16, 12)) @ X).node
    product = schedule((alone,), view_bytes=1).launches[0].kernel
    assert product.key in {x.kernel.key for x in made.launches}


def test_a_slice_that_a_device_can_not_address_is_copied():
    plan, made = _sliced(5, 64)
    assert made is plan
    assert len(_sliced(16, 64)[1].launches) == len(plan.launches) - 1


def test_a_slice_at_another_place_is_a_wrong_plan():
    _, made = _sliced(16)
    at = next(b.id for b in made.buffers if b.role == "view")
    with pytest.raises(WrongPlan):
        validated(_moved(made, at, 0))


def test_a_part_is_read_before_the_whole_is_written():
    one, other = _gradient(4).contiguous(), _gradient(3).contiguous()
    whole = functions.cat([one, other], 0).contiguous()
    first = one.reshape(16, 4)
    w = Tensor.input("w", whole.shape)
    outputs = ((w - whole).node, (first[3] * 2.0).node, (first @ first.T).node)
    made = joined(schedule(outputs, view_bytes=1), 1)
    assert made.parts
    validated(made)
    least_memory(made).verify()
