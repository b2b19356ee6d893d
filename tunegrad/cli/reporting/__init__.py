"""A report as one HTML file that needs nothing else: no script, no network, no font."""

from .page import report_html

__all__ = ["report_html"]
