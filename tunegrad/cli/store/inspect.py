"""``tunegrad store stats|verify|export``: what a store holds, whether every row is sound, all of it
as JSON lines.
"""

from __future__ import annotations

from pathlib import Path

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.files import store_path, write_whole
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit, note, say

__all__ = ["export", "stats", "verify"]

_NAMED = 8


@click.command(epilog=example("tunegrad store stats --store tuned.db"))
@store_option
@json_option
def stats(store: str | None, as_json: bool) -> None:
    """Count what the store holds: trials by status, kernels, machines, sessions, decisions,
    latencies.
    """
    from tunegrad.cli.tables import stats_text
    from tunegrad.db import open_store

    path = store_path(store)
    with open_store(path, "read") as opened:
        found = opened.stats()
    emit(found, stats_text(path, found), as_json=as_json)


@click.command(
    epilog=example(
        "tunegrad store verify --store tuned.db",
        "tunegrad store verify --store tuned.db --salvage new.db",
    )
)
@store_option
@click.option("--salvage", metavar="NEW", help="Copy every sound row into a new store at NEW.")
@json_option
@click.pass_context
def verify(ctx: click.Context, store: str | None, salvage: str | None, as_json: bool) -> None:
    """Check the file and every row; exits with 3 when something is damaged.

    Writes nothing to the store. A damaged one is read as far as it can be; --salvage saves what was
    read. Kernels whose texts can not be read back are named on stderr; their rows are sound.
    """
    from tunegrad.cli.tables import plain, problems_text
    from tunegrad.db import open_store, unread_texts

    path = store_path(store)
    with open_store(path, "read") as opened:
        problems = opened.verify()
        unread = () if problems else tuple(unread_texts(opened))
    emit(problems, problems_text(path, problems), as_json=as_json)
    for text in unread[:_NAMED]:
        note(f"{path}: no damage, but no kernel to this version: {plain(str(text))}")
    if len(unread) > _NAMED:
        note(f"{path}: and {len(unread) - _NAMED} more")
    if salvage is not None:
        from tunegrad.db import salvage_store

        saved = salvage_store(path, Path(salvage).expanduser())
        note(f"{saved.into}: {saved.trials} trials and {saved.promotions} promotions saved")
    if problems:
        ctx.exit(EXIT_MISMATCH)


@click.command(
    epilog=example(
        "tunegrad store export --store tuned.db --out tuned.jsonl",
        "tunegrad store export --store tuned.db --best | gzip > winners.jsonl.gz",
    )
)
@store_option
@click.option(
    "--kernel", metavar="KERNEL", help="Only this kernel: its name, its key or the start of one."
)
@click.option("--best", is_flag=True, help="Only winners, with the evidence that made them win.")
@click.option("--out", metavar="FILE", default="-", help="Where to.  [default: -, which is stdout]")
def export(store: str | None, kernel: str | None, best: bool, out: str) -> None:
    """Print the store as JSON lines: a header, then a row a line.

    The same store gives the same bytes, and importing them into an empty store gives an equal one.
    A damaged row is named on stderr and left out.
    """
    from tunegrad.db import export_store
    from tunegrad.errors import StoreError

    path = store_path(store)
    found = export_store(path, kernel, best=best)
    for problem in found.problems:
        note(f"{path}: left out: {problem}")
    data = "".join(f"{line}\n" for line in found.lines)
    if out == "-":
        say(data)
        return
    try:
        write_whole(Path(out).expanduser(), data.encode("utf-8"))
    except OSError as error:
        raise StoreError(f"file {out}: can not be written: {error.strerror}") from error
    note(f"{out}: {found.trials} trials and {found.promotions} promotions")
