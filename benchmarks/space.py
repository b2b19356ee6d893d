"""Recorded spaces, on which searchers are compared without measuring.

python -m benchmarks.space record mlp --kernel "matmul 10x512" --points 40 --out mlp.jsonl.gz
python -m benchmarks.space show mlp.jsonl.gz
python -m benchmarks.space convert mlp.jsonl.gz mlp.t4.json --format t4
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.recorded import Read, RecordedSpace, read_recording, write_recording, write_t4
from benchmarks.recorded.recorder import record_file
from tunegrad.cli.app import EXIT_MISMATCH, run
from tunegrad.cli.options import (
    CommandGroup,
    device_option,
    dtype_option,
    example,
    json_option,
    model_argument,
    numerics_option,
    seed_option,
    threads_option,
)
from tunegrad.cli.output import emit, note
from tunegrad.cli.tables import count_text, ms, table
from tunegrad.config import parse_budget, resolve_settings

__all__ = ["SpaceReport", "main", "space", "space_report", "space_text"]


@click.group(cls=CommandGroup, epilog=example("python -m benchmarks.space show mlp.jsonl.gz"))
def space() -> None:
    """Record a part of a kernel's space, for benchmarks.search_bench."""


@space.command(
    epilog=example(
        'python -m benchmarks.space record mlp --kernel "matmul 10x512" --points 40 '
        "--out mlp.jsonl.gz"
    )
)
@model_argument
@click.option(
    "--kernel",
    required=True,
    metavar="NAME",
    help="The kernel's name in `tunegrad show`, or its key.",
)
@click.option(
    "--out", required=True, metavar="FILE", help="The file; gzipped if its name ends in .gz."
)
@click.option(
    "--vary",
    multiple=True,
    metavar="DECISION[:N]",
    help="A decision to vary, and how many options of it at most; may be repeated.  [default: "
    "all decisions]",
)
@click.option(
    "--points", type=int, default=3000, metavar="N", help="Points at most.  [default: 3000]"
)
@click.option(
    "--budget",
    metavar="TIME",
    help="Wall-clock time; the same command again goes on.  [default: no limit]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["tunegrad", "t4"]),
    default="tunegrad",
    help="The file's format.",
)
@device_option
@threads_option
@seed_option
@numerics_option
@dtype_option
@json_option
@click.pass_context
def record(
    ctx: click.Context,
    /,
    model: str,
    kernel: str,
    out: str,
    vary: tuple[str, ...],
    points: int,
    budget: str | None,
    form: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Verify and time every schedule of a part of a kernel's space, and keep what came of each.

    The part is every combination of the options of some decisions; all others stay at their
    defaults. Exits with 3 when the budget ended before the last point: the same command again goes
    on from there.
    """
    settings = resolve_settings(model, **given)
    end_s = time.monotonic() + parse_budget(budget) if budget is not None else float("inf")

    def go_on(done: int, total: int) -> bool:
        note(f"{done} of {total} schedules")
        return time.monotonic() < end_s

    recording = record_file(
        settings, kernel, Path(out).expanduser(), vary, points, t4=form == "t4", go_on=go_on
    )
    read = Read(recording, ())
    emit(space_report(out, read), space_text(out, read), as_json=as_json)
    if not recording.complete:
        ctx.exit(EXIT_MISMATCH)


@space.command(epilog=example("python -m benchmarks.space show mlp.jsonl.gz"))
@click.argument("file", metavar="FILE")
@json_option
@click.pass_context
def show(ctx: click.Context, file: str, as_json: bool) -> None:
    """Show what a recorded space holds, and every broken row. Exits with 3 when there is one."""

    read = _read(file)
    emit(space_report(file, read), space_text(file, read), as_json=as_json)
    if read.problems:
        ctx.exit(EXIT_MISMATCH)


@space.command(
    epilog=example("python -m benchmarks.space convert mlp.jsonl.gz mlp.t4.json --format t4")
)
@click.argument("source", metavar="FILE")
@click.argument("out", metavar="OUT")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tunegrad", "t4"]),
    required=True,
    help="The format of OUT.",
)
@click.pass_context
def convert(ctx: click.Context, source: str, out: str, form: str) -> None:
    """Write a recorded space in the other format: tunegrad's own lines, or T4 JSON.

    FILE may be of either. Broken rows are left out and reported; the exit code is then 3.
    """

    read = _read(source)
    (write_t4 if form == "t4" else write_recording)(Path(out).expanduser(), read.recording)
    for problem in read.problems:
        note(str(problem))
    if read.problems:
        ctx.exit(EXIT_MISMATCH)


def _read(file: str) -> Read:

    return read_recording(Path(file).expanduser())


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


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as ``tunegrad.cli.app.run`` has them."""
    return run(sys.argv[1:] if words is None else words, space, "python -m benchmarks.space")


if __name__ == "__main__":
    sys.exit(main())
