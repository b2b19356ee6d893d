"""``tunegrad store import|merge|prune``: rewrites a store in one transaction under its lock."""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.files import store_path
from tunegrad.cli.options import age_s, example, json_option, store_option
from tunegrad.cli.output import emit, note

_SHOWN = 20
_GZIP = b"\x1f\x8b"

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would change, and change nothing."
)


@click.command(
    "import",
    epilog=example(
        "tunegrad store import tuned.jsonl --store other.db --dry-run",
        "tunegrad store import winners.jsonl.gz --store other.db --json",
    ),
)
@click.argument("file", metavar="FILE")
@store_option
@dry_run_option
@json_option
@click.pass_context
def import_file(
    ctx: click.Context, file: str, store: str | None, dry_run: bool, as_json: bool
) -> None:
    """Take the rows of an exported FILE (- is stdin) into the store, which is made if it is
    missing.

    A FILE that gzip made is unpacked. It is not trusted: every field of every row is checked, and
    that the schedules that it has for this machine are legal for their kernels. A row that breaks a
    rule is named and left out, and the exit code is then 3. Its winners count where this store has
    measured nothing of its own; what was measured here stays the winner until it is measured again.
    """
    from tunegrad.cli.tables import import_text
    from tunegrad.db import import_store
    from tunegrad.explain import Legality

    with _opened(file) as opened:
        place = store_path(store, make_place=not dry_run)
        report = import_store(place, opened, file, dry_run=dry_run, rule=Legality())
    for warning in report.warnings:
        note(f"warning: {warning}")
    for refusal in report.refused[:_SHOWN]:
        note(f"refused: {file} {refusal}")
    if len(report.refused) > _SHOWN:
        note(f"refused: {len(report.refused) - _SHOWN} more rows; --json lists all")
    emit(report, import_text(report), as_json=as_json)
    if report.refused or report.warnings:
        ctx.exit(EXIT_MISMATCH)


@click.command(epilog=example("tunegrad store merge monday.db tuesday.db --store all.db"))
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@store_option
@dry_run_option
@json_option
def merge(others: tuple[str, ...], store: str | None, dry_run: bool, as_json: bool) -> None:
    """Make the store hold what it and the OTHER stores hold.

    Evidence wins: promotions by a test before those without one, cold before warm, then the lower
    median; a winner that was replaced by another in any of the stores is out. The same trial is
    kept once. The order of the stores does not matter, and merging again changes nothing.
    docs/STORE.md has the whole rule.
    """
    from tunegrad.cli.tables import merge_text
    from tunegrad.db import merge_stores

    paths = [Path(other).expanduser() for other in others]
    report = merge_stores(store_path(store, make_place=not dry_run), paths, dry_run=dry_run)
    emit(report, merge_text(report), as_json=as_json)


@click.command(
    epilog=example(
        "tunegrad store prune --store tuned.db --keep-best 20 --dry-run",
        "tunegrad store prune --store tuned.db --older-than 30d --space-version 1",
    )
)
@store_option
@click.option(
    "--keep-best",
    type=click.IntRange(min=0),
    metavar="N",
    help="Remove all but the N fastest of each kernel and machine; failures too.",
)
@click.option("--older-than", metavar="AGE", help="Remove only older rows: 12h, 30d, 8w.")
@click.option(
    "--space-version",
    type=int,
    metavar="V",
    help="Remove only trials of this version of the space.",
)
@dry_run_option
@json_option
def prune(
    store: str | None,
    keep_best: int | None,
    older_than: str | None,
    space_version: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove trials that every given option names, and compact the file.

    Winners, promoted trials and their evidence always stay. What is removed is measured again if a
    search comes by it.
    """
    from tunegrad.cli.tables import prune_text
    from tunegrad.db import PruneRules, prune_store

    if keep_best is None and older_than is None and space_version is None:
        raise click.UsageError("say what to remove: --keep-best, --older-than or --space-version")
    before_s = None if older_than is None else time.time() - age_s(older_than, "--older-than")
    rules = PruneRules(keep_best, before_s, space_version)
    report = prune_store(store_path(store), rules, dry_run=dry_run)
    emit(report, prune_text(report), as_json=as_json)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    from tunegrad.errors import StoreError

    if file == "-":
        yield sys.stdin.buffer
        return
    place = Path(file).expanduser()
    if place.exists() and not place.is_file():  # a pipe is never at its end
        raise StoreError(f"file {file}: is no regular file; - reads stdin")
    try:
        opened = place.open("rb")
    except OSError as error:
        raise StoreError(f"file {file}: can not be read: {error.strerror}") from error
    with opened:
        packed = opened.read(len(_GZIP)) == _GZIP
        opened.seek(0)
        if not packed:
            yield opened
            return
        try:
            with gzip.open(opened) as unpacked:
                yield unpacked  # type: ignore[misc]  # it reads lines, which is all that is asked
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise StoreError(f"file {file}: is not a whole gzip file: {error}") from error
