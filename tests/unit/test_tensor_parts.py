"""Copies with other elements in a part, and positions that depend on values."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import DTypeError, IndexOutOfRange, ShapeError
from tunegrad.nn import functional

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
MASK = X % 3 == 0
ROW = np.arange(100, 124, dtype=np.float32)


def equal(found: object, wanted: object) -> None:
    """Equal in shape, dtype and elements."""
    assert isinstance(found, tg.Tensor)
    ours, theirs = found.numpy(), np.asarray(wanted)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_array_equal(ours, theirs)


def changed(key: object, value: object) -> np.ndarray:
    """``X`` after ``X[key] = value``."""
    copy = X.copy()
    copy[key] = value
    return copy


def test_index_put_writes_to_a_copy() -> None:
    x, rows, columns = tg.Tensor(X), np.array([0, 1, 0]), np.array([2, -1, 0])
    equal(x.index_put((rows, columns), ROW[:12].reshape(3, 4)),
          changed((rows, columns), ROW[:12].reshape(3, 4)))  # fmt: skip
    equal(tg.index_put(x, [None, columns], 5.0), changed((slice(None), columns), 5))
    equal(x.index_put((tg.Tensor(MASK),), 1.0), changed(MASK, 1))
    equal(x.index_put((tg.Tensor(X[:, :, 0]) > 0,), ROW[:4]), changed(X[:, :, 0] > 0, ROW[:4]))
    equal(x, X)
    assert x.index_put_((rows, columns), 3.0) is x
    equal(x, changed((rows, columns), 3))


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_number_among_the_indices_is_a_position(accumulate: bool) -> None:
    """The result was the slice at that position, and sums lay at the places of the first one."""
    columns, before = np.array([2, 0]), X[1, -1, [2, 0]] if accumulate else np.zeros(2, np.float32)
    wanted = changed((1, -1, columns), before + ROW[:2])
    equal(tg.Tensor(X).index_put((1, -1, columns), ROW[:2], accumulate), wanted)


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [((), ShapeError, "no index"), ((slice(1),), DTypeError, "of object")],
)  # fmt: skip
def test_other_indices_are_refused(indices, error, text) -> None:
    with pytest.raises(error, match=text):
        tg.Tensor(X).index_put(indices, 1.0)


def test_index_put_adds_up_what_accumulates() -> None:
    rows, wanted = np.array([1, 1, -2]), X.copy()
    np.add.at(wanted, rows, ROW[:4])
    equal(tg.Tensor(X).index_put((rows,), ROW[:4], accumulate=True), wanted)
    mask = tg.Tensor(X) > 0
    equal(tg.Tensor(X).index_put((mask,), 1.0, accumulate=True), X + (X > 0))


def test_put_counts_through_all_elements() -> None:
    places = np.array([[3, -1], [3, 0]])
    wanted = X.copy()
    np.put(wanted, places, ROW[:4])
    equal(tg.Tensor(X).put(places, ROW[:4]), wanted)
    wanted = X.copy()
    np.add.at(wanted.reshape(-1), places.ravel(), ROW[:4])
    equal(tg.put(X, places, ROW[:4], accumulate=True), wanted)


@pytest.mark.parametrize(("reduce", "fold"), [("amax", np.maximum), ("prod", np.multiply)])
def test_index_reduce_folds_slices(reduce, fold) -> None:
    wanted = X.copy()
    for i, to in enumerate((2, 0, 2)):
        wanted[:, to] = fold(wanted[:, to], ROW.reshape(2, 3, 4)[:, i])
    equal(tg.Tensor(X).index_reduce(1, np.array([2, 0, 2]), ROW.reshape(2, 3, 4), reduce), wanted)


@pytest.mark.parametrize(("index", "shape"), [([1], (3, 3, 4)), ([0, 1], (2, 2, 2))])
def test_index_reduce_of_another_source_is_an_error(index, shape) -> None:
    with pytest.raises(ShapeError, match="index_reduce: shapes"):
        tg.Tensor(X).index_reduce(0, np.array(index), np.ones(shape, np.float32), "prod")


def test_masked_scatter_takes_elements_in_order() -> None:
    count = int(MASK.sum())
    equal(tg.Tensor(X).masked_scatter(tg.Tensor(MASK), ROW), changed(MASK, ROW[:count]))
    wide = np.broadcast_to(MASK[:1], X.shape)
    equal(tg.masked_scatter(X, MASK[:1], ROW), changed(wide, ROW[: int(wide.sum())]))
    equal(tg.masked_scatter(X, MASK & False, ROW[:0]), X)


@pytest.mark.parametrize("few", [0, 2])
def test_masked_scatter_of_too_few_elements_is_an_error(few: int) -> None:
    with pytest.raises(IndexOutOfRange, match="out of range"):
        tg.Tensor(X).masked_scatter(tg.Tensor(MASK), ROW[:few]).numpy()


def test_parts_are_scattered_into_copies() -> None:
    x = tg.Tensor(X)
    equal(
        x.select_scatter(ROW[:8].reshape(2, 4), 1, -1),
        changed((slice(None), -1), ROW[:8].reshape(2, 4)),
    )
    equal(x.slice_scatter(ROW[:12].reshape(2, 3, 2), 2, 1, None, 2),
          changed((..., slice(1, None, 2)), ROW[:12].reshape(2, 3, 2)))  # fmt: skip
    equal(tg.slice_scatter(x, ROW[:8].reshape(2, 1, 4)[:, :0], 1, 2, 2), X)
    wanted = X.copy()
    for i in range(2):
        wanted[i, i + 1] = ROW[:8].reshape(4, 2)[:, i]
    equal(x.diagonal_scatter(ROW[:8].reshape(4, 2), 1), wanted)
    equal(x, X)


@pytest.mark.parametrize("offset", [4, -3])
def test_a_diagonal_of_no_elements_leaves_all_as_it_was(offset: int) -> None:
    x = tg.Tensor(X)
    equal(x.diagonal_scatter(np.empty((4, 0), np.float32), offset), X)


def test_a_source_of_another_shape_is_an_error() -> None:
    with pytest.raises(ShapeError, match="part of shape"):
        tg.Tensor(X).select_scatter(ROW[:4], 0, 0)
    with pytest.raises(ShapeError, match="step=0"):
        tg.Tensor(X).slice_scatter(ROW[:4], 0, step=0)
    with pytest.raises(ShapeError, match="indices of shape"):
        functional.max_unpool2d(X, np.zeros((2, 3, 3), np.int64), 2)
    with pytest.raises(ShapeError, match="must have 2 sizes"):
        functional.max_unpool2d(X, np.zeros(X.shape, np.int64), 2, output_size=(48,))


def test_positions_are_read_off_values() -> None:
    x = tg.Tensor(X)
    equal(x.nonzero(), np.argwhere(X))
    equal(tg.argwhere(MASK), np.argwhere(MASK))
    for ours, theirs in zip(tg.nonzero(MASK, as_tuple=True), np.nonzero(MASK), strict=True):
        equal(ours, theirs)
    equal(tg.Tensor(3.0).nonzero(), np.zeros((1, 0), np.int64))
    equal(x.masked_select(x > 2), X[X > 2])


def test_a_mask_of_integers_selects_nothing() -> None:
    """Its elements were taken for positions."""
    with pytest.raises(DTypeError, match="masked_select: the mask is i64"):
        tg.Tensor(X).masked_select(np.ones(4, np.int64))


def test_one_number_is_selected_by_one_mask() -> None:
    equal(tg.Tensor(np.float32(3)).masked_select(True), np.float32([3]))
    equal(tg.Tensor(X)[np.array(True)], X[np.array(True)])


def test_gradients_flow_to_what_a_mask_selects() -> None:
    x = tg.Tensor(X, requires_grad=True)
    (x.masked_select(tg.Tensor(MASK)) * ROW[: int(MASK.sum())]).sum().backward()
    assert x.grad is not None
    wanted = np.zeros_like(X)
    wanted[MASK] = ROW[: int(MASK.sum())]
    equal(x.grad, wanted)


def test_nanmedian_leaves_nan_out() -> None:
    holed = np.where(MASK, np.nan, X)
    holed[0, 0] = np.nan
    values, places = tg.Tensor(holed).nanmedian(2)
    for at in np.ndindex(2, 3):
        known = np.sort(holed[at][~np.isnan(holed[at])])
        wanted = known[(len(known) - 1) // 2] if len(known) else np.float32(np.nan)
        np.testing.assert_array_equal(values.numpy()[at], wanted)
        np.testing.assert_array_equal(holed[at][places.numpy()[at]], wanted)
    known = np.sort(holed[~np.isnan(holed)])
    equal(tg.nanmedian(holed), known[(len(known) - 1) // 2])


def test_what_was_pooled_is_unpooled() -> None:
    found, places = functional.max_pool2d(tg.Tensor(X[None]), (1, 2), return_indices=True)
    wanted = np.where(np.arange(4) % 2 == 1, X, 0)[None]
    equal(functional.max_unpool2d(found, places, (1, 2)), wanted)
    equal(
        functional.max_unpool2d(found, places, (1, 2), output_size=(3, 5)).sum(),
        np.float32(wanted.sum()),
    )


@pytest.mark.parametrize(("name", "why"), [
    ("as_strided", "order in memory"), ("t_", "shape of a tensor does not change"),
    ("nextafter", "not read as bits"), ("conj", "no complex numbers"),
])  # fmt: skip
def test_a_method_that_can_not_be_says_why(name: str, why: str) -> None:
    with pytest.raises(AttributeError, match=why):
        getattr(tg.Tensor(X), name)
    assert not hasattr(tg.Tensor(X), name)
