"""From names of peers to timed figures: build the contestants, check their results, time them, fold
them into a row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.contestants import Contestant, disagreement
from benchmarks.interleave import Pace, Timing, interleave
from benchmarks.rows import Row, assemble
from benchmarks.workloads import Array, Workload

__all__ = ["Source", "check", "gather", "measure", "reason"]

Source = Callable[[], Iterable[Contestant]]


def gather(
    sources: Mapping[str, Source], layouts: Container[str]
) -> tuple[list[Contestant], list[Timing], dict[str, float]]:
    """Build the contestants of every source that work in ``layouts``; failures; and seconds by
    source.

    One that can not be imported, built or compiled becomes a failure.
    """
    contestants: list[Contestant] = []
    failures: list[Timing] = []
    setup_s: dict[str, float] = {}
    for name, source in sources.items():
        start_s = time.monotonic()
        try:
            contestants.extend(c for c in source() if c.layout in layouts)
        except Exception as error:  # noqa: BLE001  foreign code of every kind: the column says why, the others go on
            failures.append(_failure(name, "", reason(error)))
        setup_s[name] = round(time.monotonic() - start_s, 2)
    return contestants, failures, setup_s


def check(
    contestants: Sequence[Contestant], reference: Array, tolerance: float
) -> tuple[list[Contestant], list[Timing]]:
    """Split into those that agree with the reference and failures that say by how much they do
    not.
    """
    right: list[Contestant] = []
    failures: list[Timing] = []
    for contestant in contestants:
        try:
            why = disagreement(contestant.output(), reference, tolerance)
        except Exception as error:  # noqa: BLE001  as in gather
            why = reason(error)
        if why:
            failures.append(_failure(contestant.peer, contestant.variant, why))
        else:
            right.append(contestant)
    return right, failures


def measure(
    workload: Workload,
    threads: int,
    peers: Sequence[str],
    sources: Mapping[str, Source],
    reference: Callable[[], Array],
    pace: Pace,
    rest: Callable[[], bool],
    layouts: Sequence[str] = ("nchw", "nhwc"),
) -> Row:
    """One workload: only contestants with a right result are timed. No reference, no timing.

    ``layouts`` of images are those that a contestant may choose from, for its input and its output.
    """
    try:
        expected = reference()
    except Exception as error:  # noqa: BLE001  as in gather
        why = f"nothing to check against, PyTorch failed: {reason(error)}"
        return assemble(workload.name, threads, peers, (), dict.fromkeys(sources, why))
    contestants, failures, setup_s = gather(sources, ("", *layouts))
    right, wrong = check(contestants, expected, workload.tolerance)
    rest()
    timings = interleave(right, pace, rest)
    row = assemble(workload.name, threads, peers, (*failures, *wrong, *timings), {})
    return replace(row, setup_s=setup_s, layout=_pairing(workload, layouts))


def reason(error: Exception) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _pairing(workload: Workload, layouts: Sequence[str]) -> str:
    """The layout of a row: "best" where each contestant had the choice, else the only one; empty
    without images.
    """
    if not workload.has_images:
        return ""
    return layouts[0] if len(layouts) == 1 else "best"


def _failure(peer: str, variant: str, error: str) -> Timing:
    return Timing(peer, variant, math.inf, math.inf, 0, error)
