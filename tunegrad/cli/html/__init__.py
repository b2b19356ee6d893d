"""A report as one HTML file that needs nothing else, no network, no font; and the server that shows
it in a browser while a session runs.
"""

from __future__ import annotations

from .page import judgement, report_html
from .server import LOOPBACK, Watched, server_of

__all__ = ["LOOPBACK", "Watched", "judgement", "report_html", "server_of"]
