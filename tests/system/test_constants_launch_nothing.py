"""A graph of constants or positions is known without a kernel, but for one that computes much with
positions; of a model, whose outputs are asked for again and again, any is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
    "positions": (lambda: tg.arange(6) * 2, np.arange(6) * 2),
    "a sum of positions": (
        lambda: (tg.arange(12).reshape(3, 4) % 5).sum(1),
        (np.arange(12).reshape(3, 4) % 5).sum(1),
    ),
    "a table": (lambda: tg.Tensor.constant(W)[tg.arange(2) * 2], W[[0, 2]]),
    "a mask": (lambda: tg.ones((3, 3)).tril(), np.tril(np.ones((3, 3), np.float32))),
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


def test_much_arithmetic_of_positions_is_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    made = realizing._plan_of
    monkeypatch.setattr(realizing, "_plan_of", lambda n: plans.append(made(n)) or plans[-1])
    np.testing.assert_array_equal((tg.arange(1 << 17) * 2).numpy(), np.arange(1 << 17) * 2)
    assert len(plans) == 1


def with_constants(x: tg.Tensor) -> tuple[tg.Tensor, ...]:
    """A result of x, and outputs that do not depend on it: a weight, what is computed of one, views
    that spread, positions, a number.
    """
    w = tg.Tensor.constant(W)
    return (
        w, x + w, (w * 2).exp(), w.sum(0).expand(5, 4).permute(1, 0), tg.arange(6) * 2,
        tg.full((2, 2), 2.5), w,
    )  # fmt: skip


def wanted(x: np.ndarray) -> tuple[np.ndarray, ...]:
    sums = np.broadcast_to(W.sum(0), (5, 4)).T
    return W, x + W, np.exp(W * 2), sums, np.arange(6) * 2, np.full((2, 2), 2.5, np.float32), W


def check(model: tg.LoadedModel, x: np.ndarray) -> None:
    """Every output is right, and is the caller's own."""
    for _ in range(2):
        found = model(x)
        for got, want in zip(found, wanted(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
            assert got.dtype == want.dtype
        for got in found:
            assert got.flags.writeable
            got[...] = 7


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_constant_outputs_of_a_model_launch_nothing(dtype: str, tmp_path: Path) -> None:
    model = tg.compile(with_constants, W, threads=1, dtype=dtype)
    assert len(model.report()) == 1, "the sum"
    assert [name for name, _ in model.profile_s(1)] == [model.report()[0].kernel]
    check(model, W + 1)
    model.save(tmp_path / "m.plan")
    again = tg.load(str(tmp_path / "m.plan"))
    check(again, W - 1)
    again.save(tmp_path / "n.plan")
    assert (tmp_path / "n.plan").stat().st_size == (tmp_path / "m.plan").stat().st_size


def test_a_model_of_constants_has_no_kernel() -> None:
    model = tg.compile(lambda x: tg.Tensor.constant(W) + 1, W, threads=1)
    assert model.report() == ()
    model(W)[...] = 7
    np.testing.assert_array_equal(model(W), W + 1)
    assert model.benchmark_s(2) == [0.0, 0.0]


def test_a_tune_knows_constant_outputs_and_may_have_none_but_those(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    report = tg.tune_callable(
        with_constants, W, budget_s=600.0, max_trials=4, store=store, threads=1
    )
    assert [row.uses for row in report.rows] == [1]
    assert report.tuned_ms is not None
    assert report.tuned_ms > 0
    report = tg.tune_callable(
        lambda x: tg.Tensor.constant(W) + 1, W, budget_s=1.0, store=store, threads=1
    )
    assert (report.rows, report.tuned_ms, report.default_ms) == ((), None, None)
