"""A graph of constants is known without a kernel; one that computes with positions is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.inference import realizing

W = np.arange(12, dtype=np.float32).reshape(3, 4)

GRAPHS: dict[str, tuple[Callable[[], tg.Tensor], np.ndarray]] = {
    "zeros": (lambda: tg.zeros((2, 3)), np.zeros((2, 3), np.float32)),
    "a number": (lambda: tg.full((4,), 2.5) * 2 + 1, np.full(4, 6.0, np.float32)),
    "a sum of numbers": (lambda: tg.ones((3, 5)).sum(1), np.full(3, 5.0, np.float32)),
    "a constant": (lambda: tg.Tensor.constant(W), W),
    "views": (lambda: tg.Tensor.constant(W).permute(1, 0)[1:].flip(0), W.T[1:][::-1]),
    "a padded one": (lambda: tg.Tensor.constant(W).pad((1, 0)), np.pad(W, ((0, 0), (1, 0)))),
    "an expression": (
        lambda: (tg.Tensor.constant(W) + 1).relu() @ tg.Tensor.constant(W.T),
        (W + 1) @ W.T,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_constants_launches_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_plan_of", lambda nodes: pytest.fail(f"a plan of {nodes}"))
    make, want = GRAPHS[name]
    got, again = make().numpy(), make().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.dtype == want.dtype
    got[...] = 7
    np.testing.assert_allclose(again, want, rtol=1e-6)
    np.testing.assert_allclose(make().numpy(), want, rtol=1e-6)


def test_positions_are_computed_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    made = realizing._plan_of
    monkeypatch.setattr(realizing, "_plan_of", lambda n: plans.append(made(n)) or plans[-1])
    np.testing.assert_array_equal((tg.arange(6) * 2).numpy(), np.arange(6) * 2)
    assert len(plans) == 1
