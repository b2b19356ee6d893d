"""Channels last: copies around a convolution of the caller's tensors that change no product and no
order of sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from variant_builders import Conv, bound, constant, kernel_of, only, ran

from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.variants import channels_last, parts_of, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel

NAMES = ("channels_last", "channels_last_winograd2", "channels_last_winograd4")


def x(channels: int = 8, size: int = 9, batch: int = 1) -> Tensor:
    return Tensor.input("x", (batch, channels, size, size))


def residual(outputs: int, size: int, batch: int = 1) -> Tensor:
    return Tensor.input("r", (batch, outputs, size, size))


PLANS: dict[str, tuple[Callable[[], Tensor], tuple[int, int]]] = {
    "3x3": (lambda: x().conv2d(constant(5, 8, 3, 3), padding=1), (1, 1)),
    "stride 2": (lambda: x().conv2d(constant(5, 8, 3, 3), stride=2, padding=1), (1, 1)),
    "1x1": (lambda: x().conv2d(constant(5, 8, 1, 1)), (1, 1)),
    "1x1 of stride 2": (lambda: x().conv2d(constant(5, 8, 1, 1), stride=2), (1, 1)),
    "5x5": (lambda: x().conv2d(constant(5, 8, 5, 5), padding=2), (1, 1)),
    "dilation": (lambda: x().conv2d(constant(5, 8, 3, 3), padding=2, dilation=2), (1, 1)),
    "no padding": (lambda: x().conv2d(constant(5, 8, 3, 3)), (1, 1)),
    "batch": (lambda: x(batch=2).conv2d(constant(5, 8, 3, 3), padding=1), (1, 1)),
    "weights of 16 bits": (
        lambda: x().conv2d(
            Tensor.constant(np.ones((5, 8, 3, 3), np.float16) / 3).cast("f32"), padding=1
        ),
        (1, 1),
    ),
    "few channels": (lambda: x(3).conv2d(constant(5, 3, 3, 3), padding=1), (0, 1)),
    "few channels, stride 2, 7x7": (
        lambda: x(3).conv2d(constant(5, 3, 7, 7), stride=2, padding=3),
        (0, 1),
    ),
    "bias and relu": (
        lambda: x().conv2d(constant(5, 8, 3, 3), constant(5), padding=1).relu(),
        (1, 1),
    ),
    "residual": (
        lambda: x().conv2d(constant(5, 8, 3, 3), padding=1).relu() + residual(5, 9),
        (1, 1),
    ),
    "residual of stride 2": (
        lambda: (
            residual(5, 5, 2)
            + x(batch=2).conv2d(constant(5, 8, 3, 3), constant(5), stride=2, padding=1).relu()
        ),
        (1, 1),
    ),
    "few channels and residual": (
        lambda: x(3).conv2d(constant(5, 3, 3, 3), padding=1) + residual(5, 9),
        (0, 1),
    ),
    "input of the caller, output channels last": (
        lambda: x().conv2d(constant(5, 8, 3, 3), padding=1).permute(0, 2, 3, 1),
        (1, 0),
    ),
}


def data(plan: LaunchPlan) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {
        plan.buffers[i].name: rng.standard_normal(plan.buffers[i].shape, dtype=np.float32)
        for i in plan.inputs
    }


@pytest.mark.parametrize("name", PLANS)
def test_parts_verify_and_only_what_is_not_channels_last_is_copied(name: str) -> None:
    make, copies = PLANS[name]
    kernel = kernel_of(only(make()))
    found = channels_last(kernel)
    assert found is not None
    assert (int(found.before is not None), int(found.after is not None)) == copies
    parts = parts_of(kernel, "channels_last")
    assert parts == tuple(p for p in (found.before, found.kernel, found.after) if p is not None)
    for part in parts:
        verify_kernel(part)
    assert [len(p.reduces) for p in parts] == [0] * copies[0] + [1] + [0] * copies[1]
    assert found.kernel.flops == kernel.flops
    assert found.kernel.param(found.kernel.params[found.x].name).role == "in"
    assert found.kernel.param(found.kernel.params[found.y].name).role == "out"


@pytest.mark.parametrize("name", PLANS)
def test_rewritten_schedule_verifies_and_computes_the_direct_result(name: str) -> None:
    plan = only(PLANS[name][0]())
    made = rewrite(plan, {kernel_of(plan).key: "channels_last"})
    made.verify()
    assert [b.shape for b in (made.buffers[i] for i in (*made.inputs, *made.outputs))] == [
        b.shape for b in (plan.buffers[i] for i in (*plan.inputs, *plan.outputs))
    ]
    inputs = data(plan)
    want = ran(plan, inputs)
    np.testing.assert_allclose(ran(made, inputs), want, rtol=0, atol=1e-6 * abs(want).max())


@pytest.mark.parametrize("name", PLANS)
def test_a_channels_last_kernel_has_no_such_variant(name: str) -> None:
    found = channels_last(kernel_of(only(PLANS[name][0]())))
    assert found is not None
    assert channels_last(found.kernel) is None
    assert not set(NAMES) & set(variants_of(found.kernel))


@pytest.mark.parametrize("channels", [3, 8, 16])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("variant", NAMES)
def test_every_such_variant_is_in_its_bound(channels: int, residual: bool, variant: str) -> None:
    conv = Conv(channels=channels, outputs=9, height=7, width=6, batch=2, residual=residual)
    plan = conv.plan()
    kernel = kernel_of(plan)
    assert variants_of(kernel) == ("direct", "winograd2", "winograd4", *NAMES)
    for part in parts_of(kernel, variant):
        verify_kernel(part)
    made = rewrite(plan, {kernel.key: variant})
    made.verify()
    assert [launch.kernel for launch in made.launches] == list(parts_of(kernel, variant))
    error = ran(made, conv.inputs) - ran(plan, conv.inputs, as_float64=True)
    assert abs(error).max() <= bound(conv, variant)


OTHERS: dict[str, Callable[[], Tensor]] = {
    "groups": lambda: x(16).conv2d(constant(16, 8, 3, 3), padding=1, groups=2),
    "depthwise": lambda: x().conv2d(constant(8, 1, 3, 3), padding=1, groups=8),
    "weights that are an input": lambda: x().conv2d(Tensor.input("w", (5, 8, 3, 3)), padding=1),
    "pooling": lambda: x().max_pool2d(3, stride=1, padding=1),
    "a product": lambda: Tensor.input("x", (9, 16)) @ constant(16, 8),
    "channels last already": lambda: (
        Tensor.input("x", (1, 9, 9, 8))
        .permute(0, 3, 1, 2)
        .conv2d(constant(5, 8, 5, 5), padding=2)
        .permute(0, 2, 3, 1)
    ),
    "the input is the residual": lambda: x().conv2d(constant(8, 8, 3, 3), padding=1) + x(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_kernel_has_no_such_variant(name: str) -> None:
    kernel = kernel_of(only(OTHERS[name]()))
    assert channels_last(kernel) is None
    assert not set(NAMES) & set(variants_of(kernel))
