"""Variants: other kernels that compute what one kernel does."""

from .rewrite import DIRECT, parts_of, rewrite, variants_of
from .winograd import TILES, Conv3x3, Winograd, match_conv3x3, winograd

__all__ = [
    "DIRECT",
    "TILES",
    "Conv3x3",
    "Winograd",
    "match_conv3x3",
    "parts_of",
    "rewrite",
    "variants_of",
    "winograd",
]
