"""``tunegrad regress CONFIG``: time the stored winners again, and say what got slower; ``tunegrad
compare A B``: two sweeps, stores or revisions of the source, with intervals.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunegrad.cli.app import EXIT_INTERRUPTED, EXIT_MISMATCH, EXIT_USER_ERROR
from tunegrad.cli.files import check_writable, make_default_place, store_path, write_whole
from tunegrad.cli.options import example, json_option, store_option
from tunegrad.cli.output import emit, note, printable, say
from tunegrad.cli.progress import search_display
from tunegrad.errors import ConfigError

if TYPE_CHECKING:
    from tunegrad.regress import SweepReport, SweepSettings


@click.command(
    epilog=example(
        "tunegrad regress nightly --store nightly.db",
        "tunegrad regress nightly --store nightly.db --junit nightly.xml --markdown nightly.md",
        'tunegrad regress nightly --store nightly.db --bless "NumPy 2.5 costs 3 %"',
        "tunegrad regress nightly --store nightly.db --prometheus /var/lib/node/tunegrad.prom",
        "tunegrad regress nightly --store nightly.db --between last~7 last",
        "tunegrad regress mine.toml --between v1.2 HEAD --build 'make'",
    )
)
@click.argument("config", metavar="CONFIG")
@store_option
@click.option("--junit", metavar="PATH", help="Write a JUnit XML file: a test case a series.")
@click.option("--markdown", metavar="PATH", help="Write a summary for a pull request.")
@click.option(
    "--prometheus",
    metavar="PATH",
    help="Write metrics for Prometheus' textfile collector; - prints them in place of the table.",
)
@click.option(
    "--require-quiet",
    is_flag=True,
    help="Measure nothing, and exit 1, on a machine that other processes keep busy.",
)
@click.option(
    "--fresh", is_flag=True, help="Begin a new sweep, though the last one was interrupted."
)
@click.option(
    "--retune", metavar="TIME", help="Tune the slower kernels again, for this time: 10m, 1h."
)
@click.option(
    "--bless",
    metavar="REASON",
    help="Measure nothing; accept the slower series as the new level, for this reason.",
)
@click.option(
    "--between",
    nargs=2,
    metavar="A B",
    help="Find the commits between two nights, or two commits, that made something slower.",
)
@click.option(
    "--repository",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --between: the repository of the commits; default: the one that CONFIG is in.",
)
@click.option(
    "--build", metavar="COMMAND", help="With --between: what the shell runs in each work tree."
)
@click.option(
    "--only",
    metavar="PATH",
    multiple=True,
    help="With --between: leave out commits that change none of these paths.",
)
@json_option
@click.pass_context
def regress(
    ctx: click.Context,
    /,
    config: str,
    store: str | None,
    fresh: bool,
    bless: str | None,
    between: tuple[str, str] | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Time the stored winners of the models that CONFIG lists again, next to their default
    schedules, and decide by the history of earlier nights what changed.

    CONFIG is a TOML file like configs/nightly.toml, or nightly, which ships. Every run is a night
    of the store's history. A model that was never tuned runs its default schedules.

    A kernel that crashes, hangs or computes something wrong is reported; the sweep goes on. One
    that was interrupted goes on where it was when the same command runs again.

    Exits with 3 where something got slower and is not accepted, else with 1 where something
    could not be measured. A change that the machine explains is reported, and is no regression.

    --between A B times the commits A and B in turns, and halves the commits between them while one
    is slower. A and B are sweeps of the store, by their ids, last or last~7, or what git calls a
    commit. A commit runs in a work tree of its own, where its packages come first; one that does
    not build or run is skipped. All that one commit made slower is one alert. What was killed goes
    on when the same command runs again; --fresh measures again.
    """
    from dataclasses import replace

    from tunegrad.cli.tables import (
        accepted_text,
        junit_text,
        markdown_text,
        metrics_text,
        sweep_text,
    )
    from tunegrad.config import parse_budget
    from tunegrad.regress import bless as accept
    from tunegrad.regress import load_sweep
    from tunegrad.regress import regress as run

    settings = load_sweep(config, store)
    commits = {name: given[name] for name in ("repository", "build", "only")}
    if between is not None:
        _between(ctx, settings, between, commits, fresh=fresh, as_json=as_json)
        return
    if any(commits.values()):
        raise ConfigError("--repository, --build and --only go with --between A B")
    if bless is not None:
        accepted = accept(settings, bless)
        emit(accepted, accepted_text(accepted), as_json=as_json)
        return
    junit, markdown, prometheus = (given[n] for n in ("junit", "markdown", "prometheus"))
    if prometheus == "-" and as_json:
        raise ConfigError("--prometheus - and --json both write to stdout")
    scraped = None if prometheus == "-" else prometheus
    for path in (junit, markdown, scraped):
        _check(path)
    if store is None:
        make_default_place(settings.store)
    if given["require_quiet"]:
        settings = replace(settings, quiet="require")
    retune_s = 0.0 if given["retune"] is None else parse_budget(given["retune"], "--retune")
    report = run(
        settings,
        note,
        config=config,
        fresh=fresh,
        retune_s=retune_s,
        display=lambda: closing(search_display(time.monotonic())),
    )
    metrics = metrics_text(report, time.time())
    texts = (
        (junit, junit_text(report)),
        (markdown, printable(markdown_text(report))),
        (scraped, metrics),
    )
    lost = [path for path, text in texts if not _written(path, text)]
    if prometheus == "-":
        say(metrics)
    else:
        emit(report, sweep_text(report), as_json=as_json)
    ctx.exit(_exit_code(report) or (EXIT_USER_ERROR if lost else 0))


def _between(
    ctx: click.Context,
    settings: SweepSettings,
    ends: tuple[str, str],
    commits: Mapping[str, Any],
    *,
    fresh: bool,
    as_json: bool,
) -> None:
    """Find commits, print alerts, and exit as a sweep does."""
    from tunegrad.cli.tables import between_text
    from tunegrad.regress import between

    if unused := [
        f"--{name.replace('_', '-')}"
        for name in ("junit", "markdown", "require_quiet", "retune", "bless", "prometheus")
        if ctx.params.get(name)
    ]:
        raise ConfigError(f"--between goes without {', '.join(unused)}")
    make_default_place(settings.store)
    report = between(
        settings, ends, note, repository=commits["repository"], build=commits["build"] or "",
        paths=commits["only"], fresh=fresh,
    )  # fmt: skip
    emit(report, between_text(report), as_json=as_json)
    if report.interrupted:
        ctx.exit(EXIT_INTERRUPTED)
    ctx.exit(EXIT_MISMATCH if report.alerts else 0)


def _check(path: str | None) -> None:
    """Raise ConfigError for a file that can not be written: before the sweep."""
    try:
        if path is not None:
            check_writable(Path(path).expanduser())
    except OSError as error:
        raise ConfigError(f"{path}: can not be written: {error.strerror}") from error


def _written(path: str | None, text: str) -> bool:
    """Write a file; False, and a line on stderr, where that fails: the sweep stays a sweep."""
    try:
        if path is not None:
            write_whole(Path(path).expanduser(), text.encode("utf-8"))
    except OSError as error:
        note(f"error: {path}: can not be written: {error.strerror}")
        return False
    return True


def _exit_code(report: SweepReport) -> int:
    if report.interrupted:
        return EXIT_INTERRUPTED
    if report.regressions:
        return EXIT_MISMATCH
    return EXIT_USER_ERROR if report.failed or not report.rows else 0


@click.command(
    epilog=example(
        "tunegrad compare last~1 last --store nightly.db", "tunegrad compare monday.db tuesday.db"
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
