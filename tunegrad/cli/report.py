"""``tunegrad report``: one HTML file of a session or a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tunegrad.cli.files import check_writable, store_path, write_whole
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit

__all__ = ["report"]


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
    text = f"{out}: {len(data) / 1e3:.0f} KB, {found.sessions} sessions, {kernels} kernels"
    emit(found, text, as_json=as_json)
