"""Ranks schedules that the cost model has not seen, on the recorded spaces.

Measures nothing.

    python -m benchmarks.ranking

Trained on 200 random rows of a space (or two thirds), tested on 300 others; in brackets only the
pairs that are more than 5 % apart. Means of three draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.recorded import Recording, read_recording
from tunegrad.search import CostModel

SPACES = Path(__file__).parents[1] / "tests" / "data" / "spaces"
SEEDS, TRAINED, TESTED = 3, 200, 300


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule that ran: its decisions, and the logarithm of its seconds."""

    decisions: Mapping[str, float]
    log_s: float


def rows_of(recording: Recording) -> list[Row]:
    """One row for each program that ran."""
    found: dict[str, Row] = {}
    for t in recording.trials:
        if t.measurement.ran and t.program_hash not in found:
            decisions = {recording.questions[q].name: float(choice) for q, choice in t.paths[0]}
            found[t.program_hash] = Row(decisions, math.log(t.measurement.seconds))
    return list(found.values())


def ranking_accuracy(
    forecast: Sequence[float], actual: Sequence[float], apart: float = 0.0
) -> float:
    """The share of pairs that a forecast puts in the right order; NaN where there are none.

    Only pairs whose actual values differ by more than ``apart`` count; a forecast that ties them is
    half right.
    """
    right, pairs = 0.0, 0
    for i, j in combinations(range(len(actual)), 2):
        if abs(actual[i] - actual[j]) <= apart:
            continue
        pairs += 1
        order = (forecast[i] - forecast[j]) * (1.0 if actual[i] > actual[j] else -1.0)
        right += 1.0 if order > 0.0 else 0.5 if order == 0.0 else 0.0
    return right / pairs if pairs else math.nan


def accuracy(known: Sequence[Row], held: Sequence[Row]) -> tuple[float, float]:
    """Of all held-out pairs, and of those more than 5 % apart."""
    model = CostModel()
    model.fit([r.decisions for r in known], [r.log_s for r in known])
    forecast = model.predict([r.decisions for r in held]).tolist()
    actual = [r.log_s for r in held]
    return ranking_accuracy(forecast, actual), ranking_accuracy(forecast, actual, math.log(1.05))


def within(rows: Sequence[Row]) -> tuple[float, float]:
    """The accuracy on rows of the same space."""
    found = []
    for seed in range(SEEDS):
        drawn = Random(seed).sample(rows, len(rows))
        cut = min(TRAINED, 2 * len(rows) // 3)
        found.append(accuracy(drawn[:cut], drawn[cut : cut + TESTED]))
    return fmean(a for a, _ in found), fmean(b for _, b in found)


def main() -> None:
    """Print one table row a space, and the means."""
    print("| space | right pairs | of those 5 % apart |\n|---|---|---|")
    found = {
        f.name.removesuffix(".jsonl.gz"): within(rows_of(read_recording(f).recording))
        for f in sorted(SPACES.iterdir())
    }
    for name, (every, apart) in found.items():
        print(f"| {name} | {every:.2f} | {apart:.2f} |")
    print("| mean | " + " | ".join(f"{fmean(x):.2f}" for x in zip(*found.values(), strict=True)))


if __name__ == "__main__":
    main()
