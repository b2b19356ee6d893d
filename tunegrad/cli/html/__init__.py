"""A report as one HTML file that needs nothing else: no script, no network, no font."""

from __future__ import annotations

from .judging import judgement
from .page import report_html
from .svg import check_plotting

__all__ = ["check_plotting", "judgement", "report_html"]
