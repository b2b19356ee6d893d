"""Variants: other kernels that compute what one kernel does."""

from .convolutions import ChannelsLast, Widened, channels_last, floats, halves
from .rewrite import (
    DIRECT,
    exact,
    in_halves,
    multiplies_bytes,
    on_floats,
    parts_of,
    rewrite,
    runs_on,
    splits_k,
    variants_of,
)
from .split import CHUNKS, Split, reads_rows, split, split_k, splits_of, splits_of_k
from .winograd import (
    TILES,
    Conv3x3,
    Winograd,
    least_work,
    match_bytes3x3,
    match_conv3x3,
    winograd,
)

__all__ = [
    "CHUNKS", "DIRECT", "TILES", "ChannelsLast", "Conv3x3", "Split", "Widened", "Winograd",
    "channels_last", "exact", "floats", "halves", "in_halves", "least_work",
    "match_bytes3x3", "match_conv3x3", "multiplies_bytes", "on_floats", "parts_of", "reads_rows",
    "rewrite", "runs_on", "split", "split_k", "splits_k", "splits_of", "splits_of_k",
    "variants_of", "winograd",
]  # fmt: skip
