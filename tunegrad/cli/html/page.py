"""The page of a report: a head, a part per session, the histories, and the list of sessions.

The judgement of regression sweeps says what each found, and where levels begin in histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tunegrad.cli.tables import (
    Table,
    busy_lines,
    duration,
    failed_text,
    figure,
    finding_text,
    ms,
    plural,
    when,
    words,
)
from tunegrad.db import Contents, machine_id
from tunegrad.regress import Judged, judge_nights
from tunegrad.regress import nights as history
from tunegrad.tuning import Judgement

from . import sections
from .charts import history_chart
from .script import SCRIPT, WATCH, script_policy
from .style import STYLE, Html, element, joined, table_element, text

if TYPE_CHECKING:
    from tunegrad.tuning import HistoryChart, Latencies, ReportPage, SessionPage


def judgement(contents: Contents, sessions: Sequence[str]) -> Judgement:
    """As ``tunegrad regress`` judges, by yardsticks and blessings: levels by the newest sweep of
    each model; findings, and what failed, of those of the sessions that are sweeps, by what was
    known then.
    """
    nights, blessed = history.nights_in(contents.sessions, contents.latencies)
    parts, _, _ = history.sweeps_of(contents.sessions)

    @cache
    def judged(sweep: str) -> Judged:
        return judge_nights(nights, blessed, sweep)

    machines = dict.fromkeys(x.fingerprint for x in contents.latencies)
    last = {history.place_of(f): f for f in machines}
    newest: dict[tuple[history.Place, str], str] = {}
    for night in nights:
        newest |= {
            (night.place, history.split_series(series)[0]): night.sweep for series, _ in night.rows
        }
    return Judgement(
        begun=frozenset(
            (row.model, row.session, machine_id(row.fingerprint))
            for (place, model), sweep in newest.items()
            for row in judged(sweep).begun
            if (history.place_of(row.fingerprint), history.split_series(row.model)[0])
            == (place, model)
        ),
        places={machine_id(f): machine_id(last[history.place_of(f)]) for f in machines},
        findings={
            session: (
                *(finding_text(f) for f in judged(parts[session]).findings),
                *(
                    failed_text(f)
                    for lost in history.failures_of(contents.sessions, parts[session]).values()
                    for f in lost
                ),
            )
            for session in sessions
            if session in parts
        },
    )


_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "script-src "
)
"""Nothing is loaded, and only the script of this package runs, whatever names a store holds."""


def report_html(page: ReportPage, code: sections.Code = sections.no_code, version: str = "") -> str:
    """The whole file. ``code`` gives source and assembly of a kernel. A page with a ``version`` is
    watched: it asks where it came from for a newer one.
    """
    ends = [p for p in (_histories(page.histories), _sessions(page)) if p is not None]
    own = [(f"s{i}", " + ".join(p.line.models) or p.line.command) for i, p in enumerate(page.pages)]
    last = [(p.id, p.name) for p in ends]
    inside = joined(
        _store_head(page) if page.whole_store else None,
        _contents([*own, *last], "Models") if page.whole_store else None,
        *(
            _article(p, number, page, code, [] if page.whole_store else last)
            for p, (number, _) in zip(page.pages, own, strict=True)
        ),
        *(p.html for p in ends),
    )
    return _file(_title(page), inside, _foot(page), version)


def notice_html(said: str, version: str) -> str:
    """A page that is watched while there is nothing to show, which says why."""
    return _file("waiting", element("header", element("h1", "Waiting"), element("p", said)), None,
        version)  # fmt: skip


def _file(title: str, inside: Html, foot: Html | None, version: str) -> str:
    live = bool(version)
    script = f"{SCRIPT}{WATCH}" if live else SCRIPT
    policy = f"{_POLICY}{script_policy(script)}" + ("; connect-src 'self'" if live else "")
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="version", content=version) if live else None,
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - tunegrad"),
        element("style", Html(STYLE)),
    )
    state = element("p", "live", id="state", role="status", css="note") if live else None
    body = joined(
        element("a", "to the report", href="#report", css="skip"),
        element("header", state, css="live") if live else None,
        element("main", inside, id="report"),
        foot,
        element("script", Html(script)),
    )
    whole = element("html", element("head", head), element("body", body), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _title(page: ReportPage) -> str:
    if page.whole_store:
        return f"store {page.store}"
    return " + ".join(page.pages[0].line.models) or page.pages[0].line.command


def _contents(entries: Sequence[tuple[str, str]], name: str) -> Html:
    """A table of contents."""
    links = (element("li", element("a", said, href=f"#{at}")) for at, said in entries)
    return element("nav", element("ul", *links), aria_label=name, css="card")


def _store_head(page: ReportPage) -> Html:
    total = sum(x.candidates for x in page.sessions)
    return element(
        "header",
        element("h1", "Store ", element("span", page.store, css="name")),
        element(
            "p",
            f"{plural(len(page.sessions), 'session')}, {plural(total, 'candidate')}. "
            "Below: the newest search of each model and device.",
            css="sub",
        ),
    )


def _article(
    page: SessionPage,
    number: str,
    report: ReportPage,
    code: sections.Code,
    others: Sequence[tuple[str, str]],
) -> Html:
    line = page.line
    level = "h2" if report.whole_store else "h1"
    took = "it has not ended" if line.seconds is None else duration(line.seconds)
    machine = page.machine.fields.get("cpu_name") or page.machine.fields.get("name")
    parts = sections.session_parts(page, number, code)
    head = element(
        "header",
        element(level, " + ".join(line.models) or line.command),
        element(
            "p",
            joined(
                f"{line.where}" if line.where else "",
                f" of {machine}; " if machine else "; " if line.where else "",
                f"{line.command} session of {when(line.started_s)} UTC, {took}, "
                f"{plural(line.candidates, 'candidate')}",
            ),
            css="sub",
        ),
        *(element("p", said, css="warn") for said in busy_lines(page.machine.busy)),
        *(_headline(x, several=len(line.latencies) > 1) for x in line.latencies),
    )  # fmt: skip
    contents = _contents([*((p.id, p.name) for p in parts), *others], f"Contents of {number}")
    return element("article", head, contents, *(p.html for p in parts), id=number)


def _headline(x: Latencies, several: bool) -> Html:
    parts = [] if x.default_s is None else [_figure("default schedules", _ms(x.default_s))]
    parts.append(_figure("tuned", _ms(x.tuned_s)))
    if x.default_s is not None:
        parts.append(_figure("in turns, the whole model", sections.gain(x.gain, x.interval)))
    name = element("p", x.model, css="sub") if several else None
    return joined(name, element("div", *parts, css="headline"))


def _ms(seconds: float) -> Html:
    return joined(ms(1e3 * seconds), " ", element("small", "ms"))


def _figure(label: str, value: Html) -> Html:
    return element("div", element("span", label, css="label"), element("span", value, css="figure"))


def _histories(histories: tuple[HistoryChart, ...]) -> sections.Part | None:
    shown = [h for h in histories if len(h.rows) > 1]
    if not shown:
        return None
    blocks = []
    for h in shown:
        changes = plural(len(h.changes), "change")
        note = f"{changes} of level" if h.changes else "no sweep saw a change of level"
        blocks += [
            element("h3", h.model, " ", element("span", f"machine {h.machine}", css="uses")),
            history_chart(h),
            element("p", f"{len(h.rows)} sessions; {note}.", css="note"),
        ]
    colours = sections.legend(
        ("after", "tuned"),
        ("before", "default schedules, in the same turns: where both got slower it is the machine"),
    )
    return sections.part("all", "history", "History", colours, *blocks)


def _sessions(page: ReportPage) -> sections.Part | None:
    if not page.whole_store:
        return None
    table = Table.of(
        page.sessions,
        words("began", lambda x: f"{when(x.started_s)} UTC"),
        words("model", lambda x: " + ".join(x.models) or x.command),
        words("on", lambda x: x.where),
        figure("took", lambda x: None if x.seconds is None else duration(x.seconds)),
        figure("candidates", lambda x: x.candidates),
        figure("whole model", lambda x: joined(*(_verdict(each) for each in x.latencies))),
        words("session", lambda x: element("code", x.id[:12])),
    )
    shown = element("div", table_element(table, "sessions"), css="scroll", tabindex="0")
    return sections.part("all", "sessions", "Sessions", shown)


def _verdict(x: Latencies) -> Html:
    return element(
        "div", f"{ms(1e3 * x.tuned_s)} ms, ", sections.gain(x.gain, x.interval, small=False)
    )


def _foot(page: ReportPage) -> Html:
    damaged = f" {page.problems} damaged rows were left out." if page.problems else ""
    return element(
        "footer",
        text(
            f"Made by tunegrad report from {page.store}; intervals are at 95 %, by pairs of runs "
            f"in turns.{damaged}"
        ),
    )
