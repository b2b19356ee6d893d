"""Sums, statistics, softmax, layer norm and the matrix product equal numpy's, and are plain
reductions.
"""

import numpy as np
import pytest
from tensor_values import nodes, numbers, reduces, same, value

from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp

X = numbers(3, 4, 5)
AXES = [None, 0, -1, (0, 2), (2, 1), (0, 1, 2), ()]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reduction_equals_numpy(name, axis, keepdims):
    same(
        getattr(Tensor(X), name)(axis, keepdims),
        getattr(X, name)(axis=axis, keepdims=keepdims),
        1e-5,
    )


@pytest.mark.parametrize("axis", [None, 0, (1, -1)], ids=str)
@pytest.mark.parametrize("correction", [0, 1, 2])
def test_var_and_std_equal_numpy(axis, correction):
    same(Tensor(X).var(axis, correction=correction), X.var(axis=axis, ddof=correction), 1e-5)
    same(Tensor(X).std(axis, correction=correction), X.std(axis=axis, ddof=correction), 1e-5)


def test_var_is_exact_far_from_zero():
    x = (1e4 + numbers(1000) * 1e-1).astype(np.float32)
    same(Tensor(x).var(), x.astype(np.float64).var(ddof=1).astype(np.float32), 1e-3)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64])
def test_sum_and_product_of_integers_are_i64(dtype):
    x = np.array([[1, 2], [0, 3]]).astype(dtype)
    same(Tensor(x).sum(0), x.sum(0).astype(np.int64))
    same(Tensor(x).prod(1), x.prod(1).astype(np.int64))
    same(Tensor(x).mean(), np.float32(x.mean()))


@pytest.mark.parametrize("dtype", [np.bool_, np.int32])
def test_extremum_keeps_its_dtype(dtype):
    x = np.array([[1, 0], [0, 0]]).astype(dtype)
    same(Tensor(x).max(1), x.max(1))
    same(Tensor(x).min(0), x.min(0))


def test_nan_reaches_the_maximum():
    x = np.array([1.0, np.nan, 2.0], np.float32)
    assert np.isnan(value(Tensor(x).max()))


def test_sum_of_f16_does_not_overflow_on_the_way():
    x = np.full(100_000, 1.0, np.float16)
    assert value(Tensor(x).mean()) == 1.0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_equals_its_formula(axis):
    e = np.exp(X.astype(np.float64))
    same(Tensor(X).softmax(axis), (e / e.sum(axis, keepdims=True)).astype(np.float32))
    expected = X - np.log(e.sum(axis, keepdims=True))
    same(Tensor(X).log_softmax(axis), expected.astype(np.float32), 1e-5)


def test_softmax_of_large_values_does_not_overflow():
    same(
        Tensor(np.array([1e30, 1e30, -np.inf], np.float32)).softmax(),
        np.array([0.5, 0.5, 0], np.float32),
    )


def test_softmax_is_two_reductions():
    assert reduces(Tensor(X).softmax()) == 2


@pytest.mark.parametrize("axes", [-1, (1, 2), 1], ids=str)
def test_layer_norm_equals_its_formula(axes):
    over = axes if isinstance(axes, tuple) else (axes,)
    inner = tuple(X.shape[a] for a in sorted(a % 3 for a in over))
    w, b = numbers(*inner, seed=2), numbers(*inner, seed=3)
    shape = [s if i in {a % 3 for a in over} else 1 for i, s in enumerate(X.shape)]
    d = X.astype(np.float64)
    z = (d - d.mean(over, keepdims=True)) / np.sqrt(d.var(over, keepdims=True) + 1e-5)
    expected = (z * w.reshape(shape) + b.reshape(shape)).astype(np.float32)
    same(Tensor(X).layer_norm(w, b, axes=axes), expected, 1e-5)
    same(Tensor(X).layer_norm(axes=axes), z.astype(np.float32), 1e-5)


MATRICES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((1, 4), (4, 1)), ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 0), (0, 5)), ((0, 4), (4, 5)), ((0, 3, 4), (4, 5)), ((5, 1), (1, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), MATRICES, ids=str)
def test_matmul_equals_numpy(a, b):
    x, y = numbers(*a), numbers(*b, seed=1)
    same(Tensor(x) @ Tensor(y), x @ y, 1e-5)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.float64])
def test_matmul_keeps_its_dtype(dtype):
    x, y = (numbers(3, 4) * 3).astype(dtype), (numbers(4, 2, seed=1) * 3).astype(dtype)
    same(Tensor(x) @ Tensor(y), x @ y)


def test_matmul_of_f16_is_rounded_once():
    x, y = numbers(3, 200).astype(np.float16), numbers(200, 2).astype(np.float16)
    same(
        Tensor(x) @ Tensor(y),
        (x.astype(np.float32) @ y.astype(np.float32)).astype(np.float16),
        2e-3,
    )


def test_matmul_sums_a_product_over_the_last_axis():
    y = Tensor(numbers(3, 4)) @ Tensor(numbers(4, 5))
    (node,) = nodes(y, GraphOp.REDUCE)
    assert node.arg == (Op.ADD, (2,))
    assert node.srcs[0].shape == (3, 5, 4)
    assert node.srcs[0].arg is Op.MUL


def test_linear_is_a_product_with_the_transpose():
    x, w, b = numbers(2, 3, 4), numbers(5, 4), numbers(5)
    same(Tensor(x).linear(w, b), x @ w.T + b, 1e-5)
