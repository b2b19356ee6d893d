"""``tunegrad store list|stats|verify|export|history|diff|why``: which stores there are, what one
holds, and whether every row is sound; what it knows of a model or a kernel over time; how two
stores differ, and why a kernel finds what it finds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.files import store_path, write_whole
from tunegrad.cli.options import (
    age_s,
    device_option,
    example,
    json_option,
    numerics_option,
    store_option,
    threads_option,
)
from tunegrad.cli.output import emit, note, say

_NAMED = 8


def _note_left_out(path: Path, problems: Sequence[object]) -> None:
    """Name what of a store could not be read: the first ones, and how many more there are."""
    for problem in problems[:_NAMED]:
        note(f"{path}: left out: {problem}")
    if len(problems) > _NAMED:
        note(f"{path}: left out: {len(problems) - _NAMED} more; `tunegrad store verify` lists all")


@click.command("list", epilog=example("tunegrad store list", "tunegrad store list results"))
@click.argument("folders", metavar="[FOLDER]...", nargs=-1)
@json_option
def list_stores(folders: tuple[str, ...], as_json: bool) -> None:
    """List the stores of the FOLDERs: files whose names end in .db, with what they hold.

    Without any: the folder of the default store, and this one.
    """
    from tunegrad.cli import tables
    from tunegrad.config import default_store
    from tunegrad.db import open_store
    from tunegrad.errors import StoreError

    given = [Path(f).expanduser() for f in folders] or [default_store().parent, Path()]
    if missing := [f for f in given if folders and not f.is_dir()]:
        raise StoreError(f"folder {missing[0]}: there is none")
    found: list[dict[str, Any]] = []
    for path in dict.fromkeys(p.resolve() for f in given for p in sorted(f.glob("*.db"))):
        row: dict[str, Any] = {"store": str(path), "changed_s": path.stat().st_mtime}
        try:
            with open_store(path, "read") as opened:
                held = opened.stats()
            row |= {
                "bytes": held.size_bytes, "trials": held.trials, "kernels": held.kernels,
                "promotions": held.promotions, "sessions": held.sessions,
            }  # fmt: skip
        except StoreError as error:
            row["problem"] = str(error)
        found.append(row)
    table = tables.Table.of(
        found,
        tables.words("store", lambda r: r["store"]),
        tables.figure("MB", lambda r: r.get("problem") or f"{r['bytes'] / 1e6:.1f}"),
        tables.figure("kernels", lambda r: r.get("kernels")),
        tables.figure("trials", lambda r: r.get("trials")),
        tables.figure("promotions", lambda r: r.get("promotions")),
        tables.figure("sessions", lambda r: r.get("sessions")),
        tables.words("changed", lambda r: tables.when(r["changed_s"])),
    )
    emit(
        found,
        table.text() if found else f"no store in {', '.join(map(str, given))}",
        as_json=as_json,
    )


@click.command(epilog=example("tunegrad store stats --store tuned.db"))
@store_option
@json_option
def stats(store: str | None, as_json: bool) -> None:
    """Count what the store holds: trials by status, kernels, machines, sessions, latencies."""
    from tunegrad.cli import tables
    from tunegrad.db import open_store

    path = store_path(store)
    with open_store(path, "read") as opened:
        found = opened.stats()
    emit(found, tables.stats_text(path, found), as_json=as_json)


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
    from tunegrad.cli import tables
    from tunegrad.db import open_store, unread_texts

    path = store_path(store)
    with open_store(path, "read") as opened:
        problems = opened.verify()
        unread = () if problems else tuple(unread_texts(opened))
    emit(problems, tables.problems_text(path, problems), as_json=as_json)
    for text in unread[:_NAMED]:
        note(f"{path}: no damage, but no kernel to this version: {tables.plain(str(text))}")
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
        "tunegrad store export --store tuned.db --csv --out trials.csv",
    )
)
@store_option
@click.option(
    "--kernel", metavar="KERNEL", help="Only this kernel: its name, its key or the start of one."
)
@click.option("--best", is_flag=True, help="Only winners, with the evidence that made them win.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print trials as CSV, for a table or a data frame."
)
@click.option("--out", metavar="FILE", default="-", help="Where to.  [default: -, which is stdout]")
def export(store: str | None, kernel: str | None, best: bool, as_csv: bool, out: str) -> None:
    """Print the store as JSON lines: a header, then a row a line.

    The same store gives the same bytes, and importing them into an empty store gives an equal one.
    A damaged row is named on stderr and left out. With --csv every trial is a row: the kernel and
    its schedule, how it ended, seconds (median) and their half interval, and what a compiler made
    of it; nothing reads that back.
    """
    from tunegrad.cli import tables
    from tunegrad.db import export_store
    from tunegrad.errors import StoreError

    path = store_path(store)
    found = export_store(path, kernel, best=best)
    _note_left_out(path, found.problems)
    data = (
        tables.trials_csv(found.lines) if as_csv else "".join(f"{line}\n" for line in found.lines)
    )
    if out == "-":
        say(data)
        return
    try:
        write_whole(Path(out).expanduser(), data.encode("utf-8"))
    except OSError as error:
        raise StoreError(f"file {out}: can not be written: {error.strerror}") from error
    note(f"{out}: {found.trials} trials and {found.promotions} promotions")


@click.command(
    epilog=example(
        "tunegrad store history mlp --store tuned.db --since 30d",
        "tunegrad store history b3e5f756 --store tuned.db --json",
    )
)
@click.argument("name", metavar="MODEL|KERNEL")
@click.option("--since", metavar="AGE", help="Only rows of this age or newer: 12h, 30d, 8w.")
@click.option(
    "--all", "every", is_flag=True, help="Every measurement of the kernel, not only of winners."
)
@store_option
@json_option
def history(name: str, since: str | None, every: bool, store: str | None, as_json: bool) -> None:
    """Show latencies of MODEL, or measurements of KERNEL and decisions about it, oldest first.

    A latency stands beside that of the default schedules in the same turns, and beside the versions
    and the state of the machine that it was measured with. KERNEL is a name as `tunegrad show`
    prints it, a key or the first digits of one, or the text that decisions are about; listed are
    schedules that won, or were measured several times.
    """
    from tunegrad.cli import tables
    from tunegrad.db import history as over_time
    from tunegrad.db import model_history, open_store, read_contents

    since_s = 0.0 if since is None else time.time() - age_s(since, "--since")
    path = store_path(store)
    with open_store(path) as opened:
        latencies = opened.latencies(name)
    if latencies:
        found = model_history(name, latencies, since_s)
    else:
        contents, problems = read_contents(path)
        _note_left_out(path, problems)
        found = over_time(contents, name, since_s, every=every)
    emit(found, tables.history_text(found), as_json=as_json)


@click.command(epilog=example("tunegrad store diff monday.db tuesday.db"))
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--all", "all_machines", is_flag=True, help="Compare winners of different machines too."
)
@json_option
@click.pass_context
def diff(ctx: click.Context, a: str, b: str, all_machines: bool, as_json: bool) -> None:
    """Show how store B differs from store A: kernels that one lacks, other winners, other
    decisions.

    Winners and decisions are compared on the same machine and space version. Exits with 3 when the
    stores differ; the newest latencies of models are shown side by side, and are no difference.
    """
    from tunegrad.cli import tables
    from tunegrad.db import diff_stores

    found = diff_stores(Path(a).expanduser(), Path(b).expanduser(), all_machines=all_machines)
    emit(found, tables.diff_text(found, a, b), as_json=as_json)
    if found.only_a or found.only_b or found.changes or found.decisions:
        ctx.exit(EXIT_MISMATCH)


@click.command(
    epilog=example(
        "tunegrad store why b3e5f756 --store tuned.db",
        'tunegrad store why "matmul 10x512" --store tuned.db',
    )
)
@click.argument("kernel", metavar="KERNEL")
@store_option
@device_option
@threads_option
@numerics_option
@json_option
def why(
    kernel: str,
    store: str | None,
    device: str | None,
    threads: int | None,
    numerics: str,
    as_json: bool,
) -> None:
    """Explain why KERNEL hits, nearly hits or misses on this machine, and why its winner won.

    KERNEL is a name as `tunegrad show` prints it, a key or the first digits of one, or the kernel's
    text. Every field of the key is shown as it is stored and as it is here.
    """
    from tunegrad import devices
    from tunegrad.cli import tables
    from tunegrad.db import read_contents
    from tunegrad.db import why as explain
    from tunegrad.opts import SPACE_VERSION

    path = store_path(store)
    contents, problems = read_contents(path)
    _note_left_out(path, problems)
    found = explain(
        contents,
        kernel,
        devices.open(device or devices.DEFAULT, threads).fingerprint(numerics),
        SPACE_VERSION,
    )
    emit(found, tables.why_text(found), as_json=as_json)
