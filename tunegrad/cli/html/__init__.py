"""A report as one HTML file that needs nothing else: no script, no network, no font."""

from __future__ import annotations

from .charts import check_plotting
from .page import judgement, report_html

__all__ = ["check_plotting", "judgement", "report_html"]
