"""Elementwise results that a step of training computes twice, so as not to keep them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_fuzzer import random_graph
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import Fusion, LaunchPlan, live_bytes, recompute, recomputed, schedule
from tunegrad.pipeline import validated_plan

WIDTH, LAYERS = 64, 4
WEIGHTS = [np.eye(WIDTH, dtype=np.float32) / (i + 1) for i in range(LAYERS)]
X = np.random.default_rng(0).standard_normal((256, WIDTH)).astype(np.float32)


def step(x: Any, *weights: Any) -> list[Any]:
    """Descent of a network whose activations read both ways."""

    def loss(weights: Any) -> Any:
        y = x
        for w in weights:
            y = tg.nn.functional.gelu(y @ w)
        return (y**2).mean()

    value, slopes = tg.value_and_grad(loss)(weights)
    return [value, *(w - s for w, s in zip(weights, slopes, strict=True))]


def plan() -> LaunchPlan:
    weights = [Tensor.input(f"w{i}", w.shape) for i, w in enumerate(WEIGHTS)]
    return schedule(tuple(t.node for t in step(Tensor.input("x", X.shape), *weights)))


def time_of(plan: LaunchPlan) -> float:
    return sum(recompute._time(plan, x) for x in plan.launches)


def test_recomputed_plan_needs_less_by_kernels_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "_SHARE", 1.0)
    before = plan()
    after = recomputed(before)
    after.verify()
    assert live_bytes(after) <= 0.8 * live_bytes(before)
    assert len(after.launches) > len(before.launches)
    assert after.kernels().keys() == before.kernels().keys()
    more = after.kernels()
    assert not any(k.reduces for key, (k, n) in before.kernels().items() if more[key][1] > n)


@pytest.mark.parametrize("share", [0.0, 1 / 32, 1 / 8])
def test_recomputed_plan_takes_little_more_time(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "_SHARE", share)
    before = plan()
    after = recomputed(before)
    assert time_of(after) <= (1 + share) * time_of(before)
    assert share or after is before


@pytest.mark.parametrize("seed", range(40))
def test_recomputed_plan_means_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "_SHARE", 1.0)
    outputs = random_graph(random.Random(f"again {seed}"), 25)
    fusion = Fusion.of(outputs)
    before = fusion.schedule()
    after = recomputed(before)
    after.verify()
    validated_plan(after, fusion, outputs)
    assert live_bytes(after) <= live_bytes(before)


def test_compiled_step_gives_the_same_bits_in_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for share in (0.0, 1.0):
        monkeypatch.setattr(recompute, "_SHARE", share)
        donated = range(1, 1 + LAYERS)
        compiled = tg.compile(step, X, *WEIGHTS, store=False, donate=donated)
        outputs = compiled(X, *(w.copy() for w in WEIGHTS))
        found.append((compiled.memory_bytes, [np.asarray(o).copy() for o in outputs]))
    (most, plain), (less, again) = found
    assert less < most
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_is_computed_twice_outside_of_training() -> None:
    compiled = tg.compile(step, X, *WEIGHTS, store=False)
    assert not any(b.name.endswith("again") for b in compiled._plan.buffers)


def test_launch_whose_results_are_read_late_alone_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be left with nothing that reads it."""
    monkeypatch.setattr(recompute, "_SHARE", 1.0)
    x = Tensor.input("x", (256, WIDTH))
    masks = (x * 3 - 1).contiguous()
    y = x
    for w in WEIGHTS:
        y = (y @ Tensor.constant(w)).exp().contiguous()
    plan = schedule(((masks * (y @ y.T).contiguous().sum(1, keepdim=True)).node,))
    assert not plan.launches[0].kernel.reduces
    made = recomputed(plan)
    made.verify()
    assert len(made.launches) == len(plan.launches)
