"""Killable worker processes on ``pebble``: a call ends with a value, a time limit, or the worker's
death, always.

    start  -->  calls run while the caller does something else  -->  wait: their endings, in order
                                                                -->  close: given up, and nothing
                                                                     of them goes on running
    map = start, wait

Pebble's workers share one pipe and its locks. A worker that dies inside them (a candidate that
damaged its memory) could stall the pool, so a call that is overdue, or a pool that reports itself
broken, gets a new pool.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from pebble import ProcessExpired, ProcessPool

from tunegrad.devices.processes.channel import Died, Ending, Finished, TimedOut
from tunegrad.devices.processes.isolated import fork_server, no_start
from tunegrad.errors import InternalError


class Started:
    """Calls that run in the workers of a pool.

    Mutable: once they were waited for it keeps their endings.

    ``futures`` is None where the pool broke before it took them.
    """

    def __init__(
        self,
        pool: WorkerPool,
        function: Callable[..., Any],
        calls: Sequence[Sequence[object]],
        limit_s: float,
        futures: list[Future[Any]] | None,
    ) -> None:
        self.function, self.calls, self.limit_s, self.futures = function, calls, limit_s, futures
        self._pool = pool
        self._endings: list[Ending] | None = None

    def wait(self) -> list[Ending]:
        """The endings, in the order of the calls. Left by an interrupt, the calls are given up.

        Raises what the function raises: workers return candidate failures as values, so that is a
        bug. Raises InternalError for calls that were given up.
        """
        if self._endings is None:
            self._endings = self._pool.collect(self)
        return self._endings

    @property
    def lost(self) -> bool:
        """True when the caller that waited for the calls gave them up before all had ended."""
        return self._endings is None and not self._pool.runs(self)

    def close(self) -> None:
        """Give up what was not waited for: nothing of it goes on running."""
        self._pool.give_up(self)


class WorkerPool:
    """``workers`` processes that are replaced when they die.

    Not for concurrent use by several threads.
    """

    def __init__(
        self,
        workers: int,
        initializer: Callable[..., None],
        arguments: Sequence[object],
        start_s: float,
    ) -> None:
        self._workers = workers
        self._initializer = initializer
        self._arguments = tuple(arguments)
        self._start_s = start_s
        self._pool: ProcessPool | None = None
        self._under_way: Started | None = None
        self.rebuilt = 0

    def start(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> Started:
        """Run ``function`` once per argument list, in parallel; every call has ``limit_s`` seconds
        once it starts.

        Returns at once. Raises InternalError while something else is under way.
        """
        if self._under_way is not None:
            raise InternalError(
                f"{function.__name__}: {self._under_way.function.__name__} is still under way"
            )
        self._under_way = Started(
            self, function, calls, limit_s, self._schedule(function, calls, limit_s)
        )
        return self._under_way

    def map(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> list[Ending]:
        """Start calls and wait for their endings; raises what ``Started.wait`` raises."""
        return self.start(function, calls, limit_s).wait()

    def call(self, function: Callable[..., Any], *arguments: object, limit_s: float) -> Ending:
        """Run ``function`` in one worker."""
        return self.map(function, [arguments], limit_s)[0]

    def wait_idle(self) -> None:
        """Wait for what is under way, if anything is; its starter has its endings."""
        if self._under_way is not None:
            self._under_way.wait()

    def close(self) -> None:
        """Stop every worker now, busy or not, and wait until they are gone.

        What is under way is given up.
        """
        self._under_way = None
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()

    def runs(self, started: Started) -> bool:
        """True for calls that are under way, or whose endings are not collected yet."""
        return started is self._under_way

    def collect(self, started: Started) -> list[Ending]:
        """Wait for calls that were started: see ``Started.wait``."""
        function, limit_s = started.function, started.limit_s
        if started is not self._under_way:
            raise InternalError(f"{function.__name__}: its calls were given up")
        try:
            endings = self._gather(started.futures, len(started.calls), limit_s)
            lost = [index for index, ending in enumerate(endings) if ending is None]
            if lost:  # a broken pool lost innocent calls: they get a second one
                futures = self._schedule(
                    function, [started.calls[index] for index in lost], limit_s
                )
                again = self._gather(futures, len(lost), limit_s)
                for index, ending in zip(lost, again, strict=True):
                    endings[index] = ending
        finally:
            self._under_way = None
        found = [ending for ending in endings if ending is not None]
        if len(found) < len(endings):
            raise no_start(function)
        return found

    def give_up(self, started: Started) -> None:
        """Stop calls that were started: see ``Started.close``."""
        if started is not self._under_way:
            return
        self._under_way = None
        if started.futures is not None and not all(future.done() for future in started.futures):
            self._rebuild()

    def _schedule(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> list[Future[Any]] | None:
        """Hand calls to the workers; None where the pool is broken."""
        if not calls:
            return []
        try:
            pool = self._open()
            return [pool.schedule(function, args=tuple(call), timeout=limit_s) for call in calls]
        except RuntimeError:
            self._rebuild()
            return None
        except BaseException:  # an interrupt: nothing of this may go on running
            self._rebuild()
            raise

    def _gather(
        self, futures: list[Future[Any]] | None, count: int, limit_s: float
    ) -> list[Ending | None]:
        """Endings of calls in one pool; None for a call that was lost with it."""
        if futures is None:
            return [None] * count
        rounds = -(-count // self._workers)
        end_s = time.monotonic() + self._start_s + rounds * (limit_s + 1.0)
        try:
            endings = [
                self._ending(future, limit_s, max(0.0, end_s - time.monotonic()))
                for future in futures
            ]
        except BaseException:  # an interrupt, or a bug: nothing of this batch may go on running
            self._rebuild()
            raise
        if None in endings or not all(future.done() for future in futures):
            self._rebuild()
        return endings

    def _ending(self, future: Future[Any], limit_s: float, patience_s: float) -> Ending | None:
        try:
            return Finished(future.result(timeout=patience_s))
        except ProcessExpired as error:
            return Died(error.exitcode)
        except TimeoutError:
            if not future.done() and not future.running():
                return None  # no worker took it: one was killed while it held the pool's lock
            return TimedOut(limit_s)
        except (CancelledError, BrokenProcessPool):
            return None

    def _open(self) -> ProcessPool:
        if self._pool is None:
            self._pool = ProcessPool(
                max_workers=self._workers,
                initializer=self._initializer,
                initargs=self._arguments,
                context=fork_server(),
            )
        return self._pool

    def _rebuild(self) -> None:
        self.rebuilt += 1
        with contextlib.suppress(RuntimeError):  # a broken pool may refuse even to stop
            self.close()
