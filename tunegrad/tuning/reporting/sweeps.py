"""Latencies of sweeps, which time kernels in their models too: ``resnet18`` is a whole model,
``resnet18: conv3x3 64->64 56x56`` a kernel of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from tunegrad.db import Latency
from tunegrad.paired import gain_interval

from .records import KernelEntry

__all__ = ["model_of", "swept", "whole_models"]

_OF, _YARDSTICK = ": ", "yardstick "


def model_of(series: str) -> str:
    """The model that a latency is of."""
    return series.partition(_OF)[0]


def whole_models(latencies: Iterable[Latency]) -> list[Latency]:
    """Those of whole models."""
    return [x for x in latencies if _OF not in x.model]


def swept(latencies: Sequence[Latency], session: str) -> tuple[KernelEntry, ...]:
    """The kernels that a sweep timed in whole models, the heaviest first."""
    mine = [x for x in latencies if x.session == session and _is_kernel(x)]
    return tuple(map(_entry, sorted(mine, key=lambda x: -x.seconds)))


def _is_kernel(x: Latency) -> bool:
    """Whether it is of a kernel of a model, with what it runs with; yardsticks are neither."""
    kernel = x.model.partition(_OF)[2]
    return x.kind == "tuned" and bool(kernel) and not kernel.startswith(_YARDSTICK)


def _entry(x: Latency) -> KernelEntry:
    beside = x.default_samples_s
    return KernelEntry(
        name=x.model.partition(_OF)[2],
        key=x.model_key,
        uses=1,
        layers=f"in {model_of(x.model)}",
        before_s=median(beside) if beside else None,
        after_s=x.seconds,
        gain=x.gain,
        interval=gain_interval(beside, x.samples_s) if beside else None,
        measured="model",
        actions="",
        origin="sweep",
        flops=None,
        unique_bytes=None,
    )
