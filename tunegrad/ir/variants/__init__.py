"""Variants: other kernels that compute what one kernel does."""

from .winograd import TILES, Conv3x3, Winograd, match_conv3x3, winograd

__all__ = ["TILES", "Conv3x3", "Winograd", "match_conv3x3", "winograd"]
