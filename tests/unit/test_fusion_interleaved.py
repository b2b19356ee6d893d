"""Where a tensor is stored that views end: above them where they interleave dimensions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tunegrad.frontend import Tensor, cat
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.fusion.build import interleaves
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.variants import match_conv3x3

RNG = np.random.default_rng(0)


def constant(*shape: int) -> Tensor:
    return Tensor.constant(RNG.standard_normal(shape, dtype=np.float32))


def product(*shape: int) -> Tensor:
    """A sum of products over one more dimension."""
    return Tensor.input("x", (*shape[:-1], 5)) @ constant(5, shape[-1])


def pixels() -> Tensor:
    """A step up of a U-Net, joined with another image, under a window."""
    up = Tensor.input("x", (1, 4, 5, 6)).conv_transpose2d(constant(4, 3, 2, 2), stride=2)
    return cat([up, Tensor.input("y", (1, 3, 10, 12))], 1).conv2d(constant(4, 6, 3, 3), padding=1)


def groups() -> Tensor:
    """Channels of two groups, in turns, under a window."""
    x = product(9, 9, 8).reshape(1, 9, 9, 2, 4).transpose(3, 4).reshape(1, 9, 9, 8)
    return x.permute(0, 3, 1, 2).conv2d(constant(8, 1, 3, 3), padding=1, groups=8)


def parts_of_an_image() -> Tensor:
    """Windows of an image, as rows of a product."""
    x = product(6, 8, 3).reshape(2, 3, 2, 4, 3).permute(0, 2, 1, 3, 4).reshape(4, 12, 3)
    return x @ constant(3, 7)


def heads() -> Tensor:
    """Rows and heads, as attention reads them."""
    x = product(6, 8).reshape(6, 2, 4).permute(1, 0, 2)
    return x @ Tensor.input("k", (2, 4, 6))


def divides(node: Node) -> list[str]:
    """Kernels that divide what they read by."""
    plan = schedule(fold_constants((node,)))
    texts = ("".join(map(str, x.kernel.reduces)) for x in plan.launches)
    return [x.name for x, text in zip(plan.launches, texts, strict=True) if "//" in text]


@pytest.mark.parametrize("make", [pixels, parts_of_an_image, heads])
def test_who_reads_what_views_interleave_divides_no_index(make: Callable[[], Tensor]) -> None:
    assert divides(make().node) == []


def test_groups_of_one_dimension_are_stored_as_they_are_made() -> None:
    """As they are shuffled, neighbours would be written apart from each other."""
    plan = schedule(fold_constants((groups().node,)))
    assert str(plan.launches[0].kernel.stores[0].index[-1]) in ("a", "b", "c")


def test_a_step_up_leaves_a_convolution_of_joined_images() -> None:
    up, conv = schedule(fold_constants((pixels().node,))).launches
    assert [a.extent for a in up.kernel.reduces[0].axes] == [4], "no zeros between, one tap each"
    assert match_conv3x3(conv.kernel) is not None


@pytest.mark.parametrize(("size", "padding", "more"), [(4, 1, 0), (3, 1, 1), (5, 2, 1)])
def test_a_step_up_whose_border_is_cut_has_no_zeros_between(
    size: int, padding: int, more: int
) -> None:
    x = Tensor.input("x", (1, 4, 5, 6))
    up = x.conv_transpose2d(constant(4, 3, size, size), None, 2, padding, more)
    conv, cut = schedule(fold_constants((up.relu().node,))).launches
    assert [a.extent for a in conv.kernel.reduces[0].axes] == [4, -(-size // 2), -(-size // 2)]
    assert not cut.kernel.reduces
    assert divides(up.node) == []


@pytest.mark.parametrize("make", [pixels, groups, parts_of_an_image, heads])
def test_it_is_the_same(make: Callable[[], Tensor]) -> None:
    node = make().node
    inputs = {n.arg: n for n in _inputs(node)}
    arrays = {
        str(name): RNG.standard_normal(n.shape).astype(np.float32) for name, n in inputs.items()
    }
    (wanted,) = evaluate((node,), arrays)
    (got,) = run_schedule(schedule(fold_constants((node,))), arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def _inputs(node: Node) -> list[Node]:
    from tunegrad.ir.graph import topological

    return [n for n in topological((node,)) if n.op is GraphOp.INPUT]


def test_views_without_elements_interleave_nothing():
    x = graph.graph_input("x", (0, 3), F32)
    turned = graph.permute(x, (1, 0))
    assert not interleaves([graph.reshape(turned, (3, 1, 0)), turned, x])
