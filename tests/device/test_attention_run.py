"""Attention as one kernel, compiled: on a CPU, an OpenCL device and as CUDA C++ it gives what numpy
gives, masked rows and all, where the store says that it runs so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stored_decisions import decided

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tunegrad import devices
from tunegrad.db import open_store
from tunegrad.devices import Device
from tunegrad.frontend import Tensor, functional
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import ATTENTION, Alternatives, Fusion
from tunegrad.planning import RULES, plan

DEVICES = {
    "cpu": lambda: devices.open("cpu", 2),
    "cuda-host": cuda_host,
    "opencl": opencl_device,
}
SHAPES = {"square": (37, 37), "tails": (50, 77), "one query": (1, 90), "few keys": (40, 3)}


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, mask)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    p = np.where(mask, np.exp(scores - np.where(np.isfinite(top), top, 0.0)), 0.0)
    total = p.sum(-1, keepdims=True)  # 0 of a query that sees no key, whose result is 0
    return (p / np.where(total == 0.0, 1.0, total)) @ v.astype(np.float64)


def arrays(queries: int, keys: int) -> list[np.ndarray]:
    """Random queries, keys and values of three heads, and a mask that hides all from the last
    query.
    """
    rng = np.random.default_rng(7)
    made = [rng.standard_normal((1, 3, n, 24)).astype(np.float32) for n in (queries, keys, keys)]
    mask = rng.random((queries, keys)) > 0.3
    mask[:, 0], mask[-1] = True, False
    return [*made, mask]


def stored(path: Path, given: list[np.ndarray], device: Device, choice: str) -> Path:
    """A store in which every attention of the function is decided."""
    inputs = [Tensor.input(n, x.shape, str(x.dtype)) for n, x in zip("qkvm", given, strict=True)]
    edges = Alternatives(Fusion.of(fold_constants((attention(*inputs).node,)))).edges()
    (edge,) = [e for e in edges if e.name == ATTENTION]
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        here = device.fingerprint("contract")
        store.record_decision(decided("cut", edge.region, choice, here))
    return path


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_stored_attention_runs_as_one_kernel_and_gives_what_numpy_gives(
    tmp_path: Path, name: str, shape: str
) -> None:
    device = DEVICES[name]()
    given = arrays(*SHAPES[shape])
    path = stored(tmp_path / "a.db", given, device, ATTENTION)
    model = tg.compile(attention, *given, device=device.name, store=path, threads=2)
    assert [r.kernel.split()[0] for r in model.report()] == ["attention"]
    np.testing.assert_allclose(model(*given), reference(*given), rtol=1e-5, atol=1e-5)


def test_a_stored_decision_counts_more_than_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "expected_attentions", lambda f, _: frozenset(f.drafts.attentions()))
    given = arrays(20, 30)
    expected = tg.compile(attention, *given, store=False, threads=2)
    assert [r.kernel.split()[0] for r in expected.report()] == ["attention"]
    path = stored(tmp_path / "r.db", given, devices.open("cpu", 2), RULES)
    rules = tg.compile(attention, *given, store=path, threads=2)
    assert len(rules.report()) == 3
    np.testing.assert_allclose(expected(*given), rules(*given), rtol=1e-5, atol=1e-6)
