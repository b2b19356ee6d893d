"""The figure of ``search-bench``: for each space, the mean excess over the optimum after each
trial.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tunegrad.errors import ConfigError

if TYPE_CHECKING:
    from tunegrad.tuning.search_bench import BenchReport

__all__ = ["check_figure", "draw"]

_ENDINGS = (".svg", ".png", ".pdf")
_COLUMNS = 3


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
