"""From names of peers to timed figures: build the contestants, check their results, time them, fold them into a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.contestants import Contestant, disagreement
from benchmarks.interleave import Pace, Timing, interleave
from benchmarks.rows import Row, assemble
from benchmarks.workloads import Array, Workload

__all__ = ["Source", "check", "gather", "measure", "reason"]

Source = Callable[[], Iterable[Contestant]]


def gather(sources: Mapping[str, Source]) -> tuple[list[Contestant], list[Timing]]:
    """Build the contestants of every source. One that can not be imported, built or compiled becomes a failure."""
    contestants: list[Contestant] = []
    failures: list[Timing] = []
    for name, source in sources.items():
        try:
            contestants.extend(source())
        except Exception as error:  # noqa: BLE001  foreign code of every kind: the column says why, the others go on
            failures.append(_failure(name, "", reason(error)))
    return contestants, failures


def check(
    contestants: Sequence[Contestant], reference: Array, tolerance: float
) -> tuple[list[Contestant], list[Timing]]:
    """Split into those that agree with the reference and failures that say by how much they do not."""
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
) -> Row:
    """One workload: only contestants with a right result are timed. No reference, no timing."""
    try:
        expected = reference()
    except Exception as error:  # noqa: BLE001  as in gather
        why = f"nothing to check against, PyTorch failed: {reason(error)}"
        return assemble(workload.name, threads, peers, (), dict.fromkeys(sources, why))
    contestants, failures = gather(sources)
    right, wrong = check(contestants, expected, workload.tolerance)
    rest()
    timings = interleave(right, pace, rest)
    return assemble(workload.name, threads, peers, (*failures, *wrong, *timings), {})


def reason(error: Exception) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _failure(peer: str, variant: str, error: str) -> Timing:
    return Timing(peer, variant, math.inf, math.inf, 0, error)
