"""Which kernels are 3x3 convolutions that Winograd computes, and which are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from variant_builders import Conv, bound, constant, kernel_of, only, ran

from benchmarks.hand_schedules import conv3x3, gemm
from tunegrad.frontend import Tensor, cat
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Load, Op
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.variants import match_conv3x3, parts_of, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel

LAST = ("direct", "winograd2", "winograd4")
ROWS = (*LAST, "channels_last", "channels_last_winograd2", "channels_last_winograd4")
MOVED = ("direct", "channels_last")


def input_of(*shape: int, dtype: str = "f32") -> Tensor:
    return Tensor.input("x", shape, dtype)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels-last"])
def test_a_convolution_is_matched(padding: int, batch: int, last: bool) -> None:
    kernel = Conv(padding=padding, batch=batch, last=last).kernel()
    found = match_conv3x3(kernel)
    assert found is not None
    shifts = [tuple(i.load.index[d].const for d in i.dims[:2]) for i in found.images]
    assert shifts == [(-padding, -padding)]
    assert variants_of(kernel) == (LAST if last else ROWS)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_any_epilogue_is_matched(bias: bool, residual: bool, relu: bool) -> None:
    assert variants_of(Conv(bias=bias, residual=residual, relu=relu).kernel()) == ROWS


@pytest.mark.parametrize("height", range(1, 10))
@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_every_size_of_image_is_matched_but_a_line(height: int, width: int) -> None:
    """A line has no windows in one direction, and most of a tile's outputs would be thrown away."""
    wanted = ROWS if height > 1 and width > 1 else MOVED if height > 1 or width > 1 else ("direct",)
    assert variants_of(Conv(height=height, width=width).kernel()) == wanted


@pytest.mark.parametrize(("channels", "outputs"), [(2, 2), (3, 3), (3, 7), (9, 3)])
def test_channels_of_the_window_s_extent_are_told_apart(channels: int, outputs: int) -> None:
    conv = Conv(channels=channels, outputs=outputs)
    found = match_conv3x3(conv.kernel())
    assert found is not None
    assert found.w.index[found.w_dims[1]].key == found.channels
    assert {a.name: a.extent for a in conv.kernel().reduces[0].axes}[found.channels] == channels


def test_a_hand_written_kernel_is_matched() -> None:
    found = match_conv3x3(conv3x3(4, 8, 6))
    assert found is not None
    assert (found.rows, found.columns, found.outputs, found.channels) == ("y", "x", "o", "c")


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_an_output_of_any_order_is_matched_and_computed(order: tuple[int, ...]) -> None:
    """A batch axis may have any canonical name, that of another kernel's axis too."""
    conv = Conv(batch=2, channels=3, height=5)
    x = conv.inputs
    plan = only(
        Tensor.input("x", x["x"].shape).conv2d(constant(5, 3, 3, 3), padding=1).permute(*order)
    )
    kernel = kernel_of(plan)
    for part in parts_of(kernel, "winograd2"):
        verify_kernel(part)
    error = ran(rewrite(plan, {kernel.key: "winograd2"}), x) - ran(plan, x, as_float64=True)
    assert abs(error).max() <= bound(conv, "winograd2")


@pytest.mark.parametrize("parts", [(2, 3), (2, 4, 3), (3, 3)])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("variant", ["winograd2", "winograd4"])
def test_a_convolution_of_joined_images_is_matched_and_computed(
    parts: tuple[int, ...], padding: int, variant: str
) -> None:
    """A U-Net's: each image is read where it lies, also where two are the same."""
    conv = Conv(channels=sum(parts), height=9, padding=padding)
    names = [f"x{parts.index(n)}" for n in parts]
    x = np.split(conv.inputs["x"], np.cumsum(parts)[:-1], axis=1)
    arrays = dict(zip(names, x, strict=True))
    images = {name: Tensor.input(name, a.shape) for name, a in arrays.items()}
    w, b = (Tensor.constant(a) for a in conv.weights)
    plan = only(cat([images[n] for n in names], 1).conv2d(w, b, padding=padding).relu())
    kernel = kernel_of(plan)
    found = match_conv3x3(kernel)
    assert found is not None
    assert len(found.x_params) == len(images)
    transform = parts_of(kernel, variant)[0]
    assert sorted(p.shape for p in transform.params[1:]) == sorted(
        a.shape[1:] for a in arrays.values()
    )
    for part in parts_of(kernel, variant):
        verify_kernel(part)
    rewritten = rewrite(plan, {kernel.key: variant})
    error = ran(rewritten, arrays) - ran(plan, arrays, as_float64=True)
    assert abs(error).max() <= bound(conv, variant)


def two(*shape: int) -> list[Tensor]:
    return [Tensor.input(name, shape) for name in ("x", "y")]


def cropped(x: Tensor) -> Tensor:
    """Moved down by a row; the last one falls off."""
    return x.pad((0, 0, 1, 0))[:, :, :-1]


REFUSED: dict[str, Callable[[], Tensor]] = {
    "stride": lambda: input_of(1, 4, 9, 9).conv2d(constant(5, 4, 3, 3), stride=2, padding=1),
    "dilation": lambda: input_of(1, 4, 9, 9).conv2d(constant(5, 4, 3, 3), padding=2, dilation=2),
    "groups": lambda: input_of(1, 4, 9, 9).conv2d(constant(6, 2, 3, 3), padding=1, groups=2),
    "depthwise": lambda: input_of(1, 4, 9, 9).conv2d(constant(4, 1, 3, 3), padding=1, groups=4),
    "groups of three": lambda: input_of(1, 9, 9, 9).conv2d(
        constant(9, 3, 3, 3), padding=1, groups=3
    ),
    "1x1": lambda: input_of(1, 4, 9, 9).conv2d(constant(5, 4, 1, 1)),
    "5x5": lambda: input_of(1, 4, 9, 9).conv2d(constant(5, 4, 5, 5), padding=2),
    "1x3": lambda: input_of(1, 4, 9, 9).conv2d(constant(5, 4, 1, 3)),
    "f64": lambda: input_of(1, 4, 9, 9, dtype="f64").conv2d(
        constant(5, 4, 3, 3).cast("f64"), padding=1
    ),
    "f16": lambda: (
        input_of(1, 4, 9, 9, dtype="f16").cast("f32").conv2d(constant(5, 4, 3, 3), padding=1)
    ),
    "something before it": lambda: (input_of(1, 4, 9, 9) * 2).conv2d(
        constant(5, 4, 3, 3), padding=1
    ),
    "images joined along their rows": lambda: cat(two(1, 4, 4, 9), 2).conv2d(
        constant(5, 4, 3, 3), padding=1
    ),
    "joined images of which one is cropped": lambda: cat(
        [f(x) for f, x in zip((Tensor.relu, cropped), two(1, 2, 9, 9), strict=True)], 1
    ).conv2d(constant(5, 4, 3, 3), padding=1),
    "pooling": lambda: input_of(1, 4, 9, 9).max_pool2d(3, stride=1, padding=1),
    "a product": lambda: input_of(9, 4) @ constant(4, 8),
    "one channel": lambda: input_of(1, 1, 9, 9).conv2d(constant(5, 1, 3, 3), padding=1),
    "one output": lambda: input_of(1, 4, 9, 9).conv2d(constant(1, 4, 3, 3), padding=1),
}


DENSE = {"stride", "dilation", "1x1", "5x5", "1x3", "f16", "f64"}
"""Sums of products with constant weights all the same: these have a channels-last variant."""


@pytest.mark.parametrize("name", REFUSED)
def test_another_kernel_is_refused(name: str) -> None:
    for launch in only(REFUSED[name]()).launches:
        assert match_conv3x3(launch.kernel) is None
        assert variants_of(launch.kernel) == (MOVED if name in DENSE else ("direct",))


def changed(kernel: Kernel, **reduce: object) -> Kernel:
    first, *rest = kernel.stages
    return replace(kernel, stages=(replace(first, **reduce), *rest))  # type: ignore[arg-type]


def test_another_operation_is_refused() -> None:
    kernel = conv3x3(4, 8, 6)
    (reduce,) = kernel.reduces
    assert isinstance(reduce.expr, Apply)
    assert match_conv3x3(changed(kernel, expr=reduce.expr)) is not None
    assert match_conv3x3(changed(kernel, op=Op.MAX)) is None
    assert match_conv3x3(changed(kernel, expr=Apply(Op.ADD, reduce.expr.args, F32))) is None


def test_a_window_that_is_not_padded_with_zeros_alone_is_refused() -> None:
    kernel = conv3x3(4, 8, 6)
    x, w = kernel.reduces[0].expr.args  # type: ignore[union-attr]
    assert isinstance(x, Load)
    inner = replace(x, valid=x.valid & Valid((Range(x.index[0], 1, 5),)))
    assert match_conv3x3(changed(kernel, expr=Apply(Op.MUL, (inner, w), F32))) is None


def test_a_diagonal_is_refused() -> None:
    """Both windows slide along one axis: ``Y[y, o] = sum of X[y+r, y+s, c] * W[o, c, r, s]``."""
    y, o, c, r, s = Axis("y", 6), Axis("o", 4), Axis("c", 5), Axis("r", 3), Axis("s", 3)
    x = Load("X", (y.index + r.index, y.index + s.index, c.index), F32)
    w = Load("W", (o.index, c.index, r.index, s.index), F32)
    params = (
        Param.dense("Y", F32, (6, 4), "out"), Param.dense("X", F32, (8, 8, 5), "in"),
        Param.dense("W", F32, (4, 5, 3, 3), "const"),
    )  # fmt: skip
    stages = (
        Reduce("v0", Op.ADD, (c, r, s), Apply(Op.MUL, (x, w), F32), F32),
        Store("Y", (y.index, o.index), conv3x3(4, 8, 6).stores[0].expr),
    )
    kernel = Kernel(params, (y, o), stages)
    verify_kernel(kernel)
    assert match_conv3x3(kernel) is None


def test_a_masked_store_is_refused() -> None:
    kernel = conv3x3(4, 8, 6)
    *rest, store = kernel.stages
    assert isinstance(store, Store)
    masked = replace(store, valid=Valid((Range(store.index[0], 0, 5),)))
    assert match_conv3x3(replace(kernel, stages=(*rest, masked))) is None


def test_a_product_has_one_variant() -> None:
    kernel = gemm(4, 5, 6)
    assert parts_of(kernel, "direct") == (kernel,)
