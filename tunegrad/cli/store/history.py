"""``tunegrad store history``: what a store knows of a model or a kernel over time."""

from __future__ import annotations

import time

import click

from tunegrad.cli.files import store_path
from tunegrad.cli.options import age_s, example, json_option, store_option
from tunegrad.cli.output import emit, note

__all__ = ["history"]


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
    from tunegrad.cli.tables import history_text
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
        for problem in problems:
            note(f"{path}: left out: {problem}")
        found = over_time(contents, name, since_s, every=every)
    emit(found, history_text(found), as_json=as_json)
