"""``tunegrad store COMMAND``: look at stores, take them apart and put them together."""

from __future__ import annotations

import click

from tunegrad.cli.options import CommandGroup, example
from tunegrad.cli.store.change import import_file, merge, prune
from tunegrad.cli.store.inspect import diff, export, history, list_stores, stats, verify, why

__all__ = ["store"]


@click.group(cls=CommandGroup, epilog=example("tunegrad store stats --store tuned.db"))
def store() -> None:
    """Look at, move and combine stores: measurements, winners, decisions, latencies of models."""


for _command in (list_stores, stats, verify, history, why, diff, export, import_file, merge, prune):
    store.add_command(_command)
