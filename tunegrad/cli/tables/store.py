"""Reports of ``tunegrad store`` as plain text.

What a store says is data: what a terminal would act on is escaped.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tunegrad.cli.tables.printer import (
    Table,
    duration,
    figure,
    gain_cell,
    ms,
    plain,
    plural,
    shortened,
    times,
    when,
    words,
)

if TYPE_CHECKING:
    from tunegrad.db import (
        DecisionRow,
        History,
        ImportReport,
        LatencyRow,
        MeasurementRow,
        MergeReport,
        Problem,
        PruneReport,
        Stats,
        StoreDiff,
        Why,
        WinnerFacts,
    )

_NONE = "(none)"
_CELL = 60


def _decisions(rows: tuple[DecisionRow, ...]) -> str:
    """Alternatives of questions, with their evidence, a line each."""
    table = Table.of(
        rows,
        words("decided", lambda r: when(r.created_s)),
        words("question", lambda r: r.kind),
        words("choice", lambda r: plain(r.choice)),
        words("", lambda r: "stands since" if r.chosen else "" if r.status == "ok" else r.status),
        words("test", lambda r: plain(r.test), spare=2),
        figure("p", lambda r: f"{r.p_value:.2g}"),
        figure("before ms", lambda r: r.incumbent_ms, ms),
        figure("after ms", lambda r: r.challenger_ms, ms),
        words("machine", lambda r: r.machine, spare=1),
    )
    return table.text()


def stats_text(path: Path, stats: Stats) -> str:
    """Text of a store's contents, a fact a line; statuses with no trial are left out."""
    facts = (
        ("trials", stats.trials),
        *((f"  {status}", count) for status, count in stats.by_status if count),
        *((("  unknown status", stats.unknown_status),) if stats.unknown_status else ()),
        ("kernels", stats.kernels),
        ("machines", stats.fingerprints),
        ("sessions", stats.sessions),
        ("promotions", stats.promotions),
        ("withdrawals", stats.withdrawals),
        ("decisions", stats.decisions),
        ("latencies of models", stats.latencies),
        ("time spent searching", duration(stats.spent_s)),
        ("size, bytes", stats.size_bytes),
        ("schema version", stats.schema_version),
    )
    header = ("store", str(path))
    return Table(header, facts, left=header).text()


def problems_text(path: Path, problems: Sequence[Problem]) -> str:
    """``ok``, or what is damaged, a line each."""
    if not problems:
        return f"{path}: ok"
    return "\n".join(f"{path}: {problem}" for problem in problems)


def import_text(report: ImportReport) -> str:
    """Text of an import: what was taken, what was refused, and what was checked."""
    facts = [
        ("new trials", str(report.new_trials)),
        ("known trials, left as they are", str(report.known_trials)),
        ("new promotions", str(report.new_promotions)),
        ("new decisions", str(report.new_decisions)),
        ("new latencies of models", str(report.new_latencies)),
        ("winners held: measured here", str(report.held)),
        ("winners that a file claims", str(report.imported_winners)),
        ("rows refused", str(len(report.refused))),
        ("trials not checked for legality", str(report.unchecked_trials)),
        *((f"  {reason}", str(count)) for reason, count in sorted(report.unchecked.items())),
    ]
    verb = "would import" if report.dry_run else "imported"
    lines = (f"  {name:<31} {value:>2}" for name, value in facts)
    return "\n".join([f"{verb} {report.source} into {report.store}", *lines])


def merge_text(report: MergeReport) -> str:
    """Before and after."""
    rows = (
        ("trials", report.trials_before, report.trials),
        ("promotions", report.promotions_before, report.promotions),
        ("decisions", report.decisions_before, report.decisions),
        ("latencies", report.latencies_before, report.latencies),
        ("winners", report.winners_before, report.winners),
    )
    sources = plural(len(report.sources), "store")
    verb = "would take in" if report.dry_run else "took in"
    change = (
        f"{report.changed_winners} winners changed, {report.replaced} trials have another "
        "store's better evidence"
    )
    table = Table(("", "before", "after"), rows, left=("",)).text()
    return f"{table}\n{report.store} {verb} {sources}; {change}"


def prune_text(report: PruneReport) -> str:
    """Text of a prune: what went, in rows and bytes."""
    verb = "would remove" if report.dry_run else "removed"
    return (
        f"{report.store}: {verb} {report.removed_trials} trials and {report.removed_kernels} "
        "kernels, "
        f"{report.trials} trials stay; {report.bytes_before} bytes before, "
        f"{report.bytes_after} after, "
        f"{report.freed_bytes} freed"
    )


def diff_text(found: StoreDiff, a: str, b: str) -> str:
    """Kernels of one store only, then the winners that differ, then what is the same."""
    lines = [f"only in {a}: {plain(name)}" for name in found.only_a]
    lines += [f"only in {b}: {plain(name)}" for name in found.only_b]
    for change in found.changes:
        ratio = "" if change.ratio is None else f"  a / b {change.ratio:.2f}"
        lines.append(f"{plain(change.kernel)}  {change.key}{ratio}")
        if change.machine:
            lines.append(f"    machines differ: {plain(change.machine)}")
        lines += [f"    a: {_facts(change.a)}", f"    b: {_facts(change.b)}"]
    for d in found.decisions:
        lines.append(f"{d.kind} of {plain(d.about)}  {d.key}: a {plain(d.a)}, b {plain(d.b)}")
    for x in found.latencies:
        ratio = "" if x.ratio is None else f", a / b {x.ratio:.2f}"
        times = f"a {ms(1e3 * x.a_s)} ms, b {ms(1e3 * x.b_s)} ms"
        lines.append(f"latency of {plain(x.model)}, tuned, the newest: {times}{ratio}")
    alone = (
        f"; {found.alone} winners have no counterpart on their machine, --all compares them"
        if found.alone
        else ""
    )
    lines.append(f"{found.same} winners are the same, {len(found.changes)} differ{alone}")
    return "\n".join(lines)


def why_text(found: Why) -> str:
    """The answer in one line, the fields of the key, the winner, its alternatives and evidence."""
    head = f"{plain(found.kernel) or '(no name)'}  {found.key}"
    blocks = [
        (
            f"{head}\n{found.outcome}"
            f"{': ' + plain(found.reason) if found.reason else ': this machine has a winner'}"
        )
    ]
    if found.fields:
        header = ("field", "stored", "here", "")
        rows = tuple(_field(f.field, f.stored, f.here) for f in found.fields)
        blocks.append(Table(header, rows, left=header).text())
    if found.winner is not None:
        blocks.append(_winner(found))
    if found.promotions:
        blocks.append(_promotions(found))
    if found.decisions:
        blocks.append(f"decisions about it on this machine:\n{_decisions(found.decisions)}")
    if found.withdrawals:
        lines = [
            f"  {plain(w.actions) or '(no actions)'}\n    by session {plain(w.session)}: "
            f"{plain(w.reason)}"
            for w in found.withdrawals
        ]
        blocks.append("\n".join(["withdrawn, and no winner again:", *lines]))
    if found.nearest:
        near = [
            f"  {ms(n.time_ms)} ms  {plain('; '.join(n.differs))}\n    {plain(n.actions)}"
            for n in found.nearest
        ]
        blocks.append("\n".join(["near, the closest first:", *near]))
    return "\n\n".join(blocks)


def _field(field: str, stored: str, here: str) -> tuple[str, str, str, str]:
    """A field of the key; of long lists that differ, what is in only one of them."""
    if stored == here:
        return plain(field), _cell(plain(stored)), "same", ""
    if max(len(stored), len(here)) > _CELL and "," in stored + here:
        mine, theirs = stored.split(","), here.split(",")
        stored = "only: " + ",".join(x for x in mine if x not in theirs)
        here = "only: " + ",".join(x for x in theirs if x not in mine)
    return plain(field), _cell(plain(stored)) or _NONE, _cell(plain(here)) or _NONE, "differs"


def _cell(text: str) -> str:
    return shortened(text, _CELL)


def _winner(found: Why) -> str:
    winner = found.winner
    assert winner is not None
    whose = "winner" if found.outcome == "hit" else "nearest winner"
    command = f", `{plain(found.command)}`" if found.command else ""
    counts = ", ".join(f"{count} {status}" for status, count in found.candidates)
    return "\n".join(
        [
            f"{whose}: {ms(1e3 * winner.time_s)} ms, {found.rule}",
            f"  {plain(winner.actions) or '(no actions)'}",
            (
                f"  found by {plain(found.origin) or _NONE} in session "
                f"{plain(winner.session)}{command}"
            ),
            (
                f"  candidates: {counts}; the fastest took {ms(found.fastest_ms)} ms when it was "
                "searched"
            ),
        ]
    )


def _promotions(found: Why) -> str:
    table = Table.of(
        found.promotions,
        words("promoted", lambda p: when(p.created_s)),
        words("test", lambda p: plain(p.test), spare=2),
        figure("p", lambda p: f"{p.p_value:.2g}"),
        figure("before ms", lambda p: p.incumbent_ms, ms),
        figure("after ms", lambda p: p.challenger_ms, ms),
        figure("samples", lambda p: p.samples, spare=1),
        words("caches", lambda p: "cold" if p.cold else "warm"),
        words("actions", lambda p: plain(p.actions) or "(no actions)"),
    )
    return table.text()


def _facts(facts: WinnerFacts | None) -> str:
    if facts is None:
        return _NONE
    test = plain(facts.test) or "fastest, no promotion"
    p_value = "" if facts.p_value is None else f" p={facts.p_value:.2g}"
    actions = plain(facts.actions) or "(no actions)"
    return f"{ms(1e3 * facts.time_s)} ms ({test}{p_value}, {facts.samples} samples)  {actions}"


# ---- histories


def history_text(found: History) -> str:
    """Tables of a history, under a line that names the model or the kernel."""
    blocks = [f"{plain(found.name) or '(no name)'}  {found.key}".rstrip()]
    if found.latencies:
        blocks.append(_latencies(found.latencies))
    if found.measurements:
        blocks.append(_measurements(found.measurements))
    if found.decisions:
        blocks.append(_decisions(found.decisions))
    if len(blocks) == 1:
        blocks.append("nothing to list")
    if found.left_out:
        blocks.append(
            f"left out: {found.left_out} schedules that were measured once and never won; "
            "--all lists them"
        )
    return "\n\n".join(blocks)


def _latencies(rows: tuple[LatencyRow, ...]) -> str:
    """A line each; of the versions only those that are not as in the line before."""
    before: list[Mapping[str, float | str]] = [{}, *(r.versions for r in rows)]
    table = Table.of(
        list(zip(rows, before, strict=False)),
        words("measured", lambda at: when(at[0].created_s)),
        words("kind", lambda at: at[0].kind + (" (imported)" if at[0].imported else "")),
        figure("ms", lambda at: at[0].time_ms, ms),
        figure("of before", lambda at: at[0].change, times),
        figure("default ms", lambda at: at[0].default_ms, ms, spare=3),
        figure("gain (95 %)", lambda at: gain_cell(at[0].gain, at[0].interval)),
        figure("samples", lambda at: at[0].samples, spare=2),
        words("machine", lambda at: at[0].machine, spare=4),
        words("conditions", lambda at: _conditions(at[0].state, _new(*at)), spare=1),
    )
    return table.text()


def _new(row: LatencyRow, before: Mapping[str, float | str]) -> dict[str, float | str]:
    """Versions that are not as they were before."""
    return {name: v for name, v in row.versions.items() if before.get(name) != v}


_CODE = (
    "registers", "spills", "stack_bytes", "shared_bytes", "occupancy", "instructions", "code_bytes",
)  # fmt: skip
"""Facts of a program that stand in a line; ``--json`` has all."""


def _measurements(rows: tuple[MeasurementRow, ...]) -> str:
    code, state = any(map(_code, rows)), any(r.state for r in rows)
    table = Table.of(
        rows,
        words("measured", lambda r: when(r.created_s)),
        words("status", lambda r: "withdrawn" if r.withdrawn else r.status),
        figure("ms", lambda r: r.time_ms, ms),
        figure("of reference", lambda r: None if r.ratio is None else f"{r.ratio:.3f}"),
        words("won", lambda r: "yes" if r.promoted else ""),
        words("origin", lambda r: plain(r.origin), spare=4),
        words("machine", lambda r: r.machine, spare=3),
        words("code", _code, spare=2) if code else None,
        words("device", lambda r: _conditions(r.state), spare=1) if state else None,
        words("actions", lambda r: plain(r.actions) or "(no actions)"),
    )
    return table.text()


def _code(row: MeasurementRow) -> str:
    return _conditions({n: row.facts[n] for n in _CODE if n in row.facts})


def _conditions(*given: Mapping[str, float | str]) -> str:
    pairs = [
        (name, v if isinstance(v, str) else f"{v:.3g}" if abs(v) < 1e3 else f"{v:.0f}")
        for found in given
        for name, v in found.items()
    ]
    return plain("; ".join(f"{name} {value}" for name, value in pairs))


_TRIAL_COLUMNS = (
    "kernel", "name", "machine", "status", "seconds", "half_interval_s", "samples", "beside_s",
    "origin", "session", "created_s", "space_version", "program_hash", "actions", "error",
)  # fmt: skip


def trials_csv(lines: Sequence[str]) -> str:
    """The trials of an exported store as CSV, one a row; facts of compilers are the last columns.

    ``seconds`` is the median, ``half_interval_s`` half of its 95 % interval, ``beside_s`` the
    median of what ran in turns with it. A text that a spreadsheet would take for a formula has an
    apostrophe before it.
    """
    from tunegrad.devices import relative_interval

    rows = [json.loads(line) for line in lines]
    names = {r["key"]: r["name"] for r in rows if r.get("row") == "kernel"}
    trials = [r for r in rows if r.get("row") == "trial"]
    facts = sorted({name for t in trials for name in t["facts"]})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_TRIAL_COLUMNS, *map(_no_formula, facts)])
    for t in trials:
        taken, beside = t["samples_s"], t["reference_samples_s"]
        middle = median(taken) if taken else None
        about = {
            **t, "name": names.get(t["kernel"], ""), "seconds": middle,
            "half_interval_s": median(taken) * relative_interval(taken) if len(taken) > 1 else None,
            "samples": len(taken), "beside_s": median(beside) if beside else None,
        }  # fmt: skip
        cells = [*(about[c] for c in _TRIAL_COLUMNS), *(t["facts"].get(f) for f in facts)]
        writer.writerow(map(_no_formula, cells))
    return out.getvalue()


def _no_formula(value: object) -> object:
    """A value of a table: a text of a store, which may be another's, is no formula there."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
