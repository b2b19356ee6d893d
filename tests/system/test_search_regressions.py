"""What searches are known to get wrong, under every searcher: odd sizes, extremes, infinities in
padding, inputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_models import THREADS

import tunegrad as tg
from tunegrad.config import Searcher, resolve_settings
from tunegrad.search import searcher_names

pytestmark = pytest.mark.timing

DEFAULT = resolve_settings("mlp").searcher

RNG = np.random.default_rng(0)
A = RNG.standard_normal((13, 17)).astype(np.float32)
B = RNG.standard_normal((17, 19)).astype(np.float32)
BELOW = (-1.0 - RNG.random((11, 23))).astype(np.float32)
SMALL = (0.5 + RNG.random((7, 29))).astype(np.float32)


def model(a: tg.Tensor, b: tg.Tensor, below: tg.Tensor, small: tg.Tensor) -> tuple[tg.Tensor, ...]:
    """Sizes are prime; a maximum of 0 would be padding, and so would a quotient that is not
    finite.
    """
    return a @ b, below.max(axis=1), (1.0 / small).pad(((0, 0), (3, 5))).sum(axis=1)


def expected() -> tuple[NDArray[Any], ...]:
    return A @ B, BELOW.max(axis=1), (1.0 / SMALL).sum(axis=1)


def right(arrays: tuple[NDArray[Any], ...], store: Path | bool) -> None:
    compiled = tg.compile(model, *arrays, threads=THREADS, store=store)
    for got, want in zip(compiled(*arrays), expected(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_defaults_are_right() -> None:
    right((A, B, BELOW, SMALL), False)


@pytest.mark.parametrize(
    "searcher",
    [pytest.param(s, marks=() if s == DEFAULT else pytest.mark.slow) for s in searcher_names()],
)
def test_searched_winners_are_right_and_inputs_are_left_alone(
    tmp_path: Path, searcher: Searcher
) -> None:
    arrays = tuple(x.copy() for x in (A, B, BELOW, SMALL))
    store = tmp_path / "r.db"
    report = tg.tune_callable(
        model,
        *arrays,
        budget_s=600.0,
        max_trials=60,
        store=store,
        threads=THREADS,
        searcher=searcher,
    )
    counts = report.candidates
    assert counts["ok"] > 10, counts
    assert set(counts) <= {"ok", "out_of_resources"}, counts
    right(arrays, store)
    for array, before in zip(arrays, (A, B, BELOW, SMALL), strict=True):
        np.testing.assert_array_equal(array, before)
