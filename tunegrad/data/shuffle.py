"""The order of an epoch: a permutation that is computed where it is needed, and stored nowhere.

A Feistel network permutes the numbers of 2*w bits; a number beyond the count is permuted again
until it is below (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). Its round
function is the finalizer of SplitMix64 (Steele, Lea and Flood 2014). It depends on no library's
generator, so an order stays what it is over versions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8
"""Twice the four that Luby and Rackoff's proof needs: halves of few bits mix slowly."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def permuted(places: NDArray[np.int64], count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The samples at these places of an epoch's order: a permutation of ``range(count)``."""
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = _keys(seed, epoch)
    found = places.astype(np.uint64)
    left = np.arange(found.size)
    while left.size:
        high, low = found[left] >> half, found[left] & mask
        for key in keys:
            high, low = low, high ^ (_mixed(low + key) & mask)
        found[left] = (high << half) | low
        left = left[found[left] >= np.uint64(count)]
    return found.astype(np.int64)


def _keys(seed: int, epoch: int) -> list[np.uint64]:
    state = np.zeros(1, np.uint64)
    for word in (seed & (2**64 - 1), seed >> 64 & (2**64 - 1), epoch):
        state = _mixed(state + _GOLDEN + np.uint64(word))
    return list(_mixed(state + _GOLDEN * np.arange(1, _ROUNDS + 1, dtype=np.uint64)))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
