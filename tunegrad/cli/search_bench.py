"""``tunegrad search-bench``: every searcher on recorded spaces, against random search.

Measures nothing.
"""

from __future__ import annotations

from pathlib import Path

import click

from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit, note

__all__ = ["search_bench"]


@click.command(
    "search-bench",
    epilog=example("tunegrad search-bench --searchers beam --seeds 3"),
)
@click.option(
    "--spaces",
    multiple=True,
    metavar="DIR|FILE",
    help="A recorded space, T4 results, or a directory; may be repeated.  [default: "
    "twelve that come with tunegrad]",
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
    from tunegrad.cli.bench_tables import bench_text
    from tunegrad.search import check_searcher
    from tunegrad.tuning.search_bench import find_spaces
    from tunegrad.tuning.search_bench import search_bench as run

    if figure is not None:
        from tunegrad.cli.bench_figure import check_figure

        check_figure(figure)
    names = [name.strip() for name in (searchers or "").split(",") if name.strip()]
    for name in names:
        check_searcher(name)
    loaded = find_spaces([Path(place).expanduser() for place in spaces], device)
    for space in loaded:
        for problem in space.problems:
            note(f"{space.name}: {problem}")
    report = run(loaded, names, seeds=seeds, trials=trials, batch=batch, observe=note)
    if figure is not None:
        from tunegrad.cli.bench_figure import draw

        draw(report, Path(figure).expanduser())
    emit(report, bench_text(report), as_json=as_json)
