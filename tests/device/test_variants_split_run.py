"""Compiled sums that are split: as numpy has them, on one core and two, and as a store says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_decisions import decided

import tunegrad as tg
from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule

RNG = np.random.default_rng(0)
LONG = RNG.standard_normal((1 << 18) + 43, dtype=np.float32)
COLUMNS = RNG.standard_normal((1 << 17, 3), dtype=np.float32)
NUMBERS = RNG.integers(-(2**30), 2**30, 1 << 17, dtype=np.int32)
CASES: dict[str, tuple[np.ndarray[Any, Any], Callable[[Any], Any]]] = {
    "sum": (LONG, lambda x: x.sum()),
    "mean": (LONG, lambda x: x.mean()),
    "max": (LONG, lambda x: x.max()),
    "min": (COLUMNS, lambda x: x.min(axis=0)),
    "columns": (COLUMNS, lambda x: x.sum(axis=0)),
    "squares": (COLUMNS, lambda x: (x * x).sum(axis=0)),
    "integers": (NUMBERS, lambda x: x.sum()),
}


@pytest.mark.parametrize("name", CASES)
def test_split_reductions_agree_with_numpy(name: str) -> None:
    x, function = CASES[name]
    model = tg.compile(function, x, store=False, threads=2)
    assert len(model.report()) == 2, "a split"
    wanted = function(x.astype(np.float64) if x.dtype == np.float32 else x)
    np.testing.assert_allclose(
        model(x), wanted, rtol=1e-5, atol=1e-2 if "sum" in name or name == "columns" else 0
    )


@pytest.mark.parametrize(("name", "kernels"), [("split64", 2), ("direct", 1), ("split7", 2)])
def test_a_stored_choice_is_run(tmp_path: Path, name: str, kernels: int) -> None:
    """A name that this kernel does not have falls back to the expected variant."""
    x, here = LONG, fingerprint(host_target(2))
    (launch,) = schedule((Tensor.input("x0", x.shape).sum().node,)).launches
    k = launch.kernel
    with open_store(tmp_path / "s.db", "write") as store, store.session("tune", 0, {}, "0", "s1"):
        store.record_decision(decided("variant", k.text, name, here))
    model = tg.compile(lambda t: t.sum(), x, store=tmp_path / "s.db", threads=2)
    assert len(model.report()) == kernels
    np.testing.assert_allclose(model(x), x.astype(np.float64).sum(), atol=1e-2)
