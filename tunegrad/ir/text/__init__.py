"""Texts of the forms: scanned, parsed and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .parse_index import Scanner as Scanner
    from .parse_index import parse_condition as parse_condition
    from .parse_index import parse_index as parse_index
    from .print_graph import print_dot as print_dot
    from .print_graph import print_graph as print_graph
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "parse_index": "Scanner parse_condition parse_index",
            "print_graph": "print_dot print_graph",
        },
    )
