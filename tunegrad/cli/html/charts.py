"""The charts of a report: the search over time, candidates, the roofline, a model's history.

Marks lie on a plane that is as wide as the page lets it be, and labels are text of the page: one
drawing for every width, whose strokes and letters keep their size, in the page's colours.

    .chart
      .plane                height in pixels, width of the page
        svg  path ...       1000 x 1000, stretched; strokes are not
        span .tick          at per cents of the plane
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median
from typing import TYPE_CHECKING

from tunegrad.lazy import dataclass

from .style import SERIES, Html, clean, element, joined

if TYPE_CHECKING:
    from tunegrad.tuning import HistoryChart, KernelEntry, Search, SessionPage

_SIDE = 1000

Point = tuple[float, float]

_LEAST, _MOST = 1e-100, 1e100
"""Figures beyond are drawn as these."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale between two ends, by logarithms where ``log``; ``said`` makes text of a value.

    Ends that are equal, infinite or none of a logarithm are moved: a store may hold any figure.
    """

    low: float
    high: float
    log: bool = False
    said: Callable[[float], str] = "{:g}".format

    def __post_init__(self) -> None:
        low = min(max(self.low, _LEAST if self.log else -_MOST), _MOST / 10)
        apart = low + max(1e-6 * abs(low), _LEAST)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", max(apart, min(self.high, _MOST)))

    def at(self, value: float) -> float:
        """The part of the axis below a value: 0 to 1 between its ends, and not far beyond."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = log10(low), log10(high), log10(min(max(value, _LEAST), _MOST))
        return min(max((value - low) / (high - low), -1.0), 2.0)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values between the ends, ``most`` at most."""
        return self._decades(most) if self.log else _round_steps(self.low, self.high, most)

    def _decades(self, most: int) -> list[float]:
        first, last = floor(log10(self.low)), ceil(log10(self.high))
        for parts, stride in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 3)):
            found = [p * 10.0**n for n in range(first, last + 1, stride) for p in parts]
            found = [v for v in found if self.low <= v <= self.high]
            if len(found) <= most:
                break
        if len(found) >= 2:
            return found[:most]
        return _round_steps(self.low, self.high, most)


def _round_steps(low: float, high: float, most: int) -> list[float]:
    least = (high - low) / most
    power = 10.0 ** floor(log10(least))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= least)
    first = ceil(low / step - 1e-9)
    return [n * step for n in range(first, floor(high / step + 1e-9) + 1)]


def _path(d: str, colour: str, width: float, css: str = "") -> Html:
    style = f"stroke:var(--{colour});stroke-width:{width:g}"
    return element("path", d=d, css=css, style=style)


def _place(x: Axis, y: Axis, point: Point) -> str:
    return f"{_SIDE * x.at(point[0]):.0f} {_SIDE * (1.0 - y.at(point[1])):.0f}"


def _line(
    x: Axis, y: Axis, points: Sequence[Point], colour: str, width: float = 2, css: str = ""
) -> Html:
    return _path("M" + "L".join(_place(x, y, p) for p in points), colour, width, css)


def _steps(points: Sequence[Point]) -> list[Point]:
    """Corners of a line that stays at a value until the next one."""
    corners = [points[0]]
    for before, after in pairwise(points):
        corners += [(after[0], before[1]), after]
    return corners


def _dots(x: Axis, y: Axis, points: Iterable[Point], colour: str, size: float) -> Html:
    return _path("".join(f"M{_place(x, y, p)}h0" for p in points), colour, size, "dots")


def _tick(axis: Axis, value: float, side: str) -> Html:
    at = 100.0 * axis.at(value)
    where = (
        f"left:{at:.4g}%;transform:translateX(-{at:.4g}%)"
        if side == "x"
        else f"top:{100.0 - at:.4g}%"
    )
    return element("span", axis.said(value), css=f"tick {side}", style=where)


def _chart(
    x: Axis,
    y: Axis,
    marks: Sequence[Html],
    said: tuple[str, str, str],
    height: float = 240,
    labels: Sequence[Html] = (),
    css: str = "",
) -> Html:
    """``said`` are a label of the whole, and of both axes."""
    label, x_label, y_label = said
    grid = "".join(
        f"M0 {_SIDE * (1.0 - y.at(v)):.0f}H{_SIDE}" for v in y.ticks() if 0.0 <= y.at(v) <= 1.0
    )
    drawing = element(
        "svg", _path(grid, "grid", 1), *marks, viewBox=f"0 0 {_SIDE} {_SIDE}",
        preserveAspectRatio="none", aria_hidden="true",
    )  # fmt: skip
    ticks = joined(*(_tick(y, v, "y") for v in y.ticks()), *(_tick(x, v, "x") for v in x.ticks()))
    return element(
        "figure",
        element("figcaption", label, css="hidden"),
        element("div", y_label, css="axis y"),
        element("div", drawing, ticks, *labels, css="plane", style=f"height:{height:g}px"),
        element("div", x_label, css="axis x"),
        css=f"chart {css}".strip(),
    )


def series_colours(origins: Sequence[str]) -> dict[str, str]:
    """The name of a colour for each source, in order; the last one stands for all that follow."""
    return {name: SERIES[min(i, len(SERIES) - 1)] for i, name in enumerate(dict.fromkeys(origins))}


def progress_chart(page: SessionPage) -> Html:
    """The sum of the models' kernels by the best times so far, over the session."""
    points = [(at_s, 1e3 * best_s) for at_s, best_s in page.progress]
    x = Axis(0.0, max(1e-3, points[-1][0]))
    y = Axis(0.0, 1.1 * max(best for _, best in points))
    label = "Sum of the kernels' best times over the session"
    said = label, "seconds since the session began", "sum of the kernels, ms"
    return _chart(x, y, [_line(x, y, _steps(points), "after")], said, 220)


_NEAR = 1.1
"""A candidate is near the fastest that takes at most so many times as long."""


def search_chart(search: Search, colours: Mapping[str, str]) -> Html:
    """Every candidate of a kernel that ran, and the best so far, over what the search gave to the
    kernel; the data of all candidates lie beside, for a script that draws other axes.
    """
    timed = [
        (at_s, seconds / search.default_s, source)
        for at_s, seconds, source in zip(
            search.searched_s, search.seconds, search.source, strict=True
        )
        if seconds is not None and _LEAST < seconds / search.default_s < _MOST
    ]
    if not timed:
        return Html("")
    least, most = min(t[1] for t in timed), max(t[1] for t in timed)
    x = Axis(0.0, max(1e-3, search.searched_s[-1]))
    y = Axis(0.9 * min(1.0, least), 1.1 * max(1.0, most), log=True, said="{:g}x".format)
    marks = [_line(x, y, [(x.low, 1.0), (x.high, 1.0)], "muted", 1, "dash")]
    for place, name in enumerate(search.sources):
        points = [(at_s, ratio) for at_s, ratio, source in timed if source == place]
        marks.append(_dots(x, y, points, colours.get(name, SERIES[-1]), 5))
    near = [(at_s, ratio) for at_s, ratio, _ in timed if ratio <= _NEAR * least]
    marks.append(_dots(x, y, near, "ink", 2.5))
    best = [timed[0][:2]]
    for at_s, ratio, _ in timed:
        if ratio < best[-1][1]:
            best.append((at_s, ratio))
    marks.append(_line(x, y, _steps([*best, (x.high, best[-1][1])]), "ink", 1.2, "best"))
    label = "All candidates by time, over the seconds that the search gave to this kernel"
    said = label, "seconds of the search", "time over the default's"
    return joined(
        _chart(x, y, marks, said, 260, css="candidates"),
        element("pre", _data(search), css="data", hidden=True),
    )


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _data(search: Search) -> str:
    """All candidates as lines: sources, the source of each, moments in seconds, times in
    milliseconds; then of each parameter its name, the place of every candidate's value in base 36,
    two digits where there are more than 36, and the values. Tabs and blanks stand between.
    """
    lines = [
        "\t".join(map(_word, search.sources)),
        " ".join(map(str, search.source)),
        " ".join(f"{s:.3g}" for s in search.searched_s),
        " ".join("-" if s is None else f"{1e3 * s:.4g}" for s in search.seconds),
    ]
    for p in search.parameters:
        long = len(p.levels) > len(_DIGITS)
        codes = "".join(_DIGITS[n // 36] * long + _DIGITS[n % 36] for n in p.at)
        lines.append("\t".join((_word(p.name), codes, *map(_word, p.levels))))
    return "\n".join(lines)


def _word(said: str) -> str:
    return " ".join(said.split())


# ---- roofline


def drawable(k: KernelEntry) -> bool:
    """True for a kernel with a place under a roofline."""
    return bool(k.flops and k.unique_bytes and k.after_s)


def _reached(k: KernelEntry, seconds: float | None) -> Point:
    """Operations per byte, and GFLOP/s at so many seconds."""
    flops = k.flops or 0
    return flops / (k.unique_bytes or 1), flops / (seconds or 1.0) / 1e9


_ROOF_HEIGHT, _ROOF_WIDTHS = 380, (290, 900)
"""Pixels of the roofline: labels must fit a phone's plane, and more of them a laptop's."""


def roofline_chart(page: SessionPage, number: str) -> Html:
    """Every kernel that has arithmetic, before and after, under the limits of the machine. Numbers
    are places in the list of kernels, and lead there.
    """
    points = [(place, k) for place, k in enumerate(page.kernels, 1) if drawable(k)]
    facts, after = page.facts, [_reached(k, k.after_s) for _, k in points]
    before = [_reached(k, k.before_s or k.after_s) for _, k in points]
    peak, heights = facts.peak_gflops, [y for _, y in (*after, *before)]
    corner = 2.0 * peak / (facts.memory_gb_per_s or peak) if peak else 0.0
    x = Axis(min(p[0] for p in after) / 2, max(corner, 2.5 * max(p[0] for p in after)), log=True)
    y = Axis(min(heights) / 2, 2 * max(peak or 0.0, *heights), log=True)
    marks = []
    for bandwidth, css in ((facts.cache_gb_per_s, ""), (facts.memory_gb_per_s, "dash")):
        if peak and bandwidth:
            marks.append(_line(x, y, _roof(x, y, peak, bandwidth), "ink", 1.4, css))
    for old, new in zip(before, after, strict=True):
        marks.append(_line(x, y, [old, new], "before", 1.2))
    marks += [
        _dots(x, y, before, "before", 9),
        _dots(x, y, before, "paper", 6),
        _dots(x, y, after, "after", 8),
    ]
    spots = [(x.at(p[0]), 1.0 - y.at(p[1])) for p in after]
    texts = [str(place) for place, _ in points]
    old_spots = [(x.at(p[0]), 1.0 - y.at(p[1])) for p in before]
    found = labels_of(spots, texts, _ROOF_HEIGHT, _ROOF_WIDTHS, old_spots)
    labels = []
    for at, (dx, dy, wide) in found.items():
        (place, k), (left, top) = points[at], spots[at]
        style = f"left:{100 * left:.4g}%;top:{100 * top:.4g}%;margin:{dy:g}px 0 0 {dx:g}px"
        said = f"{place}. {k.name}: {after[at][1]:.1f} GFLOP/s, {after[at][0]:.2f} FLOP/B"
        link = element("a", place, href=f"#{number}-k{place}", title=clean(said),
            css="spot wide" if wide else "spot", style=style)  # fmt: skip
        labels.append(link)
    names = "Roofline: every kernel before and after", "operations per byte", "GFLOP/s"
    return _chart(x, y, marks, names, _ROOF_HEIGHT, labels)


def _roof(x: Axis, y: Axis, peak: float, bandwidth: float) -> list[Point]:
    """Corners of a limit between the ends of the axes."""
    lowest = max(x.low, y.low / bandwidth)
    corner = peak / bandwidth
    found = [(lowest, min(peak, lowest * bandwidth)), (x.high, min(peak, x.high * bandwidth))]
    return [found[0], (corner, peak), found[1]] if lowest < corner < x.high else found


_LETTER, _LINE, _DOT = 8.0, 15.0, 5.0


def labels_of(
    spots: Sequence[Point],
    texts: Sequence[str],
    height: float,
    widths: Sequence[float],
    others: Sequence[Point] = (),
) -> dict[int, tuple[float, float, bool]]:
    """Places of the labels of points so that none lies over another or over a point: offsets in
    pixels by the number of the point, and whether it needs the wider plane.

    ``spots`` are parts of the plane from its left and its top; earlier labels go first. ``others``
    are points without a label. One that has no place even on the wider plane is left out.
    """
    found: dict[int, tuple[float, float, bool]] = {}
    for width in widths:
        dots = [
            (width * x - _DOT, height * y - _DOT, width * x + _DOT, height * y + _DOT)
            for x, y in (*spots, *others)
        ]
        taken = [*dots, *(_box(spots[n], texts[n], at, width, height) for n, at in found.items())]
        for n, spot in enumerate(spots):
            if n in found:
                continue
            w = _LETTER * len(texts[n])
            sides = ((7, -_LINE / 2), (-w - 7, -_LINE / 2), (-w / 2, -_LINE - 5), (-w / 2, 6))
            corners = ((6, 4), (-w - 6, 4), (6, -_LINE - 4), (-w - 6, -_LINE - 4))
            for at in (*sides, *corners):
                box = _box(spot, texts[n], (*at, False), width, height)
                inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
                if inside and not any(_overlap(box, other) for other in taken):
                    found[n] = (*at, width != widths[0])
                    taken.append(box)
                    break
    return found


_Box = tuple[float, float, float, float]


def _box(
    spot: Point, text: str, at: tuple[float, float, bool], width: float, height: float
) -> _Box:
    left, top = width * spot[0] + at[0], height * spot[1] + at[1]
    return left, top, left + _LETTER * len(text), top + _LINE


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# ---- history


def history_chart(history: HistoryChart) -> Html:
    """Chart of a model's latency over time: defaults beside, levels between changes."""
    rows = history.rows
    at = [r.created_s for r in rows]
    apart_s = max(1.0, at[-1] - at[0])
    shown = "%Y-%m-%d" if apart_s > 2 * 86400 else "%H:%M" if apart_s > 300 else "%H:%M:%S"
    times = [t for r in rows for t in (r.time_ms, r.default_ms) if t]
    x = _Moments(at[0], at[0] + apart_s, said=lambda s: f"{datetime.fromtimestamp(s, UTC):{shown}}")
    y = Axis(0.0, 1.1 * max(times))
    beside = [(s, r.default_ms) for s, r in zip(at, rows, strict=True) if r.default_ms]
    tuned = [(s, r.time_ms) for s, r in zip(at, rows, strict=True)]
    marks = []
    for places, colour in ((beside, "before"), (tuned, "after")):
        if places:
            marks += [_line(x, y, places, colour, 1.5), _dots(x, y, places, colour, 5)]
    for begin, end in pairwise([0, *history.changes, len(rows)]):
        if history.changes and end > begin:
            level = median(r.time_ms for r in rows[begin:end])
            marks.append(_line(x, y, [(at[begin], level), (at[end - 1], level)], "ink"))
    marks += [
        _line(x, y, [(at[n], y.low), (at[n], y.high)], "bad", 1, "dash") for n in history.changes
    ]
    return _chart(x, y, marks, (f"Latency of {clean(history.model)} over time", "", "ms"), 220)


class _Moments(Axis):
    """An axis of moments: ticks apart equally, few enough for a phone."""

    def ticks(self, most: int = 3) -> list[float]:
        """The ends, and what is between them."""
        return [self.low + (self.high - self.low) * n / 2 for n in range(min(3, most))]
