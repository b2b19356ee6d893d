"""Reports of sweeps: as plain text, as Markdown for a pull request, as JUnit XML, as Prometheus
reads them; and of a search for commits.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tunegrad.cli.tables.printer import (
    UNKNOWN,
    Table,
    duration,
    figure,
    gain_cell,
    ms,
    plural,
    shortened,
    times,
    when,
    words,
)
from tunegrad.reports import prometheus_text

if TYPE_CHECKING:
    from tunegrad.paired import Interval
    from tunegrad.regress import (
        Accepted,
        Alert,
        BetweenReport,
        CompareReport,
        CompareRow,
        Failed,
        Finding,
        SeriesRow,
        SweepReport,
    )

_WIDEST = 38
_TITLES = {
    "regression": "slower",
    "machine": "machine change, no regression",
    "recovered": "as before again",
    "improvement": "faster",
}


def sweep_text(report: SweepReport) -> str:
    """Text of a sweep: what was measured, what changed, what failed; last a line of all of it."""
    blocks = [_series_table(report.rows)] if report.rows else []
    blocks += [finding_text(f) for f in report.findings]
    blocks += [failed_text(f) for f in report.failed]
    blocks += [f"the machine was not quiet {b}" for b in report.busy]
    blocks += [f"this night does not count for {u}" for u in report.uncounted]
    return "\n\n".join([*blocks, summary_text(report)])


def summary_text(report: SweepReport) -> str:
    """One line on a sweep."""
    models = [r for r in report.rows if ": " not in r.series]
    kernels = [r for r in report.rows if r.schedule in ("stored", "default")]
    counts = f"{len(models)} models, {len(kernels)} kernels"
    slower = len(report.regressions)
    said = [
        f"{slower} slower" if slower else "nothing slower",
        *([f"{len(report.failed)} failed"] if report.failed else []),
        *([f"{len(report.uncounted)} models not judged"] if report.uncounted else []),
        *([f"tuned again: {', '.join(report.retuned)}"] if report.retuned else []),
        *(["interrupted; the same command goes on"] if report.interrupted else []),
    ]
    learning = [r for r in report.rows if r.noise is None and r.schedule != "peer"]
    if learning:
        said.append(f"{len(learning)} series are learning their noise")
    source = f", revision {report.revision}" if report.revision else ""
    return (
        f"sweep {report.sweep} of {report.store}{source}: {counts} in "
        f"{duration(report.seconds)}: {'; '.join(said)}"
    )


def finding_text(f: Finding) -> str:
    """A change in some lines: what, by how much, since when, and what changed with it."""
    lines = [f"{_TITLES[f.kind]}: {f.series} on {f.device}{_by(f)}"]
    lines.append(f"  since sweep {f.since}, {when(f.since_s)}, {plural(f.nights, 'night')}")
    if f.changed:
        lines += [f"  with it changed {x}" for x in f.changed]
    elif f.ratio is not None:
        lines.append("  no field of the machine, the versions or the code changed with it")
    return "\n".join(lines)


def failed_text(f: Failed) -> str:
    """Text of a failure to measure, in a line."""
    what = f"kernel {f.kernel} of {f.model}" if f.kernel else f"model {f.model}"
    return f"failed: {what} on {f.device}: {f.why}"


def markdown_text(report: SweepReport) -> str:
    """A summary for a pull request: changes first, then a table of models."""
    lines = ["### Regression sweep", "", summary_text(report), ""]
    for f in report.findings:
        since = f"since {f.since} ({when(f.since_s)})"
        lines.append(f"- **{_TITLES[f.kind]}**: `{f.series}` on {f.device}{_by(f)}, {since}")
        lines += [f"  - {x}" for x in f.changed]
    lines += [f"- **failed**: {failed_text(f).removeprefix('failed: ')}" for f in report.failed]
    lines += [f"- the machine was not quiet {b}" for b in report.busy]
    lines += [f"- this night does not count for {u}" for u in report.uncounted]
    lines += ["", "| model | ms | default ms | gain (95 %) | nights | sees from |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for r in report.rows:
        if ": " not in r.series:
            gain = gain_cell(r.gain, r.interval)
            cells = (r.series, ms(r.ms), ms(r.default_ms), gain, str(r.nights), _sure(r))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def junit_text(report: SweepReport) -> str:
    """A test suite: a case a series, failed where it got slower; what failed is an error."""
    cases = ET.Element("testsuite", name=f"tunegrad regress {report.config}".strip())
    slower = {(f.device, f.series, f.key): f for f in report.regressions}
    for r in report.rows:
        case = _case(cases, r.device, r.series, r.ms)
        found = slower.pop((r.device, r.series, r.key), None)
        if found is not None:
            _told(case, "failure", finding_text(found))
    for found in slower.values():
        _told(_case(cases, found.device, found.series, 0.0), "failure", finding_text(found))
    for failed in report.failed:
        name = f"{failed.model}: {failed.kernel}" if failed.kernel else failed.model
        _told(_case(cases, failed.device, name, 0.0), "error", failed_text(failed))
    cases.set("tests", str(len(cases)))
    cases.set("failures", str(len(cases.findall("testcase/failure"))))
    cases.set("errors", str(len(cases.findall("testcase/error"))))
    cases.set("time", f"{report.seconds:.3f}")
    ET.indent(cases)
    return ET.tostring(cases, encoding="unicode", xml_declaration=True) + "\n"


def between_text(report: BetweenReport) -> str:
    """An alert a commit, or how alike the ends are; last a line on what it took."""
    blocks = [_alert_text(alert) for alert in report.alerts]
    if not blocks and report.rows:
        table = Table.of(
            report.rows,
            words("series", lambda r: shortened(r.series, _WIDEST)),
            figure("B/A", lambda r: times(r.ratio, 3)),
            figure("95 %", lambda r: r.interval, _interval),
        )
        blocks.append(table.text())
    blocks += [f"skipped: {commit[:12]}: {why}" for commit, why in report.skipped]
    alerts = len(report.alerts)
    said = f"{plural(alerts, 'commit')} made it slower"
    if report.interrupted:
        said = "interrupted; the same command goes on"
    elif not alerts:
        said = "nothing is surely slower" if report.commits else "no commit changes what is timed"
    summary = (
        f"{report.a[:12]} to {report.b[:12]} of {report.repository}: {report.commits} commits, "
        f"{report.builds} built, {report.rounds} rounds in {duration(report.seconds)}: {said}"
    )
    return "\n\n".join([*blocks, summary])


def _alert_text(alert: Alert) -> str:
    """A commit and all that it made slower."""
    about = ", ".join(x for x in (alert.day, alert.author, alert.subject) if x)
    lines = [f"slower: commit {alert.commit[:12]}, {about}"]
    if alert.others:
        names = ", ".join(c[:12] for c in alert.others)
        lines.append(f"  or one of those before it, which tell nothing alone: {names}")
    lines += [f"  {r.series}: {r.ratio:.3f}x ({_interval(r.interval)})" for r in alert.rows]
    return "\n".join([*lines, f"  compared with {alert.before[:12]}, the one before"])


def metrics_text(report: SweepReport, moment_s: float) -> str:
    """A sweep that ended at ``moment_s`` (seconds since the epoch), as Prometheus reads it."""
    found = {(f.device, f.series, f.key): f for f in report.findings}
    each = [
        ({"device": r.device, "series": r.series, "key": r.key[:12]}, r,
         found.get((r.device, r.series, r.key)))
        for r in report.rows
    ]  # fmt: skip
    slower = [(labels, r, f) for labels, r, f in each if f and f.ratio is not None]

    def verdict(r: SeriesRow, f: Finding | None) -> str:
        return f.kind if f else "learning" if r.noise is None else "same"

    def ratio(r: SeriesRow, f: Finding | None) -> float | None:
        return f.ratio if f and f.ratio else r.ms / r.baseline_ms if r.baseline_ms else None

    def bounds(given: list[tuple[dict[str, str], Interval | None]]) -> list[Any]:
        return [
            (labels | {"bound": bound}, value)
            for labels, interval in given
            for bound, value in zip(("lower", "upper"), interval or (), strict=False)
        ]

    def some(given: list[tuple[dict[str, str], float | None]]) -> list[Any]:
        return [(labels, value) for labels, value in given if value is not None]

    return prometheus_text(
        (f"tunegrad_regress_{name}", "gauge", said, samples)
        for name, said, samples in (
            ("latency_seconds", "Median of this night.", [(x, r.ms / 1e3) for x, r, _ in each]),
            ("default_seconds", "Median with the default schedules, in the same turns.",
             some([(x, r.default_ms and r.default_ms / 1e3) for x, r, _ in each])),
            ("baseline_seconds", "Median of the nights before, since the last level.",
             some([(x, r.baseline_ms and r.baseline_ms / 1e3) for x, r, _ in each])),
            ("ratio", "Time over the baseline; of a change that was found, as its nights say.",
             some([(x, ratio(r, f)) for x, r, f in each])),
            ("ratio_bound", "Where the ratio of a change lies, at 95 %.",
             bounds([(x, f.interval) for x, _, f in slower])),
            ("gain_bound", "Where the gain over the default schedules lies, at 95 %.",
             bounds([(x, r.interval) for x, r, _ in each])),
            ("noise_ratio", "Scatter of one night.", some([(x, r.noise) for x, r, _ in each])),
            ("verdict", "1 for what the history says of a series.",
             [(x | {"verdict": verdict(r, f)}, 1.0) for x, r, f in each]),
            ("failures", "Kernels and models that could not be measured.",
             [({}, float(len(report.failed)))]),
            ("busy", "1 where other processes kept the machine busy.",
             [({}, float(bool(report.busy or report.uncounted)))]),
            ("finished_timestamp_seconds", "When the sweep ended.", [({}, moment_s)]),
        )
    )  # fmt: skip


def accepted_text(accepted: Accepted) -> str:
    """A line a level, and one for all of them."""
    lines = [
        f"accepted: {f.series} on {f.device}{_by(f)}, since sweep {f.since}"
        for f in accepted.levels
    ]
    return "\n".join([*lines, f"{plural(len(lines), 'level')} accepted: {accepted.reason}"])


def compare_text(report: CompareReport) -> str:
    """A line a series; then what differs between the runs."""
    table = Table.of(
        report.rows,
        words("series", lambda r: shortened(r.series, _WIDEST)),
        figure("A ms", lambda r: r.a_ms, ms),
        figure("B ms", lambda r: r.b_ms, ms),
        figure("B/A", lambda r: times(r.ratio if r.counts else None, 3)),
        figure("95 %", lambda r: r.interval, _interval),
        words("", _difference),
    )
    blocks = [f"A  {report.a}\nB  {report.b}", table.text()]
    blocks += [
        f"{x}: a night does not count, since other processes took CPUs that it needed; tunegrad "
        "regress on a quiet machine makes another"
        for x in report.uncounted
    ]
    if report.yardsticks:
        blocks.append(
            "B/A is how many times as long B takes as A, freed of what the machine did: B ms over "
            "A ms, over what the yardsticks moved by"
        )
    blocks += [
        f"yardstick {m.yardstick} of {m.model}: {m.ratio:.3f}x ({_interval(m.interval)})"
        for m in report.yardsticks
    ]
    blocks += [f"differs: {x}" for x in report.changed]
    blocks += [f"only in A: {x}" for x in report.only_a] + [
        f"only in B: {x}" for x in report.only_b
    ]
    if report.tuned:
        blocks.append(
            "compared are whole models, as tune sessions measured them at their ends: nothing says "
            "what the machine did meanwhile"
        )
    said = "turns and nights" if report.noise else "turns alone; more nights would say more"
    return "\n\n".join([*blocks, f"intervals hold the scatter of {said}"])


def _difference(row: CompareRow) -> str:
    if not row.counts:
        return "does not count"
    return "" if row.different else "no difference"


def _series_table(rows: Sequence[SeriesRow]) -> str:
    table = Table.of(
        rows,
        words("series", lambda r: shortened(r.series, _WIDEST)),
        figure("ms", lambda r: r.ms, ms),
        figure("default", lambda r: r.default_ms, ms),
        figure("gain (95 %)", lambda r: gain_cell(r.gain, r.interval)),
        figure("nights", lambda r: r.nights),
        figure("noise", lambda r: None if r.noise is None else f"{r.noise:.1%}"),
        figure("sees", _sure),
    )
    return table.text()


def _by(f: Finding) -> str:
    if f.ratio is None:
        return ": other hardware than the sweep before; its history begins"
    return f": {f.ratio:.3f}x ({_interval(f.interval)}), {ms(f.before_ms)} to {ms(f.now_ms)} ms"


def _sure(r: SeriesRow) -> str:
    return times(r.sure_from, 3)


def _interval(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _case(suite: ET.Element, device: str, name: str, time_ms: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=_xml(device), name=_xml(name), time=f"{time_ms / 1e3:.9f}"
    )


def _told(case: ET.Element, kind: str, text: str) -> None:
    ET.SubElement(case, kind, message=_xml(text.splitlines()[0])).text = _xml(text)


def _xml(text: str) -> str:
    """Text without what no XML may hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
