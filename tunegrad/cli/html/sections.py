"""The sections of a session: its kernels, its search, the roofline, its seconds, its failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tunegrad.cli.tables import UNKNOWN, Table, count_text, figure, ms, words

from .charts import drawable, progress_chart, roofline_chart, series_colours, trace_charts
from .style import Html, element, joined, table_element

if TYPE_CHECKING:
    from tunegrad.paired import Interval
    from tunegrad.tuning import KernelEntry, SessionPage

__all__ = ["gain", "session_sections"]

_SHOWN, _LIGHT = 10, 0.01
"""So many kernels are listed, and all that take more than a hundredth; the others fold away."""

_WHERE = {
    "model": "in the whole model, in turns at the end of the session",
    "sweep": "in the whole model, in the turns of the sweep",
    "race": "in whole models, in the race that the winner won",
    "alone": "alone, as the search timed it",
}


def session_sections(page: SessionPage, number: str) -> Html:
    """All of a session; sections of which nothing is known are left out."""
    return joined(
        _findings(page),
        _kernels(page),
        _peers(page),
        _search(page, number),
        _roofline(page, number),
        _seconds(page),
        _failures(page),
        _decisions(page),
        _about(page),
    )


def gain(value: float | None, interval: Interval | None, small: bool = True) -> Html:
    """``1.35x (1.31 to 1.38)``, or ``no difference`` where 1.00 is inside of what is printed.

    A gain without an interval says so.
    """
    if value is None:
        return element("span", UNKNOWN, css="same")
    if interval is None:
        return element("span", f"{value:.2f}x", _aside("no interval", small), css="same")
    low, high = interval
    said = f"{low:.2f} to {high:.2f}"
    if round(low, 2) <= 1.0 <= round(high, 2):
        return element("span", "no difference", _aside(said, small), css="same")
    return element("span", f"{value:.2f}x", _aside(said, small), css="good" if low > 1.0 else "bad")


def _aside(said: str, small: bool) -> Html:
    return element("small", f" ({said})") if small else joined(f" ({said})")


# ---- kernels


def _kernels(page: SessionPage) -> Html | None:
    if not page.kernels:
        return None
    totals = [_total(page.kernels, after) for after in (False, True)]
    longest = max((_all_uses(k, after) for k in page.kernels for after in (False, True)), default=0)
    items = [
        _kernel(place, k, totals[0], totals[1], longest) for place, k in enumerate(page.kernels, 1)
    ]
    measured = dict.fromkeys(k.measured for k in page.kernels)
    left = f" {page.left} others were measured on the way, and do not run." * bool(page.left)
    where = "; ".join(_WHERE[m] for m in measured)
    most = max(totals)
    heavy = sum(max(_all_uses(k, False), _all_uses(k, True)) > _LIGHT * most for k in page.kernels)
    shown = max(_SHOWN, heavy)
    light = f"{len(items) - shown} lighter kernels"
    folded = (
        element(
            "details",
            element("summary", light),
            element("ol", *items[shown:], css="kernels", start=shown + 1),
        )
        if len(items) > shown
        else None
    )
    return element(
        "section",
        element("h2", "Kernels"),
        element("p", f"Bars are all launches of a kernel; times are of one launch, {where}.{left}",
            css="note"),
        element("p", _sums(page, totals), css="note"),
        _legend((("before", "before (default schedule)"), ("after", "after"))),
        element("ol", *items[:shown], css="kernels"),
        folded,
    )  # fmt: skip


def _sums(page: SessionPage, totals: Sequence[float]) -> str:
    """The kernels together, beside the whole model where there is one."""
    said = f"All launches together: {ms(1e3 * totals[0])} ms before, {ms(1e3 * totals[1])} ms after"
    if len(page.line.latencies) != 1 or page.line.latencies[0].default_s is None:
        return f"{said}."
    whole = page.line.latencies[0]
    return (
        f"{said}; the whole model took {ms(1e3 * (whole.default_s or 0.0))} and "
        f"{ms(1e3 * whole.tuned_s)} ms, measured apart from them."
    )


def _all_uses(k: KernelEntry, after: bool) -> float:
    return k.uses * ((k.after_s if after else k.before_s) or 0.0)


def _total(kernels: Sequence[KernelEntry], after: bool) -> float:
    return sum(_all_uses(k, after) for k in kernels)


def _kernel(place: int, k: KernelEntry, before_s: float, after_s: float, longest: float) -> Html:
    same = k.before_s is not None and k.before_s == k.after_s
    won = element("span", "the same schedule", css="same") if same else gain(k.gain, k.interval)
    return element(
        "li",
        element("div", place, css="rank"),
        element(
            "div",
            element(
                "div",
                k.name,
                element("span", f"  \N{MULTIPLICATION SIGN}{k.uses}", css="uses"),
                css="name",
            ),
            element("div", k.layers, css="layers"),
        ),
        element(
            "div",
            *_bar("before", k.before_s, k.uses, before_s, longest),
            *_bar("after", k.after_s, k.uses, after_s, longest),
            css="bars",
        ),
        element("div", won, css="gain"),
        element("div", _schedule(k), css="more"),
    )


def _schedule(k: KernelEntry) -> Html | None:
    """The winner's actions, folded away; nothing where the session has none to show."""
    if not k.actions and not k.candidates:
        return None
    return element(
        "details",
        element("summary", f"schedule, {count_text(k.candidates)} candidates"),
        element("p", f"from {k.origin or 'unknown'}; key {k.key}"),
        element("code", k.actions or "(no actions)"),
        element("p", f"its code: {_code(k)}") if k.code else None,
    )


def _code(k: KernelEntry) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else f'{value:g}'}"
        for name, value in k.code.items()
    )


def _bar(
    which: str, seconds: float | None, uses: int, total_s: float, longest: float
) -> Iterator[Html]:
    part = uses * (seconds or 0.0)
    width = 100.0 * part / longest if longest else 0.0
    yield element("div", element("div", css=f"bar {which}", style=f"width:{width:.2f}%"))
    yield element("span", UNKNOWN if seconds is None else f"{ms(1e3 * seconds)} ms")
    yield element("span", f"{100.0 * part / total_s:.1f} %" if total_s else "")


def _legend(entries: Sequence[tuple[str, str]]) -> Html:
    return element(
        "ul",
        *(element("li", element("i", style=f"background:var(--{c})"), said) for c, said in entries),
        css="legend",
    )


# ---- search


def _search(page: SessionPage, number: str) -> Html | None:
    if not page.traces and len(page.progress) < 2:
        return None
    origins = [s.origin for s in page.sources]
    colours = series_colours(origins)
    proposals = Table.of(
        page.sources,
        words("source", lambda s: _swatch(colours[s.origin], s.origin)),
        figure("candidates", lambda s: s.candidates),
        figure("failed", lambda s: s.failed),
        figure("improvements", lambda s: s.improvements),
        figure("winners", lambda s: s.winners),
    )
    return element(
        "section",
        element("h2", "The search"),
        element(
            "p",
            "Times in this part are of kernels alone, as the search measures them (their constants "
            "evicted from the caches). They rank schedules; what a winner is worth is decided in "
            "whole models, above.",
            css="note",
        ),
        progress_chart(page, f"{number}p") if len(page.progress) > 1 else None,
        joined(
            element("h3", "Best so far by source, of the heaviest kernels"),
            _legend([(colours[o], o) for o in origins]),
            trace_charts(page.traces, colours, f"{number}t"),
        )
        if page.traces
        else None,
        element("h3", "Proposals by source"),
        table_element(proposals),
    )


def _swatch(colour: str, said: str) -> Html:
    return element("span", element("i", style=f"background:var(--{colour})"), said, css="swatch")


# ---- roofline


def _roofline(page: SessionPage, number: str) -> Html | None:
    points = [k for k in page.kernels if drawable(k)]
    if not points:
        return None
    limits = (
        "Lines are the machine's limits, as the session measured them."
        if page.facts.peak_gflops
        else "The session did not keep the machine's limits, so there are no lines."
    )
    unlike = len(page.kernels) - len(points)
    out = f" {unlike} kernels have no arithmetic or no time, and no place here." if unlike else ""
    return element(
        "section",
        element("h2", "Roofline"),
        element("p", f"{limits} Numbers are places in the list of kernels.{out}", css="note"),
        _legend((("before", "before"), ("after", "after"))),
        roofline_chart(page, f"{number}r"),
    )


# ---- seconds, failures, decisions


def _seconds(page: SessionPage) -> Html | None:
    if not page.seconds:
        return None
    total = sum(s for _, s in page.seconds)
    longest = page.seconds[0][1]
    rows = [
        joined(
            element("span", part, style="text-align:left"),
            element(
                "div", element("div", css="bar after", style=f"width:{100 * s / longest:.2f}%")
            ),
            element("span", f"{s:.1f} s"),
            element("span", f"{100 * s / total:.1f} %"),
        )
        for part, s in page.seconds
    ]
    return element(
        "section",
        element("h2", "Where the seconds went"),
        element("div", *rows, css="bars",
            style="grid-template-columns:minmax(90px,auto) minmax(0,1fr) 64px 54px"),
    )  # fmt: skip


def _failures(page: SessionPage) -> Html | None:
    if not page.statuses:
        return None
    counts = ", ".join(f"{count} {status}" for status, count in page.statuses)
    table = Table.of(
        page.failures,
        words("kind", lambda f: element("span", f.status, css="badge")),
        figure("candidates", lambda f: f.count),
        words("what the first of them said", lambda f: _said(f.message, f.kernel, f.actions)),
    )
    return element(
        "section",
        element("h2", "How candidates ended"),
        element("p", f"{counts}."),
        table_element(table) if page.failures else element("p", "None failed.", css="note"),
    )


def _said(message: str, kernel: str, actions: str) -> Html:
    """The first message of a kind, and an example of a candidate that got it."""
    example = element("summary", kernel or "example")
    return joined(
        element("div", message or "(nothing was said)"),
        element("details", example, element("code", actions or "(no actions)")),
    )


def _decisions(page: SessionPage) -> Html | None:
    if not page.decisions:
        return None
    table = Table.of(
        page.decisions,
        words("about", lambda d: d.kind),
        words("choice", lambda d: d.choice),
        words("verdict", lambda d: "stands" if d.chosen else d.status if d.error else "lost"),
        figure("before, ms", lambda d: d.incumbent_ms, ms),
        figure("with it, ms", lambda d: d.challenger_ms, ms),
    )
    tried = f"{len(page.decisions)} alternatives were tried"
    return element(
        "section",
        element("h2", "Decisions about the whole model"),
        element("details", element("summary", tried), table_element(table)),
    )


def _about(page: SessionPage) -> Html:
    line, settings = page.line, page.settings
    facts = [
        ("session", line.id),
        *((n, settings[n]) for n in ("budget_s", "searcher", "numerics") if n in settings),
        *page.conditions,
    ]
    return element(
        "section",
        element("h2", "Session"),
        element(
            "dl",
            *(element("div", element("dt", n), element("dd", v)) for n, v in facts),
            css="facts",
        ),
    )


# ---- sweeps: what one found, and other libraries beside it


def _findings(page: SessionPage) -> Html | None:
    """Section on what changed, since when, and what changed with it; nothing of a session that is
    no sweep.
    """
    if page.findings is None:
        return None
    items = []
    for found in page.findings:
        what, *details = found.splitlines()
        items.append(element("li", element("p", what, css="name"),
            *(element("p", line.strip(), css="note") for line in details)))  # fmt: skip
    return element(
        "section",
        element("h2", "What the sweep found"),
        element("ul", *items) if items else element("p", "No change of level.", css="note"),
    )


def _peers(page: SessionPage) -> Html | None:
    if not page.peers:
        return None
    own = {x.model: x.tuned_s for x in page.line.latencies}
    table = Table.of(
        page.peers,
        words("peer", lambda p: p.peer),
        words("model", lambda p: p.model),
        figure("ms", lambda p: 1e3 * p.seconds, ms),
        figure("ours, ms", lambda p: ms(1e3 * own[p.model]) if p.model in own else None),
    )
    return element(
        "section",
        element("h2", "Peers"),
        element("p", "Medians of calls between the turns of the sweep.", css="note"),
        table_element(table),
    )
