"""Reports of ``tunegrad store`` as plain text.

What a store says is data: what a terminal would act on is escaped.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tunegrad.cli.output import printable
from tunegrad.cli.tables import ms, table

if TYPE_CHECKING:
    from tunegrad.db import (
        DecisionRow,
        ImportReport,
        MergeReport,
        PruneReport,
        StoreDiff,
        Why,
        WinnerFacts,
    )

__all__ = [
    "decisions_table",
    "diff_text",
    "import_text",
    "merge_text",
    "plain",
    "prune_text",
    "when",
    "why_text",
]

_NONE = "(none)"
_CELL = 60


def plain(text: str) -> str:
    """The text on one line, without characters that are not printable."""
    return printable(text).replace("\n", "\\n")


def decisions_table(rows: tuple[DecisionRow, ...]) -> str:
    """Alternatives of questions, with their evidence, a line each."""
    lines = [
        (
            when(r.created_s),
            r.kind,
            plain(r.choice),
            "stands since" if r.chosen else "" if r.status == "ok" else str(r.status),
            plain(r.test),
            f"{r.p_value:.2g}",
            ms(r.incumbent_ms),
            ms(r.challenger_ms),
            r.machine,
        )
        for r in rows
    ]
    header = ("decided", "question", "choice", "", "test", "p", "before ms", "after ms", "machine")
    left = ("decided", "question", "choice", "", "test", "machine")
    return table(header, lines, left, spare=("machine", "test"))


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
    rows = [
        ("trials", str(report.trials_before), str(report.trials)),
        ("promotions", str(report.promotions_before), str(report.promotions)),
        ("decisions", str(report.decisions_before), str(report.decisions)),
        ("latencies", str(report.latencies_before), str(report.latencies)),
        ("winners", str(report.winners_before), str(report.winners)),
    ]
    sources = f"{len(report.sources)} {'store' if len(report.sources) == 1 else 'stores'}"
    verb = "would take in" if report.dry_run else "took in"
    change = (
        f"{report.changed_winners} winners changed, {report.replaced} trials have another "
        "store's better evidence"
    )
    return (
        f"{table(('', 'before', 'after'), rows, left=('',))}\n{report.store} {verb} "
        f"{sources}; {change}"
    )


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
    """The answer in one line, the fields of the key, then the winner, its rivals and its
    evidence.
    """
    head = f"{plain(found.kernel) or '(no name)'}  {found.key}"
    blocks = [
        (
            f"{head}\n{found.outcome}"
            f"{': ' + plain(found.reason) if found.reason else ': this machine has a winner'}"
        )
    ]
    if found.fields:
        header = ("field", "stored", "here", "")
        blocks.append(
            table(header, [_field(f.field, f.stored, f.here) for f in found.fields], left=header)
        )
    if found.winner is not None:
        blocks.append(_winner(found))
    if found.promotions:
        blocks.append(_promotions(found))
    if found.decisions:
        blocks.append(f"decisions about it on this machine:\n{decisions_table(found.decisions)}")
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
        return plain(field), _cut(plain(stored)), "same", ""
    if max(len(stored), len(here)) > _CELL and "," in stored + here:
        mine, theirs = stored.split(","), here.split(",")
        stored = "only: " + ",".join(x for x in mine if x not in theirs)
        here = "only: " + ",".join(x for x in theirs if x not in mine)
    return plain(field), _cut(plain(stored)) or _NONE, _cut(plain(here)) or _NONE, "differs"


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


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
    rows = [
        (
            when(p.created_s),
            plain(p.test),
            f"{p.p_value:.2g}",
            ms(p.incumbent_ms),
            ms(p.challenger_ms),
            str(p.samples),
            "cold" if p.cold else "warm",
            plain(p.actions) or "(no actions)",
        )
        for p in found.promotions
    ]
    header = ("promoted", "test", "p", "before ms", "after ms", "samples", "caches", "actions")
    return table(
        header, rows, left=("promoted", "test", "caches", "actions"), spare=("samples", "test")
    )


def when(moment_s: float) -> str:
    """A moment in UTC, to the minute."""
    try:
        return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{moment_s:g} s"


def _facts(facts: WinnerFacts | None) -> str:
    if facts is None:
        return _NONE
    test = plain(facts.test) or "fastest, no promotion"
    p_value = "" if facts.p_value is None else f" p={facts.p_value:.2g}"
    actions = plain(facts.actions) or "(no actions)"
    return f"{ms(1e3 * facts.time_s)} ms ({test}{p_value}, {facts.samples} samples)  {actions}"
