"""Reports as text: tables, figures with units, a sentence where a table would be too much."""

from __future__ import annotations

from .explain import doctor_text, explain_text, form_heading, trace_text
from .models import busy_lines, compiled_line, compiled_text, run_text, show_text, tune_text
from .printer import (
    UNKNOWN,
    Column,
    Table,
    count_text,
    duration,
    figure,
    gain_cell,
    gain_text,
    ms,
    peak_text,
    plain,
    plural,
    table,
    times,
    when,
    words,
)
from .regress import (
    accepted_text,
    between_text,
    compare_text,
    failed_text,
    finding_text,
    junit_text,
    markdown_text,
    metrics_text,
    sweep_text,
)
from .store import (
    diff_text,
    history_text,
    import_text,
    merge_text,
    problems_text,
    prune_text,
    stats_text,
    trials_csv,
    why_text,
)

__all__ = [
    "UNKNOWN", "Column", "Table", "accepted_text", "between_text", "busy_lines", "compare_text",
    "compiled_line", "compiled_text", "count_text", "diff_text", "doctor_text", "duration",
    "explain_text", "failed_text", "figure", "finding_text", "form_heading", "gain_cell",
    "gain_text", "history_text", "import_text", "junit_text", "markdown_text", "merge_text",
    "metrics_text", "ms", "peak_text", "plain", "plural", "problems_text", "prune_text",
    "run_text", "show_text", "stats_text", "sweep_text", "table", "times", "trace_text",
    "trials_csv", "tune_text", "when", "why_text", "words",
]  # fmt: skip
