"""Killable worker processes on ``pebble``: a call ends with a value, a time limit, or the worker's death, always.

Pebble's workers share one pipe and its locks. A worker that dies inside them (a candidate that damaged its memory)
could stall the pool, so a call that is overdue, or a pool that reports itself broken, gets a new pool.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from pebble import ProcessExpired, ProcessPool

from tunegrad.errors import InternalError

__all__ = ["Died", "Ending", "Finished", "TimedOut", "WorkerPool"]


@dataclass(frozen=True, slots=True)
class Finished:
    """The call returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Died:
    """The worker's process ended: ``code`` is its exit code, negative for a signal."""

    code: int

    @property
    def text(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call was stopped at its limit."""

    limit_s: float


Ending = Finished | Died | TimedOut


class WorkerPool:
    """``workers`` processes that are replaced when they die. Not for concurrent use by several threads."""

    def __init__(
        self, workers: int, initializer: Callable[..., None], arguments: Sequence[object], start_s: float
    ) -> None:
        self._workers = workers
        self._initializer = initializer
        self._arguments = tuple(arguments)
        self._start_s = start_s
        self._pool: ProcessPool | None = None
        self.rebuilt = 0

    def map(self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float) -> list[Ending]:
        """Run ``function`` once per argument list, in parallel; every call has ``limit_s`` seconds once it starts.

        Raises what the function raises: workers return candidate failures as values, so that is a bug.
        """
        endings: dict[int, Ending] = {}
        for _ in range(2):  # a pool that broke lost calls that were not to blame: they get a second one
            left = [index for index in range(len(calls)) if index not in endings]
            if not left:
                break
            found = self._attempt(function, [calls[index] for index in left], limit_s)
            endings.update((index, ending) for index, ending in zip(left, found, strict=True) if ending is not None)
        if len(endings) < len(calls):
            raise InternalError(
                f"{function.__name__}: the workers die while they start, see their error output; each of them imports "
                'the script that was run, so a script may call this only under `if __name__ == "__main__":`'
            )
        return [endings[index] for index in range(len(calls))]

    def call(self, function: Callable[..., Any], *arguments: object, limit_s: float) -> Ending:
        """Run ``function`` in one worker."""
        return self.map(function, [arguments], limit_s)[0]

    def close(self) -> None:
        """Stop every worker now, busy or not, and wait until they are gone."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()

    def _attempt(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> list[Ending | None]:
        """One round in one pool; None for a call that was lost with it."""
        rounds = -(-len(calls) // self._workers)
        patience_s = self._start_s + rounds * (limit_s + 1.0)
        try:
            pool = self._open()
            futures = [pool.schedule(function, args=tuple(call), timeout=limit_s) for call in calls]
        except RuntimeError:
            self._rebuild()
            return [None] * len(calls)
        try:
            endings = [self._ending(function, future, limit_s, patience_s) for future in futures]
        except BaseException:  # an interrupt, or a bug: nothing of this batch may go on running
            self._rebuild()
            raise
        if None in endings or not all(future.done() for future in futures):
            self._rebuild()
        return endings

    def _ending(
        self, function: Callable[..., Any], future: Future[Any], limit_s: float, patience_s: float
    ) -> Ending | None:
        try:
            return Finished(future.result(timeout=patience_s))
        except ProcessExpired as error:
            return Died(error.exitcode)
        except TimeoutError:
            if not future.done() and not future.running():
                message = f"{function.__name__}: no worker took the call within {patience_s:g} s"
                raise InternalError(message) from None
            return TimedOut(limit_s)
        except (CancelledError, BrokenProcessPool):
            return None

    def _open(self) -> ProcessPool:
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["tunegrad.devices.worker"])
            self._pool = ProcessPool(
                max_workers=self._workers,
                initializer=self._initializer,
                initargs=self._arguments,
                context=context,
            )
        return self._pool

    def _rebuild(self) -> None:
        self.rebuilt += 1
        with contextlib.suppress(RuntimeError):  # a broken pool may refuse even to stop
            self.close()
