"""Elements of a tensor to look at: every position of short dimensions, the ends of long ones, and
where a graph joins and pads.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np

from ..graph import GraphOp, Node
from ..interpret.numeric import Array

__all__ = ["SAMPLED_TERMS", "borders", "sampled"]

SAMPLED_TERMS = 1 << 14
"""Terms of all samples of a buffer or a node, about: validation stays below 5 % of a first load."""


def borders(cone: list[Node]) -> tuple[int, ...]:
    """Positions next to which pads, and parts of tensors, begin and end."""
    found: set[int] = set()
    for n in cone:
        if n.op is GraphOp.PAD:
            for (lo, _), extent in zip(cast(Any, n.arg), n.srcs[0].shape, strict=True):
                found |= {lo, lo + extent}
        elif n.op is GraphOp.SHRINK:
            for begin, end in cast(Any, n.arg):
                found |= {begin, end}
    return tuple(sorted({i + d for i in found for d in (-1, 0) if i + d > 0}))


@lru_cache(maxsize=256)
def sampled(
    shape: tuple[int, ...], count: int, known: tuple[int, ...], seed: int
) -> tuple[Array, ...]:
    """``count`` positions, one array a dimension: the first and last corner, then a Latin square.

    Where there are fewer elements, every one once.
    """
    size = prod(shape)
    if size <= count:
        return tuple(map(np.asarray, np.unravel_index(np.arange(size), shape))) if shape else ()
    rng = np.random.default_rng(seed)
    return tuple(_line(extent, count, known, rng) for extent in shape)


def _line(extent: int, count: int, known: tuple[int, ...], rng: np.random.Generator) -> Array:
    found = np.zeros(count, np.int64)
    if extent == 1:
        return found
    found[1] = extent - 1
    if extent <= count - 2:
        line = np.arange(extent)
    else:
        ends = {0, 1, 2, extent // 2, extent - 3, extent - 2, extent - 1}
        ends |= {k for k in known if k < extent}
        line = np.array([e for e in ends if 0 <= e < extent])
        if len(line) > count // 2:
            line = rng.permutation(line)[: count // 2]
        some = rng.integers(0, extent, max(0, count - 2 - len(line)))
        line = np.concatenate((line, some))
    if count > 2:
        found[2:] = line[rng.permutation(count - 2) % len(line)]
    return found
