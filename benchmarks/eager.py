"""Eager operations: us of one that was seen before, beside PyTorch's, and ms of the first call for
a shape that is new to the machine.

    python -m benchmarks.eager

CPU time of the calling thread, medians, in turns; in a cache of its own that is empty. Full code is
that of later calls (``tunegrad.inference.realizing``), quick code that of the first one.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["main"]

Array = np.ndarray[Any, np.dtype[Any]]

_TEXTS = {
    "product": "x @ y",
    "add, relu": "(x + x).relu()",
    "row sums": "x.sum(1)",
    "mean": "x.mean(1)",
    "variance": "x.var(1)",
    "softmax": "x.softmax(-1)",
    "gelu": "F.gelu(x)",
    "layer_norm": "F.layer_norm(x, (x.shape[1],), n, n)",
    "linear": "F.linear(x, w)",
    "product with a transpose": "x @ w.T",
    "cat": "t.cat([x, x])",
    "where": "t.where(x > 0, x, x * 2)",
    "argmax": "x.argmax(1)",
    "cumsum": "x.cumsum(1)",
    "conv2d": "F.conv2d(m, k, padding=1)",
    "max_pool2d": "F.max_pool2d(m, 2)",
    "embedding": "F.embedding(i, x)",
    "cross_entropy": "F.cross_entropy(x, i)",
    "attention": "F.scaled_dot_product_attention(x, x, x)",
    "row": "x[3]",
    "sort": "x.sort(-1)[0]",
}
"""Of x (rows, inner), y (inner, columns), w, its transpose, a feature map m, a kernel k, a row n,
and indices i.
"""
_OPERATIONS: dict[str, Callable[..., Any]] = {
    name: eval(f"lambda t, F, x, y, w, m, k, n, i: {text}")  # noqa: S307  # our own, above
    for name, text in _TEXTS.items()
}
_WARM = ((40, 24, 12), (48, 21, 17))
_SHAPES = ((64, 32, 16), (70, 33, 20), (128, 64, 48), (31, 17, 9), (100, 100, 50), (16, 512, 32),
    (90, 91, 92))  # fmt: skip
_FIRST = ("product", "add, relu", "row sums", "softmax", "gelu", "layer_norm", "conv2d", "cumsum")
_SAMPLES, _CALLS = 25, 8


def _arrays(rows: int, inner: int, columns: int) -> list[Array]:
    rng = np.random.default_rng(rows * inner)
    shapes = ((rows, inner), (inner, columns), (columns, inner), (1, 3, rows, inner), (4, 3, 3, 3))
    made = [rng.standard_normal(s).astype(np.float32) for s in (*shapes, (inner,))]
    return [*made, np.arange(rows) % min(rows, inner)]


def _thread_s(call: Callable[[], object], times: int = 1) -> float:
    start = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - start) / times


def _seen() -> Iterator[str]:
    """Rows of operations that were seen before."""
    import torch

    import tunegrad as tg
    from tunegrad.inference import realizing

    torch.set_num_threads(1)
    arrays = _arrays(64, 32, 16)
    sides = ((tg, tg.nn.functional, [*map(tg.Tensor, arrays)]),
        (torch, torch.nn.functional, [*map(torch.from_numpy, arrays)]))  # fmt: skip
    yield "| operation seen before, us | ours | PyTorch |"
    for name, operation in _OPERATIONS.items():
        calls = [lambda t=t, f=f, g=g: operation(t, f, *g).numpy() for t, f, g in sides]  # noqa: B023
        for call in calls:
            _thread_s(call, _CALLS)
        realizing.LATER.wait()
        turns = [[_thread_s(call, _CALLS) for call in calls] for _ in range(_SAMPLES)]
        ours, theirs = (1e6 * statistics.median(side) for side in zip(*turns, strict=True))
        yield f"| {name} | {ours:.1f} | {theirs:.1f} |"


def _new() -> Iterator[str]:
    """Rows of first calls; the two sides have shapes that differ by one row."""
    import tunegrad as tg
    from tunegrad.inference import realizing

    usual = realizing._LITTLE_WORK  # noqa: SLF001
    yield "| first call of a shape, ms | full code | quick code |"
    for name in _FIRST:
        found: dict[bool, list[float]] = {False: [], True: []}
        for rows, inner, columns in (*_WARM, *_SHAPES):
            for quick in (False, True):
                realizing._LITTLE_WORK = usual if quick else -1  # noqa: SLF001
                given = [*map(tg.Tensor, _arrays(rows + quick, inner, columns))]
                call = _OPERATIONS[name]
                found[quick].append(
                    _thread_s(lambda: call(tg, tg.nn.functional, *given).numpy())  # noqa: B023
                )
        cells = [statistics.median(side[len(_WARM) :]) for side in found.values()]
        yield f"| {name} | " + " | ".join(f"{1e3 * s:.1f}" for s in cells) + " |"


def main() -> int:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for row in (*_new(), "", *_seen()):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
