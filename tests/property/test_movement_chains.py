"""Chains of movement operations as index expressions, against numpy moving the data."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tests.graph_fuzzer import movement_chain
from tunegrad.ir.evaluate import evaluate
from tunegrad.ir.fusion import schedule
from tunegrad.ir.verify_kernel import verify_kernel


def check_chain(seed: int) -> None:
    out, values = movement_chain(random.Random(seed), 8)
    plan = schedule((out,))
    assert len(plan.launches) == (1 if out.size else 0), f"chain {seed}"
    for launch in plan.launches:
        verify_kernel(launch.kernel)
    (got,) = run_schedule(plan, {"x": values})
    (want,) = evaluate((out,), {"x": values})
    assert np.array_equal(got, want), f"chain {seed}: {plan}"


def test_movement_chain_of_eight_is_one_kernel_that_agrees_with_numpy() -> None:
    for seed in range(2_500):
        check_chain(seed)


@pytest.mark.slow
def test_movement_chain_of_eight_agrees_with_numpy_twenty_thousand_times() -> None:
    for seed in range(10_000, 30_000):
        check_chain(seed)
