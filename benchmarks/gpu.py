"""Whole models on a GPU: ours beside PyTorch, weights and activations in 16 bits, on data that is
on the device.

    python -m benchmarks.gpu --store results/tuned.db --json gpu.json
    python -m benchmarks.gpu --only encoder --compile             torch.compile takes minutes

Ours        one CUDA graph, timed by events; the schedules of the store, and the defaults
torch       eager, images channels-last, captured once as a CUDA graph, timed by events
inductor    torch.compile with max-autotune, which makes graphs itself

Turns go round, as in ``benchmarks.peers``. A contestant that is further from PyTorch in f32 than
the dtype allows has no figure. On a device that is no GPU, PyTorch runs on the CPU, in f32 and
without graphs: figures of a rehearsal say nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tunegrad as tg
from benchmarks.contestants import CallContestant, Contestant, disagreement
from benchmarks.interleave import QUICK, Pace, Timing, interleave
from benchmarks.machine import revision, versions
from benchmarks.workloads import Array
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import TunegradError

__all__ = ["MODELS", "GpuRow", "main", "measured"]

MODELS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "resnet50": (32, (3, 224, 224)),
    "resnet18": (32, (3, 224, 224)),
    "encoder": (1, (128, 768)),
    "mlp": (1, (784,)),
}
"""Batch and the shape of one input."""
_ALLOWED = {"f32": 2e-3, "f16": 3e-2, "bf16": 2e-1}
"""Largest distance of a result from f32, over the largest value: 16 bits through fifty layers."""
_WARM = 3


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One model. Times are milliseconds of one run, None where there is no figure and ``errors``
    says why; ``ratio`` is the fastest peer's over ours, and above 1 we are faster. ``machine`` is
    the device's fingerprint (GPU, driver, CUDA), packages, revision and time; ``state`` the clocks
    when all was timed.
    """

    model: str
    batch: int
    dtype: str
    device: str
    default_ms: float | None
    tuned_ms: float | None
    peers: Mapping[str, float | None]
    ratio: float | None
    hits: int
    kernels: int
    intervals: Mapping[str, float]
    errors: Mapping[str, str]
    state: Mapping[str, float | str]
    machine: Mapping[str, str]


def main(words: Sequence[str] | None = None) -> int:
    """Time the models that the words name; 1 where ours has no figure."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", action="append", choices=tuple(MODELS))
    parser.add_argument("--batch", type=int, help="instead of each model's own")
    parser.add_argument("--dtype", default="f16", choices=tuple(_ALLOWED))
    parser.add_argument("--store", help="of the tuned schedules; none: the defaults alone")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well: minutes")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(words)
    rows = []
    for name in given.only or ("resnet50", "encoder"):
        row = measured(
            name, given.device, given.batch or MODELS[name][0], given.dtype,
            store=given.store, compiled=given.compile,
        )  # fmt: skip
        rows.append(row)
        print(json.dumps(asdict(row)), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return int(any(row.default_ms is None and row.tuned_ms is None for row in rows))


def measured(
    name: str,
    device: str,
    batch: int,
    dtype: str,
    store: str | None = None,
    compiled: bool = False,
    pace: Pace = QUICK,
) -> GpuRow:
    """Ours and PyTorch on one model, checked and then timed in turns. Without torch, ours alone,
    checked against ours on the CPU in f32.
    """
    x = np.random.default_rng(0).standard_normal((batch, *MODELS[name][1]), np.float32)
    errors: dict[str, str] = {}
    reference, weights = _reference(name, batch, x, errors)
    ours, hits, kernels = _ours(name, device, batch, dtype, store, x, weights, errors)
    there = "torch" not in errors
    peers = _torch_contestants(name, _on_gpu(device), dtype, x, compiled, errors) if there else ()
    sound = [c for c in (*ours, *peers) if _agrees(c, reference, dtype, errors)]
    timings = {f"{t.peer} {t.variant}": t for t in interleave(sound, pace, rest=lambda: True)}
    errors |= {key: t.error for key, t in timings.items() if t.error}
    return _row(name, device, batch, dtype, timings, (hits, kernels), errors)


def _reference(
    name: str, batch: int, x: Array, errors: dict[str, str]
) -> tuple[Array, Mapping[str, Any] | None]:
    """Results of the model in f32, and its weights; None for those that a model draws itself."""
    try:
        from benchmarks import torch_models
    except ImportError as error:
        errors["torch"] = str(error)
        model = tg.load(f"{name}[batch={batch}]", device="cpu", store=False, dtype="f32")
        return np.asarray(model(x), np.float32), None
    return _numpy(torch_models.build(name)(_torch().from_numpy(x))), torch_models.weights(name)


def _row(
    name: str,
    device: str,
    batch: int,
    dtype: str,
    timings: Mapping[str, Timing],
    counts: tuple[int, int],
    errors: Mapping[str, str],
) -> GpuRow:
    ms = {key: 1e3 * t.seconds for key, t in timings.items() if not t.error}
    default_ms, tuned_ms = ms.get("tunegrad default"), ms.get("tunegrad tuned")
    peers = {key: ms.get(key) for key in timings if not key.startswith("tunegrad")}
    best = min((v for v in peers.values() if v is not None), default=None)
    mine, here = tuned_ms or default_ms, devices.open(device)
    return GpuRow(
        name,
        batch,
        dtype,
        device,
        default_ms,
        tuned_ms,
        peers,
        best / mine if best and mine else None,
        *counts,
        {key: t.interval for key, t in timings.items() if not t.error},
        dict(errors),
        dict(here.state()),
        _machine(here),
    )


def _machine(device: Device) -> dict[str, str]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = {"name": device.describe(), **dict(device.fingerprint().fields), **versions()}
    return {**found, "revision": revision(), "date": now}


def _agrees(c: Contestant, reference: Array, dtype: str, errors: dict[str, str]) -> bool:
    key = f"{c.peer} {c.variant}"
    try:
        fault = disagreement(c.output(), reference, _ALLOWED[dtype])
    except Exception as error:  # noqa: BLE001  # a contestant is foreign code
        fault = f"{type(error).__name__}: {error}"
    if fault:
        errors[key] = fault
    return not fault


# ---- ours


@dataclass(frozen=True, slots=True)
class _Ours:
    """A loaded model; ``timer`` takes device time, its inputs are on the device."""

    variant: str
    model: tg.LoadedModel
    x: Array
    timer: Callable[[int], Sequence[float]]
    peer: str = "tunegrad"
    layout: str = ""

    def time(self, calls: int) -> Sequence[float]:
        return self.timer(calls)

    def output(self) -> Array:
        return np.asarray(self.model(self.x), np.float32)


def _ours(
    name: str, device: str, batch: int, dtype: str, store: str | None, x: Array,
    weights: Mapping[str, Any] | None, errors: dict[str, str],
) -> tuple[list[Contestant], int, int]:  # fmt: skip
    """Contestants, and how many kernels of all run as the store says."""
    found: list[Contestant] = []
    hits = kernels = 0
    for variant, stored in (("default", False), ("tuned", store)):
        if stored is None:
            continue
        try:
            model = tg.load(
                f"{name}[batch={batch}]", device=device, store=stored,
                weights=weights, dtype=dtype,  # type: ignore[arg-type]
            )  # fmt: skip
            rows = model.report()
            hits, kernels = sum(r.outcome == "hit" for r in rows), len(rows)
            found.append(_Ours(variant, model, x, model.timer(x)))
        except TunegradError as error:
            errors[f"tunegrad {variant}"] = str(error)
    return found, hits, kernels


# ---- PyTorch


def _torch() -> Any:
    import torch

    return torch


def _on_gpu(device: str) -> bool:
    """True if PyTorch runs beside ours on a GPU; else it rehearses on the CPU."""
    return device.partition(":")[0] == "cuda" and bool(_torch().cuda.is_available())


def _numpy(tensor: Any) -> Array:
    array: Array = tensor.detach().float().cpu().numpy()
    return array


def _torch_contestants(
    name: str, gpu: bool, dtype: str, x: Array, compiled: bool, errors: dict[str, str]
) -> Iterator[Contestant]:
    """Eager under a graph, and torch.compile where it is asked for; all is compiled on return."""
    import copy

    from benchmarks import torch_models

    torch = _torch()
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    place, kind = ("cuda", kind) if gpu else ("cpu", torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    laid = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    module = copy.deepcopy(torch_models.build(name)).to(place, kind, memory_format=laid)
    given = torch.from_numpy(x).to(place, kind).contiguous(memory_format=laid)
    layout = ", channels-last" if x.ndim == 4 else ""
    for peer, variant, make in (
        ("torch", f"eager{layout}{', graph' if gpu else ''}", lambda: _eager(module, given, gpu)),
        ("inductor", f"max-autotune{layout}", lambda: _compiled(module, given)),
    ):
        if peer == "inductor" and not compiled:
            continue
        try:
            run, out = make()
        except Exception as error:  # noqa: BLE001  # foreign code
            errors[f"{peer} {variant}"] = f"{type(error).__name__}: {error}"
            continue
        call = CallContestant(peer, variant, run, lambda out=out: _numpy(out()))  # type: ignore[misc]
        yield _Events(call) if gpu else call


def _eager(module: Any, x: Any, gpu: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A run, and one that gives its result; on a GPU both replay one graph."""
    torch = _torch()

    def run() -> Any:
        with torch.inference_mode():
            return module(x)

    if not gpu:
        return run, run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries allocate and choose before the capture
        for _ in range(_WARM):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()

    def replayed() -> Any:
        graph.replay()
        torch.cuda.synchronize()
        return kept

    return graph.replay, replayed


def _compiled(module: Any, x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    torch = _torch()
    made = torch.compile(module, mode="max-autotune", dynamic=False)

    def run() -> Any:
        with torch.inference_mode():
            return made(x)

    for _ in range(_WARM):
        run()
    return run, run


@dataclass(frozen=True, slots=True)
class _Events:
    """A contestant on a GPU: its calls are timed by events, between which nothing waits."""

    call: CallContestant

    @property
    def peer(self) -> str:
        return self.call.peer

    @property
    def variant(self) -> str:
        return self.call.variant

    @property
    def layout(self) -> str:
        return ""

    def time(self, calls: int) -> Sequence[float]:
        torch = _torch()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
        with torch.inference_mode():
            marks[0].record()
            for mark in marks[1:]:
                self.call.run()
                mark.record()
        torch.cuda.synchronize()
        return [1e-3 * a.elapsed_time(b) for a, b in itertools.pairwise(marks)]

    def output(self) -> Array:
        return self.call.output()


if __name__ == "__main__":
    sys.exit(main())
