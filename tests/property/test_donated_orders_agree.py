"""Plans that write over their inputs: every order of launches that their rules allow gives what the
pure function gives, compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, permutations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import VerifyError
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.runtime import Runner

N = 5
MOST = 720
"""Orders of a plan that are looked at: all of six launches."""


def _step(state: Sequence[tg.Tensor], rng: np.random.Generator) -> list[tg.Tensor]:
    """New values of tensors, of each other by random operations."""
    made = [*state]

    def one() -> tg.Tensor:
        x = made[rng.integers(len(made))]
        return x.T if rng.random() < 0.25 else x

    for _ in range(int(rng.integers(2, 6))):
        kind = int(rng.integers(5))
        if kind == 0:
            made.append(one() @ one())
        elif kind == 1:
            made.append(one() - one() * 0.5)
        elif kind == 2:
            made.append((one() + one()).contiguous())
        elif kind == 3:
            made.append(tg.cat([one()[2:], one()[:2]], 0))
        else:
            made.append(one() - one().sum(1, keepdim=True) * 0.25)
    return [made[rng.integers(len(made))] for _ in state]


def _fits(plan: LaunchPlan) -> bool:
    try:
        plan.verify()
    except VerifyError:
        return False
    return True


@pytest.mark.parametrize("seed", range(16))
def test_every_order_that_is_allowed_gives_the_sequential_result(seed: int):
    count = 2 + seed % 2
    arrays = [np.random.default_rng((seed, i)).integers(-3, 4, (N, N)) for i in range(count)]
    given = [a.astype(np.float32) for a in arrays]

    def function(*state: tg.Tensor) -> list[tg.Tensor]:
        return _step(state, np.random.default_rng(seed))

    pure = tg.compile(function, *given, store=False)
    made = tg.compile(function, *given, store=False, donate=[*range(count)])
    wanted = pure(*(a.copy() for a in given))
    names = [a.name for a in made.inputs]
    plan, codes = made._plan, {key: code for key, (_, code) in made._chosen.items()}
    runs = 0
    for launches in islice(permutations(plan.launches), MOST):
        other = replace(plan, launches=launches)
        if not _fits(other):
            continue
        runner = Runner(other, codes, made._engine, made._constants)
        runner.run(state := {n: a.copy() for n, a in zip(names, given, strict=True)})
        for name, new in zip(names, wanted, strict=True):
            np.testing.assert_array_equal(state[name], new)
        runs += 1
    assert runs >= 1
