"""A session on a device that says of itself what GPUs say: clocks, power, temperature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.cuda_host.device import CudaHost
from tunegrad.db import open_store

STATE = ("clock_reasons", 0.0), ("memory_mhz", 3201.0), ("power_w", 132.5), ("sm_mhz", 1980.0)


def test_a_session_keeps_what_a_gpu_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_host()
    monkeypatch.setattr(CudaHost, "state", lambda _: STATE)
    x, path = np.ones((16, 64), np.float32), tmp_path / "tuned.db"
    tg.tune_callable(
        lambda x: x.relu(), x, device="cuda-host", budget_s=600.0, max_trials=2, store=path
    )
    with open_store(path) as store:
        (session,) = store.sessions()
    assert set(STATE) < set(session.state)
