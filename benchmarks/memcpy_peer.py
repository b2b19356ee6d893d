"""Plain memory copies, the bound of the copy workload: ``numpy.copyto`` on touched pages, on one
thread and on all.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, arrays, touched

__all__ = ["contestants"]


def contestants(workload: Workload, threads: int) -> Iterator[Contestant]:
    """``numpy.copyto`` (a memcpy), and with several threads also one slice on each: numpy lets
    other threads run.
    """
    (source,), _ = arrays(workload)
    kept = touched(source.shape)
    yield _copies(source, kept, 1)
    if threads > 1:
        yield _copies(source, kept, threads)


def _copies(source: Array, kept: Array, threads: int) -> CallContestant:
    pairs = list(zip(np.array_split(kept, threads), np.array_split(source, threads), strict=True))
    pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def run() -> None:
        pending = [pool.submit(np.copyto, to, part) for to, part in pairs[1:]] if pool else []
        np.copyto(*pairs[0])
        for job in pending:
            job.result()

    def read() -> Array:
        kept.fill(0)
        run()
        return kept.copy()

    return CallContestant(
        "memcpy", f"numpy.copyto on {threads} threads" if pool else "numpy.copyto", run, read
    )
