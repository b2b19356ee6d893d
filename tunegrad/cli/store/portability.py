"""``tunegrad store portability``: how well a stored schedule does on every machine of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit, note
from tunegrad.cli.place import store_path
from tunegrad.cli.store.tables import plain
from tunegrad.cli.tables import UNKNOWN, ms, table

if TYPE_CHECKING:
    from tunegrad.db import Portability

__all__ = ["portability", "portability_text"]


@click.command(
    epilog=example(
        "tunegrad store portability b3e5f756 --store tuned.db",
        'tunegrad store portability "matmul 10x512" --store all.db --json',
    )
)
@click.argument("kernel", metavar="KERNEL")
@click.option("--actions", metavar="TEXT", help="Of this schedule alone.")
@store_option
@json_option
def portability(kernel: str, actions: str | None, store: str | None, as_json: bool) -> None:
    """Show, for every schedule of KERNEL that wins on some machine, its part of the best on each.

    1.00 is the best schedule known there, - was not measured. The last column is the harmonic mean
    over all machines. KERNEL is a name as `tunegrad show` prints it, a key or the first digits of
    one. Stores of several machines are put together by `tunegrad store merge`.
    """
    from tunegrad.db import portability as of_kernel
    from tunegrad.db import read_contents

    path = store_path(store)
    contents, problems = read_contents(path)
    for problem in problems:
        note(f"{path}: left out: {problem}")
    found = of_kernel(contents, kernel, actions)
    emit(found, portability_text(found), as_json=as_json)


def portability_text(found: Portability) -> str:
    """The machines, then every schedule's part of the best on each."""
    machines = table(
        ("machine", "best ms", "id", "about"),
        [(f"M{i}", ms(m.best_ms), m.id, plain(m.about)) for i, m in enumerate(found.machines, 1)],
        left=("machine", "id", "about"),
    )
    header = (*(f"M{i}" for i, _ in enumerate(found.machines, 1)), "mean", "schedule")
    rows = [
        (*map(_part, r.parts.values()), _part(r.portability), plain(r.actions) or "(no actions)")
        for r in found.rows
    ]
    name = f"{plain(found.name) or '(no name)'}  {found.key}  space version {found.space_version}"
    return "\n\n".join([name, machines, table(header, rows, left=("schedule",))])


def _part(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.2f}"
