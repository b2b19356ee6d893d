"""Latencies of sweeps, which time more than whole models.

resnet18                            a whole model
resnet18: conv3x3 64->64 56x56      a kernel of it: one launch
resnet18: peer ort                  another library on it
resnet18: yardstick stream          what never changes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import median

from tunegrad.db import PART, Latency
from tunegrad.paired import gain_interval

from .kernels import needs
from .records import KernelEntry, PeerTime

__all__ = ["model_of", "peers_of", "swept", "whole_models"]

_YARDSTICK, _PEER = "yardstick ", "peer "


def model_of(series: str) -> str:
    """The model that a latency is of."""
    return series.partition(PART)[0]


def whole_models(latencies: Iterable[Latency]) -> list[Latency]:
    """Those of whole models."""
    return [x for x in latencies if PART not in x.model]


def peers_of(latencies: Iterable[Latency]) -> tuple[PeerTime, ...]:
    """Those of other libraries."""
    split = [(x, *x.model.partition(PART)[::2]) for x in latencies]
    return tuple(
        PeerTime(model, name.removeprefix(_PEER), x.seconds)
        for x, model, name in split
        if name.startswith(_PEER)
    )


def swept(
    latencies: Sequence[Latency], texts: Mapping[str, tuple[str, str]]
) -> tuple[KernelEntry, ...]:
    """The kernels of a sweep's latencies, those whose launches take longest together first.

    ``texts`` are the text and the name of each kernel that the store has, by key.
    """
    found = [_entry(x, texts.get(x.model_key, ("", ""))[0]) for x in latencies if _is_kernel(x)]
    return tuple(sorted(found, key=lambda k: -k.uses * (k.after_s or 0.0)))


def _is_kernel(x: Latency) -> bool:
    """True for a kernel of a model, with what it runs with."""
    kernel = x.model.partition(PART)[2]
    return x.kind == "tuned" and bool(kernel) and not kernel.startswith((_YARDSTICK, _PEER))


def _entry(x: Latency, text: str) -> KernelEntry:
    beside = x.default_samples_s
    said = dict(x.versions).get("uses")
    uses = int(said) if isinstance(said, float) and 1.0 <= said < inf else None
    flops, unique_bytes = needs(text)
    return KernelEntry(
        name=x.model.partition(PART)[2],
        key=x.model_key,
        uses=uses or 1,
        layers=f"in {model_of(x.model)}{'' if uses else ', launched an unknown number of times'}",
        before_s=median(beside) if beside else None,
        after_s=x.seconds,
        gain=x.gain,
        interval=gain_interval(beside, x.samples_s) if beside else None,
        measured="sweep",
        actions="",
        origin="sweep",
        flops=flops,
        unique_bytes=unique_bytes,
    )
