"""Where extrema are, scans and sorts, compiled, on all threads, against PyTorch and numpy."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import Tensor
from tunegrad.errors import ShapeError
from tunegrad.frontend.nodes import folds
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import DTYPES, F32
from tunegrad.ir.expr import Op

torch = pytest.importorskip("torch", reason="torch is not installed")

DTYPED = [t for t in DTYPES.values() if t.name not in ("u16", "u32", "u64", "bf16")]
"""PyTorch computes with these."""
SHAPES = [(1,), (33,), (5, 7), (2, 1, 9), (3, 40), (2, 130)]


def compiled(function, *arrays):
    """A function of nodes, run on arrays."""

    def of_tensors(*tensors):
        found = function(*(t.node for t in tensors))
        if isinstance(found, tuple):
            return tuple(Tensor.of(n) for n in found)
        return Tensor.of(found)

    return tg.compile(of_tensors, *arrays, store=False, threads=os.cpu_count())(*arrays)


def drawn(shape, dtype=F32, seed=0):
    """Small numbers, so that many are equal; NaN and infinities among floats."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2 if dtype.is_bool else 6, shape).astype(dtype.numpy)
    if dtype.is_float:
        flat = x.reshape(-1)
        for value in (np.nan, np.inf, -np.inf):
            flat[rng.random(flat.size) < 0.08] = value
    return x


def same(got, want):
    want = want.numpy() if hasattr(want, "numpy") else want
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=str)
def test_positions_of_extrema_are_those_of_pytorch(op, shape):
    x = drawn(shape)
    theirs = torch.argmax if op is Op.MAX else torch.argmin
    for axis in (None, *range(len(shape))):
        same(
            compiled(lambda a, d=axis: folds.argextremum(op, a, d), x),
            theirs(torch.tensor(x), axis),
        )


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_positions_of_extrema_of_every_dtype(dtype):
    if dtype.name == "bf16":
        pytest.skip("numpy has no bf16 to compare with")
    x = drawn((6, 19), dtype)
    same(compiled(lambda a: folds.argextremum(Op.MAX, a, 1), x), np.argmax(x, 1))
    same(compiled(lambda a: folds.argextremum(Op.MIN, a, 0), x), np.argmin(x, 0))


def test_position_of_an_extremum_keeps_its_axis_where_that_is_asked():
    x = drawn((4, 5))
    assert compiled(lambda a: folds.argextremum(Op.MAX, a, 1, True), x).shape == (4, 1)
    assert compiled(lambda a: folds.argextremum(Op.MAX, a, None, True), x).shape == (1, 1)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 65, 1024, 1025, 2500])
def test_scans_of_any_length_are_those_of_numpy(n):
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    got = compiled(lambda a: folds.cumulative("sum", a, 1), x)
    np.testing.assert_allclose(got, np.cumsum(x, 1, dtype=np.float64), rtol=1e-4, atol=2e-4)
    same(compiled(lambda a: folds.cumulative("max", a, -1), x), np.maximum.accumulate(x, 1))


@pytest.mark.parametrize("dtype", DTYPED, ids=str)
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_sums_and_products_of_every_dtype_are_those_of_pytorch(kind, dtype):
    x = drawn((3, 35), dtype)
    if dtype.name == "f16":
        x = np.where(np.isfinite(x), x, np.float16(1)) / 4
    theirs = torch.cumsum if kind == "sum" else torch.cumprod
    for axis in (0, 1):
        got = compiled(lambda a, d=axis: folds.cumulative(kind, a, d), x)
        want = theirs(torch.tensor(x), axis).numpy()
        assert got.dtype == want.dtype
        if dtype.name == "f16":  # rounded once here, at each step there
            np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-3)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("shape", [(7,), (3, 40), (2, 5, 3)], ids=str)
def test_cumulative_extrema_and_their_places_are_those_of_pytorch(kind, shape):
    x = drawn(shape)
    theirs = torch.cummax if kind == "max" else torch.cummin
    for axis in range(len(shape)):
        got = compiled(lambda a, d=axis: folds.cumulative_extremum(kind, a, d), x)
        for mine, their in zip(got, theirs(torch.tensor(x), axis), strict=True):
            same(mine, their)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sorts_are_the_stable_ones_of_pytorch(shape, descending):
    x = drawn(shape)
    for axis in range(len(shape)):
        got = compiled(lambda a, d=axis: folds.sort(a, d, descending), x)
        want = torch.tensor(x).sort(dim=axis, descending=descending, stable=True)
        for mine, their in zip(got, want, strict=True):
            same(mine, their)


@pytest.mark.parametrize("dtype", DTYPED, ids=str)
def test_sorts_of_every_dtype(dtype):
    x = drawn((2, 29), dtype)
    for descending in (False, True):
        got = compiled(lambda a, d=descending: folds.argsort(a, 1, d), x)
        want = torch.tensor(x).sort(dim=1, descending=descending, stable=True)
        same(got, want[1])


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 3), (10, 10), (200, 5), (3000, 40), (5000, 33)])
def test_first_few_are_those_of_a_stable_sort(n, k):
    x = drawn((2, n), seed=n)
    for largest in (True, False):
        values, places = compiled(lambda a, d=largest: folds.topk(a, k, 1, d), x)
        want = torch.tensor(x).sort(dim=1, descending=largest, stable=True)
        same(values, want[0][:, :k])
        same(places, want[1][:, :k])


@pytest.mark.parametrize("n", [5, 8, 13])
@pytest.mark.parametrize("descending", [False, True])
def test_long_axes_are_sorted_by_a_network(monkeypatch, n, descending):
    monkeypatch.setattr(folds, "_RANKED", 4)
    x = drawn((3, n), seed=n)
    got = compiled(lambda a: folds.argsort(a, 1, descending), x)
    want = torch.tensor(x).sort(dim=1, descending=descending, stable=True)
    same(got, want[1])


def test_nothing_is_sorted_and_scanned():
    empty = np.zeros((2, 0), np.float32)
    assert compiled(lambda a: folds.argsort(a, 1), empty).shape == (2, 0)
    assert compiled(lambda a: folds.cumulative("sum", a, 1), empty).shape == (2, 0)
    assert compiled(
        lambda a: folds.argextremum(Op.MAX, a, 1), np.zeros((0, 4), np.float32)
    ).shape == (0,)


def test_a_scalar_is_sorted_and_scanned():
    one = np.array(3.0, np.float32)
    assert compiled(folds.argsort, one).item() == 0
    assert compiled(lambda a: folds.argextremum(Op.MAX, a, None), one).item() == 0
    assert tg.compile(lambda a: a.cumsum(0), one, store=False)(one).item() == 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: folds.argextremum(Op.MAX, x, 2), "argmax: axis 2"),
        (lambda x: folds.topk(x, 6, 1), "topk: 6 of 5 elements of shape (4, 5)"),
        (lambda x: folds.argsort(x, 3), "argsort: axis 3"),
        (lambda x: folds.cumulative("sum", x, -3), "cumsum: axis -3"),
        (
            lambda x: folds.argextremum(Op.MIN, g.shrink(x, ((0, 4), (0, 0))), 1),
            "argmin: shape (4, 0) has no elements along the axis",
        ),
    ],
)
def test_wrong_axes_are_refused(call, message):
    with pytest.raises(ShapeError) as caught:
        call(g.graph_input("x", (4, 5), F32))
    assert message in str(caught.value)
