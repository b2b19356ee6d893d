"""Batches of samples for training: shuffled, made ahead by threads or processes, resumable.

loader = tg.data.Loader((images, labels), 32, shuffle=True, seed=1)
for x, y in loader: ...

source     samples: arrays and files of them, sequences, iterables      (sources)
shuffle    the order of an epoch, by seed and epoch                     (shuffle)
batch      samples stacked in memory that is used again                 (batches)
worker     batches made ahead, by number                                (workers)
Loader     epochs, positions and states                                 (loader)
"""

from __future__ import annotations

from .loader import Loader
from .sources import rng

__all__ = ["Loader", "rng"]
