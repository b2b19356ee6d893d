"""The version of this package, below everything that stores it beside a result."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
