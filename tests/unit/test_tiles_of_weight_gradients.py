"""Default schedules of sums over batches and pixels."""

from __future__ import annotations

import tunegrad as tg
from tunegrad.devices import host_device
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Space


def weight_gradient(batch: int, side: int) -> Kernel:
    """Of a convolution of images whose channels are last."""
    images = (Tensor.input(n, (batch, side, side, 64)) for n in "xg")
    x, g = (i.permute(0, 3, 1, 2) for i in images)

    def product(w: Tensor) -> Tensor:
        return (tg.nn.functional.conv2d(x, w, padding=1) * g).sum()

    slope = tg.grad(product)(Tensor.input("w", (64, 64, 3, 3)))
    (launch,) = schedule((slope.node,)).launches
    return launch.kernel


def test_images_that_no_cache_holds_are_met_a_block_at_a_time() -> None:
    """All taps and channels meet one block of the batch before the next one is read."""
    kernel = weight_gradient(64, 32)
    longest = max(kernel.reduces[0].axes, key=lambda a: a.extent).name
    text = Space(kernel, host_device(1).target).defaults()[0].text
    order = text.partition("reorder(order=(")[2].partition(")")[0].split(", ")
    assert order[0].startswith(longest)


def test_small_images_are_added_up_in_registers() -> None:
    text = Space(weight_gradient(2, 8), host_device(1).target).defaults()[0].text
    order = text.partition("reorder(order=(")[2].partition(")")[0].split(", ")
    assert not order[0].startswith("r")


def test_taps_between_channels_are_made_beside_each_tile() -> None:
    """Lanes along channels write every ninth number; the loops over taps stand inside of them."""
    kernel = weight_gradient(2, 8)
    text = Space(kernel, host_device(1).target).defaults()[0].text
    order = text.partition("reorder(order=(")[2].partition(")")[0].split(", ")
    assert order[0][0] in "ab"
    assert order.index("c") < order.index("d") < order.index("ra")
