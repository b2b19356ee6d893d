"""Calls of a small model: what they cost, counted, and what they take."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_builders import entered
from tunegrad.errors import IndexOutOfRange

_X = np.arange(48, dtype=np.float32).reshape(4, 12) / 7
_W = np.arange(36, dtype=np.float32).reshape(12, 3) - 17


@pytest.fixture(scope="module")
def model() -> tg.LoadedModel:
    w = tg.Tensor.constant(_W)
    return tg.compile(lambda x: (x @ w, x.sum(1)), _X, threads=1, store=False)


def test_call_enters_few_functions(model: tg.LoadedModel) -> None:
    model(_X)
    _, *inner = entered(lambda: model(_X))
    assert len(inner) <= 14, inner


def _read_only() -> np.ndarray:
    x = _X.copy()
    x.flags.writeable = False
    return x


def _odd() -> np.ndarray:
    memory = np.zeros(_X.nbytes + 1, np.uint8)
    x = memory[1:].view(np.float32).reshape(_X.shape)
    x[...] = _X
    return x


@pytest.mark.parametrize(
    "given",
    [
        _X, _read_only(), np.asfortranarray(_X), np.repeat(_X, 2, 1)[:, ::2], _odd(), _X.tolist(),
        np.ma.array(_X), _X[::-1].copy()[::-1],
    ],
    ids=["plain", "read-only", "columns", "strided", "unaligned", "list", "masked", "reversed"],
)  # fmt: skip
def test_inputs_of_every_layout_give_one_result(model: tg.LoadedModel, given: object) -> None:
    for _ in range(2):
        product, sums = model(given)
        np.testing.assert_array_equal(product, model(x=_X)[0])
        np.testing.assert_allclose(product, _X @ _W, rtol=1e-5)
        np.testing.assert_allclose(sums, _X.sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((_X[:3],), tg.errors.ShapeError),
        ((_X.astype(np.float64),), tg.errors.DTypeError),
        ((_X.astype(">f4"),), tg.errors.DTypeError),
        ((_X, _X), tg.errors.ShapeError),
        ((), tg.errors.ShapeError),
    ],
    ids=["shape", "dtype", "byte order", "two", "none"],
)
def test_inputs_that_do_not_fit_are_refused(
    model: tg.LoadedModel, given: tuple[np.ndarray, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match="x"):
        model(*given)


def test_outputs_of_calls_are_memory_of_their_own(model: tg.LoadedModel) -> None:
    outputs = [y for _ in range(3) for y in model(_X)]
    assert all(y.flags.writeable and y.ctypes.data % y.itemsize == 0 for y in outputs)
    assert not any(np.shares_memory(a, b) for a in outputs for b in outputs if a is not b)


def test_indices_of_a_run_at_addresses_are_checked_before_another_run_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, at = np.arange(4, dtype=np.float32), np.array([3, 9], np.int32)
    model = tg.compile(lambda x, at: x[at], x, at, store=False)
    runner, out, free = model._runner, np.empty(2, np.float32), list[bool]()
    check = runner._check

    def asked() -> None:
        free.append(runner._lock.inner.acquire(blocking=False))
        if free[-1]:
            runner._lock.inner.release()

    def looked(output: Any) -> None:
        other = threading.Thread(target=asked)
        other.start()
        other.join()
        check(output)

    monkeypatch.setattr(runner, "_check", looked)
    with pytest.raises(IndexOutOfRange):
        model.at_addresses([x.ctypes.data, at.ctypes.data, out.ctypes.data])
    at[1] = 0
    assert model.at_addresses([x.ctypes.data, at.ctypes.data, out.ctypes.data])
    assert out.tolist() == [3, 0]
    assert free == [False, False]
