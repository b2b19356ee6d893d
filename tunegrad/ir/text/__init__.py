# mypy: implicit-reexport
"""Texts of the forms: scanned, parsed and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .parse_index import Scanner, parse_condition, parse_index
    from .print_graph import print_dot, print_graph
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
