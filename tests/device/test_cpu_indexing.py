"""Reading and writing by index, compiled, on all threads, against numpy and PyTorch."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import Tensor
from tunegrad.frontend.nodes import indexing
from tunegrad.ir.dtypes import DTYPES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 7, 6)).astype(np.float32)
SHAPES = [((11,), 0), ((5, 7, 6), 0), ((5, 7, 6), 1), ((5, 7, 6), 2), ((1, 3), 0), ((64, 33), 1)]


def compiled(function, *arrays):
    """A function of nodes, run on arrays."""

    def of_tensors(*tensors):
        return Tensor.of(function(*(t.node for t in tensors)))

    return tg.compile(of_tensors, *arrays, store=False, threads=os.cpu_count())(*arrays)


def clamped(index, extent):
    index = index.astype(np.int64)
    return np.clip(np.where(index < 0, index + extent, index), 0, extent - 1)


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_int], ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_gather_reads_what_numpy_reads(shape, axis, dtype):
    x = RNG.standard_normal(shape).astype(np.float32)
    extent = shape[axis]
    wanted = list(shape)
    wanted[axis] = 9
    low = -extent - 3 if dtype.signed else 0
    index = RNG.integers(low, extent + 3, wanted).astype(dtype.numpy)
    got = compiled(lambda a, i: indexing.gather(a, i, axis, "known"), x, index)
    np.testing.assert_array_equal(got, np.take_along_axis(x, clamped(index, extent), axis))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_gather_reads_tensors_of_every_dtype(dtype):
    bits = RNG.integers(0, 2, (13, 20)) if dtype.is_bool else RNG.integers(0, 100, (13, 20))
    x, index = bits.astype(dtype.numpy), RNG.integers(0, 13, (4,))

    def of_tensors(a, i):
        return Tensor.of(indexing.embedding(a.node, i.node))

    a, i = Tensor(x, dtype.name), Tensor(index)
    got = tg.compile(of_tensors, a, i, store=False, threads=os.cpu_count())(x, index)
    np.testing.assert_array_equal(got, x[index])


@pytest.mark.parametrize("ids", [(), (1,), (0,), (3, 4), (2, 0)])
def test_embedding_of_indices_of_any_shape(ids):
    table, index = RNG.standard_normal((11, 24)).astype(np.float32), RNG.integers(0, 11, ids)
    got = compiled(indexing.embedding, table, index)
    np.testing.assert_array_equal(got, table[index])


def test_advanced_indexing_is_numpys():
    i, j = RNG.integers(-5, 5, (3, 1)), RNG.integers(-6, 6, (1, 4))
    k = RNG.integers(-7, 7, (3, 4))

    def at(*pattern):
        def function(x, *indices):
            left = iter(indices)
            return indexing.index(x, [next(left) if p else None for p in pattern])

        return function

    np.testing.assert_array_equal(compiled(at(1, 0, 1), X, i, j), X[i, :, j])
    np.testing.assert_array_equal(compiled(at(1, 1), X, i, k), X[i, k])
    np.testing.assert_array_equal(compiled(at(0, 1, 1), X, k, j), X[:, k, j])
    np.testing.assert_array_equal(compiled(at(1, 1, 1), X, i, k, j), X[i, k, j])
    np.testing.assert_array_equal(compiled(at(0, 0, 1), X, j), X[:, :, j])


def test_gather_goes_on_between_other_operations():
    index = RNG.integers(0, 5, X.shape)

    def between(t, i):
        x, at = Tensor.of(t) * 2, Tensor.of(i)
        y = Tensor.of(indexing.gather(x.pad(((1, 1), (0, 0), (0, 0))).node, at.node, 0))
        return (y.pad(((2, 0), (0, 1), (3, 0))) + 1).sum(1).node

    padded = np.pad(X * 2, ((1, 1), (0, 0), (0, 0)))
    want = np.pad(np.take_along_axis(padded, index, 0), ((2, 0), (0, 1), (3, 0)))
    np.testing.assert_allclose(compiled(between, X, index), (want + 1).sum(1), rtol=1e-5)


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_is_pytorchs(axis, mode):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    index = RNG.integers(0, X.shape[axis], (3, 4, 5))
    source = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    got = compiled(lambda x, i, s: indexing.scatter(x, i, s, axis, mode), X, index, source)
    want = X.copy()
    if mode == "set":
        for p in np.ndindex(*index.shape):
            want[(*p[:axis], index[p], *p[axis + 1 :])] = source[p]
    else:
        named = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[mode]
        arguments = torch.tensor(index), torch.tensor(source), named
        want = torch.tensor(X).scatter_reduce(axis, *arguments).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["set", "add", "max"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8], ids=lambda t: t.__name__)
def test_put_writes_slices_as_pytorch_does(axis, mode, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    warnings.filterwarnings("ignore", "index_reduce", UserWarning)
    low = 0 if dtype is np.uint8 else -X.shape[axis]
    index = RNG.integers(low, X.shape[axis], 4).astype(dtype)
    source = np.take(RNG.standard_normal(X.shape).astype(np.float32), range(4), axis)
    got = compiled(lambda x, i, s: indexing.put(x, i, s, axis, mode), X, index, source)
    places = clamped(index, X.shape[axis])
    if mode == "set":
        want = X.copy()
        for j, place in enumerate(places):
            want[(slice(None),) * axis + (place,)] = np.take(source, j, axis)
    elif mode == "add":
        want = torch.tensor(X).index_add(axis, torch.tensor(places), torch.tensor(source)).numpy()
    else:
        want = (
            torch.tensor(X)
            .index_reduce(axis, torch.tensor(places), torch.tensor(source), "amax")
            .numpy()
        )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(("shape", "count", "axis"), [((50, 33), 100, 0), ((6, 9, 8), 33, 1)])
def test_many_slices_are_sorted_before_they_are_put(monkeypatch, shape, count, axis, mode):
    monkeypatch.setattr(indexing, "_SORTED", 1)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    warnings.filterwarnings("ignore", "index_reduce", UserWarning)
    x = RNG.standard_normal(shape).astype(np.float32)
    index = RNG.integers(-2, shape[axis] - 3, count)  # some nowhere, and some at the end
    source = RNG.standard_normal((*shape[:axis], count, *shape[axis + 1 :])).astype(np.float32)
    got = compiled(lambda a, i, s: indexing.put(a, i, s, axis, mode), x, index, source)
    places, given = torch.tensor(clamped(index, shape[axis])), torch.tensor(source)
    if mode == "add":
        want = torch.tensor(x).index_add(axis, places, given)
    else:
        named = {"mul": "prod", "max": "amax", "min": "amin"}[mode]
        want = torch.tensor(x).index_reduce(axis, places, given, named)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


def test_scatter_of_nothing_changes_nothing():
    none = np.zeros((0, 7, 6), np.int64)
    source = np.zeros((0, 7, 6), np.float32)
    got = compiled(lambda x, i, s: indexing.scatter(x, i, s, 0), X, none, source)
    np.testing.assert_array_equal(got, X)
