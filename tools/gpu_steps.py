"""The steps of a GPU session: the rows of each, what one takes, and when it is given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu import MODELS
from benchmarks.machine import revision, versions
from tools.gpu_checks import corpus, hostile, tiled, units, wrappers
from tools.gpu_child import Asked, Named, Row
from tools.gpu_models import peers, recorded, searched, tuned
from tools.gpu_speed import convolutions, products, rows, tensors
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.devices.job import KernelIO, Lowered, Parameter

__all__ = ["STEPS", "TUNED", "Step", "rows_of"]

TUNED = {"resnet50": 300.0, "encoder": 120.0}
"""Models and the seconds of their search; of ResNet-50 a batch of 32."""
Made = Callable[[Device, Asked], Iterator[Named]]


@dataclass(frozen=True)
class Step:
    """``takes_s``: what a row takes, about, where that is more than some seconds; none begins that
    would end after the command. ``limit_s``: when a row is given up.
    """

    rows: Made
    takes_s: float = 0.0
    limit_s: float = 60.0


def rows_of(step: str, asked: Asked) -> Iterator[Named]:
    """A step's rows by name, none of which has been made."""
    return STEPS[step].rows(devices.running(asked.device), asked)


def _peers(device: Device, asked: Asked, compiled: bool) -> Iterator[Named]:
    if asked.small and compiled:
        return iter(())
    models = {"mlp": (1, "f32")} if asked.small else {m: (MODELS[m][0], "f16") for m in TUNED}
    return peers(device, Path(asked.out), models, compiled)


# ---- what there is


def _probe(device: Device) -> Iterator[Named]:
    yield "device", partial(_device, device)
    yield "limits", partial(_peaks, device)
    yield "state", lambda: {"state": dict(device.state())}
    yield "launch", partial(_launch, device)


def _device(device: Device) -> Row:
    return {
        "describe": device.describe(),
        "compiler": device.compiler(),
        "fingerprint": dict(device.fingerprint().fields),
        "target": asdict(device.target),
        "versions": versions(),
        "revision": revision(),
    }


def _peaks(device: Device) -> Row:
    with device.open() as engine:
        found, units = engine.limits(), device.target.threads
        return {"f32_flops": found.flops(units), "read_bytes_per_s": found.bandwidth(units)}


def _launch(device: Device) -> Row:
    """A kernel that does nothing: what a launch costs alone, and among others in a graph."""
    text = 'extern "C" __global__ void k(float *x) { if (x[0] == 42.0f) x[1] = 0.0f; }'
    lowered = Lowered(text, "k", KernelIO((Parameter("x", "f32", 64, "inout"),)))
    with device.open() as engine:
        memory = engine.allocate(256)
        launch = engine.launch(engine.load(lowered, device.compile(lowered)), [memory], ())
        start = time.perf_counter()
        alone = engine.time(launch, 50)
        python_s = (time.perf_counter() - start) / 50
        return {
            "alone_s": min(alone),
            "of_100_s": min(engine.time(launch, 20, 100)),
            "call_s": python_s,
        }


STEPS = {
    "probe": Step(lambda d, _: _probe(d)),
    "wrappers": Step(lambda d, a: wrappers(d, a.small)),
    "units": Step(lambda d, a: units(d, a.small)),
    "corpus": Step(lambda d, a: corpus(d, a.small)),
    "tiled": Step(lambda d, a: tiled(d, a.small)),
    "hostile": Step(lambda d, a: hostile(d, a.small)),
    "tensors": Step(lambda d, _: tensors(d), limit_s=120.0),
    "gemm": Step(lambda d, a: products(d, a.small), limit_s=120.0),
    "convs": Step(lambda d, a: convolutions(d, a.small), limit_s=120.0),
    "rows": Step(lambda d, a: rows(d, a.small), limit_s=180.0),
    "search": Step(lambda d, a: searched(d, Path(a.out), a.small), 60.0, 180.0),
    "tune": Step(lambda d, a: tuned(d, Path(a.out), a.models, a.dtype, a.small), 360.0, 540.0),
    "peers": Step(partial(_peers, compiled=False), 60.0, 240.0),
    "record": Step(lambda d, a: recorded(d, Path(a.out), a.record_s, a.small), 80.0, 240.0),
    "compiled": Step(partial(_peers, compiled=True), 240.0, 540.0),
}
