"""``tunegrad report``: one HTML file of a session or a store; ``tunegrad watch``: the same in a
browser on this machine, while the session runs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from tunegrad.cli.files import check_writable, store_path, write_whole
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit, note, say
from tunegrad.lazy import dataclass


@dataclass(frozen=True, slots=True)
class _Written:
    """The file that was written."""

    file: str
    bytes: int
    sessions: int
    kernels: int


@click.command(
    epilog=example(
        "tunegrad report --store tuned.db -o store.html",
        "tunegrad report --store tuned.db --session last -o last.html",
    )
)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--session",
    metavar="ID|last",
    default="",
    help="Only this session: the beginning of its id, or the last one.",
)
@click.option(
    "-o", "--out", metavar="FILE", default="report.html", help="Where to.  [default: report.html]"
)
@store_option
@json_option
def report(
    models: tuple[str, ...], session: str, out: str, store: str | None, as_json: bool
) -> None:
    """Write a report of the store, or of one session, as an HTML file that needs nothing else.

    The machine; kernels before and after with intervals, what bounds each, what its choices are
    worth, all candidates by any two parameters, its code; the search over time; a roofline; the
    sessions before beside it; where the seconds went; failures by kind; the history of each model.
    With MODEL, only these models. Nothing is measured, and nothing is loaded when the file is
    opened. docs/REPORT.md says how to read it.
    """
    from tunegrad.errors import ConfigError

    place, path = Path(out).expanduser(), store_path(store)
    try:
        check_writable(place)
    except OSError as error:
        raise ConfigError(f"report {out}: can not be written: {error.strerror}") from error
    from tunegrad.db import open_store

    open_store(path).close()
    from tunegrad.cli.html import judgement, report_html
    from tunegrad.cli.tables import plural
    from tunegrad.explain import code_of
    from tunegrad.tuning import gather

    page = gather(path, session, models, judgement)
    data = report_html(page, code_of).encode("utf-8")
    try:
        write_whole(place, data)
    except OSError as error:
        raise ConfigError(f"report {out}: can not be written: {error.strerror}") from error
    kernels = sum(len(p.kernels) for p in page.pages)
    found = _Written(out, len(data), len(page.pages), kernels)
    held = f"{plural(found.sessions, 'session')}, {plural(kernels, 'kernel')}"
    text = f"{out}: {len(data) / 1e3:.0f} KB, {held}"
    emit(found, text, as_json=as_json)


@click.command(epilog=example("tunegrad watch", "tunegrad watch tuned.db", "tunegrad watch last"))
@click.argument("what", metavar="[STORE|SESSION]", default="")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N",
    help="Port on this machine.  [default: any free one]",
)  # fmt: skip
@store_option
def watch(what: str, port: int, store: str | None) -> None:
    """Show the report of a session in a browser while it runs.

    Of a STORE, a file, the newest session, and each newer one as it begins; or the SESSION of an
    id that begins so. Prints an address that only this machine reaches, and serves the page of
    `tunegrad report` there, which renews the parts that change. The store is only read. Ctrl-C ends
    it.
    """
    is_file = bool(what) and (Path(what).expanduser().exists() or os.sep in what or "." in what)
    if is_file and store is not None:
        raise click.UsageError("a store is given twice: by STORE and by --store")
    path = store_path(what if is_file else store)
    from tunegrad.db import open_store

    open_store(path).close()
    from tunegrad.cli.html import LOOPBACK, Watched, server_of

    watched = Watched(path, "" if is_file or what == "last" else what)
    with server_of(watched, port) as server, suppress(KeyboardInterrupt):
        say(f"http://{LOOPBACK}:{server.server_address[1]}/ shows {path}; Ctrl-C ends it\n")
        os.nice(10)
        server.serve_forever(poll_interval=0.2)
    note("watch: ended")
