"""Do two tunes of one model, from empty stores and with equal budgets, end at the same time?

    store A:  tune, seed 1
    store B:  tune, seed 2
    each loaded three times, in turns:  A B A B A B  B A B ...

Where a process puts code and constants makes one load of a store some per cent faster than another:
a store's figure is the median of its loads, and how far these are apart is what this machine can
not tell.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import tunegrad
from benchmarks.machine import describe
from tunegrad.tuning.models import turn_order

__all__ = ["Agreement", "agreement", "compared", "in_turns", "main"]

WITHIN = 0.03
"""The part by which the two may differ."""

_WARM, _RUNS = 5, 5
"""Runs of a turn that are not counted, and that are."""

_DIFFERS = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """``loads_ms``: of each store, the milliseconds of every time that it was loaded.

    ``gap``: the slower store over the faster, less 1. ``noise``: the same of the loads of one
    store.
    """

    model: str
    threads: int
    budget_s: float
    loads_ms: tuple[tuple[float, ...], tuple[float, ...]]
    candidates: tuple[int, int]

    @property
    def tuned_ms(self) -> tuple[float, float]:
        """Medians of the loads of each store."""
        a, b = self.loads_ms
        return statistics.median(a), statistics.median(b)

    @property
    def gap(self) -> float:
        return max(self.tuned_ms) / min(self.tuned_ms) - 1.0

    @property
    def noise(self) -> float:
        return max(max(loads) / min(loads) - 1.0 for loads in self.loads_ms)


def in_turns(timers: Sequence[Callable[[int], Sequence[float]]], rounds: int) -> list[float]:
    """Median seconds of each.

    A turn's first runs only warm the caches: after another model they take some.
    """
    turns: list[list[float]] = [[] for _ in timers]
    for turn in range(rounds):
        for i in turn_order(len(timers), turn):
            turns[i].append(statistics.median(timers[i](_WARM + _RUNS)[_WARM:]))
    return [statistics.median(t) for t in turns]


def compared(
    model: str, stores: Sequence[Path], threads: int, rounds: int, loads: int
) -> list[tuple[float, ...]]:
    """Milliseconds of every load of each store."""
    loaded = [
        tunegrad.load(model, store=store, threads=threads) for _ in range(loads) for store in stores
    ]
    took_ms = [1e3 * s for s in in_turns([m.benchmark_s for m in loaded], rounds)]
    return [tuple(took_ms[i :: len(stores)]) for i in range(len(stores))]


def agreement(
    model: str,
    budget_s: float,
    threads: int,
    folder: Path,
    seeds: tuple[int, int] = (1, 2),
    rounds: int = 60,
    loads: int = 3,
) -> Agreement:
    """Tune twice into ``folder``, where no stores may be yet, and time what came of it."""
    stores = (folder / "a.db", folder / "b.db")
    if any(store.exists() for store in stores):
        raise SystemExit(
            f"agreement: {folder} holds stores already; the tunes start from empty ones"
        )
    counts = []
    for store, seed in zip(stores, seeds, strict=True):
        report = tunegrad.tune(model, budget_s=budget_s, store=store, threads=threads, seed=seed)
        counts.append(sum(report.candidates.values()))
    a, b = compared(model, stores, threads, rounds, loads)
    return Agreement(model, threads, budget_s, (a, b), (counts[0], counts[1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 3 where the gap is over 3 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", help="as for tunegrad tune")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each tune")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1, 2))
    parser.add_argument("--rounds", type=int, default=60, help="turns of each load (default 60)")
    parser.add_argument(
        "--loads", type=int, default=3, help="how often each store is loaded (default 3)"
    )
    parser.add_argument(
        "--keep", type=Path, help="a folder for the two stores; a temporary one without"
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        seeds = (given.seeds[0], given.seeds[1])
        found = agreement(
            given.model, given.budget, given.threads, folder, seeds, given.rounds, given.loads
        )
    a, b = found.tuned_ms
    print(
        f"{found.model}, {found.threads} threads, {found.budget_s:g} s each, seeds {seeds[0]} "
        f"and {seeds[1]}"
    )
    print(
        f"{found.candidates[0]} and {found.candidates[1]} candidates; whole model {a:.3f} and "
        f"{b:.3f} ms"
    )
    for name, loads_ms in zip("ab", found.loads_ms, strict=True):
        print(f"loads of store {name}: {' '.join(f'{ms:.3f}' for ms in loads_ms)} ms")
    print(f"gap {100 * found.gap:.1f} %; loads of one store up to {100 * found.noise:.1f} % apart")
    if given.json:
        figures = {
            **asdict(found),
            "tuned_ms": found.tuned_ms,
            "gap": found.gap,
            "noise": found.noise,
        }
        record = {"machine": describe(sys.argv, given.threads), **figures}
        given.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0 if found.gap <= WITHIN else _DIFFERS


if __name__ == "__main__":
    sys.exit(main())
