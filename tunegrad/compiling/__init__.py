"""From a kernel and a schedule to code: what the workers of a search do, and what a loaded model
does.
"""

from __future__ import annotations

__all__ = ["SUFFIX"]

SUFFIX = ".plan"
"""End of the names of files of saved models (``compiling.saved``)."""
