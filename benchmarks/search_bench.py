"""Every searcher on recorded spaces, against random search: a table of scores, and a figure of the
curves. Nothing is measured.

    python -m benchmarks.search_bench --searchers beam --seeds 3
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.recorded.bench import BenchReport, find_spaces
from benchmarks.recorded.bench import search_bench as played
from tunegrad.cli.app import run
from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit, note
from tunegrad.cli.tables import ms, table
from tunegrad.errors import ConfigError
from tunegrad.search import check_searcher

__all__ = ["bench_text", "check_figure", "draw", "main", "search_bench"]

_ENDINGS = (".svg", ".png", ".pdf")
_COLUMNS = 3


@click.command(
    "search-bench",
    epilog=example("python -m benchmarks.search_bench --searchers beam --seeds 3"),
)
@click.option(
    "--spaces",
    multiple=True,
    metavar="DIR|FILE",
    help="A recorded space, T4 results, or a directory; may be repeated.  [default: "
    "the twelve of tests/data/spaces]",
)
@click.option(
    "--searchers",
    metavar="A,B,C",
    help="Which searchers, beside random.  [default: all that are installed]",
)
@click.option(
    "--seeds",
    type=int,
    default=20,
    metavar="N",
    help="Searches of each kind on each space.  [default: 20]",
)
@click.option(
    "--trials", type=int, default=100, metavar="N", help="Trials of each search.  [default: 100]"
)
@click.option(
    "--batch", type=int, default=8, metavar="N", help="Schedules asked for at a time.  [default: 8]"
)
@click.option(
    "--figure", metavar="FILE", help="Draw the curves: .svg, .png or .pdf; needs the [plot] extra."
)
@click.option(
    "--device",
    metavar="NAME",
    help="Only spaces that were recorded on such devices: cpu, opencl, cuda.  [default: all]",
)
@json_option
def search_bench(
    spaces: tuple[str, ...],
    searchers: str | None,
    seeds: int,
    trials: int,
    batch: int,
    figure: str | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Compare searchers on recorded spaces: the area under the curve of best times, against random
    search.

    The score is 1 - area / area of random search, where the area is the mean over trials of ln(best
    time so far / optimum): 1 is the optimum at once, 0 no better than random, below 0 worse.
    """
    if figure is not None:
        check_figure(figure)
    names = [name.strip() for name in (searchers or "").split(",") if name.strip()]
    for name in names:
        check_searcher(name)
    loaded = find_spaces([Path(place).expanduser() for place in spaces], device)
    for space in loaded:
        for problem in space.problems:
            note(f"{space.name}: {problem}")
    report = played(loaded, names, seeds=seeds, trials=trials, batch=batch, observe=note)
    if figure is not None:
        draw(report, Path(figure).expanduser())
    emit(report, bench_text(report), as_json=as_json)


def bench_text(report: BenchReport) -> str:
    """A table of all spaces and searchers, and one of the searchers over all spaces."""
    header = (
        "space",
        "trials",
        "best ms",
        "searcher",
        "area",
        "score",
        "within 5 % after",
        "of seeds %",
        "trials/s",
    )
    sizes = {s.name: s for s in report.spaces}
    rows, shown = [], ""
    for row in report.rows:
        space = sizes[row.space]
        head = (
            (row.space, str(space.trials), ms(space.best_ms))
            if row.space != shown
            else ("", "", "")
        )
        shown = row.space
        rows.append(
            (
                *head,
                row.searcher,
                f"{row.area:.4f} ± {row.area_error:.4f}" if report.seeds > 1 else f"{row.area:.4f}",
                _score(row.score),
                "never" if row.near_trials is None else str(row.near_trials),
                f"{100 * row.near_share:.0f}",
                f"{row.trials_per_s:,.0f}",
            )
        )
    totals = [
        (
            t.searcher,
            _score(t.score),
            f"{t.better} of {t.spaces}",
            f"{t.clearly}" if report.seeds > 1 else "unknown",
        )
        for t in report.totals
    ]
    asked = f"{report.seeds} seeds, batches of {report.batch}, {report.wall_s:.1f} s"
    return "\n\n".join(
        (
            table(header, rows, left=("space", "searcher"), spare=("trials/s", "trials")),
            table(
                ("searcher", "score", "better than random", "by 2 standard errors"),
                totals,
                left=("searcher",),
            ),
            asked,
        )
    )


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:+.2f}"


def check_figure(path: str) -> None:
    """Raise ConfigError where the file's ending is unknown, its directory is none to write in, or
    there is nothing to draw with.
    """
    if Path(path).suffix not in _ENDINGS:
        raise ConfigError(f"figure {path!r} does not end in {', '.join(_ENDINGS)}")
    folder = Path(path).expanduser().parent
    if not folder.is_dir():
        raise ConfigError(f"figure {path!r}: directory {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"figure {path!r}: directory {folder} can not be written")
    try:
        import matplotlib  # noqa: F401, ICN001  # only whether it is there
    except ImportError as error:
        raise ConfigError(
            f"figure {path!r} needs matplotlib, which is not installed: tunegrad[plot]"
        ) from error


def draw(report: BenchReport, path: Path) -> None:
    """Write the figure. Raises ConfigError where the file can not be written."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(report.spaces))
    lines = -(-len(report.spaces) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * lines), layout="constrained")
    plots = figure.subplots(lines, columns, squeeze=False)
    colours = {total.searcher: f"C{i}" for i, total in enumerate(report.totals)}
    for place, space in enumerate(report.spaces):
        axes = plots[place // columns][place % columns]
        for row in (r for r in report.rows if r.space == space.name):
            above = [100.0 * x for x in row.curve]
            axes.plot(above, label=row.searcher, color=colours[row.searcher], linewidth=1.4)
        axes.set_title(space.name, fontsize="medium")
        axes.set_xlim(0, space.trials)
        axes.set_yscale(
            "symlog", linthresh=1.0
        )  # even steps of ratio, but from 1 % on down to none
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
    for place in range(len(report.spaces), lines * columns):
        plots[place // columns][place % columns].set_axis_off()
    figure.supxlabel("trials")
    figure.supylabel("100 · ln(best time / optimum), mean of seeds")
    plots[0][0].legend(fontsize="small")
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"figure {path}: can not be written: {error.strerror}") from error


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as ``tunegrad.cli.app.run`` has them."""
    argv = sys.argv[1:] if words is None else words
    return run(argv, search_bench, "python -m benchmarks.search_bench")


if __name__ == "__main__":
    sys.exit(main())
