"""Indexing, padding, joining and the other movements equal numpy's."""

import numpy as np
import pytest
from tensor_values import nodes, numbers, same, value

from tunegrad.frontend import Tensor, arange, cat, full, ones, stack, zeros
from tunegrad.ir.graph import GraphOp

X = np.arange(2 * 5 * 7, dtype=np.int32).reshape(2, 5, 7)

KEYS = [
    np.s_[0], np.s_[-1], np.s_[1, 2, 3], np.s_[:, 1], np.s_[..., -1], np.s_[1:], np.s_[:, ::2],
    np.s_[:, ::-1],
    np.s_[:, 4:1:-2], np.s_[..., ::3], np.s_[..., 5::-4], np.s_[None], np.s_[:, None, ..., None],
    np.s_[0, ..., 2:4],
    np.s_[:, 3:3], np.s_[:, 4:1], np.s_[:, -100:100], np.s_[::-1, ::-1, ::-1], np.s_[...],
    np.s_[()],
    np.s_[1:2, -2:, 1:-1:2], np.s_[:, 2:3:5], np.s_[:, 3::-7], np.s_[np.int64(1)], np.s_[:, 4:5:-1],
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_getitem_equals_numpy(key):
    same(Tensor(X)[key], X[key])


def test_iteration_gives_the_rows():
    assert [value(row).tolist() for row in Tensor(X[0])] == X[0].tolist()
    assert len(Tensor(X)) == 2


@pytest.mark.parametrize("shape", [(10, 7), (-1,), (2, -1, 7), (70, 1, 1), (7, 5, 2)])
def test_reshape_equals_numpy(shape):
    same(Tensor(X).reshape(shape), X.reshape(shape))
    same(Tensor(X).reshape(*shape), X.reshape(shape))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (-1, 0, 1), (1, 0, 2)])
def test_permute_equals_numpy(order):
    same(Tensor(X).permute(order), X.transpose(order))
    same(Tensor(X).permute(*order), X.transpose(order))


def test_transposes_equal_numpy():
    same(Tensor(X).T, X.T)
    same(Tensor(X).transpose(), np.swapaxes(X, -1, -2))
    same(Tensor(X).transpose(0, 2), np.swapaxes(X, 0, 2))


@pytest.mark.parametrize(
    ("shape", "target"), [((1, 3), (4, 3)), ((3,), (2, 4, 3)), ((), (2, 2)), ((2, 1, 1), (2, 5, 1))]
)
def test_broadcast_to_equals_numpy(shape, target):
    x = numbers(*shape)
    same(Tensor(x).broadcast_to(target), np.broadcast_to(x, target))
    same(Tensor(x).expand(*target), np.broadcast_to(x, target))


def test_expand_keeps_extents_of_minus_one():
    assert Tensor(numbers(1, 3)).expand(4, -1).shape == (4, 3)


@pytest.mark.parametrize("fill", [0, 7, -1])
def test_pad_of_integers_equals_numpy(fill):
    widths = ((1, 0), (0, 2), (3, 1))
    same(Tensor(X).pad(widths, fill), np.pad(X, widths, constant_values=fill))


@pytest.mark.parametrize("fill", [0.0, -0.0, 2.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_pad_of_special_values_equals_numpy(fill, dtype):
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    t = Tensor(x, dtype).pad(((2, 1),), fill)
    expected = np.pad(x.astype(t.dtype.numpy), ((2, 1),), constant_values=fill)
    same(t, expected)
    np.testing.assert_array_equal(np.signbit(value(t)), np.signbit(expected))


def test_pad_with_zero_needs_no_mask():
    assert not nodes(Tensor(X).pad(((1, 1), (0, 0), (0, 0))), GraphOp.MAP)


def test_shrink_and_flip_equal_numpy():
    same(Tensor(X).shrink(((0, 1), (2, 4), (0, 7))), X[0:1, 2:4])
    same(Tensor(X).flip((0, -1)), np.flip(X, (0, 2)))
    same(Tensor(X).flip(), np.flip(X))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cat_equals_numpy_with_nan_and_infinity(axis):
    parts = [
        numbers(2, 3, 4),
        np.full((2, 3, 4), np.nan, np.float32),
        np.full((2, 3, 4), -np.inf, np.float32),
    ]
    same(cat([Tensor(p) for p in parts], axis), np.concatenate(parts, axis))


def test_cat_takes_parts_of_different_and_zero_extents():
    parts = [numbers(1, 3), numbers(0, 3), numbers(4, 3)]
    same(cat(parts), np.concatenate(parts))
    same(cat([numbers(0, 3), numbers(0, 3)]), np.zeros((0, 3), np.float32))


def test_cat_leaves_out_tensors_of_shape_zero_as_pytorch_does():
    found = cat([Tensor(np.zeros(0)), Tensor(numbers(2, 3))], 1)
    assert found.shape == (2, 3)
    assert found.dtype.name == "f64"


def test_cat_promotes_dtypes():
    same(
        cat([np.array([1, 2], np.int32), np.array([0.5], np.float32)]),
        np.array([1, 2, 0.5], np.float32),
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack_equals_numpy(axis):
    parts = [numbers(2, 3), numbers(2, 3, seed=1)]
    same(stack([Tensor(p) for p in parts], axis), np.stack(parts, axis))


def test_stack_of_numbers_is_a_vector():
    same(stack([1.0, 2.0, 3.0]), np.array([1, 2, 3], np.float32))


def test_squeeze_and_unsqueeze_equal_numpy():
    x = numbers(1, 3, 1)
    same(Tensor(x).squeeze(), x.squeeze())
    same(Tensor(x).squeeze(-1), x.squeeze(-1))
    same(Tensor(x).unsqueeze(0), x[None])
    same(Tensor(x).unsqueeze(-1), x[..., None])


def test_window_is_numpys_sliding_window():
    x = numbers(3, 11)
    expected = np.lib.stride_tricks.sliding_window_view(x, 5, axis=1)[:, ::2, ::2]
    same(Tensor(x).window(1, 3, stride=2, dilation=2), expected)


@pytest.mark.parametrize("arguments", [(5,), (0,), (-3,), (2, 9), (2, 9, 3), (9, 2, -2), (2, 2)])
def test_arange_of_integers_equals_numpy(arguments):
    same(arange(*arguments), np.arange(*arguments, dtype=np.int64))


@pytest.mark.parametrize("arguments", [(5.0,), (0, 1, 0.25), (1.0, -1.0, -0.5)])
def test_arange_of_floats_equals_numpy(arguments):
    same(arange(*arguments), np.arange(*arguments, dtype=np.float32))


def test_creation_needs_no_buffers():
    same(zeros((2, 3)), np.zeros((2, 3), np.float32))
    same(ones(4, "i64"), np.ones(4, np.int64))
    same(full((2,), 0.1, "f16"), np.full(2, 0.1, np.float16))
    same(full((2,), 3), np.full(2, 3, np.int64))
    assert not nodes(full((2,), 3) + zeros(2), GraphOp.CONST)


def test_one_hot_marks_positions():
    same(Tensor([2, 0, 1]).one_hot(3), np.eye(3, dtype=np.int64)[[2, 0, 1]])


def test_contiguous_is_a_fence():
    assert (Tensor(X) + 1).contiguous().node.op is GraphOp.CONTIGUOUS
