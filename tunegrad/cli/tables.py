"""Reports as plain text: aligned columns, numbers with their units, one sentence where a table
would be too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunegrad.cli.printer import table
from tunegrad.reports import (
    CompiledReport,
    CompiledRow,
    Deviation,
    DoctorReport,
    RunReport,
    ShowRow,
    TuneReport,
    TuneRow,
)

if TYPE_CHECKING:
    from tunegrad.db import Problem, Stats
    from tunegrad.paired import Interval

__all__ = [
    "UNKNOWN",
    "busy_lines",
    "compiled_line",
    "compiled_text",
    "count_text",
    "doctor_text",
    "duration",
    "gain_cell",
    "gain_text",
    "ms",
    "peak_text",
    "problems_text",
    "run_text",
    "show_text",
    "stats_text",
    "table",
    "tune_text",
]

UNKNOWN = "-"
_LEAST_SHOWN_S = 0.05
_NEAR_ONE = 0.005
_PLACE = 36
"""Letters of a layer's name in a table."""
_BUSY = "times and gains are less sure than on a quiet machine"


def ms(value: float | None) -> str:
    """Milliseconds with as many decimals as are worth reading."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 10 else f"{value:.4f}"


def duration(seconds: float) -> str:
    """``4:07`` or ``1:04:07``."""
    whole = max(0, round(seconds))
    minutes, s = divmod(whole, 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


def count_text(candidates: Mapping[str, int]) -> str:
    """``120``, or ``120 (3 wrong, 1 crashed)``: all trials, and those that did not end well."""
    counts = {str(status): count for status, count in candidates.items() if count}
    failed = ", ".join(
        f"{count} {status}" for status, count in sorted(counts.items()) if status != "ok"
    )
    total = str(sum(counts.values()))
    return f"{total} ({failed})" if failed else total


def gain_text(gain: float | None, interval: Interval | None) -> str:
    """``gain 1.35x (1.31 to 1.38)``; ``no difference (0.98 to 1.03)`` where 1 is among that; ``gain
    unknown`` where nothing says how sure it is.
    """
    if gain is None or interval is None:
        return "gain unknown"
    low, high = interval
    digits = _digits(low, gain, high)
    said = f"({low:.{digits}f} to {high:.{digits}f})"
    return f"no difference {said}" if low <= 1.0 <= high else f"gain {gain:.{digits}f}x {said}"


def gain_cell(gain: float | None, interval: Interval | None) -> str:
    """The same in a table, ``1.35x (1.31-1.38)``; ``-`` where it is unknown."""
    if gain is None or interval is None:
        return UNKNOWN
    if interval[0] <= 1.0 <= interval[1]:
        return "no difference"
    return gain_text(gain, interval).removeprefix("gain ").replace(" to ", "-")


def _digits(*ratios: float) -> int:
    """Decimals that tell ratios from 1, where they are near it."""
    return 2 if all(r == 1.0 or abs(r - 1.0) >= _NEAR_ONE for r in ratios) else 3


def peak_text(percent: float | None) -> str:
    """Return a share of the machine's peak as text.

    A kernel above 100 % shows that the peak was measured in a busy moment, or that its data lay in
    a cache whose bandwidth was not measured; by how much it is above says nothing then.
    """
    if percent is None:
        return UNKNOWN
    return f"{percent:.1f}" if percent <= 100.0 else "> 100"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def tune_text(*reports: TuneReport) -> str:
    """The tables of a session's models, each with the whole model before and after; then what holds
    for all of them.
    """
    models = [_model_text(report) for report in reports]
    return "\n\n".join([*models[:-1], "\n".join([models[-1], *_session(reports[-1])])])


def _model_text(report: TuneReport) -> str:
    """The table of a model's kernels, then the whole model."""
    places = any(row.layers for row in report.rows)
    header = (
        "kernel",
        "uses",
        "share %",
        "default ms",
        "tuned ms",
        "gain (95 %)",
        "% of peak",
        "candidates",
        *(("in the model",) if places else ()),
    )
    rows = [
        (
            row.kernel,
            str(row.uses),
            _percent(100 * row.share),
            ms(row.default_ms),
            ms(row.tuned_ms),
            _row_gain(row),
            peak_text(row.pct_peak),
            count_text(row.candidates),
            *((_place(row.layers),) if places else ()),
        )
        for row in report.rows
    ]
    threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
    model = (
        f"{report.model} on {report.device}, {threads}: {ms(report.default_ms)} ms with the "
        "default schedules, "
        f"{ms(report.tuned_ms)} ms tuned, {gain_text(report.gain, report.interval)}"
    )
    search = (
        f"{count_text(report.candidates)} candidates in {duration(report.seconds)}, "
        f"{report.candidates_per_s:.1f} a second; store {report.store}"
    )
    return "\n".join(
        [
            table(
                header,
                rows,
                left=("kernel", "candidates", "in the model"),
                spare=("in the model", "candidates", "share %"),
            ),
            "",
            model,
            *_explained(report),
            search,
            *_deviation(report.dtype, report.deviation),
            *_pace(report),
            *_outputs(report),
        ]
    )


def _place(layers: Sequence[str]) -> str:
    """``layer1.0.conv1+bn1, 3 more``: the first layer that a kernel comes from, shortened."""
    if not layers:
        return ""
    first = layers[0] if len(layers[0]) <= _PLACE else f"{layers[0][: _PLACE - 3]}..."
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
    """Lines about the session: why it stopped early, and the parts of its time, the largest
    first.
    """
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
    """Return a line for a command that took longer than its budget, and the parts before the
    search.
    """
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
    header = ("kernel", "uses", "store", "why not a hit")
    rows = [(row.kernel, str(row.uses), row.outcome, "; ".join(row.differs)) for row in report.rows]
    threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
    where = f"{report.model} on {report.device}, {threads}"
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
    kernels = table(header, rows, left=("kernel", "store", "why not a hit"))
    return "\n".join([latency, *busy_lines(report.busy), *off, "", kernels])


def _deviation(dtype: str, found: Deviation | None, constant_bytes: int = 0) -> list[str]:
    """Lines about what 16 bits cost a model, if it has them."""
    if found is None:
        return []
    if math.isinf(found.largest):
        return [f"{dtype}: outputs overflow that are finite in f32; bf16 has the range of f32"]
    weights = f"; weights take {constant_bytes / 1e6:.2f} MB" if constant_bytes else ""
    off = f"{found.largest:.2e} of the largest one, {found.rms:.2e} rms"
    return [f"{dtype}: outputs differ from those in f32 by {off}{weights}"]


def show_text(rows: Sequence[ShowRow]) -> str:
    """One block per kernel: the facts on one line, the winning actions under it."""
    blocks = []
    for row in rows:
        time = "" if row.tuned_ms is None else f", {ms(row.tuned_ms)} ms"
        session = f", session {row.session}" if row.session else ""
        differs = f" ({'; '.join(row.differs)})" if row.differs else ""
        layers = f"    in the model: {'; '.join(row.layers)}\n" if row.layers else ""
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
    header = (
        "kernel", "uses", "groups", "items", "registers", "spilled", "shared", "a unit", "seconds"
    )  # fmt: skip
    parts = []
    for report in reports:
        rows = []
        for row in report.rows:
            r = row.resources
            takes: tuple[object, ...] = (UNKNOWN,) * 4
            if r:
                takes = (r.registers, r.spilled_bytes, r.shared_bytes, r.unit_groups or UNKNOWN)
            cells = (row.uses, row.groups, row.items, *takes, f"{row.compile_s:.2f}")
            rows.append((row.kernel, *map(str, cells)))
        parts.append(table(header, rows, left=("kernel",)))
        parts.append(
            f"{report.model} on {report.device}: {len(report.rows)} kernels by their default "
            f"schedules, {report.failed} refused, in {report.seconds:.1f} s; nothing ran, and "
            "nothing is stored"
        )
        parts += [f"{row.kernel}: {row.error}" for row in report.rows if row.error]
    return "\n\n".join(parts)


def doctor_text(report: DoctorReport) -> str:
    """Devices, compilers, versions, what was measured, and what candidates are kept in."""
    devices = [(d.name, "yes" if d.usable else "no", d.detail) for d in report.devices]
    tools = [(c.name, c.version or "not installed") for c in (*report.compilers, *report.versions)]
    peaks = [
        (
            "FMA peak, f32, GFLOP/s",
            f"{report.fma_peak_one_thread_gflops:.1f}",
            f"{report.fma_peak_gflops:.1f}",
        ),
        (
            "DRAM triad, GB/s",
            f"{report.bandwidth_one_thread_gb_per_s:.1f}",
            f"{report.bandwidth_gb_per_s:.1f}",
        ),
    ]
    places = [(p.what, p.place, p.held) for p in report.places]
    others = f"{report.others_cpus:.1f} of {report.cpus} CPUs"
    busy = "the machine is busy, and the peaks are too low" if report.busy else "it is quiet enough"
    isolation = [(r.name, "yes" if r.present else "no", r.detail) for r in report.isolation]
    return "\n\n".join(
        [
            table(("device", "usable", "detail"), devices, left=("device", "usable", "detail")),
            table(
                ("compiler or package", "version"), tools, left=("compiler or package", "version")
            ),
            table(("measured", "1 thread", f"{report.threads} threads"), peaks, left=("measured",)),
            f"other processes use {others}: {busy}",
            table(("kept", "where", "held"), places, left=("kept", "where", "held")),
            table(
                ("isolation", "here", "what it is"),
                isolation,
                left=("isolation", "here", "what it is"),
            ),
        ]
    )


def stats_text(path: Path, stats: Stats) -> str:
    """Text of a store's contents, a fact a line; statuses with no trial are left out."""
    facts = [
        ("trials", str(stats.trials)),
        *((f"  {status}", str(count)) for status, count in stats.by_status if count),
        *([("  unknown status", str(stats.unknown_status))] if stats.unknown_status else []),
        ("kernels", str(stats.kernels)),
        ("machines", str(stats.fingerprints)),
        ("sessions", str(stats.sessions)),
        ("promotions", str(stats.promotions)),
        ("withdrawals", str(stats.withdrawals)),
        ("decisions", str(stats.decisions)),
        ("latencies of models", str(stats.latencies)),
        ("time spent searching", duration(stats.spent_s)),
        ("size, bytes", str(stats.size_bytes)),
        ("schema version", str(stats.schema_version)),
    ]
    return table(("store", str(path)), facts, left=("store", str(path)))


def problems_text(path: Path, problems: Sequence[Problem]) -> str:
    """``ok``, or what is damaged, a line each."""
    if not problems:
        return f"{path}: ok"
    return "\n".join(f"{path}: {problem}" for problem in problems)
