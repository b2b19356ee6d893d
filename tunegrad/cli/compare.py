"""``tunegrad compare A B``: two sweeps, stores or revisions of the source, with intervals."""

from __future__ import annotations

import click

from tunegrad.cli.files import store_path
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit

__all__ = ["compare"]


@click.command(
    epilog=example(
        "tunegrad compare last~1 last --store nightly.db",
        "tunegrad compare monday.db tuesday.db",
    )
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@store_option
@json_option
def compare(a: str, b: str, store: str | None, as_json: bool) -> None:
    """Show how many times as long run B takes as run A, kernel by kernel.

    A and B are sweeps of the store, by their ids or the first digits, last or last~1; revisions of
    the source (all sweeps of it); or files of stores: their newest sweeps, and of a store without
    one whole models, as the newest tune session of each measured them. What the yardsticks of
    sweeps say about the machine is taken off. Where 1.0 is inside the interval there is no
    difference.
    """
    from tunegrad.cli.tables import compare_text
    from tunegrad.regress import compare as compared

    found = compared(a, b, store_path(store))
    emit(found, compare_text(found), as_json=as_json)
