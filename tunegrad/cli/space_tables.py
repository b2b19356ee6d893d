"""A recorded space as plain text and as a report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from tunegrad.cli.tables import count_text, ms, table

if TYPE_CHECKING:
    from tunegrad.recording import Read

__all__ = ["SpaceReport", "space_report", "space_text"]


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """Counts and times of a recorded space.

    ``decisions`` has the most options of each; times are in ms, None where none ran.
    """

    file: str
    kernel: str
    key: str
    machine: str
    points: int
    recorded: int
    complete: bool
    statuses: dict[str, int]
    programs: int
    decisions: dict[str, int]
    best_ms: float | None
    median_ms: float | None
    worst_ms: float | None
    default_ms: float | None
    problems: tuple[str, ...]


def space_report(file: str, read: Read) -> SpaceReport:
    """The report of a file that was read."""
    from tunegrad.search import RecordedSpace

    r = read.recording
    times = r.times_s
    most: dict[str, int] = {}
    for q in r.questions:
        most[q.name] = max(len(q.options), most.get(q.name, 0))
    defaults = {s.text for s in RecordedSpace(r).defaults()}
    default = [
        t.measurement.seconds for t in r.trials if t.actions in defaults and t.measurement.samples_s
    ]
    return SpaceReport(
        file=file,
        kernel=r.kernel_name,
        key=r.kernel_key,
        machine=r.fingerprint.text,
        points=r.points,
        recorded=sum(len(t.paths) for t in r.trials),
        complete=r.complete,
        statuses=dict(sorted(Counter(str(t.measurement.status) for t in r.trials).items())),
        programs=r.programs,
        decisions=most,
        best_ms=1e3 * times[0] if times else None,
        median_ms=1e3 * median(times) if times else None,
        worst_ms=1e3 * times[-1] if times else None,
        default_ms=1e3 * default[0] if default else None,
        problems=tuple(map(str, read.problems)),
    )


def space_text(file: str, read: Read) -> str:
    """The report as lines of name and value, then one line for each problem."""
    r = space_report(file, read)
    rows = [
        ("kernel", f"{r.kernel} ({r.key[:6]})"),
        ("points", f"{r.recorded} of {r.points}" + ("" if r.complete else ", incomplete")),
        ("schedules", count_text(r.statuses)),
        ("programs", str(r.programs)),
        ("decisions", ", ".join(f"{name} ({count})" for name, count in r.decisions.items())),
        ("best, default ms", f"{ms(r.best_ms)}, {ms(r.default_ms)}"),
        ("median, worst ms", f"{ms(r.median_ms)}, {ms(r.worst_ms)}"),
        *(("broken", problem) for problem in r.problems),
    ]
    return table(("space", file), rows, left=("space", file))
