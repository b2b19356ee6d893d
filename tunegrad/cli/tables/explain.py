"""The answer of ``explain`` as text: a table of the model, the heaviest first, then a block per
kernel; or one kernel's forms, and how each came of the one before; and
the report on a machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from tunegrad.cli.tables.models import busy_lines
from tunegrad.cli.tables.printer import (
    UNKNOWN,
    Table,
    figure,
    gain_cell,
    ms,
    number,
    percent,
    plain,
    shortened,
    threads_text,
    times,
    words,
)
from tunegrad.reports import (
    CodeFacts,
    DoctorReport,
    ExplainReport,
    ExplainRow,
    KernelResources,
    Neighbour,
    Promotion,
    QuantisedLayer,
    StepTime,
    VariantRow,
)

if TYPE_CHECKING:
    from tunegrad.explain import FormReport, TraceReport


def doctor_text(report: DoctorReport) -> str:
    """Devices, compilers, versions, what was measured, and what candidates are kept in."""
    devices = Table.of(
        report.devices,
        words("device", lambda d: d.name),
        words("usable", lambda d: "yes" if d.usable else "no"),
        words("detail", lambda d: d.detail),
    )
    tools = Table.of(
        (*report.compilers, *report.versions),
        words("compiler or package", lambda c: c.name),
        words("version", lambda c: c.version or "not installed"),
    )
    fma = "FMA peak, f32, GFLOP/s", report.fma_peak_one_thread_gflops, report.fma_peak_gflops
    triad = "DRAM triad, GB/s", report.bandwidth_one_thread_gb_per_s, report.bandwidth_gb_per_s
    peaks = Table.of(
        (fma, triad),
        words("measured", lambda p: p[0]),
        figure("1 thread", lambda p: f"{p[1]:.1f}"),
        figure(f"{report.threads} threads", lambda p: f"{p[2]:.1f}"),
    )
    places = Table.of(
        report.places,
        words("kept", lambda p: p.what),
        words("where", lambda p: p.place),
        words("held", lambda p: p.held),
    )
    isolation = Table.of(
        report.isolation,
        words("isolation", lambda r: r.name),
        words("here", lambda r: "yes" if r.present else "no"),
        words("what it is", lambda r: r.detail),
    )
    others = f"{report.others_cpus:.1f} of {report.cpus} CPUs"
    busy = "the machine is busy, and the peaks are too low" if report.busy else "it is quiet enough"
    counters = f"no ({report.no_counters})" if report.no_counters else "yes"
    blocks = [
        devices.text(),
        tools.text(),
        peaks.text(),
        f"other processes use {others}: {busy}",
        f"hardware counters for perf: {counters}",
        places.text(),
        isolation.text(),
    ]
    return "\n\n".join(blocks)


_BOUND = {"flops": "arithmetic", "bytes": "traffic"}

_TRIED, _RULES, _WIDTH = 8, 6, 72

_NUMBER = re.compile(r"\d+")
"""Rules that are alike but for their numbers are one."""


def explain_text(report: ExplainReport) -> str:
    """The machine, the model's table and sums, the variants, then each kernel in launch order."""
    parts = [_machine(report), _model_table(report)]
    if len(report.rows) > 1:
        parts.append(_sums(report))
    if report.variants:
        parts.append(_variants(report.variants))
    if report.quantised:
        parts.append(_quantised(report.quantised))
    parts += [_block(row) for row in report.rows if report.top is None or row.steps or row.note]
    return "\n\n".join(parts)


def _rate(gb_per_s: float) -> str:
    """Bytes a second; a device may have no figure of its caches."""
    return f"{gb_per_s:.1f} GB/s" if gb_per_s < float("inf") else "not measured"


def _machine(report: ExplainReport) -> str:
    store = f"store {report.store}" if report.store else "no store"
    measured = (
        f"{report.model} on {report.device}, {threads_text(report.threads)}, {store}; measured: "
        f"FMA peak {report.peak_gflops:.1f} GFLOP/s, "
        f"caches {_rate(report.cache_gb_per_s)}, memory {report.memory_gb_per_s:.1f} GB/s"
    )
    return "\n".join([measured, *busy_lines(report.busy)])


def _model_table(report: ExplainReport) -> str:
    table = Table.of(
        sorted(report.rows, key=lambda row: -row.uses * (row.ms or 0.0)),
        words("kernel", lambda r: r.kernel),
        figure("uses", lambda r: r.uses),
        figure("share %", lambda r: r.share, percent),
        figure("MFLOP", lambda r: _size(r.flops / 1e6), spare=2),
        figure("KB", lambda r: _size(r.unique_bytes / 1e3), spare=1),
        words("bound by", lambda r: _BOUND[r.bound]),
        figure("bound ms", lambda r: r.bound_ms, ms),
        figure("ms", lambda r: r.ms, ms),
        figure("% of bound", lambda r: r.pct_bound, number),
        figure("lost ms", lambda r: r.lost_ms, ms),
    )
    return table.text()


def _sums(report: ExplainReport) -> str:
    wall = ""
    if report.wall_ms and report.total_ms:
        part = 100.0 * report.total_ms / report.wall_ms
        wall = (
            f"; the whole model took {ms(report.wall_ms)} ms when it was last tuned, so they are "
            f"{part:.0f} % of it"
        )
    return (
        f"all kernels: {ms(report.total_ms)} ms; the sum of their bounds is "
        f"{ms(report.floor_ms)} ms, so they stand at "
        f"{number(report.pct_floor)} % of it; with every kernel direct it would be "
        f"{ms(report.direct_floor_ms)} ms{wall}"
    )


def _variants(rows: Sequence[VariantRow]) -> str:
    table = Table.of(
        [(row, option, i == 0) for row in rows for i, option in enumerate(row.options)],
        words("kernel", lambda at: at[0].kernel if at[2] else ""),
        figure("uses", lambda at: at[0].uses if at[2] else ""),
        words("variant", lambda at: at[1].name),
        words("", lambda at: _picked(at[0]) if at[1].name == at[0].picked else ""),
        figure("kernels", lambda at: at[1].kernels),
        figure("bound ms", lambda at: at[1].bound_ms, ms),
        figure("their sum ms", lambda at: at[1].parts_ms, ms),
        figure("as a whole ms", lambda at: at[1].stored_ms, ms),
    )
    return table.text()


def _quantised(rows: Sequence[QuantisedLayer]) -> str:
    table = Table.of(
        rows,
        words("quantised layer", lambda r: r.layers[0]),
        figure("more", lambda r: len(r.layers) - 1 or ""),
        words("products of", lambda r: "bytes" if r.runs == "direct" else "f32"),
        words("because", lambda r: r.why),
    )
    return table.text()


def _picked(row: VariantRow) -> str:
    return "stored" if row.stored else "expected"


def _block(row: ExplainRow) -> str:
    return "\n".join([f"{row.kernel}  {row.key}", *(f"    {line}" for line in _lines(row))])


def _lines(row: ExplainRow) -> Iterator[str]:
    if row.operations:
        yield f"made of {', '.join(row.operations)}"
    if row.layers:
        yield f"in the model: {plain('; '.join(row.layers))}"
    executed = (
        ""
        if not row.flops or row.executed_flops is None
        else f", {row.executed_flops / row.flops:.2f}x executed"
    )
    constants = f", {_size(row.const_bytes / 1e3)} KB of it constants" if row.const_bytes else ""
    yield (
        f"needs {_size(row.flops / 1e6)} MFLOP{executed}; {_size(row.unique_bytes / 1e3)} "
        f"KB{constants}; "
        f"{row.intensity:.2f} FLOP/byte"
    )
    level = "caches" if row.level == "cache" else "memory"
    measured = "not timed"
    if row.ms is not None:
        measured = f"takes {ms(row.ms)} ms, {number(row.pct_bound)} % of the bound"
    yield f"arithmetic {ms(row.flops_ms)} ms, traffic to {level} {ms(row.bytes_ms)} ms; {measured}"
    yield _source(row)
    if row.registers:
        yield f"register tile {row.registers}"
    if row.code is not None:
        yield _code(row.code)
    if row.resources is not None:
        yield _resources(row.resources)
    if row.facts and row.code is None:
        yield f"stored of its code: {_counts(row.facts)}"
    if row.note:
        yield row.note
    if row.steps:
        yield from _steps(row).splitlines()
    else:
        yield row.actions or "(no actions)"
    yield from _neighbours(row.neighbours)
    yield from row.hot_loop.expandtabs(4).splitlines()


def _source(row: ExplainRow) -> str:
    differs = f" ({'; '.join(row.differs)})" if row.differs else ""
    stored = "" if row.stored_ms is None else f", {ms(row.stored_ms)} ms then"
    session = f", session {row.session}" if row.session else ""
    promotion = f"; {_evidence(row.promotion)}" if row.promotion else ""
    return f"schedule: {row.outcome}{differs}; from {row.origin}{session}{stored}{promotion}"


def _evidence(p: Promotion) -> str:
    caches = "cold" if p.cold else "warm"
    if p.incumbent_ms is None:
        return f"the first winner, {ms(p.challenger_ms)} ms {caches}"
    return (
        f"promoted by {p.test}, p = {p.p_value:.2g}: {ms(p.incumbent_ms)} to "
        f"{ms(p.challenger_ms)} ms {caches}"
    )


def _code(code: CodeFacts) -> str:
    return (
        f"hot loop: {code.instructions} instructions, {code.fmas} FMA of {code.vector_bits} "
        f"bits, {code.loads} loads, "
        f"{code.stores} stores, {code.spills} spills, {code.calls} calls; in all "
        f"{code.kernel_instructions} "
        f"instructions, {code.kernel_spills} spills"
    )


def _resources(r: KernelResources) -> str:
    fits = f"; {r.unit_groups} groups a unit, {100 * r.occupancy:.0f} % of its work-items"
    return (
        f"machine code: {r.registers} registers an item, {r.spilled_bytes} bytes spilled, "
        f"{r.shared_bytes} bytes shared{fits if r.unit_groups else ''}"
    )


def _counts(facts: Mapping[str, float | str]) -> str:
    """Facts of the store in its order; a share as per cent."""
    return plain(
        ", ".join(
            f"{name} {v if isinstance(v, str) else f'{v:.0%}' if name == 'occupancy' else f'{v:g}'}"
            for name, v in facts.items()
        )
    )


def _steps(row: ExplainRow) -> str:
    unscheduled = row.unscheduled or StepTime()
    lines: list[tuple[str, ...]] = [("(no actions)", _time(unscheduled), "", "", "")]
    before = unscheduled
    for s in row.steps:
        gain, worth = (
            _factor(s.gain, before, s.after),
            _factor(s.worth, s.without, row.steps[-1].after),
        )
        lines.append((s.action, _time(s.after), gain, _time(s.without), worth))
        before = s.after
    header = ("action", "ms after it", "gain (95 %)", "ms without it", "worth (95 %)")
    return Table(header, tuple(lines), left=("action",)).text(indent=4)


def _time(t: StepTime) -> str:
    if t.ms is None:
        return t.note.split(":", 1)[0] or UNKNOWN
    return f"> {ms(t.ms)}" if t.over else ms(t.ms)


def _factor(value: float | None, before: StepTime, after: StepTime) -> str:
    """``> 3.00x`` where the time before it was cut short, else with where it lies."""
    if value is None:
        return UNKNOWN
    if before.over or after.over:
        return f"{'> ' if before.over else '< '}{value:.2f}x"
    if before.off is None or after.off is None:
        return UNKNOWN
    least = value * (1.0 - before.off) / (1.0 + after.off)
    most = value * (1.0 + before.off) / (1.0 - after.off) if after.off < 1.0 else inf
    return gain_cell(value, (least, most))


def _size(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _neighbours(found: Sequence[Neighbour]) -> Iterator[str]:
    """A table of those that were timed, the fastest first; then why others failed or are not legal,
    by the rule; then how many are left. ``--json`` has all.
    """
    if not found:
        return
    tried = [n for n in found if n.kind == "tried"]
    counts = Counter(n.kind for n in found)
    said = ", ".join(f"{counts[k]} {k}" for k in ("tried", "failed", "illegal", "not tried")
        if counts[k])  # fmt: skip
    yield f"one action away: {said}"
    if tried:
        table = Table.of(
            tried[:_TRIED],
            words("one action away", lambda n: _short(n.change)),
            figure("ms in the search", lambda n: n.ms, ms),
            figure("of this", lambda n: n.cost, times),
            words("from", lambda n: plain(n.origin), spare=1),
        )
        yield from table.text(indent=4).splitlines()
        if len(tried) > _TRIED:
            yield f"and {len(tried) - _TRIED} slower ones"
    for kind in ("failed", "illegal"):
        rules: dict[str, list[Neighbour]] = {}
        for n in (n for n in found if n.kind == kind):
            rules.setdefault(_NUMBER.sub("N", n.why), []).append(n)
        by_count = sorted(rules.values(), key=lambda alike: -len(alike))
        for first, *others in by_count[:_RULES]:
            more = f", and {len(others)} more" if others else ""
            yield f"{kind}: {plain(first.why)}  [{_short(first.change)}{more}]"
        if len(by_count) > _RULES:
            yield f"{kind}: and {len(by_count) - _RULES} other rules"


def _short(text: str) -> str:
    return shortened(plain(text), _WIDTH)


def form_heading(report: FormReport | TraceReport) -> str:
    """The kernel and its schedule; for stderr, so that stdout is the form alone."""
    return f"{report.kernel}  {report.key}, {report.outcome}: {report.actions or '(no actions)'}"


def trace_text(report: TraceReport) -> str:
    """A heading for every step, under it a new form, or the lines that went (-) and came (+)."""
    blocks = []
    for step in report.steps:
        what = {"same": ": nothing", "new": ": a new form", "difference": ""}[step.change]
        blocks.append("\n".join([f"== {step.kind} {step.name}{what}", *step.text.splitlines()]))
    return "\n".join(blocks)
