"""How well the cost model ranks schedules that it has not seen, on the recorded spaces. Measures nothing.

    python -m benchmarks.ranking

Within a space: trained on 200 random rows (or two thirds), tested on 300 others, by decisions, by the facts of the loop
tree, and by both; in brackets only the pairs that are more than 5 % apart. A new kernel: trained on 0, 8 or 32 rows of
its own, with and without 200 rows of each other kernel of the same machine. Means of three draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from statistics import fmean

from tunegrad.config import resolve_settings
from tunegrad.devices import host_target
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.nn import Conv2d, Module
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule, Space
from tunegrad.recording import read_recording
from tunegrad.search import CostModel, Facts, Lessons, Recording, ranking_accuracy, tree_features
from tunegrad.tuning.workload import workload_of_spec
from tunegrad.variants import allowed

SPACES = Path(__file__).parents[1] / "tests" / "data" / "spaces"
SEEDS, TRAINED, TESTED, TAUGHT = 3, 200, 300, 200


class ColumnSum(Module):
    """(rows, columns) to (columns)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.sum(0)


class Depthwise(Module):
    """One 3x3 window a channel, and relu."""

    def __init__(self, channels: int) -> None:
        self.conv = Conv2d(channels, channels, 3, padding=1, groups=channels)

    def __call__(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()


def column_sum(batch: int = 1) -> Model:
    """The recorded column sum; the batch is not used."""
    return Model.of("colsum", ColumnSum, (InputSpec("x", (1024 * batch, 1024)),))


def depthwise(batch: int = 1) -> Model:
    """The recorded depthwise convolution."""
    return Model.of("depthwise", partial(Depthwise, 128), (InputSpec("x", (batch, 128, 28, 28)),))


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule that ran: its decisions, the facts of its loop tree, and the logarithm of its seconds."""

    decisions: Mapping[str, float]
    facts: Mapping[str, float]
    log_s: float


@cache
def kernels() -> dict[str, Kernel]:
    """Every kernel that a space may have been recorded of, by key."""
    found: dict[str, Kernel] = {}
    for name in ("resnet18", "resnet50", "encoder", "benchmarks.ranking:column_sum", "benchmarks.ranking:depthwise"):
        for use in workload_of_spec(resolve_settings(name).model, 0, "contract").kernels:
            parts = (p for v in allowed(use.kernel, "contract") for p in parts_of(use.kernel, v))
            found |= {k.key: k for k in (use.kernel, *parts)}
    return found


def rows_of(recording: Recording) -> list[Row]:
    """One row for each program that ran; nothing where the kernel is not one of the models' any more."""
    kernel = kernels().get(recording.kernel_key)
    if kernel is None:
        return []
    fields = dict(recording.fingerprint.fields)
    target = replace(host_target(2), l1_bytes=int(fields["l1"]), l2_bytes=int(fields["l2"]))
    space, found = Space(kernel, target), {}
    for t in recording.trials:
        if t.measurement.ran and t.program_hash not in found:
            decisions = {recording.questions[q].name: float(choice) for q, choice in t.paths[0]}
            facts = Facts.named(tree_features(space.tree(Schedule.parse(t.actions))))
            found[t.program_hash] = Row(decisions, facts, math.log(t.measurement.seconds))
    return list(found.values())


def accuracy(
    known: Sequence[Row], held: Sequence[Row], kind: str, seed: int, lessons: Lessons | None = None
) -> tuple[float, float]:
    """Of all held-out pairs, and of those more than 5 % apart."""
    look = {
        "decisions": lambda r: r.decisions,
        "facts": lambda r: r.facts,
        "both": lambda r: {**r.facts, **r.decisions},
    }[kind]
    model = CostModel(seed, lessons=lessons)
    model.fit([look(r) for r in known], [r.log_s for r in known])
    forecast, actual = model.predict([look(r) for r in held]).tolist(), [r.log_s for r in held]
    return ranking_accuracy(forecast, actual), ranking_accuracy(forecast, actual, math.log(1.05))


def within(rows: Sequence[Row], kind: str) -> str:
    """The accuracy on rows of the same space, as the table has it."""
    found = []
    for seed in range(SEEDS):
        drawn = Random(seed).sample(rows, len(rows))
        cut = min(TRAINED, 2 * len(rows) // 3)
        found.append(accuracy(drawn[:cut], drawn[cut : cut + TESTED], kind, seed))
    return f"{fmean(a for a, _ in found):.2f} ({fmean(b for _, b in found):.2f})"


def lessons_of(others: Sequence[Sequence[Row]]) -> Lessons:
    """Some rows of other kernels, as a session would hand them to a searcher."""
    drawn = [(Random(1).sample(rows, min(TAUGHT, len(rows))), min(r.log_s for r in rows)) for rows in others]
    return Lessons(
        tuple(r.facts for rows, _ in drawn for r in rows), tuple(r.log_s - best for rows, best in drawn for r in rows)
    )


def new_kernel(rows: Sequence[Row], others: Sequence[Sequence[Row]]) -> Iterator[tuple[float, float]]:
    """(without, with lessons) for 0, 8 and 32 own rows, pairs more than 5 % apart."""
    lessons = lessons_of(others)
    for own in (0, 8, 32):
        pairs = []
        for seed in range(SEEDS):
            drawn = Random(seed).sample(rows, len(rows))
            known, held = drawn[:own], drawn[-min(150, len(rows) // 2) :]
            pairs.append((accuracy(known, held, "both", seed)[1], accuracy(known, held, "both", seed, lessons)[1]))
        yield fmean(a for a, _ in pairs), fmean(b for _, b in pairs)


def main() -> None:
    """Print one table row a space, and the spaces whose kernel is gone."""
    recordings = {f.name.removesuffix(".jsonl.gz"): read_recording(f).recording for f in sorted(SPACES.iterdir())}
    rows = {name: found for name, r in recordings.items() if (found := rows_of(r))}
    print("| space | decisions | facts | both | 0 own rows | 8 own rows | 32 own rows |\n|---|---|---|---|---|---|---|")
    for name, mine in rows.items():
        machine = recordings[name].fingerprint
        others = [r for n, r in rows.items() if n != name and recordings[n].fingerprint == machine]
        early = " | ".join(f"{a:.2f}, {b:.2f}" for a, b in new_kernel(mine, others))
        print(f"| {name} | {within(mine, 'decisions')} | {within(mine, 'facts')} | {within(mine, 'both')} | {early} |")
    for name in recordings.keys() - rows.keys():
        print(f"{name}: its kernel is none of the models' any more")


if __name__ == "__main__":
    main()
