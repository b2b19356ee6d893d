"""Displays of a search while it runs, on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tunegrad.cli.output import note

if TYPE_CHECKING:
    from tunegrad.cli.progress.live import LiveObserver
    from tunegrad.cli.progress.plain import LineObserver

__all__ = ["search_display"]


def search_display(began_s: float) -> LiveObserver | LineObserver:
    """A live picture on a terminal, plain lines elsewhere; to be closed.

    ``began_s`` of the monotonic clock is when the budget began.
    """
    if sys.stderr.isatty():
        from rich.console import Console

        from tunegrad.cli.progress.live import LiveObserver

        return LiveObserver(Console(stderr=True), time.monotonic, began_s)
    from tunegrad.cli.progress.plain import LineObserver

    return LineObserver(note, time.monotonic, began_s=began_s)
