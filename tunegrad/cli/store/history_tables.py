"""The report of ``tunegrad store history`` as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tunegrad.cli.store.tables import decisions_table, plain, when
from tunegrad.cli.tables import UNKNOWN, gain_cell, ms, table

if TYPE_CHECKING:
    from tunegrad.db import History, LatencyRow, MeasurementRow

__all__ = ["history_text"]


def history_text(found: History) -> str:
    """Tables of a history, under a line that names the model or the kernel."""
    blocks = [f"{plain(found.name) or '(no name)'}  {found.key}".rstrip()]
    if found.latencies:
        blocks.append(_latencies(found.latencies))
    if found.measurements:
        blocks.append(_measurements(found.measurements))
    if found.decisions:
        blocks.append(decisions_table(found.decisions))
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
    lines = [
        (
            when(r.created_s),
            r.kind + (" (imported)" if r.imported else ""),
            ms(r.time_ms),
            _times(r.change),
            ms(r.default_ms),
            gain_cell(r.gain, r.interval),
            str(r.samples),
            r.machine,
            _conditions(
                r.state, {name: v for name, v in r.versions.items() if known.get(name) != v}
            ),
        )
        for r, known in zip(rows, before, strict=False)
    ]
    header = (
        "measured",
        "kind",
        "ms",
        "of before",
        "default ms",
        "gain (95 %)",
        "samples",
        "machine",
        "conditions",
    )
    left = ("measured", "kind", "machine", "conditions")
    return table(header, lines, left, spare=("conditions", "samples", "default ms", "machine"))


_CODE = (
    "registers", "spills", "stack_bytes", "shared_bytes", "occupancy", "instructions", "code_bytes",
)  # fmt: skip
"""Facts of a program that stand in a line; ``--json`` has all."""


def _measurements(rows: tuple[MeasurementRow, ...]) -> str:
    told = {
        "code": [_conditions({n: r.facts[n] for n in _CODE if n in r.facts}) for r in rows],
        "device": [_conditions(r.state) for r in rows],
    }
    columns = {name: cells for name, cells in told.items() if any(cells)}
    lines = [
        (
            when(r.created_s),
            "withdrawn" if r.withdrawn else str(r.status),
            ms(r.time_ms),
            UNKNOWN if r.ratio is None else f"{r.ratio:.3f}",
            "yes" if r.promoted else "",
            plain(r.origin),
            r.machine,
            *told,
            plain(r.actions) or "(no actions)",
        )
        for r, *told in zip(rows, *columns.values(), strict=True)
    ]
    left = ("measured", "status", "won", "origin", "machine", *columns, "actions")
    header = ("measured", "status", "ms", "of reference", *left[2:])
    return table(header, lines, left, spare=("device", "code", "machine", "origin"))


def _times(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.2f}x"


def _conditions(*given: Mapping[str, float | str]) -> str:
    pairs = [
        (name, v if isinstance(v, str) else f"{v:.3g}" if abs(v) < 1e3 else f"{v:.0f}")
        for found in given
        for name, v in found.items()
    ]
    return plain("; ".join(f"{name} {value}" for name, value in pairs))
