"""The steps of an unrolled recurrence share kernels, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule

MOST = {"LSTM": 8, "GRU": 5, "RNN": 4}


def plan_of(kind: str, steps: int) -> LaunchPlan:
    layer = getattr(tg.nn, kind)(12, 20, batch_first=True)
    layer.load(seed=0)
    y, _ = layer(Tensor.input("x", (1, steps, 12)))
    return schedule(fold_constants((y.node,)), view_bytes=1)


@pytest.mark.parametrize("kind", MOST)
@pytest.mark.parametrize("steps", [8, 32])
def test_steps_of_a_layer_share_kernels(kind: str, steps: int) -> None:
    plan = plan_of(kind, steps)
    assert len(plan.launches) >= steps
    assert len(plan.kernels()) <= MOST[kind], [k.name for k, _ in plan.kernels().values()]


@pytest.mark.parametrize("kind", MOST)
def test_a_layer_that_shares_kernels_gives_what_its_cells_give(kind: str) -> None:
    layer = getattr(tg.nn, kind)(12, 20, batch_first=True)
    cell = getattr(tg.nn, f"{kind}Cell")(12, 20)
    layer.load(seed=3)
    cell.load({n.removesuffix("_l0"): a for n, a in layer.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((2, 9, 12)).astype(np.float32)
    (found, _), state, wanted = layer(Tensor.constant(x)), None, []
    for t in range(9):
        state = cell(Tensor.constant(x[:, t]), state)
        h = state[0] if isinstance(state, tuple) else state
        wanted.append(h.numpy())
    np.testing.assert_allclose(found.numpy(), np.stack(wanted, 1), rtol=1e-5, atol=1e-6)
