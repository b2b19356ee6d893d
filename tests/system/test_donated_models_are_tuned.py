"""A model with donated inputs is tuned: the kernels that write in place are searched, verified in
place, and found when it is loaded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tunegrad as tg
from tunegrad.frontend import Model


def _step(x: tg.Tensor, w: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
    return (x @ w).sum(), w - (x.T @ (x @ w)) * 0.01


def test_kernels_that_write_in_place_are_tuned_and_found(tmp_path: Path):
    store = tmp_path / "s.db"
    x, w = (np.random.default_rng(i).standard_normal(s).astype(np.float32)
            for i, s in enumerate(((32, 48), (48, 24))))  # fmt: skip
    model = Model.of_function("step", _step, [x, w]).donating(("w",))
    tg.tune(model, store=store, max_trials=12, threads=2)
    loaded = tg.load(model, store=store, on_miss="error")
    assert any(c.kernel.overwritten for c in loaded.choices)
    wanted = tg.compile(_step, x, w, store=False)(x, w)[1]
    assert loaded(x, w)[1] is w
    np.testing.assert_allclose(w, wanted, rtol=1e-5, atol=1e-5)
