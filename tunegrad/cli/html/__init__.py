"""A report as one HTML file that needs nothing else: no network, no font."""

from __future__ import annotations

from .page import judgement, notice_html, report_html

__all__ = ["judgement", "notice_html", "report_html"]
