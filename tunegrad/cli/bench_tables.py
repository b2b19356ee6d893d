"""The report of ``search-bench`` as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.cli.tables import ms, table

if TYPE_CHECKING:
    from tunegrad.tuning.search_bench import BenchReport

__all__ = ["bench_text"]


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
