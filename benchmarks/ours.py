"""All contact of the benchmarks with tunegrad's public API; nothing else here imports it.

tunegrad is imported when it is first needed, so that a version that does not import costs its
columns only.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import Contestant
from benchmarks.rows import CALLED, DEFAULT, TUNED
from benchmarks.workloads import Array, Workload, arrays, laid_out

__all__ = ["Tuning", "function_of", "stored_in", "tune", "tuned", "untuned"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Cost and gain of tuning one workload, as tunegrad reports it."""

    tuned_ms: float | None
    pct_peak: float | None
    tune_s: float
    candidates: int


@dataclass(slots=True)
class _Ours:
    """A compiled function or loaded model of ours.

    Its calls are timed inside compiled code, without Python's cost.

    ``inputs`` are in ``layout``, and so is the result of a kernel; a model's result has no layout.
    """

    peer: str
    variant: str
    layout: str
    compiled: Any
    inputs: tuple[Array, ...]
    images_out: bool
    timer: Callable[[int], Sequence[float]]

    def time(self, calls: int) -> Sequence[float]:
        return self.timer(calls)

    def output(self) -> Array:
        result = np.asarray(self.compiled(*self.inputs))
        return result.transpose(0, 3, 1, 2) if self.images_out and self.layout == "nhwc" else result


@dataclass(slots=True)
class _Called(_Ours):
    """The same, timed as a user calls it, and as the peers are timed: results are allocated."""

    def time(self, calls: int) -> Sequence[float]:
        clock, compiled, inputs = time.perf_counter, self.compiled, self.inputs
        samples = []
        for _ in range(calls):
            began_s = clock()
            compiled(*inputs)
            samples.append(clock() - began_s)
        return samples


def untuned(workload: Workload, threads: int, layouts: Sequence[str]) -> Iterator[Contestant]:
    """The default schedules, no store."""
    yield from _each_layout(DEFAULT, workload, threads, layouts, None)


def tuned(
    workload: Workload, threads: int, layouts: Sequence[str], store: Path
) -> Iterator[Contestant]:
    """The winners in ``store``."""
    yield from _each_layout(TUNED, workload, threads, layouts, store)


def stored_in(
    workload: Workload, threads: int, dtype: str, store: Path | None
) -> Iterator[Contestant]:
    """A model or a kernel without images, stored in ``dtype``, with the winners in ``store``, if
    any.
    """
    tg, path = _tunegrad(), False if store is None else str(store)
    inputs = laid_out(workload, "")
    if workload.is_model:
        from benchmarks import torch_models  # the weights are PyTorch's

        weights = torch_models.weights(workload.name)
        compiled = tg.load(workload.name, threads=threads, store=path, weights=weights, dtype=dtype)
    else:
        function = function_of(workload, "")
        compiled = tg.compile(
            function, *inputs, device="cpu", threads=threads, store=path, dtype=dtype
        )
    variant = "default schedules" if store is None else "stored winners"
    yield _Ours(f"ours {dtype}", variant, "", compiled, inputs, False, compiled.timer(*inputs))


def _each_layout(
    peer: str, workload: Workload, threads: int, layouts: Sequence[str], store: Path | None
) -> Iterator[Contestant]:
    variant = "default schedules" if store is None else "stored winners"
    for layout in _layouts(workload, layouts):
        compiled = _compiled(workload, threads, layout, store)
        inputs = laid_out(workload, layout)
        name, timer = f"{variant} {layout}".rstrip(), compiled.timer(*inputs)
        for kind, column in ((_Ours, peer), (_Called, CALLED)):
            yield kind(column, name, layout, compiled, inputs, workload.has_images_out, timer)


def _layouts(workload: Workload, layouts: Sequence[str]) -> tuple[str, ...]:
    """Of a kernel's images those asked for; a model takes NCHW, everything else has no layout."""
    if not workload.has_images:
        return ("",)
    return ("nchw",) if workload.is_model else tuple(layouts)


def tune(
    workload: Workload,
    threads: int,
    layouts: Sequence[str],
    store: Path,
    budget_s: float,
    seed: int,
) -> Tuning:
    """Search for ``budget_s`` seconds, shared by the layouts, and leave the winners in
    ``store``.
    """
    tg, tried = _tunegrad(), _layouts(workload, layouts)
    settings = {
        "budget_s": budget_s / len(tried),
        "store": str(store),
        "threads": threads,
        "seed": seed,
    }
    if workload.is_model:
        reports = [tg.tune(workload.name, device="cpu", **settings)]
    else:
        reports = [
            tg.tune_callable(function_of(workload, x), *laid_out(workload, x), **settings)
            for x in tried
        ]
    best = min(reports, key=lambda report: math.inf if report.tuned_ms is None else report.tuned_ms)
    candidates = sum(sum(report.candidates.values()) for report in reports)
    return Tuning(
        best.tuned_ms, _pct_peak(best.rows), sum(report.seconds for report in reports), candidates
    )


def _pct_peak(rows: Sequence[Any]) -> float | None:
    """Per cent of the peak over all kernels: each kernel's, weighted with its share of the time."""
    if not rows or any(row.pct_peak is None for row in rows):
        return None
    total: float = sum(row.share * row.pct_peak for row in rows) / sum(row.share for row in rows)
    return total


def _tunegrad() -> Any:
    return importlib.import_module("tunegrad")


def _compiled(workload: Workload, threads: int, layout: str, store: Path | None) -> Any:
    tg, path = _tunegrad(), False if store is None else str(store)
    if not workload.is_model:
        examples = laid_out(workload, layout)
        return tg.compile(
            function_of(workload, layout), *examples, device="cpu", threads=threads, store=path
        )
    from benchmarks import torch_models  # the weights are PyTorch's

    weights = torch_models.weights(workload.name)
    return tg.load(workload.name, device="cpu", threads=threads, store=path, weights=weights)


def function_of(workload: Workload, layout: str) -> Callable[..., Any]:
    """The kernel workload as a function of tensors; NHWC images are permuted views inside, at both
    ends.
    """
    inner = _operation(workload)
    if layout != "nhwc":
        return inner
    return lambda x: inner(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def _operation(workload: Workload) -> Callable[..., Any]:
    """On NCHW images. Constants are captured, so they may be staged once."""
    w = workload
    c = [_tunegrad().Tensor.constant(array) for array in arrays(workload)[1]]
    functions: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "attention": lambda q, k, v: (
            ((q @ k.transpose()) * (1 / math.sqrt(q.shape[-1]))).softmax(-1) @ v
        ),
        "conv2d": lambda x: x.conv2d(c[0], c[1], stride=w.stride, padding=w.padding).relu(),
        "copy": lambda x: x.contiguous(),
        "gelu": lambda x: x.gelu(),
        "layer_norm": lambda x: x.layer_norm(c[0], c[1]),
        "linear": lambda x: x @ c[0],
        "matmul": lambda a, b: a @ b,
        "max_pool2d": lambda x: x.max_pool2d(w.window, stride=w.stride, padding=w.padding),
        "softmax": lambda x: x.softmax(w.axis),
        "sum": lambda x: x.sum(w.axis),
        "transpose": lambda x: x.permute(1, 0).contiguous(),
    }
    return functions[w.op]
