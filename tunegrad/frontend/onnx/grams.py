"""Counts of short sequences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..tensor import Tensor
from .node import NodeView

__all__ = ["GRAMS"]


def _tfidf(n: NodeView) -> Tensor:
    """TfIdfVectorizer of integers: how often each sequence of a pool stands in each row, its
    elements up to ``max_skip_count`` others apart.
    """
    pool = n.get("pool_int64s")
    if not pool:
        raise n.error("pools of strings are not supported")
    x, numbers = n(0), np.asarray(n.get("ngram_indexes"))
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    least, most = n.get("min_gram_length"), n.get("max_gram_length")
    starts, size, first = [*n.get("ngram_counts"), len(pool)], int(numbers.max()) + 1, 0
    total = Tensor(np.zeros((rows.shape[0], size), np.float32))
    for length, (begin, end) in enumerate(pairwise(starts), 1):
        count = (end - begin) // length
        places, first = numbers[first : first + count], first + count
        if not (count and least <= length <= most):
            continue
        grams = np.asarray(pool[begin : begin + count * length]).reshape(count, length)
        one = np.zeros((count, size), np.float32)
        one[np.arange(count), places] = 1
        for apart in range(1, 2 if length == 1 else n.get("max_skip_count") + 2):
            if (length - 1) * apart < rows.shape[1]:
                seen = rows.window(1, length, 1, apart).unsqueeze(2)
                alike = seen.eq(Tensor(grams, x.dtype)).all(-1)
                total = total + alike.cast("f32").sum(1) @ Tensor(one)
    weights = n.get("weights")
    weight = 1.0 if not weights else Tensor(np.asarray(weights, np.float32))
    mode = n.get("mode")
    found = total if mode == "TF" else (total > 0).cast("f32") if mode == "IDF" else total
    found = found if mode == "TF" else found * weight
    return found if x.ndim > 1 else found.reshape(-1)


GRAMS: dict[str, Callable[[NodeView], Any]] = {"TfIdfVectorizer": _tfidf}
