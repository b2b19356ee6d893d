"""Convolution and pooling equal loops over windows, and have the graph that fusion makes one kernel
of.
"""

import itertools

import numpy as np
import pytest
from tensor_values import nodes, numbers, reduces, same, value

from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp


def convolved(x, w, stride, ends, dilation, groups):
    """A convolution by four loops over outputs, in f64."""
    (sy, sx), (dy, dx) = stride, dilation
    p = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *ends))
    n, _, height, width = p.shape
    out, part, kh, kw = w.shape
    rows, columns = (height - dy * (kh - 1) - 1) // sy + 1, (width - dx * (kw - 1) - 1) // sx + 1
    y = np.zeros((n, out, rows, columns))
    for i, o, r, c in itertools.product(range(n), range(out), range(rows), range(columns)):
        first = o // (out // groups) * part
        patch = p[
            i, first : first + part, r * sy : r * sy + dy * kh : dy, c * sx : c * sx + dx * kw : dx
        ]
        y[i, o, r, c] = (patch[:, :kh, :kw] * w[o]).sum()
    return y.astype(np.float32)


CASES = [
    # shape, weight, stride, padding, dilation, groups
    ((1, 3, 7, 7), (4, 3, 3, 3), 1, 0, 1, 1),
    ((2, 3, 7, 7), (4, 3, 3, 3), 1, 1, 1, 1),
    ((1, 3, 9, 8), (2, 3, 3, 2), (2, 1), (1, 0), 1, 1),
    ((1, 2, 11, 11), (3, 2, 3, 3), 2, 2, 2, 1),
    ((1, 4, 6, 6), (6, 2, 3, 3), 1, 1, 1, 2),
    ((1, 4, 5, 5), (4, 1, 3, 3), 1, 1, 1, 4),
    ((1, 3, 8, 8), (5, 3, 1, 1), 2, 0, 1, 1),
    ((1, 1, 10, 9), (2, 1, 7, 7), 2, 3, 1, 1),
    ((1, 2, 9, 9), (2, 2, 2, 3), 1, (2, 1), (3, 2), 1),
    ((0, 3, 7, 7), (4, 3, 3, 3), 1, 1, 1, 1),
]


def pair(v):
    return v if isinstance(v, tuple) else (v, v)


@pytest.mark.parametrize(("shape", "weight", "stride", "padding", "dilation", "groups"), CASES)
def test_conv2d_equals_loops(shape, weight, stride, padding, dilation, groups):
    x, w, b = numbers(*shape), numbers(*weight, seed=1), numbers(weight[0], seed=2)
    (py, px) = pair(padding)
    expected = convolved(x, w, pair(stride), ((py, py), (px, px)), pair(dilation), groups)
    t = Tensor(x).conv2d(w, b, stride, padding, dilation, groups)
    same(t, expected + b.reshape(-1, 1, 1), 1e-4)


@pytest.mark.parametrize(
    ("size", "dilation", "ends"), [((3, 3), 1, ((1, 1), (1, 1))), ((2, 4), 2, ((1, 1), (3, 3)))]
)
def test_same_padding_keeps_the_extents(size, dilation, ends):
    x, w = numbers(1, 2, 6, 7), numbers(3, 2, *size)
    t = Tensor(x).conv2d(w, padding="same", dilation=dilation)
    assert t.shape == (1, 3, 6, 7)
    same(t, convolved(x, w, (1, 1), ends, (dilation, dilation), 1), 1e-4)


def test_same_padding_puts_the_odd_zero_after():
    x, w = numbers(1, 1, 4, 4), numbers(1, 1, 2, 2)
    same(
        Tensor(x).conv2d(w, padding="same"),
        convolved(x, w, (1, 1), ((0, 1), (0, 1)), (1, 1), 1),
        1e-4,
    )


def test_valid_padding_is_none():
    x, w = numbers(1, 1, 4, 4), numbers(1, 1, 3, 3)
    same(Tensor(x).conv2d(w, padding="valid"), value(Tensor(x).conv2d(w)))


@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d_sums_channel_row_column_in_this_order(groups):
    y = Tensor(numbers(2, 4, 7, 8)).conv2d(numbers(6, 4 // groups, 3, 2), groups=groups)
    (node,) = nodes(y, GraphOp.REDUCE)
    op, axes = node.arg
    assert op is Op.ADD
    assert [node.srcs[0].shape[a] for a in axes] == [4 // groups, 3, 2]
    assert axes == tuple(range(len(node.shape) - 3, len(node.shape)))


def test_conv2d_of_integers_and_f16_keeps_the_dtype():
    x, w = (numbers(1, 2, 5, 5) * 4).astype(np.int32), (numbers(3, 2, 3, 3) * 4).astype(np.int32)
    expected = convolved(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    same(Tensor(x).conv2d(w), expected.astype(np.int32))
    same(Tensor(x, "f16").conv2d(Tensor(w, "f16")), expected.astype(np.float16), 1e-3)


def pooled(x, size, stride, padding, dilation, fill, fold):
    (kh, kw), (sy, sx), (py, px), (dy, dx) = map(pair, (size, stride, padding, dilation))
    p = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=fill)
    rows, columns = (
        (p.shape[2] - dy * (kh - 1) - 1) // sy + 1,
        (p.shape[3] - dx * (kw - 1) - 1) // sx + 1,
    )
    y = np.zeros((*x.shape[:2], rows, columns), x.dtype)
    for r, c in itertools.product(range(rows), range(columns)):
        patch = p[
            :, :, r * sy : r * sy + dy * (kh - 1) + 1 : dy, c * sx : c * sx + dx * (kw - 1) + 1 : dx
        ]
        y[:, :, r, c] = fold(patch, (2, 3))
    return y


POOLS = [(2, 2, 0, 1), (3, 2, 1, 1), ((3, 2), (1, 2), (1, 0), 1), (3, 1, 1, 2), (4, 3, 2, 1)]


@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), POOLS)
def test_max_pool2d_equals_loops(size, stride, padding, dilation):
    x = numbers(2, 3, 9, 8) - 5
    same(
        Tensor(x).max_pool2d(size, stride, padding, dilation),
        pooled(x, size, stride, padding, dilation, -np.inf, np.max),
    )


def test_max_pool2d_of_negative_integers_ignores_the_padding():
    x = np.full((1, 1, 4, 4), -9, np.int32)
    same(Tensor(x).max_pool2d(3, 1, 1), x)


def test_max_pool2d_passes_nan_and_infinity():
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 3, 3] = np.nan
    same(Tensor(x).max_pool2d(2), pooled(x, 2, 2, 0, 1, 0, np.max))


def test_padded_max_pool2d_is_one_select_and_one_reduction():
    y = Tensor(numbers(1, 2, 8, 8)).max_pool2d(3, 2, 1)
    (node,) = nodes(y, GraphOp.REDUCE)
    assert node.arg == (Op.MAX, (4, 5))
    assert node.srcs[0].arg is Op.WHERE
    mask, windows, lowest = node.srcs[0].srcs
    assert [n.op for n in (mask, windows, lowest)] == [GraphOp.WINDOW, GraphOp.WINDOW, GraphOp.FULL]
    assert len(nodes(y, GraphOp.MAP)) == 1


def test_max_pool2d_without_padding_needs_no_mask():
    assert not nodes(Tensor(numbers(1, 2, 8, 8)).max_pool2d(2), GraphOp.MAP)


@pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, 0), (3, 2, 1), ((3, 2), 1, (1, 1))])
def test_avg_pool2d_counts_padding_unless_told(size, stride, padding):
    x = numbers(2, 3, 9, 8)
    same(
        Tensor(x).avg_pool2d(size, stride, padding),
        pooled(x, size, stride, padding, 1, 0, np.mean),
        1e-5,
    )
    expected = pooled(x, size, stride, padding, 1, np.nan, np.nanmean)
    same(Tensor(x).avg_pool2d(size, stride, padding, count_include_pad=False), expected, 1e-5)


def test_global_and_adaptive_average_pool_equal_means():
    x = numbers(2, 3, 6, 4)
    same(Tensor(x).global_avg_pool2d(), x.mean((2, 3), keepdims=True), 1e-5)
    same(Tensor(x).adaptive_avg_pool2d((3, 2)), x.reshape(2, 3, 3, 2, 2, 2).mean((3, 5)), 1e-5)


def test_batch_norm_is_a_scale_and_a_shift():
    x, (w, b, m) = numbers(2, 3, 4, 4), numbers(3, 3)
    v = np.abs(numbers(3, seed=5)) + 0.5
    shape = (3, 1, 1)
    y = Tensor(x).batch_norm(w, b, m, v)
    expected = (x - m.reshape(shape)) / np.sqrt(v.reshape(shape) + 1e-5) * w.reshape(
        shape
    ) + b.reshape(shape)
    same(y, expected, 1e-5)
    assert reduces(y) == 0
