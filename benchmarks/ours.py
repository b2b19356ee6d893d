# mypy: disable-error-code="import-not-found,import-untyped"
"""All contact of the benchmarks with tunegrad's public API; nothing else here imports it.

tunegrad is imported when it is first needed, so that a version that does not import costs its columns only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import Contestant
from benchmarks.rows import DEFAULT, TUNED
from benchmarks.workloads import Array, Workload, arrays

__all__ = ["Tuning", "tune", "tuned", "untuned"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tuning one workload cost and gained, as tunegrad reports it."""

    tuned_ms: float | None
    pct_peak: float | None
    tune_s: float
    candidates: int


@dataclass(frozen=True, slots=True)
class _Ours:
    """A compiled function or loaded model of ours. Its calls are timed inside compiled code, without Python's cost."""

    peer: str
    variant: str
    compiled: Any
    inputs: tuple[Array, ...]

    def time(self, calls: int) -> Sequence[float]:
        samples: Sequence[float] = self.compiled.benchmark_s(calls)
        return samples

    def output(self) -> Array:
        return np.asarray(self.compiled(*self.inputs))


def untuned(workload: Workload, threads: int) -> Iterator[Contestant]:
    """The default schedules, no store."""
    yield _Ours(DEFAULT, "default schedules", _compiled(workload, threads, None), arrays(workload)[0])


def tuned(workload: Workload, threads: int, store: Path) -> Iterator[Contestant]:
    """The winners in ``store``."""
    yield _Ours(TUNED, "stored winners", _compiled(workload, threads, store), arrays(workload)[0])


def tune(workload: Workload, threads: int, store: Path, budget_s: float, seed: int) -> Tuning:
    """Search for ``budget_s`` seconds and leave the winners in ``store``."""
    tg = _tunegrad()
    settings = {"budget_s": budget_s, "store": str(store), "threads": threads, "seed": seed}
    if workload.is_model:
        report = tg.tune(workload.name, device="cpu", **settings)
    else:
        report = tg.tune_callable(_function(workload), *arrays(workload)[0], **settings)
    return Tuning(report.tuned_ms, _pct_peak(report.rows), report.seconds, sum(report.candidates.values()))


def _pct_peak(rows: Sequence[Any]) -> float | None:
    """Per cent of the peak over all kernels: each kernel's, weighted with its share of the time."""
    if not rows or any(row.pct_peak is None for row in rows):
        return None
    total: float = sum(row.share * row.pct_peak for row in rows) / sum(row.share for row in rows)
    return total


def _tunegrad() -> Any:
    return importlib.import_module("tunegrad")


def _compiled(workload: Workload, threads: int, store: Path | None) -> Any:
    tg, path = _tunegrad(), False if store is None else str(store)
    if not workload.is_model:
        return tg.compile(_function(workload), *arrays(workload)[0], device="cpu", threads=threads, store=path)
    from benchmarks import torch_models  # the weights are PyTorch's

    weights = torch_models.weights(workload.name)
    return tg.load(workload.name, device="cpu", threads=threads, store=path, weights=weights)


def _function(workload: Workload) -> Callable[..., Any]:
    """The kernel workload as a function of tensors; its constants are captured, so they may be staged once."""
    w = workload
    c = [_tunegrad().Tensor.constant(array) for array in arrays(workload)[1]]
    functions: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "conv2d": lambda x: x.conv2d(c[0], c[1], stride=w.stride, padding=w.padding).relu(),
        "gelu": lambda x: x.gelu(),
        "layer_norm": lambda x: x.layer_norm(c[0], c[1]),
        "matmul": lambda a, b: a @ b,
        "max_pool2d": lambda x: x.max_pool2d(w.window, stride=w.stride, padding=w.padding),
        "softmax": lambda x: x.softmax(w.axis),
        "sum": lambda x: x.sum(w.axis),
        "transpose": lambda x: x.permute(1, 0).contiguous(),
    }
    return functions[w.op]
