"""Variants: other kernels that compute what one kernel does."""

from .channels_last import ChannelsLast, channels_last
from .rewrite import DIRECT, exact, parts_of, rewrite, variants_of
from .winograd import TILES, Conv3x3, Winograd, match_conv3x3, winograd

__all__ = [
    "DIRECT",
    "TILES",
    "ChannelsLast",
    "Conv3x3",
    "Winograd",
    "channels_last",
    "exact",
    "match_conv3x3",
    "parts_of",
    "rewrite",
    "variants_of",
    "winograd",
]
