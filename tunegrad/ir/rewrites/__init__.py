# mypy: implicit-reexport
"""Rewrites of graphs before they are fused: narrower and packed numbers, repeats, ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .narrow import narrowed
    from .packed_dots import bytes_refused, pair_dots, quad_dots, round_factors
    from .quantise import Product, Scale, find_products, quantised, switched, weight_in_bytes
    from .ranges import Guard, guarded, interval, unchecked, wraps
    from .scales import joined_scales, single_scales, whole_biases
    from .sums import rewritten, stored_once
    from .widen import widened
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
