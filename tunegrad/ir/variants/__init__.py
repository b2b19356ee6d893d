"""Variants: other kernels that compute what one kernel does."""

from .channels_last import ChannelsLast, channels_last
from .im2col import Im2col, im2col
from .rewrite import DIRECT, exact, parts_of, rewrite, variants_of
from .split import CHUNKS, Split, reads_rows, split, splits_of
from .winograd import TILES, Conv3x3, Winograd, match_conv3x3, winograd

__all__ = [
    "CHUNKS",
    "DIRECT",
    "TILES",
    "ChannelsLast",
    "Conv3x3",
    "Im2col",
    "Split",
    "Winograd",
    "channels_last",
    "exact",
    "im2col",
    "match_conv3x3",
    "parts_of",
    "reads_rows",
    "rewrite",
    "split",
    "splits_of",
    "variants_of",
    "winograd",
]
