"""Default schedules of sums over batches and pixels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import tunegrad as tg
from benchmarks.hand_schedules import AVX512
from tunegrad.devices import host_device
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import size
from tunegrad.opts import MAX_INSTRUCTIONS, Space
from tunegrad.opts.actions import Reorder, Tile
from tunegrad.opts.sketches.tiles import K_BLOCK


def weight_gradient(
    batch: int, side: int, channels: int = 64, size: int = 3, stride: int = 1, last: bool = True
) -> Kernel:
    """Of a convolution of images whose channels are last, unless they are given otherwise."""
    x = Tensor.input("x", (batch, side, side, channels)).permute(0, 3, 1, 2)
    if not last:
        x = Tensor.input("x", (batch, channels, side, side))
    g = Tensor.input("g", (batch, side // stride, side // stride, 64)).permute(0, 3, 1, 2)

    def product(w: Tensor) -> Tensor:
        return (tg.nn.functional.conv2d(x, w, stride=stride, padding=size // 2) * g).sum()

    slope = tg.grad(product)(Tensor.input("w", (64, channels, size, size)))
    (launch,) = schedule(fold_constants((slope.node,))).launches
    return launch.kernel


def steps_at_once(kernel: Kernel) -> int:
    """Steps of the sum between two partial sums."""
    schedule = Space(kernel, host_device(1).target).defaults()[0]
    sizes = {x.axis: x.size for x in schedule.actions if isinstance(x, Tile)}
    first = next(x.order[0] for x in schedule.actions if isinstance(x, Reorder))
    blocked = first.rstrip("0")
    extents = (
        sizes.get(a.name, 1) if a.name == blocked else a.extent for a in kernel.reduces[0].axes
    )
    return prod(extents)


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


def test_a_block_of_a_long_axis_is_no_longer_than_a_panel() -> None:
    """A stem's rows are 112 of 896 pixels each: 64 rows are no panel that a cache holds."""
    assert steps_at_once(weight_gradient(8, 224, 3, 7, 2)) <= 4 * K_BLOCK


def test_partial_sums_that_lie_apart_are_made_seldom() -> None:
    """Lanes along channels add to every ninth number, one at a time."""
    target = host_device(1).target
    wanted = K_BLOCK * target.lanes(4) // 4
    assert steps_at_once(weight_gradient(64, 16)) >= min(wanted, target.l2_bytes // 512) // 2


def test_lanes_are_channels_where_taps_fill_less_than_half_of_a_vector() -> None:
    """Taps lie side by side in the result, and in an image of rows: 7 of 16 lanes."""
    kernel = weight_gradient(8, 224, 3, 7, 2, last=False)
    text = Space(kernel, AVX512).defaults()[0].text
    assert "vectorize(axis=a" in text


def test_what_lies_in_order_is_not_copied() -> None:
    """Steps of 64 channels: a copy is read no faster than they are."""
    assert "stage" not in Space(weight_gradient(8, 224, 3, 7, 2), AVX512).defaults()[0].text


def test_behind_a_stride_all_rows_meet_the_panel_of_a_tap() -> None:
    kernel = weight_gradient(8, 112, 128, 3, 2)
    text = Space(kernel, replace(AVX512, threads=1)).defaults()[0].text
    order = text.partition("reorder(order=(")[2].partition(")")[0].split(", ")
    assert order[:4] == ["rb0", "b0", "c", "d"]


_TWO = replace(AVX512, arch="sapphirerapids", fmas_per_cycle=2, l2_bytes=2 << 20)
"""A core with two multiply-adds a cycle."""


def product(
    rows: int, columns: int, terms: int, crossed: bool = False, turned: bool = False
) -> Kernel:
    """Of matrices as they lie; of the first one transposed where ``crossed``, of the other one
    where ``turned``.
    """
    x = Tensor.input("x", (terms, rows) if crossed else (rows, terms))
    w = Tensor.input("w", (columns, terms) if turned else (terms, columns))
    made = (x.mT if crossed else x) @ (w.mT if turned else w)
    (launch,) = schedule((made.node,)).launches
    return launch.kernel


def test_a_weight_gradient_of_a_product_has_panels() -> None:
    """A step of X^T G is a line of X: 1024 lines are more than a first cache of 32 KiB holds."""
    for target in (AVX512, _TWO):
        text = Space(product(256, 256, 1024, crossed=True), target).defaults()[0].text
        assert f"tile(axis=ra, size={K_BLOCK})" in text
    assert "axis=ra" not in Space(product(256, 256, 1024), AVX512).defaults()[0].text
    text = Space(product(256, 256, 512, crossed=True), _TWO).defaults()[0].text
    assert f"tile(axis=ra, size={K_BLOCK})" not in text


def test_rows_of_a_crossed_operand_are_no_streams() -> None:
    """They are neighbours: as many may be in a tile as registers hold."""
    text = Space(product(1024, 256, 1024, crossed=True), _TWO).defaults()[0].text
    assert "tile(axis=a, size=6)" in text


def test_many_rows_meet_a_copy_of_a_large_operand() -> None:
    assert "stage(param=p2" in Space(product(1024, 256, 1024), _TWO).defaults()[0].text
    assert "stage" not in Space(product(128, 256, 512), _TWO).defaults()[0].text


def test_threads_share_out_an_operand_that_fills_half_a_cache() -> None:
    """Each keeps its own part of the lanes; of a smaller one, all of it, and part of the rows."""
    assert "thread(axis=b0" in Space(product(1024, 256, 1024), _TWO).defaults()[0].text
    assert "thread(axis=a0" in Space(product(1024, 256, 256), _TWO).defaults()[0].text


def test_threads_share_out_the_larger_operand_of_a_sum_in_blocks() -> None:
    """A cache holds a block of either: what all threads read is the smaller one."""
    text = Space(product(1024, 256, 1024, crossed=True), _TWO).defaults()[0].text
    assert "thread(axis=a0" in text
    text = Space(product(256, 1024, 1024, crossed=True), _TWO).defaults()[0].text
    assert "thread(axis=b0" in text


def test_each_thread_turns_the_panels_of_a_layers_weights_that_it_reads() -> None:
    """X W^T: none waits for the copy of another, and a panel is read while it is near."""
    text = Space(product(128, 512, 784, turned=True), _TWO).defaults()[0].text
    assert "reorder(order=(b0, a0," in text
    assert "thread(axis=b0" in text
    assert "stage(param=p2, at=b0" in text
    assert (
        "stage(param=p2, at=()"
        in Space(product(1024, 256, 256, turned=True), _TWO).defaults()[0].text
    )


def test_a_block_of_a_large_operand_is_copied_for_many_tiles_of_rows() -> None:
    """1024 x 1024 numbers do not fit the second cache, and lie a page apart."""
    text = Space(product(256, 1024, 1024, crossed=True), _TWO).defaults()[0].text
    assert "stage(param=p2, at=ra0" in text


def test_a_weight_that_is_used_many_times_has_a_gradient_that_is_a_program() -> None:
    """A sum of 60 products: 24 rows of four steps each were more instructions than are allowed."""
    x, g = Tensor.input("x", (60, 4, 8)), Tensor.input("g", (4, 64))
    first, *more = ((g * (i + 1.5)).contiguous().mT @ x[i] for i in range(60))
    kernels = [z.kernel for z in schedule((sum(more, first).node,)).launches]
    kernel = max(kernels, key=lambda k: len(k.params))
    assert len(kernel.params) > 50
    space = Space(kernel, AVX512)
    assert size(space.lower(space.defaults()[0]).body) <= MAX_INSTRUCTIONS
