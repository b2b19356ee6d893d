"""Reports on models as text: tuned, run, shown, compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tunegrad.cli.tables.printer import (
    Table,
    count_text,
    duration,
    figure,
    gain_cell,
    gain_text,
    ms,
    peak_text,
    percent,
    plain,
    plural,
    shortened,
    threads_text,
    words,
)
from tunegrad.reports import (
    CompiledReport,
    CompiledRow,
    Deviation,
    QuantizeReport,
    RunReport,
    ShowRow,
    TuneReport,
    TuneRow,
)

_LEAST_SHOWN_S = 0.05
_PLACE = 36
"""Letters of a layer's name in a table."""
_BUSY = "times and gains are less sure than on a quiet machine"


def tune_text(*reports: TuneReport) -> str:
    """The tables of a session's models, each with the whole model; then what holds for all."""
    models = [_model_text(report) for report in reports]
    return "\n\n".join([*models[:-1], "\n".join([models[-1], *_session(reports[-1])])])


def _model_text(report: TuneReport) -> str:
    """The table of a model's kernels, then the whole model."""
    places = any(row.layers for row in report.rows)
    kernels = Table.of(
        report.rows,
        words("kernel", lambda r: r.kernel),
        figure("uses", lambda r: r.uses),
        figure("share %", lambda r: r.share, percent, spare=3),
        figure("default ms", lambda r: r.default_ms, ms),
        figure("tuned ms", lambda r: r.tuned_ms, ms),
        figure("gain (95 %)", _row_gain),
        figure("% of peak", lambda r: r.pct_peak, peak_text),
        words("candidates", lambda r: count_text(r.candidates), spare=2),
        words("in the model", lambda r: _place(r.layers), spare=1) if places else None,
    )
    model = (
        f"{_where(report)}: {ms(report.default_ms)} ms with the default schedules, "
        f"{ms(report.tuned_ms)} ms tuned, {gain_text(report.gain, report.interval)}"
    )
    search = (
        f"{plural(sum(report.candidates.values()), 'candidate', count_text(report.candidates))} in "
        f"{duration(report.seconds)}, "
        f"{report.candidates_per_s:.1f} a second; store {report.store}"
    )
    return "\n".join(
        [
            kernels.text(),
            "",
            model,
            *_explained(report),
            search,
            *_deviation(report.dtype, report.deviation),
            *_prices(report.quantised),
            *_pace(report),
            *_outputs(report),
        ]
    )


def _place(layers: Sequence[str]) -> str:
    """``layer1.0.conv1+bn1, 3 more``: the first layer that a kernel comes from, shortened."""
    if not layers:
        return ""
    first = shortened(layers[0], _PLACE)
    return f"{first}, {len(layers) - 1} more" if len(layers) > 1 else first


def _row_gain(row: TuneRow) -> str:
    """``default`` where that won."""
    won = row.default_ms is not None and row.default_ms == row.tuned_ms
    return "default" if won else gain_cell(row.gain, row.interval)


def _explained(report: TuneReport) -> list[str]:
    """Lines that explain the difference from the figures that were seen while it searched."""
    alone_ms = [row.uses * row.best_ms for row in report.rows if row.best_ms is not None]
    if report.tuned_ms is None or not alone_ms:
        return []
    alone = f"kernels were measured alone, and the best took {ms(sum(alone_ms))} ms together"
    return [f"these are times in the whole model, both in turns; while it searched, {alone}"]


def _outputs(report: TuneReport) -> list[str]:
    """Lines about wrong outputs of the model, if any."""
    lines = [
        f"withdrawn: kernel {kernel}: {actions}: {why}" for kernel, actions, why in report.voided
    ]
    if report.uncompared:
        lines.append(f"its outputs were not compared as a whole: {report.uncompared}")
    return [*lines, f"wrong outputs: {report.mismatch}"] if report.mismatch else lines


_LEAST_OVER_S, _SHARE_OVER = 3.0, 0.05
"""A command may take this much longer than its budget, the larger of both (decision 0055)."""

_STOPPED = {
    "gain": "less than 1 % more was expected",
    "patience": "the last candidates brought less than 1 %",
    "trials": "as many candidates were measured as it was allowed",
    "target": "the target seemed to be reached",
    "exhausted": "nothing was left to try",
}


def _pace(report: TuneReport) -> list[str]:
    """Lines about the target, and about the time after which the search was nearly done."""
    lines = []
    if report.target_ms is not None and report.tuned_ms is not None:
        verdict = "reached" if report.tuned_ms <= report.target_ms else "missed"
        lines.append(f"target of {ms(report.target_ms)} ms: {verdict}")
    if report.training and report.paid_after is not None:
        took = duration(report.seconds)
        lines.append(f"the {took} of tuning are paid for after {report.paid_after:,} steps")
    if report.near_s is not None:
        lines.append(f"within 5 % of the final kernel times after {report.near_s:.1f} s")
    if report.seed_share is not None:
        seeded = sum(row.seed_ms is not None for row in report.rows)
        lines.append(
            f"seeds from similar kernels ({seeded} of {len(report.rows)} kernels) gave "
            f"{100 * report.seed_share:.0f} % of what their search saved"
        )
    return lines


def _session(report: TuneReport) -> list[str]:
    """Lines about the session: why it stopped early, and the parts of its time, largest first."""
    lines = []
    if why := _STOPPED.get(report.stopped):
        lines.append(
            f"stopped early, {why}: {duration(report.saved_s)} of {duration(report.budget_s)} saved"
        )
    lines += _over_budget(report)
    lines += busy_lines(report.busy)
    if report.costs:
        parts = sorted(report.costs.items(), key=lambda part: -part[1])
        shown = ", ".join(
            f"{name} {seconds:.1f}" for name, seconds in parts if seconds >= _LEAST_SHOWN_S
        )
        lines.append(f"{report.seconds:.1f} s went into: {shown}")
    return lines


def _over_budget(report: TuneReport) -> list[str]:
    """A line for a command that took longer than its budget, and the parts before the search."""
    over_s = report.seconds - report.budget_s
    if not report.budget_s or over_s <= max(_LEAST_OVER_S, _SHARE_OVER * report.budget_s):
        return []
    before = ", ".join(
        f"{name} {seconds:.1f} s"
        for name in ("start-up", "model", "plans")
        if (seconds := report.costs.get(name, 0.0)) >= 1.0
    )
    why = f": {before} went before the search" if before else ""
    return [f"{over_s:.1f} s over its budget of {duration(report.budget_s)}{why}"]


def busy_lines(busy: str) -> list[str]:
    """A line where others kept the machine busy while it was measured."""
    return [f"{busy.replace(' use ', ' used ')} meanwhile: {_BUSY}"] if busy else []


def run_text(report: RunReport) -> str:
    """Latency with the store next to the defaults, then how each kernel found its schedule."""
    kernels = Table.of(
        report.rows,
        words("kernel", lambda r: r.kernel),
        figure("uses", lambda r: r.uses),
        words("store", lambda r: r.outcome),
        words("why not a hit", lambda r: "; ".join(r.differs)),
    )
    where = _where(report)
    latency = (
        f"{where}: {ms(report.stored_ms)} ms with the store, "
        f"{ms(report.default_ms)} ms with the default schedules, "
        f"{gain_text(report.gain, report.interval)} (medians of {report.repeats})"
        if report.uses_store
        else f"{where}: {ms(report.default_ms)} ms with the default schedules (median of "
        f"{2 * report.repeats}); the store has no winner for any kernel, so there is nothing to "
        "compare"
    )
    off = _deviation(report.dtype, report.deviation, report.constant_bytes)
    nan = ["outputs of the model hold NaN on the inputs that were drawn"] if report.nan else []
    return "\n".join([latency, *busy_lines(report.busy), *off, *nan, "", kernels.text()])


def _where(report: TuneReport | RunReport) -> str:
    return f"{report.model} on {report.device}, {threads_text(report.threads)}"


def _deviation(dtype: str, found: Deviation | None, constant_bytes: int = 0) -> list[str]:
    """Lines about what 16 bits cost a model, if it has them."""
    if found is None:
        return []
    if math.isinf(found.largest):
        return [f"{dtype}: outputs overflow that are finite in f32; bf16 has the range of f32"]
    weights = f"; weights take {constant_bytes / 1e6:.2f} MB" if constant_bytes else ""
    off = f"{found.largest:.2e} of the largest one, {found.rms:.2e} rms"
    return [f"{dtype}: outputs differ from those in f32 by {off}{weights}"]


def _prices(report: QuantizeReport | None) -> list[str]:
    """The time of a model in each dtype beside its error, and what was done for that."""
    if report is None:
        return []
    first = report.prices[0].ms
    table = Table.of(
        report.prices,
        words("stored as", lambda p: p.dtype),
        figure("ms", lambda p: p.ms, ms),
        figure("of f32", lambda p: f"{p.ms / first:.2f}"),
        figure("error, rms", lambda p: p.deviation and f"{p.deviation.rms:.2e}"),
        figure("largest", lambda p: p.deviation and f"{p.deviation.largest:.2e}"),
        words("tuned", lambda p: f"{p.tuned} of {p.kernels} kernels", spare=1),
    )
    held = plural(report.held_out, "other") if report.held_out else "the same one"
    data = f"{report.batches} batch{'es' if report.batches != 1 else ''}"
    kept = f"; in f32: {', '.join(report.kept)}" if report.kept else ""
    return [
        "",
        table.text(),
        f"ranges by {report.method} of {data}, errors on {held}; {report.products} products{kept}",
        "",
    ]


def show_text(rows: Sequence[ShowRow]) -> str:
    """One block per kernel: the facts on one line, the winning actions under it."""
    blocks = []
    for row in rows:
        time = "" if row.tuned_ms is None else f", {ms(row.tuned_ms)} ms"
        session = f", session {row.session}" if row.session else ""
        differs = f" ({'; '.join(row.differs)})" if row.differs else ""
        layers = f"    in the model: {plain('; '.join(row.layers))}\n" if row.layers else ""
        blocks.append(
            f"{row.kernel}  {row.key}\n"
            f"    uses {row.uses}{time}; {row.outcome}{differs}; from {row.origin}{session}\n"
            f"{layers}"
            f"    {row.actions or '(no actions)'}"
        )
    return "\n".join(blocks)


def compiled_line(row: CompiledRow) -> str:
    """One kernel that was compiled, or what the compiler said."""
    if row.error:
        return f"{row.kernel}: {row.error}"
    return f"{row.kernel}: {row.groups} groups of {row.items}, {row.compile_s:.2f} s"


def compiled_text(*reports: CompiledReport) -> str:
    """Table of the resources that the kernels of models take on a device that runs nothing; ``a
    unit`` is how many groups one unit of it would run at a time.
    """
    parts = []
    for report in reports:
        table = Table.of(
            report.rows,
            words("kernel", lambda r: r.kernel),
            figure("uses", lambda r: r.uses),
            figure("groups", lambda r: r.groups),
            figure("items", lambda r: r.items),
            figure("registers", lambda r: r.resources and r.resources.registers),
            figure("spilled", lambda r: r.resources and r.resources.spilled_bytes),
            figure("shared", lambda r: r.resources and r.resources.shared_bytes),
            figure("a unit", lambda r: r.resources and (r.resources.unit_groups or None)),
            figure("seconds", lambda r: f"{r.compile_s:.2f}"),
        )
        parts.append(table.text())
        parts.append(
            f"{report.model} on {report.device}: {len(report.rows)} kernels by their default "
            f"schedules, {report.failed} refused, in {report.seconds:.1f} s; nothing ran, and "
            "nothing is stored"
        )
        parts += [f"{row.kernel}: {row.error}" for row in report.rows if row.error]
    return "\n\n".join(parts)
