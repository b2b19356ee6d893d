"""``tunegrad space record|show|convert``: recorded spaces, on which searchers are compared without
measuring.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.groups import CommandGroup
from tunegrad.cli.options import (
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

if TYPE_CHECKING:
    from tunegrad.recording import Read

__all__ = ["space"]


@click.group(cls=CommandGroup, epilog=example("tunegrad space show mlp.jsonl.gz"))
def space() -> None:
    """Record a part of a kernel's space, for search-bench."""


@space.command(
    epilog=example(
        'tunegrad space record mlp --kernel "matmul 10x512" --points 40 --out mlp.jsonl.gz'
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
    model: str,
    kernel: str,
    out: str,
    vary: tuple[str, ...],
    points: int,
    budget: str | None,
    form: str,
    device: str | None,
    threads: int | None,
    seed: int | None,
    numerics: str,
    dtype: str | None,
    as_json: bool,
) -> None:
    """Verify and time every schedule of a part of a kernel's space, and keep what came of each.

    The part is every combination of the options of some decisions; all others stay at their
    defaults. Exits with 3 when the budget ended before the last point: the same command again goes
    on from there.
    """
    from tunegrad.cli.space_tables import space_report, space_text
    from tunegrad.config import parse_budget, resolve_settings
    from tunegrad.recording import Read

    settings = resolve_settings(
        model, device=device, threads=threads, seed=seed, numerics=numerics, dtype=dtype
    )
    end_s = time.monotonic() + parse_budget(budget) if budget is not None else float("inf")

    def go_on(done: int, total: int) -> bool:
        note(f"{done} of {total} schedules")
        return time.monotonic() < end_s

    from tunegrad.tuning.recorder import record_file

    recording = record_file(
        settings, kernel, Path(out).expanduser(), vary, points, t4=form == "t4", go_on=go_on
    )
    read = Read(recording, ())
    emit(space_report(out, read), space_text(out, read), as_json=as_json)
    if not recording.complete:
        ctx.exit(EXIT_MISMATCH)


@space.command(epilog=example("tunegrad space show mlp.jsonl.gz"))
@click.argument("file", metavar="FILE")
@json_option
@click.pass_context
def show(ctx: click.Context, file: str, as_json: bool) -> None:
    """Show what a recorded space holds, and every broken row. Exits with 3 when there is one."""
    from tunegrad.cli.space_tables import space_report, space_text

    read = _read(file)
    emit(space_report(file, read), space_text(file, read), as_json=as_json)
    if read.problems:
        ctx.exit(EXIT_MISMATCH)


@space.command(epilog=example("tunegrad space convert mlp.jsonl.gz mlp.t4.json --format t4"))
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
    from tunegrad.recording import write_recording, write_t4

    read = _read(source)
    (write_t4 if form == "t4" else write_recording)(Path(out).expanduser(), read.recording)
    for problem in read.problems:
        note(str(problem))
    if read.problems:
        ctx.exit(EXIT_MISMATCH)


def _read(file: str) -> Read:
    from tunegrad.recording import read_recording

    return read_recording(Path(file).expanduser())
