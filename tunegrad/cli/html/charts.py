"""The charts of a report: the search over time, the roofline, and a model's history.

Figures of matplotlib become parts of the page: text stays text in the page's font, colours are the
page's variables (so that dark is dark), and ids are the chart's own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import atan, degrees
from statistics import median
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from tunegrad.cli.tables import ms
from tunegrad.errors import ConfigError

from .style import COLOURS, SERIES, Html, clean, element

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tunegrad.tuning import HistoryChart, KernelEntry, SessionPage, Trace

__all__ = [
    "chart",
    "check_plotting",
    "history_chart",
    "progress_chart",
    "roofline_chart",
    "series_colours",
    "trace_charts",
]

WIDE, NARROW = 960, 340
"""Pixels across, on a laptop and on a phone."""

_SVG = "{http://www.w3.org/2000/svg}"

_HREF = "{http://www.w3.org/1999/xlink}href"

_BY_COLOUR = {colour: f"var(--{name})" for name, colour in COLOURS.items()}

_COLOUR = re.compile("|".join(map(re.escape, _BY_COLOUR)))

_LOCAL = re.compile(r"url\(#")


def check_plotting() -> None:
    """Raise ConfigError, which says what to install, where there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401, ICN001  # only whether it is there
    except ImportError as error:
        raise ConfigError(
            "report needs matplotlib, which is not installed: pip install 'tunegrad[plot]'"
        ) from error


def chart(
    draw: Callable[[Figure, bool], Mapping[str, str] | None],
    height: float,
    narrow_height: float,
    label: str,
    number: str,
) -> Html:
    """A chart at both widths; the page shows the one that fits.

    ``draw(figure, narrow)`` fills a figure and may return what a pointer is told over artists, by
    their gid. Heights are in pixels, ``label`` says what is seen, ``number`` is the chart's own in
    the page.
    """
    both = (("desk", WIDE, height), ("phone", NARROW, narrow_height))
    return element(
        "div",
        *(
            element("div", _drawn(draw, width, tall, label, f"{number}{css}"), css=css)
            for css, width, tall in both
        ),
        css="chart",
    )


def _drawn(
    draw: Callable[[Figure, bool], Mapping[str, str] | None],
    width: float,
    height: float,
    label: str,
    prefix: str,
) -> Html:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    narrow = width == NARROW
    ink, muted, grid = COLOURS["ink"], COLOURS["muted"], COLOURS["grid"]
    look: dict[Any, Any] = {  # matplotlib types every name of a setting
        "svg.fonttype": "none",
        "svg.hashsalt": "tunegrad",
        "text.parse_math": False,
        "text.color": ink,
        "axes.edgecolor": grid,
        "axes.labelcolor": muted,
        "axes.titlecolor": ink,
        "axes.titlesize": 11 if narrow else 12.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": grid,
        "grid.linewidth": 1,
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "font.size": 11 if narrow else 12.5,
    }
    with mpl.rc_context(look):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        figure.patch.set_alpha(0.0)
        titles = draw(figure, narrow) or {}
        for axes in figure.axes:
            axes.patch.set_alpha(0.0)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _adopted(out.getvalue(), label, prefix, titles)


def _adopted(source: str, label: str, prefix: str, titles: Mapping[str, str]) -> Html:
    """The picture as an element of the page."""
    root = ET.fromstring(source)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}style", f"{_SVG}metadata") or not isinstance(child.tag, str):
                parent.remove(child)
    for node in root.iter():
        gid = node.get("id", "")
        _rename(node, prefix)
        if gid in titles:
            title = ET.Element("title")
            title.text = titles[gid]
            node.insert(0, title)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return Html(ET.tostring(root, encoding="unicode", short_empty_elements=False))


def _rename(node: ET.Element, prefix: str) -> None:
    """Without namespaces, which a page does not need, with ids of this chart and the page's
    colours.
    """
    node.tag = node.tag.removeprefix(_SVG)
    if _HREF in node.attrib:
        node.attrib["href"] = node.attrib.pop(_HREF)
    for name, value in node.attrib.items():
        if name == "id":
            node.attrib[name] = f"{prefix}-{value}"
        elif name == "href":
            node.attrib[name] = f"#{prefix}-{value.removeprefix('#')}"
        else:
            found = _LOCAL.sub(f"url(#{prefix}-", value)
            node.attrib[name] = _COLOUR.sub(lambda m: _BY_COLOUR[m.group()], found)


_SHOWN = {False: 6, True: 4}
"""Traces that are drawn on a laptop and on a phone."""


def series_colours(origins: Sequence[str]) -> dict[str, str]:
    """The name of a colour for each source, in order; the last one stands for all that follow."""
    return {name: SERIES[min(i, len(SERIES) - 1)] for i, name in enumerate(dict.fromkeys(origins))}


def progress_chart(page: SessionPage, number: str) -> Html:
    """The sum of the models' kernels by the best times so far, over the session."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        at, best = zip(*page.progress, strict=True)
        axes.step(at, [1e3 * s for s in best], where="post", color=COLOURS["after"], linewidth=2)
        axes.fill_between(
            at, [1e3 * s for s in best], step="post", color=COLOURS["after"], alpha=0.12
        )
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(0.0, max(at) * 1.01)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("seconds since the session began")
        axes.set_ylabel("ms" if narrow else "sum of the kernels, ms")
        axes.annotate(
            f"{ms(1e3 * best[-1])} ms",
            (at[-1], 1e3 * best[-1]),
            xytext=(-4, 8),
            textcoords="offset points",
            ha="right",
            weight="bold",
        )

    return chart(draw, 240, 210, "sum of the kernels' best times over the session", number)


def trace_charts(traces: Sequence[Trace], colours: Mapping[str, str], number: str) -> Html:
    """The best so far of every source, for the heaviest kernels, over what each began with."""
    rows = -(-min(len(traces), _SHOWN[False]) // 3)
    last_s = max(s.points[-1][0] for t in traces for s in t.series)

    def draw(figure: Figure, narrow: bool) -> None:
        shown = traces[: _SHOWN[narrow]]
        columns = 1 if narrow else min(3, len(shown))
        plots = figure.subplots(-(-len(shown) // columns), columns, squeeze=False)
        for place, plot in enumerate(plots.flat):
            if place < len(shown):
                _trace(plot, shown[place], colours, last_s)
            else:
                plot.set_axis_off()
        figure.supxlabel("seconds since the session began", fontsize="medium",
            color=COLOURS["muted"])  # fmt: skip

    tall = 170 * min(len(traces), _SHOWN[True]) + 30
    return chart(draw, 200 * rows + 30, tall, "best time so far by source, per kernel", number)


def _trace(axes: Axes, trace: Trace, colours: Mapping[str, str], last_s: float) -> None:
    lowest = 1.0
    for series in trace.series:
        at, best = zip(*series.points, strict=True)
        ratios = [seconds / trace.default_s for seconds in best]
        lowest = min(lowest, *ratios)
        colour = COLOURS[colours[series.origin]]
        axes.step(at, ratios, where="post", color=colour, linewidth=1.8)
        axes.plot(at[:-1], ratios[:-1], "o", color=colour, markersize=3.5)
    axes.set_title(_cut(trace.name, 34), fontsize="medium")
    axes.set_xlim(0.0, 1.02 * last_s)
    axes.set_ylim(max(0.0, lowest - 0.15 * (1.3 - lowest) - 0.05), 1.3)
    axes.axhline(1.0, color=COLOURS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=0)
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}x")


def _cut(name: str, most: int) -> str:
    shown = clean(name)
    return shown if len(shown) <= most else f"{shown[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def roofline_chart(page: SessionPage, number: str) -> Html:
    """Every kernel that has arithmetic, before and after, under the limits of the machine."""
    points = [(place, k) for place, k in enumerate(page.kernels, 1) if drawable(k)]
    facts = page.facts

    def draw(figure: Figure, narrow: bool) -> dict[str, str]:
        axes = figure.subplots()
        spans = [_place(k, k.after_s) for _, k in points]
        left, right = min(x for x, _ in spans) / 2, max(x for x, _ in spans) * 2.5
        peak = facts.peak_gflops
        if peak:
            right = max(right, 2.0 * peak / (facts.memory_gb_per_s or peak))
            for bandwidth, style, said in (
                (facts.cache_gb_per_s, "-", "caches"),
                (facts.memory_gb_per_s, "--", "memory"),
            ):
                if bandwidth:
                    _roof(axes, left, right, peak, bandwidth, style, said)
            axes.text(right, peak * 1.08, f"FMA peak {peak:.0f} GFLOP/s", ha="right", va="bottom",
                color=COLOURS["muted"], fontsize="small")  # fmt: skip
        titles = {}
        for place, k in points:
            (x, after), (_, before) = _place(k, k.after_s), _place(k, k.before_s or k.after_s)
            axes.plot((x, x), (before, after), color=COLOURS["before"], linewidth=1.2, zorder=2)
            axes.plot(x, before, "o", markersize=7, color=COLOURS["paper"], zorder=3,
                markeredgecolor=COLOURS["before"], markeredgewidth=1.6)  # fmt: skip
            axes.plot(
                x, after, "o", markersize=7, color=COLOURS["after"], zorder=4, gid=f"k{place}"
            )
            titles[f"k{place}"] = clean(f"{place}. {k.name}: {after:.1f} GFLOP/s, {x:.2f} FLOP/B")
            if place <= (8 if narrow else 12):
                axes.annotate(str(place), (x, after), xytext=(7, -4), textcoords="offset points",
                    fontsize="small", zorder=5)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        lowest = min(min(y, _place(k, k.before_s or k.after_s)[1]) for (_, y), (_, k)
            in zip(spans, points, strict=True))  # fmt: skip
        axes.set_ylim(lowest / 2, 2 * max(peak or 0.0, *(y for _, y in spans)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("operations per byte")
        axes.set_ylabel("GFLOP/s")
        return titles

    return chart(draw, 400, 320, "roofline: every kernel before and after", number)


def drawable(k: KernelEntry) -> bool:
    """True for a kernel with a place under a roofline."""
    return bool(k.flops and k.unique_bytes and k.after_s)


def _place(k: KernelEntry, seconds: float | None) -> tuple[float, float]:
    """Operations per byte, and GFLOP/s at so many seconds."""
    flops = k.flops or 0
    return flops / (k.unique_bytes or 1), flops / (seconds or 1.0) / 1e9


def _roof(
    axes: Axes, left: float, right: float, peak: float, bandwidth: float, style: str, said: str
) -> None:
    corner = peak / bandwidth
    xs = (left, corner, right) if left < corner < right else (left, right)
    axes.plot(xs, [min(peak, x * bandwidth) for x in xs], style, color=COLOURS["ink"],
        linewidth=1.4, zorder=1)  # fmt: skip
    if left < corner:
        x = left * 1.15
        axes.text(x, 1.12 * x * bandwidth, f"{said} {bandwidth:.0f} GB/s", fontsize="small",
            color=COLOURS["muted"], rotation=degrees(atan(bandwidth)), rotation_mode="anchor",
            transform_rotates_text=True)  # fmt: skip


def history_chart(history: HistoryChart, number: str) -> Html:
    """Chart of a model's latency over time, with its default schedules beside, and the levels
    between changes.
    """
    rows = history.rows
    at = [r.created_s for r in rows]
    apart_s = at[-1] - at[0]
    shown = "%Y-%m-%d" if apart_s > 2 * 86400 else "%H:%M" if apart_s > 300 else "%H:%M:%S"

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        beside = [(x, r.default_ms) for x, r in zip(at, rows, strict=True) if r.default_ms]
        tuned = [(x, r.time_ms) for x, r in zip(at, rows, strict=True)]
        for places, colour in ((beside, "before"), (tuned, "after")):
            if places:
                x, y = zip(*places, strict=True)
                axes.plot(x, y, "o-", color=COLOURS[colour], markersize=4, linewidth=1.5)
        edges = [0, *history.changes, len(rows)]
        for begin, end in pairwise(edges):
            if history.changes and end > begin:
                level = median(r.time_ms for r in rows[begin:end])
                axes.plot((at[begin], at[end - 1]), (level, level), color=COLOURS["ink"],
                    linewidth=2)  # fmt: skip
        for place in history.changes:
            axes.axvline(at[place], color=COLOURS["bad"], linewidth=1, linestyle="--")
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("ms")
        most = min(3 if narrow else 6, len(at))
        ticks = sorted({at[0] + apart_s * i / (most - 1) for i in range(most)})
        axes.set_xticks(ticks, [f"{datetime.fromtimestamp(x, UTC):{shown}}" for x in ticks])
        axes.grid(visible=False, axis="x")

    return chart(draw, 230, 210, f"latency of {clean(history.model)} over time", number)
