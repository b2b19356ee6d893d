"""Rewrites of graphs before they are fused: narrower and packed numbers, repeats, ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .narrow import narrowed as narrowed
    from .packed_dots import bytes_refused as bytes_refused
    from .packed_dots import pair_dots as pair_dots
    from .packed_dots import quad_dots as quad_dots
    from .packed_dots import round_factors as round_factors
    from .quantise import Product as Product
    from .quantise import Scale as Scale
    from .quantise import find_products as find_products
    from .quantise import quantised as quantised
    from .quantise import switched as switched
    from .quantise import weight_in_bytes as weight_in_bytes
    from .ranges import Guard as Guard
    from .ranges import guarded as guarded
    from .ranges import interval as interval
    from .ranges import unchecked as unchecked
    from .ranges import wraps as wraps
    from .scales import joined_scales as joined_scales
    from .scales import single_scales as single_scales
    from .scales import whole_biases as whole_biases
    from .sums import rewritten as rewritten
    from .sums import stored_once as stored_once
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "narrow": "narrowed",
            "packed_dots": "bytes_refused pair_dots quad_dots round_factors",
            "quantise": "Product Scale find_products quantised switched weight_in_bytes",
            "ranges": "Guard guarded interval unchecked wraps",
            "scales": "joined_scales single_scales whole_biases",
            "sums": "rewritten stored_once",
        },
    )
