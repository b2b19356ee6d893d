"""The steps of a GPU session that record spaces, tune, and time whole models beside their peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.gpu import GpuRow
from benchmarks.gpu import measured as measured_model
from benchmarks.recorded.files import read_recording, write_recording
from benchmarks.recorded.points import settle_vary
from benchmarks.recorded.recorder import record
from tests.gpu_hand import gemm, image_kernel
from tests.product_kernels import kernel_of, residual, summed, weights, x
from tools.gpu_child import Named, Row
from tools.gpu_journal import UNFINISHED
from tunegrad.config import ModelDtype
from tunegrad.devices import Device
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Space
from tunegrad.reports import TuneReport

__all__ = ["SPACES", "peers", "recorded", "searched", "tuned", "vary_of"]

_POINTS = 1000


# ---- recorded

_BLOCKS = dict.fromkeys(("m.tiles", "n.tiles", "m.warps", "n.warps", "k.block", "slots"), 0)
_FEW_ROWS = (
    "n.tiles",
    "n.warps",
    "k.block",
    "slots",
    "stage.p1",
    "pack.p2",
    "stage.p2",
    "epilogue",
)
_ITEMS = {"lane.each": 3, "row.each": 4, "lane.items": 4, "row.items": 4, "k.block": 3, "slots": 3}


def _row_kernel(name: str) -> Kernel:
    x, w = Tensor.input("x", (8192, 4096), "f32"), Tensor.input("w", (4096,), "f32")
    tensor = x.softmax(-1) if name == "softmax" else x.layer_norm(w, w)
    return fuse(fold_constants((tensor.node,))).launches[-1].kernel


SPACES: Mapping[str, tuple[Callable[[], Kernel], Mapping[str, int]]] = {
    "gemm f16 4096": (partial(gemm, 4096, 4096, 4096), _BLOCKS),
    "conv 64 56": (partial(image_kernel, 32, 64, 56), {**_BLOCKS, "epilogue": 0}),
    "gemm f32 4096": (partial(gemm, 4096, 4096, 4096, "f32"), _ITEMS),
    "conv 256 14": (partial(image_kernel, 32, 256, 14), _BLOCKS),
    "linear of 16 rows": (
        lambda: kernel_of(summed(x(16, 4096), weights(4096, 4096))), dict.fromkeys(_FEW_ROWS, 0)
    ),
    "softmax": (partial(_row_kernel, "softmax"), {}),
    "layer norm": (partial(_row_kernel, "layer norm"), {}),
    "residual 4096": (partial(residual, 4096, 4096, 4096), _BLOCKS),
    "gemm f16 1024": (partial(gemm, 1024, 1024, 1024), _BLOCKS),
    "gemm f16 8192": (partial(gemm, 8192, 8192, 8192), _BLOCKS),
}  # fmt: skip
"""Kernels and the decisions that are varied, with how many options of each, 0 for all; with none,
all decisions. The others stay at their defaults.
"""
_SMALL: Mapping[str, tuple[Callable[[], Kernel], Mapping[str, int]]] = {
    "gemm f16 64": (partial(gemm, 64, 64, 64), {"k.block": 2, "slots": 2}),
}


def recorded(device: Device, out: Path, seconds: float, small: bool) -> Iterator[Named]:
    """A space each, a part of it: every answer to the decisions that matter most."""
    for name, (kernel, vary) in (_SMALL if small else SPACES).items():
        path = out / f"space {name}.jsonl.gz".replace(" ", "_")
        yield name, partial(_recorded, device, kernel, path, vary, seconds)


def vary_of(space: Space, vary: Mapping[str, int]) -> dict[str, int]:
    """Decisions of a space to vary: those named, else as many of all as give a thousand points."""
    return settle_vary(space, {}, _POINTS) if not vary else dict(vary)


def _recorded(
    device: Device,
    kernel_made: Callable[[], Kernel],
    path: Path,
    vary: Mapping[str, int],
    seconds: float,
) -> Row:
    """So many seconds of it, one batch at least; where the file is there, it goes on."""
    kernel, begun = kernel_made(), list[float]()

    def go_on(_done: int, _all: int) -> bool:
        begun.append(time.monotonic())
        return begun[-1] - begun[0] < seconds

    chosen = vary_of(Space(kernel, device.target), vary)
    known = read_recording(path).recording if path.exists() else None
    made = record(kernel, device, chosen, known=known, go_on=go_on)
    write_recording(path, made)
    ran = sum(t.measurement.ran for t in made.trials)
    row = {"points": made.points, "measured": len(made.trials), "ran": ran, "file": path.name}
    return row | ({UNFINISHED: True} if len(made.trials) < made.points else {})


# ---- tuned


def searched(device: Device, out: Path, small: bool) -> Iterator[Named]:
    """Square products, searched for less than a minute each."""
    size, seconds = (16, 0.5) if small else (4096, 45.0)
    for kind in ("f32",) if small else ("f16", "f32"):
        call = partial(_searched, device, out, size, kind, seconds, _trials(small))
        yield f"gemm {kind} {size} {seconds:g}", call


def _trials(small: bool) -> int | None:
    return 2 if small else None


def _searched(
    device: Device, out: Path, size: int, kind: str, seconds: float, trials: int | None
) -> Row:
    import tunegrad as tg

    a, b = (np.ones((size, size), {"f16": np.float16, "f32": np.float32}[kind]) for _ in range(2))
    report = tg.tune_callable(
        lambda a, b: a.cast("f32") @ b.cast("f32"), a, b,
        device=device.name, budget_s=seconds, store=out / "tuned.db", max_trials=trials,
    )  # fmt: skip
    row = _told(report)
    if report.tuned_ms:
        row["tflops"] = 2e-9 * size**3 / report.tuned_ms
    return row


def tuned(
    device: Device, out: Path, models: Mapping[str, float], dtype: str, small: bool
) -> Iterator[Named]:
    """Models and the seconds that each is searched for; the store knows what was measured."""
    for model, seconds in models.items():
        call = partial(_tuned, device, out, model, dtype, seconds, _trials(small))
        yield f"{model} {dtype} {seconds:g}", call


def _tuned(
    device: Device, out: Path, model: str, dtype: str, seconds: float, trials: int | None
) -> Row:
    import tunegrad as tg

    return _told(
        tg.tune(
            model, device=device.name, budget_s=seconds, store=out / "tuned.db",
            dtype=cast(ModelDtype, dtype),
            max_trials=trials,
        )
    )  # fmt: skip


def _told(report: TuneReport) -> Row:
    row: Row = {"default_ms": report.default_ms, "tuned_ms": report.tuned_ms}
    row["kernels"] = [asdict(each) for each in report.rows]
    return row


# ---- beside PyTorch


def peers(
    device: Device, out: Path, models: Mapping[str, tuple[int, str]], compiled: bool
) -> Iterator[Named]:
    """Whole models, as (batch, dtype), beside PyTorch, or what its compiler makes of them: that
    takes minutes.
    """
    for name, (batch, dtype) in models.items():
        yield name, partial(_beside, device, out, name, batch, dtype, compiled)


def _beside(device: Device, out: Path, name: str, batch: int, dtype: str, compiled: bool) -> Row:
    path = out / "tuned.db"
    store = str(path) if path.exists() else None
    row: GpuRow = measured_model(name, device.name, batch, dtype, store, compiled)
    if row.default_ms is None and row.tuned_ms is None:
        raise AssertionError(f"no figure of ours: {dict(row.errors)}")
    return asdict(row)
