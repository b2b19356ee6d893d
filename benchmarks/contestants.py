"""Contestants: things that can be timed for a number of calls, and whose result can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.workloads import Array

__all__ = ["CallContestant", "Contestant", "disagreement"]


class Contestant(Protocol):
    """One configuration of one peer, ready to run: compiled, its buffers allocated.

    ``peer`` names the column. Several contestants of one column are its variants (memory formats,
    compile modes): all are timed, the fastest stands for the peer. ``layout`` is that of its input
    and output images: "nchw" or "nhwc"; empty where there are no images.
    """

    @property
    def peer(self) -> str: ...

    @property
    def variant(self) -> str: ...

    @property
    def layout(self) -> str: ...

    def time(self, calls: int) -> Sequence[float]:
        """Seconds of each of ``calls`` (at least 1) back-to-back calls."""
        ...

    def output(self) -> Array:
        """The result of one more call, in the workload's own layout."""
        ...


@dataclass(frozen=True, slots=True)
class CallContestant:
    """A contestant that is a Python call: ``run`` leaves or returns a result, ``read`` makes it an
    array. ``clock`` gives seconds.
    """

    peer: str
    variant: str
    run: Callable[[], object]
    read: Callable[[], Array]
    layout: str = ""
    clock: Callable[[], float] = time.perf_counter

    def time(self, calls: int) -> Sequence[float]:
        clock, run = self.clock, self.run
        seconds = []
        for _ in range(calls):
            start = clock()
            run()
            seconds.append(clock() - start)
        return seconds

    def output(self) -> Array:
        return self.read()


def disagreement(result: Array, reference: Array, tolerance: float) -> str:
    """Say how ``result`` differs from ``reference``; empty when they agree to ``tolerance`` of the
    largest reference value.
    """
    if result.shape != reference.shape:
        return f"result has shape {result.shape}, PyTorch's has {reference.shape}"
    scale = float(np.abs(reference).max())
    worst = float(np.abs(result.astype(np.float64) - reference).max())
    if worst <= tolerance * scale:
        return ""
    return (
        f"result is off by {worst:.3g} where PyTorch's largest value is {scale:.3g} "
        f"(allowed: {tolerance:g} of it)"
    )
