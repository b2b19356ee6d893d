"""The forms of images: their layouts, their texts, and which kernels convert."""

from __future__ import annotations

import pytest

from tests.graph_builders import add, attention, conv, conv_bn, relu, resnet18, tensor, weight
from tunegrad.errors import InternalError
from tunegrad.ir import graph as g
from tunegrad.ir.fusion import LAST, ROWS, Fusion, Images, blocked
from tunegrad.ir.graph import Node
from tunegrad.ir.layout import Layout, Part


def chain(*channels: int) -> Node:
    """Convolutions of a caller's image, of so many channels each; the last one is the output."""
    x = tensor("x", 1, 3, 8, 8)
    for i, c in enumerate(channels):
        x = relu(conv_bn(x, f"w{i}", c))
    return x


def temps(fusion: Fusion) -> list[str]:
    return [str(b.layout) for b in fusion.schedule().buffers if b.role == "temp"]


def test_images_print_and_parse() -> None:
    for images in (LAST, ROWS, blocked(8), blocked(16)):
        assert Images.parse(str(images)) == images
    assert [str(i) for i in (LAST, ROWS, blocked(16))] == ["last", "rows", "blocked16"]


@pytest.mark.parametrize(
    "text", ["", "lost", "blocked", "blocked0", "blocked1", "blocked-4", "blocked99999", "last2"]
)
def test_no_other_text_is_a_form_of_images(text: str) -> None:
    assert Images.parse(text) is None


def test_blocks_belong_to_blocked_images_only() -> None:
    with pytest.raises(InternalError, match="images last with blocks of 16"):
        Images("last", 16)
    assert blocked(1) == ROWS


def test_a_block_is_innermost_and_takes_no_padding() -> None:
    layout = blocked(16).layout((2, 64, 5, 7))
    assert layout == Layout(
        (2, 64, 5, 7), (Part(0, 1, 2), Part(1, 16, 4), Part(2, 1, 5), Part(3, 1, 7), Part(1, 1, 16))
    )
    layout.verify()
    assert layout.size == 2 * 64 * 5 * 7


def test_images_that_the_block_does_not_divide_are_channels_last() -> None:
    assert temps(Fusion.of((chain(32, 24, 16, 8),), images=blocked(16))) == [
        "0 1/16:2 2 3 1", "0 2 3 1", "0 1/16:1 2 3 1",
    ]  # fmt: skip


def test_conversions_are_counted_where_a_kernel_reads_another_form_than_it_writes() -> None:
    fusion = Fusion.of((chain(32, 24, 16, 8),))
    # rows of the caller, blocked, last, blocked, rows
    assert fusion.storing(blocked(16)).conversions == 4
    assert fusion.conversions == 2, "in from the caller, out to the caller"
    assert fusion.storing(ROWS).conversions == 0


def test_no_form_adds_a_kernel() -> None:
    fusion = Fusion.of((resnet18(tensor("x", 1, 3, 64, 64), 8, 10),))
    counts = {
        len(fusion.storing(images).schedule().launches) for images in (LAST, ROWS, blocked(8))
    }
    assert counts == {23}


def test_only_graphs_with_windows_have_images() -> None:
    assert Fusion.of((chain(4, 4),)).has_images
    assert not Fusion.of((chain(4),)).has_images, "the caller's tensors are no images"
    assert not Fusion.of((attention(2, 5, 4),)).has_images


def test_a_fence_keeps_the_layout_that_it_asks_for() -> None:
    x = relu(conv_bn(tensor("x", 1, 3, 8, 8), "w", 16))
    fenced = g.contiguous(x, Layout.permuted(x.shape, (3, 2, 1, 0)))
    fusion = Fusion.of((conv(fenced, weight("v", 16, 16, 3, 3)),), images=blocked(16))
    assert "3 2 1 0" in temps(fusion)


def test_a_graph_remembers_its_kernels_of_each_form() -> None:
    x = chain(32, 16)
    fusion = Fusion.of((add(x, x),))
    first = fusion.schedule()
    other = fusion.storing(blocked(16))
    assert other.schedule().launches[0].kernel != first.launches[0].kernel
    assert other.storing(LAST).schedule().launches[0].kernel is first.launches[0].kernel
