"""``tunegrad store stats|verify``: what a store holds, and whether every row of it is sound."""

from __future__ import annotations

from pathlib import Path

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit

__all__ = ["store"]


@click.group(epilog=example("tunegrad store stats --store tuned.db"))
def store() -> None:
    """Look at a store: every trial that was measured, and the winners."""


@store.command(epilog=example("tunegrad store stats --store tuned.db"))
@store_option
@json_option
def stats(store: str | None, as_json: bool) -> None:
    """Count what the store holds: trials by status, kernels, machines, sessions."""
    from tunegrad.cli.tables import stats_text
    from tunegrad.db import open_store

    path = _path(store)
    with open_store(path, "read") as opened:
        found = opened.stats()
    emit(found, stats_text(path, found), as_json=as_json)


@store.command(epilog=example("tunegrad store verify --store tuned.db"))
@store_option
@json_option
@click.pass_context
def verify(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """Check the file and every row. Writes nothing; exits with 3 when something is damaged."""
    from tunegrad.cli.tables import problems_text
    from tunegrad.db import open_store

    path = _path(store)
    with open_store(path, "read") as opened:
        problems = opened.verify()
    emit(problems, problems_text(path, problems), as_json=as_json)
    if problems:
        ctx.exit(EXIT_MISMATCH)


def _path(given: str | None) -> Path:
    from tunegrad.config import default_store

    return default_store() if given is None else Path(given).expanduser()
