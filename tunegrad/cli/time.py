"""``tunegrad time MODEL --kernel K --schedule S``: a schedule by hand in turns with another."""

from __future__ import annotations

from typing import Any

import click

from tunegrad.cli.options import (
    dtype_options,
    example,
    json_option,
    model_options,
    place_options,
    seed_option,
    with_arguments,
)
from tunegrad.cli.output import emit


@click.command(
    epilog=example(
        'tunegrad time mlp --kernel "matmul 10x512" --schedule "tile(axis=a, size=2)"',
        'tunegrad time mlp --kernel b3e5f756 --schedule "" --against "tile(axis=a, size=2)"',
    )
)
@model_options
@click.option(
    "--kernel", metavar="NAME|KEY", required=True, help="The kernel, as `tunegrad show` prints it."
)
@click.option(
    "--schedule", metavar="ACTIONS", required=True, help="The schedule; empty is no action at all."
)
@click.option(
    "--against",
    metavar="ACTIONS",
    help="The other schedule.  [default: the stored winner, or the default schedule]",
)
@place_options
@seed_option
@dtype_options
@json_option
def time(
    model: str,
    batch: int | None,
    arguments: tuple[str, ...],
    kernel: str,
    schedule: str,
    against: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Time a SCHEDULE of one kernel of MODEL in turns with another one.

    Both are compared with the reference before they are timed. The gain has a 95 % interval; if
    that contains 1, there is no difference. Never writes to the store. docs/ACTIONS.md lists the
    actions.
    """
    from tunegrad.cli.tables import gain_text, ms
    from tunegrad.config import resolve_settings
    from tunegrad.tune import time_schedule

    settings = resolve_settings(with_arguments(model, batch, arguments), json=as_json, **given)
    place = None if given["store"] is None else settings.store
    found = time_schedule(settings, kernel=kernel, schedule=schedule, against=against, store=place)
    text = (
        f"{found.kernel}  {found.key}\n"
        f"{ms(found.ms)} ms  {found.schedule or '(no actions)'}\n"
        f"{ms(found.against_ms)} ms  {found.against or '(no actions)'}  ({found.against_is})\n"
        f"{gain_text(found.gain, found.interval)}, {found.turns} turns"
    )
    emit(found, text, as_json=as_json)
