"""Do two tunes of one model, from empty stores and with equal budgets, end at the same time?

    store A:  tune, seed 1      store B:  tune, seed 2      then, in turns:  A  B  A again   B  A again  A  ...

The third contestant is A's store loaded once more: the gap between it and A is what this machine can not tell apart.
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

__all__ = ["Agreement", "agreement", "in_turns", "main"]

WITHIN = 0.03
"""The part by which the two may differ."""

_DIFFERS = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """Medians in milliseconds. ``gap``: the slower of the two over the faster, less 1; ``noise``: that of A and A."""

    model: str
    threads: int
    budget_s: float
    tuned_ms: tuple[float, float]
    again_ms: float
    candidates: tuple[int, int]

    @property
    def gap(self) -> float:
        return max(self.tuned_ms) / min(self.tuned_ms) - 1.0

    @property
    def noise(self) -> float:
        return max(self.tuned_ms[0], self.again_ms) / min(self.tuned_ms[0], self.again_ms) - 1.0


def in_turns(timers: Sequence[Callable[[int], Sequence[float]]], rounds: int, runs: int) -> list[float]:
    """Median seconds of each: the order turns round every time, the first run of a turn only warms the caches."""
    turns: list[list[float]] = [[] for _ in timers]
    for round_number in range(rounds):
        order = range(len(timers)) if round_number % 2 == 0 else reversed(range(len(timers)))
        for i in order:
            turns[i].append(statistics.median(timers[i](runs + 1)[1:]))
    return [statistics.median(t) for t in turns]


def agreement(
    model: str, budget_s: float, threads: int, folder: Path, seeds: tuple[int, int] = (1, 2), rounds: int = 40
) -> Agreement:
    """Tune twice into ``folder``, where no stores may be yet, and time what came of it."""
    stores = (folder / "a.db", folder / "b.db")
    if any(store.exists() for store in stores):
        raise SystemExit(f"agreement: {folder} holds stores already; the tunes start from empty ones")
    counts = []
    for store, seed in zip(stores, seeds, strict=True):
        report = tunegrad.tune(model, budget_s=budget_s, store=store, threads=threads, seed=seed)
        counts.append(sum(report.candidates.values()))
    loaded = [tunegrad.load(model, store=store, threads=threads) for store in (*stores, stores[0])]
    a, b, again = in_turns([m.benchmark_s for m in loaded], rounds, 3)
    return Agreement(model, threads, budget_s, (1e3 * a, 1e3 * b), 1e3 * again, (counts[0], counts[1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 3 where the gap is over 3 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", help="as for tunegrad tune")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each tune")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1, 2))
    parser.add_argument("--rounds", type=int, default=40, help="turns of each")
    parser.add_argument("--keep", type=Path, help="a folder for the two stores; a temporary one without")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        seeds = (given.seeds[0], given.seeds[1])
        found = agreement(given.model, given.budget, given.threads, folder, seeds, given.rounds)
    a, b = found.tuned_ms
    print(f"{found.model}, {found.threads} threads, {found.budget_s:g} s each, seeds {seeds[0]} and {seeds[1]}")
    print(f"{found.candidates[0]} and {found.candidates[1]} candidates; whole model {a:.3f} and {b:.3f} ms")
    print(f"gap {100 * found.gap:.1f} %, of the same store loaded twice {100 * found.noise:.1f} %")
    if given.json:
        record = {"machine": describe(sys.argv, given.threads), **asdict(found), "gap": found.gap, "noise": found.noise}
        given.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0 if found.gap <= WITHIN else _DIFFERS


if __name__ == "__main__":
    sys.exit(main())
