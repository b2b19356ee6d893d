"""``explain --stage`` and ``--trace``: forms of one kernel, and how each came of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.explain import FormReport, TraceReport

__all__ = ["form_heading", "trace_text"]


def form_heading(report: FormReport | TraceReport) -> str:
    """The kernel and its schedule; for stderr, so that stdout is the form alone."""
    return f"{report.kernel}  {report.key}, {report.outcome}: {report.actions or '(no actions)'}"


def trace_text(report: TraceReport) -> str:
    """A heading for every step, under it what it changed: all of a new form, else the lines that
    went (-) and came (+).
    """
    blocks = []
    for step in report.steps:
        what = {"same": ": nothing", "new": ": a new form", "difference": ""}[step.change]
        blocks.append("\n".join([f"== {step.kind} {step.name}{what}", *step.text.splitlines()]))
    return "\n".join(blocks)
