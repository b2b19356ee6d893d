"""The order of launches: legal, and one that needs few bytes at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_fuzzer import random_graph
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import least_memory, live_bytes, schedule
from tunegrad.runtime import lifetimes
from tunegrad.runtime.memory import lower_bound

WIDTH = 64


def test_order_frees_the_activations_of_a_chain_as_the_gradient_passes() -> None:
    """Each weight's gradient comes as soon as its cotangent is there: eight activations and a
    cotangent, and not eight cotangents besides.
    """
    weights = [Tensor.input(f"w{i}", (WIDTH, WIDTH)) for i in range(8)]

    def loss(weights: list[Tensor], x: Tensor) -> Tensor:
        for w in weights:
            x = (x @ w).tanh()
        return x.mean()

    slopes = tg.grad(loss)(weights, Tensor.input("x", (256, WIDTH)))
    plan = schedule(tuple(s.node for s in slopes))
    layer = 256 * WIDTH * 4
    assert live_bytes(plan) > 12 * layer
    assert live_bytes(least_memory(plan)) <= 9.5 * layer


def test_order_of_wide_sources_takes_one_after_the_other() -> None:
    """Sums of eight products, then their maxima: each product is folded twice before the next one
    is made.
    """
    x = Tensor.input("x", (512, WIDTH))
    products = [(x @ Tensor.input(f"w{i}", (WIDTH, WIDTH))).contiguous() for i in range(8)]
    folded = [*(p.sum(0) for p in products), *(p.amax(0) for p in products)]
    plan = schedule(tuple(f.node for f in folded))
    assert live_bytes(plan) == 8 * 512 * WIDTH * 4
    assert live_bytes(least_memory(plan)) == 512 * WIDTH * 4


def test_order_that_needs_no_less_stays() -> None:
    x = Tensor.input("x", (64, 64))
    plan = schedule(((((x @ x).relu() @ x).relu() @ x).node,))
    assert least_memory(plan) is plan


@pytest.mark.parametrize("seed", range(40))
def test_order_is_legal_and_never_needs_more(seed: int) -> None:
    outputs = random_graph(random.Random(f"order {seed}"), 25)
    plan = schedule(outputs)
    made = least_memory(plan)
    made.verify()
    assert sorted(map(str, made.launches)) == sorted(map(str, plan.launches))
    assert live_bytes(made) <= live_bytes(plan)
    assert live_bytes(made) == lower_bound(tuple(lifetimes(made).values()))


def test_compiled_functions_run_in_that_order() -> None:
    weights = [np.eye(WIDTH, dtype=np.float32) * (i + 1) / 8 for i in range(8)]

    def loss(weights, x):
        for w in weights:
            x = (x @ w).tanh()
        return x.mean()

    x = np.ones((256, WIDTH), np.float32)
    compiled = tg.compile(lambda x, *w: tg.grad(loss)(list(w), x), x, *weights)
    assert compiled.memory_bytes < 11 * 256 * WIDTH * 4
