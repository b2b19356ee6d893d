"""The sections of a session: its kernels, its search, the roofline, its seconds, its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from tunegrad.cli.tables import (
    UNKNOWN,
    Table,
    count_text,
    figure,
    gain_text,
    ms,
    peak_text,
    plural,
    times,
    when,
    words,
)
from tunegrad.lazy import dataclass

from .charts import drawable, progress_chart, roofline_chart, search_chart, series_colours
from .style import SERIES, Html, element, joined, table_element

if TYPE_CHECKING:
    from tunegrad.paired import Interval
    from tunegrad.tuning import KernelEntry, Search, SessionPage

Code = Callable[[str, str, tuple[tuple[str, str], ...]], tuple[str, str]]
"""Source and assembly of a kernel's text under actions on a machine, each empty where not known."""


def no_code(_text: str, _actions: str, _machine: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    """Neither source nor assembly, of kernels whose code is not shown."""
    return "", ""


_LIGHT = 0.01
"""Kernels that take less than a hundredth have no chart of their candidates, nor their code; what
explains less of the times is not listed.
"""

_WHERE = {
    "model": "in the whole model, in turns at the end of the session",
    "sweep": "in the whole model, in the turns of the sweep",
    "race": "in whole models, in the race that the winner won",
    "alone": "alone, as the search timed it",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A section with its name in the table of contents, and its id."""

    id: str
    name: str
    html: Html


def part(number: str, short: str, name: str, *children: object) -> Part:
    """A section under its heading, which links lead to."""
    at = f"{number}-{short}"
    return Part(at, name, element("section", element("h2", name), *children, id=at))


def session_parts(page: SessionPage, number: str, code: Code) -> list[Part]:
    """All of a session; sections of which nothing is known are left out."""
    found = (
        _findings(page, number),
        _kernels(page, number),
        _apart(page, number, code),
        _peers(page, number),
        _search(page, number),
        _roofline(page, number),
        _beside(page, number),
        _seconds(page, number),
        _failures(page, number),
        _decisions(page, number),
        _about(page, number),
    )
    return [p for p in found if p is not None]


def gain(value: float | None, interval: Interval | None, small: bool = True) -> Html:
    """``1.35x (1.31 to 1.38)`` or ``no difference (0.98 to 1.05)``, as a terminal has it.

    A gain without an interval says so.
    """
    if value is None:
        return element("span", UNKNOWN, css="same")
    if interval is None:
        return element("span", f"{value:.2f}x", _aside("no interval", small), css="same")
    said, _, where = gain_text(value, interval).removeprefix("gain ").partition(" (")
    same = interval[0] <= 1.0 <= interval[1]
    css = "same" if same else "good" if interval[0] > 1.0 else "bad"
    return element("span", said, _aside(where[:-1], small), css=css)


def _aside(said: str, small: bool) -> Html:
    return element("small", f" ({said})") if small else joined(f" ({said})")


# ---- kernels


def _kernels(page: SessionPage, number: str) -> Part | None:
    if not page.kernels:
        return None
    before_s, after_s = (sum(_all_uses(k, after) for k in page.kernels) for after in (False, True))
    left = f" {page.left} others were measured on the way, and do not run." * bool(page.left)
    where = "; ".join(_WHERE[m] for m in dict.fromkeys(k.measured for k in page.kernels))
    table = Table.of(
        enumerate(page.kernels, 1),
        figure("#", lambda x: x[0]),
        words("kernel", lambda x: _named(x[1], f"#{number}-k{x[0]}")),
        figure("launches", lambda x: x[1].uses),
        figure("before, ms", lambda x: _ms(x[1].before_s)),
        figure("after, ms", lambda x: _ms(x[1].after_s)),
        figure("% of all", lambda x: _share(_all_uses(x[1], True), after_s)),
        figure("gain", lambda x: _won(x[1])),
        figure("% of bound", lambda x: peak_text(_of_bound(x[1]))),
        figure("lost, ms", lambda x: _lost(x[1])),
    )
    return part(
        number, "kernels", "Kernels",
        element("p", f"Times are of one launch, {where}; lost is what all launches take beyond "
            f"their bound.{left}", css="note"),
        element("p", _sums(page, before_s, after_s), css="note"),
        table_element(table, "kernels"),
    )  # fmt: skip


def _named(k: KernelEntry, to: str) -> Html:
    return element("div", element("a", k.name, href=to, css="name"),
        element("div", k.layers, css="layers"))  # fmt: skip


def _linked(page: SessionPage, number: str, name: str) -> object:
    """A kernel's name, which leads to its part where it has one."""
    place = next((n for n, k in enumerate(page.kernels, 1) if k.name == name), None)
    return name if place is None else element("a", name, href=f"#{number}-k{place}")


def _ms(seconds: float | None) -> str | None:
    return None if seconds is None else ms(1e3 * seconds)


def _share(part_s: float, all_s: float) -> Html | None:
    if not all_s:
        return None
    return _bar(part_s / all_s, f" {100.0 * part_s / all_s:.1f}")


def _bar(part_: float, said: str) -> Html:
    """A part of one as a bar, before its figure."""
    bar = element("span", css="bar after", style=f"width:{60 * part_:.1f}px")
    return element("span", bar, said)


def _won(k: KernelEntry) -> Html:
    same = k.before_s is not None and k.before_s == k.after_s
    return element("span", "the same schedule", css="same") if same else gain(k.gain, k.interval)


def _of_bound(k: KernelEntry) -> float | None:
    return 100.0 * k.bound_s / k.after_s if k.bound_s and k.after_s else None


def _lost(k: KernelEntry) -> str | None:
    return ms(1e3 * k.uses * (k.after_s - k.bound_s)) if k.bound_s and k.after_s else None


def _sums(page: SessionPage, before_s: float, after_s: float) -> str:
    """The kernels together, beside the whole model where there is one."""
    said = f"All launches together: {ms(1e3 * before_s)} ms before, {ms(1e3 * after_s)} ms after"
    if len(page.line.latencies) != 1 or page.line.latencies[0].default_s is None:
        return f"{said}."
    whole = page.line.latencies[0]
    return (
        f"{said}; the whole model took {ms(1e3 * (whole.default_s or 0.0))} and "
        f"{ms(1e3 * whole.tuned_s)} ms, measured apart from them."
    )


def _all_uses(k: KernelEntry, after: bool) -> float:
    return k.uses * ((k.after_s if after else k.before_s) or 0.0)


# ---- each kernel: what bounds it, and what its schedule is worth


def _apart(page: SessionPage, number: str, code: Code) -> Part | None:
    blocks = []
    colours = series_colours([s.origin for s in page.sources])
    all_s = sum(_all_uses(k, True) for k in page.kernels)
    for place, k in enumerate(page.kernels, 1):
        heavy = not all_s or _all_uses(k, True) > _LIGHT * all_s
        inside = list(_why(k, colours, code if heavy else no_code, page, heavy))
        if not inside:
            continue
        told = element("summary", f"{place}. {k.name} ", element("span", _in_short(k), css="uses"))
        up = element("p", element("a", "the list of kernels", href=f"#{number}-kernels"))
        blocks.append(element("details", told, *inside, up, css="kernel", id=f"{number}-k{place}"))
    return part(number, "why", "Why: each kernel apart", *blocks) if blocks else None


def _in_short(k: KernelEntry) -> str:
    after = _ms(k.after_s)
    bound = f", {peak_text(_of_bound(k))} % of its bound" if _of_bound(k) else ""
    return f"\N{MULTIPLICATION SIGN}{k.uses}" + (f", {after} ms{bound}" if after else "")


def _why(
    k: KernelEntry, colours: Mapping[str, str], code: Code, page: SessionPage, heavy: bool
) -> Iterator[Html]:
    if k.bound_s:
        yield element("p", _bound_text(k))
    if not k.actions and not k.candidates:
        return
    yield element("h3", "Schedule")
    yield element("p", f"from {k.origin or 'unknown'}; {_count(k)}; key {k.key}", css="note")
    yield _diff(k.search.default if k.search else k.actions, k.actions)
    if k.code:
        yield element("p", f"its code: {_code(k)}", css="note")
    if k.search is not None:
        yield from _candidates(k.search, k, colours, heavy)
    source, assembly = code(k.text, k.actions, tuple(page.machine.fields.items()))
    for name, said in (("kernel", k.text), ("source", source), ("assembly", assembly)):
        if said:
            shown = element("pre", _start(said, k.key), tabindex="0")
            yield element("details", element("summary", name), shown)


_LONGEST = 16_000
"""Characters of a text that are shown: sources of large kernels have hundreds of thousands."""


def _start(said: str, key: str) -> str:
    """A text, or its beginning and how to see all of it."""
    if len(said) <= _LONGEST:
        return said
    lines = said[_LONGEST:].count("\n") + 1
    return (
        f"{said[:_LONGEST]}\n... {lines} more lines: tunegrad explain --kernel {key[:12]} --stage"
    )


def _count(k: KernelEntry) -> str:
    total = sum(k.candidates.values())
    return plural(total, "candidate", count_text(k.candidates))


def _bound_text(k: KernelEntry) -> Html:
    by = "arithmetic" if (k.flops_s or 0.0) >= (k.bytes_s or 0.0) else "traffic"
    needs = [f"{(k.flops or 0) / 1e6:,.4g} MFLOP"] * bool(k.flops)
    needs += [f"{(k.unique_bytes or 0) / 1e3:,.0f} KB"] * bool(k.unique_bytes)
    times = [f"arithmetic {ms(1e3 * k.flops_s)} ms"] * bool(k.flops_s) if k.flops_s else []
    times += [f"traffic {ms(1e3 * k.bytes_s)} ms"] if k.bytes_s else []
    reached = _of_bound(k)
    return joined(
        f"Needs {', '.join(needs)}: at the machine's limits {', '.join(times)}. " if needs else "",
        f"Bound by {by}",
        f"; it reaches {peak_text(reached)} % of that." if reached else ".",
        " Its data lie nearer than the limit that was measured." if (reached or 0) > 100 else "",
    )


def _diff(before: str, after: str) -> Html:
    """The schedule as a difference to the default one."""
    old, new = (text.replace(") ", ")\n").splitlines() for text in (before, after))
    lines: list[Html] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [element("span", f"  {x}\n") for x in new[c:d]]
            continue
        lines += [element("del", f"- {x}\n") for x in old[a:b]]
        lines += [element("ins", f"+ {x}\n") for x in new[c:d]]
    same = element("p", "It is the default schedule.", css="note") if old == new else None
    return joined(
        same, element("pre", *(lines or [Html("(no actions)")]), css="diff", tabindex="0")
    )


def _code(k: KernelEntry) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else f'{value:g}'}"
        for name, value in k.code.items()
    )


def _candidates(
    search: Search, k: KernelEntry, colours: Mapping[str, str], heavy: bool
) -> Iterator[Html]:
    own_s = k.alone_s

    def over(seconds: float | None) -> str | None:
        return times(seconds / own_s) if seconds and own_s else None

    telling = [p for p in search.parameters if p.value or p.importance > _LIGHT]
    if telling:
        table = Table.of(
            telling,
            words("parameter", lambda p: p.name),
            figure("explains", lambda p: _bar(p.importance, f" {100 * p.importance:.0f} %")),
            words("the winner's", lambda p: p.value or ("none" if p.value == "" else None)),
            figure("best other value", lambda p: over(p.other_s)),
            figure("best without", lambda p: over(p.without_s)),
        )
        yield element("h3", "What its choices are worth")
        yield element(
            "p",
            "Explains: the part of the spread of the candidates' times that goes with the values "
            "of this parameter alone. Best: the fastest candidate that chose otherwise, over the "
            "winner as the search timed it.",
            css="note",
        )
        yield table_element(table, f"parameters of {k.name}")
    if search.neighbours:
        table = Table.of(
            search.neighbours,
            words("one action away", lambda n: element("code", n.change)),
            figure("ms in the search", lambda n: ms(n.ms)),
            figure("of this", lambda n: times(n.cost)),
            words("from", lambda n: n.origin or n.why),
        )
        yield element("h3", "One action away")
        yield table_element(table, f"neighbours of {k.name}")
    if heavy:
        yield element("h3", "All candidates")
        yield legend(
            *((colours.get(name, SERIES[-1]), name) for name in search.sources),
            ("ink", "within 10 % of the fastest; the line is the best so far"),
        )
        yield element("div", search_chart(search, colours))


def legend(*entries: tuple[str, str]) -> Html:
    """A legend: the name of each colour, and what it stands for."""
    return element("ul", *(element("li", _mark(c), said) for c, said in entries), css="legend")


def _mark(colour: str) -> Html:
    return element("i", style=f"background:var(--{colour})")


# ---- search


def _search(page: SessionPage, number: str) -> Part | None:
    if not page.sources:
        return None
    colours = series_colours([s.origin for s in page.sources])
    proposals = Table.of(
        page.sources,
        words(
            "source", lambda s: element("span", _mark(colours[s.origin]), s.origin, css="swatch")
        ),
        figure("candidates", lambda s: s.candidates),
        figure("failed", lambda s: s.failed),
        figure("improvements", lambda s: s.improvements),
        figure("winners", lambda s: s.winners),
    )
    return part(
        number, "search", "The search",
        element(
            "p",
            "Times in this part are of kernels alone, as the search measures them (their constants "
            "evicted from the caches). They rank schedules; what a winner is worth is decided in "
            "whole models, above.",
            css="note",
        ),
        progress_chart(page) if len(set(page.progress)) > 1 else None,
        element("h3", "Proposals by source"),
        table_element(proposals, "sources"),
    )  # fmt: skip


# ---- roofline


def _roofline(page: SessionPage, number: str) -> Part | None:
    points = [k for k in page.kernels if drawable(k)]
    if not points:
        return None
    facts = page.facts
    limits = (
        (facts.cache_gb_per_s, "line: caches {:.0f} GB/s"),
        (facts.memory_gb_per_s, "dashed: memory {:.0f} GB/s"),
        (facts.peak_gflops, "FMA peak {:.0f} GFLOP/s"),
    )
    said = ", ".join(text.format(value) for value, text in limits if value)
    known = (
        f"Limits of the machine: {said}."
        if facts.peak_gflops
        else "The session did not keep the machine's limits, so there are no lines."
    )
    unlike = len(page.kernels) - len(points)
    out = f" {unlike} kernels have no arithmetic or no time, and no place here." if unlike else ""
    return part(
        number, "roofline", "Roofline",
        element("p", f"{known} Numbers are places in the list of kernels.{out}", css="note"),
        legend(("before", "before"), ("after", "after")),
        roofline_chart(page, number),
    )  # fmt: skip


# ---- sessions side by side


def _beside(page: SessionPage, number: str) -> Part | None:
    if not page.beside:
        return None
    columns = [
        figure(f"{when(b.line.started_s)[5:]}, ms",
            lambda k, b=b: _ms(b.seconds.get(k.key)))  # type: ignore[misc]  # a column each
        for b in page.beside
    ]  # fmt: skip
    table = Table.of(
        page.kernels,
        words("kernel", lambda k: _linked(page, number, k.name)),
        figure("this, ms", lambda k: _ms(k.after_s)),
        *columns,
    )
    whole = Table.of(
        [page.line, *(b.line for b in page.beside)],
        words("session", lambda x: joined(when(x.started_s), " ", element("code", x.id[:12]))),
        figure("whole model, ms",
            lambda x: ", ".join(ms(1e3 * y.tuned_s) for y in x.latencies) or None),
        figure("candidates", lambda x: x.candidates),
        words("differs in", lambda x: _differs(page, x.id)),
    )  # fmt: skip
    return part(
        number, "beside", "Beside the sessions before",
        element("p", "Times of one launch, as each session's own page has them.", css="note"),
        table_element(whole, "sessions"),
        element("div", table_element(table, "kernels by session"), css="scroll", tabindex="0"),
    )  # fmt: skip


def _differs(page: SessionPage, session: str) -> str | None:
    """Conditions that were otherwise in a session beside this one."""
    found = next((b for b in page.beside if b.line.id == session), None)
    if found is None:
        return "this one"
    mine, theirs = dict(page.conditions), dict(found.conditions)
    apart = [n for n in mine | theirs if n not in ("began", "load_1m")]
    said = [f"{n} {theirs.get(n, 'unknown')}" for n in apart if mine.get(n) != theirs.get(n)]
    return ", ".join(said) or "nothing"


# ---- seconds, failures, decisions


def _seconds(page: SessionPage, number: str) -> Part | None:
    if not page.seconds:
        return None
    total = sum(s for _, s in page.seconds)
    table = Table.of(
        page.seconds,
        words("part", lambda x: x[0]),
        figure("s", lambda x: f"{x[1]:.1f}"),
        figure("% of all", lambda x: _share(x[1], total)),
    )
    return part(number, "seconds", "Where the seconds went", table_element(table, "seconds"))


def _failures(page: SessionPage, number: str) -> Part | None:
    if not page.statuses:
        return None
    counts = ", ".join(f"{count} {status}" for status, count in page.statuses)
    table = Table.of(
        page.failures,
        words("kind", lambda f: element("span", f.status, css="badge")),
        figure("candidates", lambda f: f.count),
        words("what the first of them said", lambda f: _said(f.message, f.actions)),
        words("of kernel", lambda f: _linked(page, number, f.kernel)),
    )
    return part(
        number, "ends", "How candidates ended",
        element("p", f"{counts}."),
        table_element(table, "failures") if page.failures
            else element("p", "None failed.", css="note"),
    )  # fmt: skip


def _said(message: str, actions: str) -> Html:
    """The first message of a kind, and an example of a candidate that got it."""
    example = element("summary", "example")
    return joined(
        element("div", message or "(nothing was said)"),
        element("details", example, element("code", actions or "(no actions)")),
    )


def _decisions(page: SessionPage, number: str) -> Part | None:
    if not page.decisions:
        return None
    table = Table.of(
        zip(page.decisions, page.decided, strict=True),
        words("about", lambda x: x[0].kind),
        words("kernel", lambda x: _linked(page, number, x[1])),
        words("choice", lambda x: x[0].choice),
        words("verdict", lambda x: "stands" if x[0].chosen else x[0].status if x[0].error
            else "lost"),
        figure("before, ms", lambda x: x[0].incumbent_ms, ms),
        figure("with it, ms", lambda x: x[0].challenger_ms, ms),
    )  # fmt: skip
    return part(
        number, "decisions", "Decisions about the whole model",
        element("p", f"{plural(len(page.decisions), 'alternative')} tried; times are of whole "
            "models.", css="note"),
        table_element(table, "decisions"),
    )  # fmt: skip


_SAID = {
    "cpu_name": "processor", "name": "device", "arch": "architecture", "cores": "CPUs",
    "physical_cores": "cores", "smt": "threads a core", "cpu_quota": "quota", "os": "system",
    "microcode": "microcode", "l1": "L1", "l2": "L2", "l3": "L3", "thp": "huge pages",
}  # fmt: skip
"""Facts of a machine that are shown at once, and their names; others fold away."""


def _about(page: SessionPage, number: str) -> Part:
    settings, fields, facts = page.settings, page.machine.fields, page.facts
    machine = [(said, _size(n, fields[n])) for n, said in _SAID.items() if fields.get(n)]
    limits = (
        ("FMA peak", facts.peak_gflops, "GFLOP/s"),
        ("caches", facts.cache_gb_per_s, "GB/s"),
        ("memory", facts.memory_gb_per_s, "GB/s"),
    )
    machine += [(said, f"{value:.0f} {unit}") for said, value, unit in limits if value]
    if facts.others_cpus is not None:
        machine.append(("other processes used", f"{facts.others_cpus:.2f} CPUs"))
    session = [
        ("session", page.line.id),
        *((n, _setting(settings[n])) for n in _SETTINGS if n in settings),
        *page.conditions,
    ]
    rest = sorted(f"{n} {v}" for n, v in fields.items() if n not in _SAID)
    return part(
        number, "machine", "Machine and session",
        element("p", page.machine.raised, css="note") if page.machine.raised else None,
        _facts(machine),
        _facts(session),
        element("details", element("summary", "all of its fingerprint"),
            element("p", "; ".join(rest), css="note")) if rest else None,
    )  # fmt: skip


_SETTINGS = (
    "model", "builder", "batch", "args", "dtype", "others", "budget_s", "searcher", "numerics",
    "policy",
)  # fmt: skip
"""Settings of a session that are shown: its models, and how it searched."""


def _setting(value: object) -> str:
    """A value of the settings; lists of pairs as words."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(" ".join(map(str, x)) if isinstance(x, list) else str(x) for x in value)


_DIGITS = 16


def _size(name: str, value: str) -> str:
    is_size = name in ("l1", "l2", "l3") and value.isdecimal() and len(value) < _DIGITS
    return f"{int(value) >> 10} KiB" if is_size else value


def _facts(said: Sequence[tuple[str, object]]) -> Html | None:
    rows = (element("div", element("dt", n), element("dd", v)) for n, v in said)
    return element("dl", *rows, css="facts") if said else None


# ---- sweeps: what one found, and other libraries beside it


def _findings(page: SessionPage, number: str) -> Part | None:
    """Section on what changed, since when, and with what; nothing of a session that is no sweep."""
    if page.findings is None:
        return None
    items = []
    for found in page.findings:
        what, *details = found.splitlines()
        items.append(element("li", element("p", what, css="name"),
            *(element("p", line.strip(), css="note") for line in details)))  # fmt: skip
    said = element("ul", *items) if items else element("p", "No change of level.", css="note")
    return part(number, "findings", "What the sweep found", said)


def _peers(page: SessionPage, number: str) -> Part | None:
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
    return part(
        number, "peers", "Peers",
        element("p", "Medians of calls between the turns of the sweep.", css="note"),
        table_element(table, "peers"),
    )  # fmt: skip
