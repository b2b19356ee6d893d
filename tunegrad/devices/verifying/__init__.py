# mypy: implicit-reexport
"""Verification of a kernel: its inputs, its expected outputs, and the comparison of the two.

Its modules are imported when one of its names is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .dataset import load_hook
    from .inputs import Kind, applied, draw, kinds_of
    from .tolerance import Bar, tolerance
else:
    __all__, __getattr__ = lazy_names(__name__)
