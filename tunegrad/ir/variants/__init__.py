"""Variants: other kernels that compute what one kernel does."""

from .convolutions import ChannelsLast, Floats, Im2col, channels_last, floats, im2col
from .rewrite import DIRECT, exact, in_halves, on_floats, parts_of, rewrite, splits_k, variants_of
from .split import CHUNKS, Split, reads_rows, split, split_k, splits_of, splits_of_k
from .winograd import TILES, Conv3x3, Winograd, match_bytes3x3, match_conv3x3, winograd

__all__ = [
    "CHUNKS", "DIRECT", "TILES", "ChannelsLast", "Conv3x3", "Floats", "Im2col", "Split",
    "Winograd", "channels_last", "exact", "floats", "im2col", "in_halves", "match_bytes3x3",
    "match_conv3x3", "on_floats", "parts_of", "reads_rows", "rewrite", "split", "split_k",
    "splits_k", "splits_of", "splits_of_k", "variants_of", "winograd",
]  # fmt: skip
