"""The peers' table of a GPU, rehearsed: PyTorch on the CPU beside cuda-host."""

import sys

import pytest

import benchmarks
from benchmarks import gpu
from benchmarks.interleave import Pace
from tests.cuda_host import cuda_host

SHORT = Pace(min_rounds=2, max_rounds=2, min_s=0.0, max_s=0.5, turn_s=0.001, warm_s=0.0)


@pytest.fixture(autouse=True)
def _torch():
    cuda_host()
    pytest.importorskip("torch")


def test_both_are_checked_and_timed():
    row = gpu.measured("mlp", "cuda-host", 1, "f32", pace=SHORT)
    assert row.errors == {}
    assert row.default_ms > 0
    assert row.tuned_ms is None, "no store was given"
    assert row.peers["torch eager"] > 0
    assert row.ratio == row.peers["torch eager"] / row.default_ms
    assert (row.hits, row.kernels) == (0, 3)


def test_who_computes_something_else_has_no_figure(monkeypatch):
    from benchmarks import torch_models

    weights = torch_models.weights("mlp")
    monkeypatch.setattr(
        torch_models, "weights", lambda name: {key: 2 * w for key, w in weights.items()}
    )
    row = gpu.measured("mlp", "cuda-host", 1, "f32", pace=SHORT)
    assert row.default_ms is None
    assert row.errors["tunegrad default"].startswith("result is off by")
    assert (row.ratio, bool(row.peers["torch eager"])) == (None, True)


def test_without_torch_ours_is_checked_against_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.torch_models", raising=False)
    monkeypatch.delattr(benchmarks, "torch_models", raising=False)
    row = gpu.measured("mlp", "cuda-host", 1, "f32", pace=SHORT)
    assert row.default_ms > 0
    assert (row.peers, row.ratio) == ({}, None)
    assert list(row.errors) == ["torch"]
