"""Empty and scalar tensors go through every operation: shapes (), (0,) and (1, 0, 3) against
numpy.
"""

import operator

import numpy as np
import pytest
from tensor_values import numbers, same, value

from tunegrad.frontend import Tensor, cat, maximum, ones, stack, where, zeros

SHAPES = [(), (0,), (1, 0, 3)]
EMPTY = [s for s in SHAPES if 0 in s]

# name: (on a Tensor, on an array)
EVERYWHERE = {
    "add": (lambda t: t + t, lambda x: x + x),
    "add number": (lambda t: t + 1, lambda x: x + np.float32(1)),
    "add vector": (
        lambda t: t + np.ones((1,), np.float32),
        lambda x: x + np.ones((1,), np.float32),
    ),
    "sub": (lambda t: 1 - t, lambda x: np.float32(1) - x),
    "mul": (lambda t: t * t, lambda x: x * x),
    "div": (lambda t: t / 2, lambda x: x / np.float32(2)),
    "floordiv": (lambda t: t // 2, lambda x: x // np.float32(2)),
    "mod": (lambda t: t % 2, lambda x: x % np.float32(2)),
    "pow": (lambda t: t**3, lambda x: x ** np.float32(3)),
    "neg": (operator.neg, operator.neg),
    "abs": (abs, np.abs),
    "exp": (lambda t: t.exp(), np.exp),
    "sqrt": (lambda t: (t * t).sqrt(), lambda x: np.sqrt(x * x)),
    "tanh": (lambda t: t.tanh(), np.tanh),
    "relu": (lambda t: t.relu(), lambda x: np.maximum(x, np.float32(0))),
    "less": (lambda t: t < 0, lambda x: x < 0),
    "clip": (lambda t: t.clip(-1, 1), lambda x: np.clip(x, np.float32(-1), np.float32(1))),
    "maximum": (lambda t: maximum(t, -t), lambda x: np.maximum(x, -x)),
    "where": (lambda t: where(t > 0, t, 0), lambda x: np.where(x > 0, x, np.float32(0))),
    "cast": (lambda t: t.cast("i32"), lambda x: x.astype(np.int32)),
    "sum": (lambda t: t.sum(), lambda x: x.sum()),
    "sum keepdims": (lambda t: t.sum(keepdims=True), lambda x: x.sum(keepdims=True)),
    "sum no axes": (lambda t: t.sum(()), lambda x: x.sum(())),
    "prod": (lambda t: t.prod(), lambda x: x.prod()),
    "mean of no axes": (lambda t: t.mean(()), lambda x: x.mean(())),
    "reshape": (lambda t: t.reshape(t.shape), lambda x: x),
    "reshape more": (lambda t: t.reshape(*t.shape, 1), lambda x: x[..., None]),
    "permute": (lambda t: t.permute(*range(t.ndim)), lambda x: x),
    "T": (lambda t: t.T, lambda x: x.T),
    "broadcast": (
        lambda t: t.broadcast_to((2, *t.shape)),
        lambda x: np.broadcast_to(x, (2, *x.shape)),
    ),
    "flip": (lambda t: t.flip(), np.flip),
    "squeeze": (lambda t: t.squeeze(), np.squeeze),
    "unsqueeze": (lambda t: t.unsqueeze(0), lambda x: x[None]),
    "getitem dots": (lambda t: t[...], lambda x: x[...]),
    "getitem none": (lambda t: t[None], lambda x: x[None]),
    "stack": (lambda t: stack([t, t]), lambda x: np.stack([x, x])),
    "pad with nothing": (lambda t: t.pad([(0, 0)] * t.ndim, 3), lambda x: x),
    "contiguous": (lambda t: (t + 0).contiguous(), lambda x: x),
}
WITH_AXES = {
    "sum last": (lambda t: t.sum(-1), lambda x: x.sum(-1)),
    "prod first": (lambda t: t.prod(0), lambda x: x.prod(0)),
    "max": (lambda t: t.max(()), lambda x: x),
    "softmax": (lambda t: t.softmax(), lambda x: x),
    "log_softmax": (lambda t: t.log_softmax(), lambda x: x),
    "getitem reversed": (lambda t: t[::-1], lambda x: x[::-1]),
    "getitem step": (lambda t: t[..., ::2], lambda x: x[..., ::2]),
    "cat": (lambda t: cat([t, t], -1), lambda x: np.concatenate([x, x], -1)),
    "cat with elements": (
        lambda t: cat([t, ones((*t.shape[:-1], 2))], -1),
        lambda x: np.concatenate([x, np.ones((*x.shape[:-1], 2), np.float32)], -1),
    ),
    "pad": (
        lambda t: t.pad([(1, 2)] * t.ndim, 7),
        lambda x: np.pad(x, [(1, 2)] * x.ndim, constant_values=7),
    ),
    "matmul": (
        lambda t: t @ zeros((t.shape[-1], 4)),
        lambda x: x @ np.zeros((x.shape[-1], 4), np.float32),
    ),
    "linear": (
        lambda t: t.linear(zeros((4, t.shape[-1]))),
        lambda x: np.zeros((*x.shape[:-1], 4), np.float32),
    ),
    "layer_norm": (lambda t: t.layer_norm(), lambda x: x),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_operation_on_empty_and_scalar_equals_numpy(name, shape):
    on_tensor, on_array = EVERYWHERE[name]
    x = numbers(*shape)
    same(on_tensor(Tensor(x)), on_array(x))


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("name", WITH_AXES)
def test_operation_along_axes_of_empty_equals_numpy(name, shape):
    on_tensor, on_array = WITH_AXES[name]
    x = numbers(*shape)
    same(on_tensor(Tensor(x)), on_array(x))


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_statistic_of_no_elements_is_nan(name, shape):
    assert np.isnan(value(getattr(Tensor(numbers(*shape)), name)()))


def test_maximum_over_the_axes_with_elements_is_empty():
    same(Tensor(numbers(1, 0, 3)).max(2), np.zeros((1, 0), np.float32))


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 0, 8, 8)])
def test_pool_of_an_empty_batch_is_empty(shape):
    x = Tensor(numbers(*shape))
    assert value(x.max_pool2d(3, 2, 1)).shape == (*shape[:2], 4, 4)
    assert value(x.avg_pool2d(2)).shape == (*shape[:2], 4, 4)
    assert value(x.global_avg_pool2d()).shape == (*shape[:2], 1, 1)


def test_convolution_without_input_channels_is_the_bias():
    y = Tensor(numbers(1, 0, 4, 4)).conv2d(numbers(2, 0, 3, 3), np.array([1, 2], np.float32))
    same(y, np.broadcast_to(np.array([1, 2], np.float32).reshape(2, 1, 1), (1, 2, 2, 2)))


def test_batch_norm_of_an_empty_batch_is_empty():
    c = np.ones(3, np.float32)
    assert value(Tensor(numbers(0, 3, 2)).batch_norm(c, c, c, c)).shape == (0, 3, 2)
    assert value(Tensor(numbers(2, 0)).batch_norm(c[:0], c[:0], c[:0], c[:0])).shape == (2, 0)
