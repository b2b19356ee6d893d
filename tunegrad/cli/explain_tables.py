"""The answer of ``explain`` as text: a table of the model, the heaviest first, then a block per
kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from tunegrad.cli.explain_neighbours import neighbour_lines
from tunegrad.cli.store.tables import plain
from tunegrad.cli.tables import UNKNOWN, busy_lines, gain_cell, ms, table
from tunegrad.reports import (
    CodeFacts,
    ExplainReport,
    ExplainRow,
    KernelResources,
    Promotion,
    StepTime,
    VariantRow,
)

__all__ = ["explain_text"]

_BOUND = {"flops": "arithmetic", "bytes": "traffic"}


def explain_text(report: ExplainReport) -> str:
    """The machine, the model's table and sums, the variants, then each kernel in launch order."""
    parts = [_machine(report), _model_table(report)]
    if len(report.rows) > 1:
        parts.append(_sums(report))
    if report.variants:
        parts.append(_variants(report.variants))
    parts += [_block(row) for row in report.rows if report.top is None or row.steps or row.note]
    return "\n\n".join(parts)


def _rate(gb_per_s: float) -> str:
    """Bytes a second; a device may have no figure of its caches."""
    return f"{gb_per_s:.1f} GB/s" if gb_per_s < float("inf") else "not measured"


def _machine(report: ExplainReport) -> str:
    threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
    store = f"store {report.store}" if report.store else "no store"
    measured = (
        f"{report.model} on {report.device}, {threads}, {store}; measured: FMA peak "
        f"{report.peak_gflops:.1f} GFLOP/s, "
        f"caches {_rate(report.cache_gb_per_s)}, memory {report.memory_gb_per_s:.1f} GB/s"
    )
    return "\n".join([measured, *busy_lines(report.busy)])


def _model_table(report: ExplainReport) -> str:
    header = (
        "kernel",
        "uses",
        "share %",
        "MFLOP",
        "KB",
        "bound by",
        "bound ms",
        "ms",
        "% of bound",
        "lost ms",
    )
    rows = [
        (
            row.kernel,
            str(row.uses),
            _number(None if row.share is None else 100 * row.share, 1),
            _size(row.flops / 1e6),
            _size(row.unique_bytes / 1e3),
            _BOUND[row.bound],
            ms(row.bound_ms),
            ms(row.ms),
            _number(row.pct_bound, 1),
            ms(row.lost_ms),
        )
        for row in sorted(report.rows, key=lambda row: -row.uses * (row.ms or 0.0))
    ]
    return table(header, rows, left=("kernel", "bound by"), spare=("KB", "MFLOP"))


def _sums(report: ExplainReport) -> str:
    wall = ""
    if report.wall_ms and report.total_ms:
        part = 100.0 * report.total_ms / report.wall_ms
        wall = (
            f"; the whole model took {ms(report.wall_ms)} ms when it was last tuned, so they are "
            f"{part:.0f} % of it"
        )
    return f"{_sum_of_kernels(report)}{wall}"


def _sum_of_kernels(report: ExplainReport) -> str:
    return (
        f"all kernels: {ms(report.total_ms)} ms; the sum of their bounds is "
        f"{ms(report.floor_ms)} ms, so they stand at "
        f"{_number(report.pct_floor, 1)} % of it; with every kernel direct it would be "
        f"{ms(report.direct_floor_ms)} ms"
    )


def _variants(rows: Sequence[VariantRow]) -> str:
    header = (
        "kernel",
        "uses",
        "variant",
        "",
        "kernels",
        "bound ms",
        "their sum ms",
        "as a whole ms",
    )
    lines = []
    for row in rows:
        for i, o in enumerate(row.options):
            head = (row.kernel, str(row.uses)) if i == 0 else ("", "")
            mark = ("stored" if row.stored else "expected") if o.name == row.picked else ""
            lines.append(
                (
                    *head,
                    o.name,
                    mark,
                    str(o.kernels),
                    ms(o.bound_ms),
                    ms(o.parts_ms),
                    ms(o.stored_ms),
                )
            )
    return table(header, lines, left=("kernel", "variant", ""))


def _block(row: ExplainRow) -> str:
    return "\n".join([f"{row.kernel}  {row.key}", *(f"    {line}" for line in _lines(row))])


def _lines(row: ExplainRow) -> Iterator[str]:
    if row.operations:
        yield f"made of {', '.join(row.operations)}"
    if row.layers:
        yield f"in the model: {'; '.join(row.layers)}"
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
        measured = f"takes {ms(row.ms)} ms, {_number(row.pct_bound, 1)} % of the bound"
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
    yield from neighbour_lines(row.neighbours)
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
    header = ("action", "ms after it", "gain (95 %)", "ms without it", "worth (95 %)")
    unscheduled = row.unscheduled or StepTime()
    lines = [("(no actions)", _time(unscheduled), "", "", "")]
    before = unscheduled
    for s in row.steps:
        gain, worth = (
            _factor(s.gain, before, s.after),
            _factor(s.worth, s.without, row.steps[-1].after),
        )
        lines.append((s.action, _time(s.after), gain, _time(s.without), worth))
        before = s.after
    return table(header, lines, left=("action",), indent=4)


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


def _number(value: float | None, decimals: int) -> str:
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def _size(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
