"""Ranks schedules that the cost model has not seen, on the recorded spaces.

Measures nothing.

    python -m benchmarks.ranking

Within a space: trained on 200 random rows (or two thirds), tested on 300 others, by decisions, by
the facts of the loop tree, and by both; in brackets only the pairs that are more than 5 % apart. A
new kernel: trained on 0, 8 or 24 rows of its own, without and with what a session is taught by a
store of the other recorded kernels of the same machine. Means of three draws; kernels are read back
from the recordings' texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.recorded import Recording, read_recording
from tunegrad.db import open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import (
    CostModel,
    Lessons,
    ScheduleFeatures,
    TrialLog,
    ranking_accuracy,
    tree_features,
)
from tunegrad.trial import Trial
from tunegrad.tuning.transfer.training import Teacher

SPACES = Path(__file__).parents[1] / "tests" / "data" / "spaces"
SEEDS, TRAINED, TESTED = 3, 200, 300
OWN = (0, 8, 24)


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule that ran: its decisions, the facts of its loop tree, and the logarithm of its
    seconds.
    """

    decisions: Mapping[str, float]
    facts: Mapping[str, float]
    log_s: float


def target_of(recording: Recording) -> Target:
    """The machine of a recording, as far as facts depend on it."""
    fields = dict(recording.fingerprint.fields)
    return replace(host_target(2), l1_bytes=int(fields["l1"]), l2_bytes=int(fields["l2"]))


def rows_of(recording: Recording, kernel: Kernel) -> list[Row]:
    """One row for each program that ran."""
    space = Space(kernel, target_of(recording))
    found: dict[str, Row] = {}
    for t in recording.trials:
        if t.measurement.ran and t.program_hash not in found:
            decisions = {recording.questions[q].name: float(choice) for q, choice in t.paths[0]}
            facts = ScheduleFeatures.named(tree_features(space.tree(Schedule.parse(t.actions))))
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


def trials_of(r: Recording) -> Iterator[Trial]:
    """A recording's rows as a store has them."""
    for t in r.trials:
        yield Trial(
            r.kernel_key, r.kernel_text, r.fingerprint, t.actions, t.program_hash, r.space_version,
            r.policy,
            t.measurement, "recorded", "recorded",
        )  # fmt: skip


def lessons_of(recording: Recording, kernel: Kernel, others: Sequence[Recording]) -> Lessons:
    """Lessons for a session on the kernel from a store of the others."""
    with open_store(":memory:", "write") as store:
        for trial in (t for r in others for t in trials_of(r)):
            store.add(replace(trial, policy=recording.policy))
        log = TrialLog(store, recording.fingerprint, recording.policy, "new", float)
        return Teacher.of([kernel], target_of(recording), log, dict(store.kernels())).lessons(
            kernel.key
        )


def new_kernel(rows: Sequence[Row], lessons: Lessons) -> Iterator[tuple[float, float]]:
    """(without, with lessons) for a few own rows, pairs more than 5 % apart."""
    for own in OWN:
        pairs = []
        for seed in range(SEEDS):
            drawn = Random(seed).sample(rows, len(rows))
            known, held = drawn[:own], drawn[-min(150, len(rows) // 2) :]
            pairs.append(
                (
                    accuracy(known, held, "both", seed)[1],
                    accuracy(known, held, "both", seed, lessons)[1],
                )
            )
        yield fmean(a for a, _ in pairs), fmean(b for _, b in pairs)


def main() -> None:
    """Print one table row a space, and the means."""
    recordings = {
        f.name.removesuffix(".jsonl.gz"): read_recording(f).recording
        for f in sorted(SPACES.iterdir())
    }
    columns = " | ".join(f"{own} own rows" for own in OWN)
    print(f"| space | decisions | facts | both | {columns} |\n|---|---|---|---|{'---|' * len(OWN)}")
    pairs = []
    for name, mine in recordings.items():
        kernel = parse_kernel(mine.kernel_text)
        rows = rows_of(mine, kernel)
        others = [
            r for n, r in recordings.items() if n != name and r.fingerprint == mine.fingerprint
        ]
        pairs.append(list(new_kernel(rows, lessons_of(mine, kernel, others))))
        early = " | ".join(f"{a:.2f}, {b:.2f}" for a, b in pairs[-1])
        print(
            f"| {name} | {within(rows, 'decisions')} | {within(rows, 'facts')} | "
            f"{within(rows, 'both')} | {early} |"
        )
    means = " | ".join(
        f"{fmean(p[i][0] for p in pairs):.2f}, {fmean(p[i][1] for p in pairs):.2f}"
        for i in range(len(OWN))
    )
    print(f"| mean | | | | {means} |")


if __name__ == "__main__":
    main()
