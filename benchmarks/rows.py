"""One row per workload: as JSON, and as a table to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from benchmarks.interleave import Timing

__all__ = ["CALLED", "DEFAULT", "TUNED", "UNTUNED", "Row", "assemble", "table"]

DEFAULT = "tunegrad default"
TUNED = "tunegrad tuned"
CALLED = "tunegrad called"
"""Time of the better of the two when Python calls it, as it calls the peers."""
UNTUNED = "no budget and no store"
"""Reason of a row without a tuned figure in a run that shows the default schedules only."""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one workload. ``None`` is "no figure"; ``errors`` says why, by column.

    ``default_ms`` and ``tuned_ms`` are timed inside compiled code, ``called_ms`` and the peers'
    figures through the Python call that a user makes.

    ``variants`` names the configuration behind each peer's figure, ``intervals`` the half width of
    each figure's 95 % interval as a share of it, ``notes`` what a reader must know. ``pct_peak`` is
    of the tuned figure. ``layout`` is "best" when every contestant could choose the layout of
    images, "nchw" when none could, empty without images; ``layouts`` what each figure was taken in,
    ``figures`` the milliseconds of every variant, ``setup_s`` what it took to build a column's
    contestants, compilation and all.
    """

    workload: str
    threads: int
    default_ms: float | None = None
    tuned_ms: float | None = None
    peers: Mapping[str, float | None] = field(default_factory=dict)
    pct_peak: float | None = None
    tune_s: float | None = None
    candidates: int | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 0
    errors: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layout: str = ""
    layouts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    setup_s: Mapping[str, float] = field(default_factory=dict)
    called_ms: float | None = None

    @property
    def best_peer(self) -> tuple[str, float] | None:
        """Name and milliseconds of the fastest peer, or None when no peer has a figure."""
        timed = [(ms, name) for name, ms in self.peers.items() if ms is not None]
        if not timed:
            return None
        ms, name = min(timed)
        return name, ms

    @property
    def ratio(self) -> float | None:
        """Our native time over the best peer's: below 1 is faster than all of them."""
        return self._over_best(self.ours_ms)

    @property
    def called_ratio(self) -> float | None:
        """The same of what a user's call takes on both sides."""
        return self._over_best(self.called_ms)

    def _over_best(self, ours: float | None) -> float | None:
        best = self.best_peer
        return None if best is None or ours is None else ours / best[1]

    @property
    def ours_ms(self) -> float | None:
        """The tuned figure; the default one where nothing was to be tuned or read from a store."""
        return (
            self.default_ms
            if self.tuned_ms is None and self.errors.get(TUNED) == UNTUNED
            else self.tuned_ms
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def assemble(
    workload: str,
    threads: int,
    peers: Sequence[str],
    timings: Sequence[Timing],
    errors: Mapping[str, str],
) -> Row:
    """Fold timings into a row: the fastest variant stands for its peer; a peer with no figure gets
    its reason.
    """
    own = (CALLED,) if any(t.peer == CALLED for t in timings) else ()
    columns = (DEFAULT, TUNED, *own, *peers)
    best: dict[str, Timing] = {}
    for timing in timings:
        if not timing.error and (
            timing.peer not in best or timing.seconds < best[timing.peer].seconds
        ):
            best[timing.peer] = timing
    reasons = {t.peer: t.error for t in timings if t.error} | dict(errors)
    ms = {name: best[name].seconds * 1e3 if name in best else None for name in columns}
    notes = [f"{t.peer} {t.variant}: {t.error}" for t in timings if t.error and t.peer in best]
    notes += [
        f"{t.peer} {t.variant}: its threads were still busy after the rest"
        for t in timings
        if t.restless
    ]
    return Row(
        workload=workload,
        threads=threads,
        default_ms=ms[DEFAULT],
        tuned_ms=ms[TUNED],
        called_ms=ms.get(CALLED),
        peers={name: ms[name] for name in peers},
        variants={name: best[name].variant for name in columns if name in best},
        intervals={name: round(t.interval, 4) for name, t in best.items()},
        rounds=max((t.rounds for t in best.values()), default=0),
        errors={name: reasons.get(name, "not run") for name in columns if name not in best},
        notes=tuple(notes),
        layouts={name: t.layout for name, t in best.items() if t.layout},
        figures={name: _by_variant(timings, name) for name in best},
    )


def _by_variant(timings: Sequence[Timing], column: str) -> dict[str, float]:
    return {t.variant: t.seconds * 1e3 for t in timings if t.peer == column and not t.error}


def table(rows: Sequence[Row], peers: Sequence[str], *, peers_only: bool = False) -> str:
    """A table in ms.

    A cell without a figure shows a numbered mark; the reasons stand below, each once.
    """
    reasons: list[str] = []
    columns = [_column("workload", [row.workload for row in rows], left=True)]
    columns += [_column("thr", [str(row.threads) for row in rows])]
    if any(row.layout for row in rows):
        columns += [_column("layout", [row.layout or "-" for row in rows], left=True)]
    if not peers_only:
        columns += [
            _column("default", [_ms(row, DEFAULT, row.default_ms, reasons) for row in rows])
        ]
        columns += [_column("tuned", [_ms(row, TUNED, row.tuned_ms, reasons) for row in rows])]
        columns += [_column("called", [_ms(row, CALLED, row.called_ms, reasons) for row in rows])]
        columns += [_column("% peak", [_figure(row.pct_peak, 0) for row in rows])]
        columns += [_column("tune s", [_figure(row.tune_s, 0) for row in rows])]
        columns += [_column("cand.", [_figure(row.candidates, 0) for row in rows])]
    columns += [
        _column(name, [_ms(row, name, row.peers.get(name), reasons) for row in rows])
        for name in peers
    ]
    columns += [_column("best peer", [_best(row) for row in rows], left=True)]
    if not peers_only:
        columns += [_column("ours/best", [_figure(row.ratio, 2) for row in rows])]
        columns += [_column("called/best", [_figure(row.called_ratio, 2) for row in rows])]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    lines += [f"[{i}] {reason}" for i, reason in enumerate(reasons, 1)]
    lines += [f"note, {row.workload}: {note}" for row in rows for note in row.notes]
    return "\n".join(lines)


def _column(header: str, cells: Sequence[str], *, left: bool = False) -> list[str]:
    """Header, rule and cells, padded to one width."""
    width = max(len(cell) for cell in (header, *cells))
    text = [header, "-" * width, *cells]
    return [cell.ljust(width) if left else cell.rjust(width) for cell in text]


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _best(row: Row) -> str:
    best = row.best_peer
    return "-" if best is None else f"{best[0]} ({row.variants.get(best[0], '')})"


def _ms(row: Row, column: str, ms: float | None, reasons: list[str]) -> str:
    """Three significant digits, or the mark of the reason why there is no figure."""
    if column == CALLED and ms is None and column not in row.errors:
        return "-"
    if column not in row.peers and column not in (CALLED, DEFAULT, TUNED):
        return "-"  # takes no part in this workload
    if ms is not None:
        digits = 2 - math.floor(math.log10(ms)) if ms > 0 else 2
        return f"{ms:.{min(max(digits, 0), 4)}f}"
    reason = f"{column}: {row.errors.get(column, 'not run')}"
    if reason not in reasons:
        reasons.append(reason)
    return f"[{reasons.index(reason) + 1}]"
