"""Workers that make batches ahead of the caller.

    Direct      none: the caller makes each batch when asked
    Threads     threads of this process; numpy copies without the interpreter's lock
    Processes   processes, for samples that Python computes

Batch ``n`` is the same by each of them, and is handed out in the order of numbers. A failure is
handed out in the place of its batch.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Protocol

from tunegrad.errors import ConfigError, DataError
from tunegrad.forks import in_child

from .batches import Slab, over, shared_slab
from .reader import Reader


class Workers(Protocol):
    """Makers of the batches of one epoch."""

    def get(self, number: int) -> Any:
        """The next batch; None after the last one."""

    def close(self) -> None:
        """No batch is needed any more."""


class Direct:
    """Batches made by the caller's thread."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def get(self, number: int) -> Any:
        """See Workers."""
        return self._make(number)

    def close(self) -> None:
        """See Workers."""


class Threads:
    """Batches made by ``count`` threads, at most ``ahead`` of them before they are asked for.

    ``make`` gives the batch of a number, and None beyond the last one. One thread calls it in the
    order of numbers.
    """

    def __init__(self, make: Callable[[int], Any], first: int, count: int, ahead: int) -> None:
        self._shared = shared = _Shared(make, first, ahead)
        for i in range(count):
            threading.Thread(target=shared.work, name=f"tunegrad.data {i}", daemon=True).start()
        # threads hold what they share, and not this object: they end when it is dropped
        weakref.finalize(self, shared.stop).atexit = False

    def get(self, number: int) -> Any:
        """See Workers."""
        return self._shared.get(number)

    def close(self) -> None:
        """See Workers."""
        self._shared.stop()


class _Shared:
    """The state of threads and their caller. Mutable, under its condition."""

    def __init__(self, make: Callable[[int], Any], first: int, ahead: int) -> None:
        self._make, self._next, self._ahead = make, first, ahead
        self._asked = first
        self._done: dict[int, tuple[Any, BaseException | None]] = {}
        self._stopped = False
        self._changed = threading.Condition()

    def work(self) -> None:
        """Make batches until there are no more, or ``stop``."""
        while True:
            with self._changed:
                while not self._stopped and self._next >= self._asked + self._ahead:
                    self._changed.wait()
                if self._stopped:
                    return
                number = self._next
                self._next += 1
            batch, failure = None, None
            try:
                batch = self._make(number)
            except BaseException as error:  # noqa: BLE001 - it is raised where the batch is asked for
                failure = error
            with self._changed:
                self._done[number] = batch, failure
                self._changed.notify_all()
            if batch is None:
                return
            del batch, failure  # its memory is the caller's alone

    def get(self, number: int) -> Any:
        with self._changed:
            self._asked = number
            self._changed.notify_all()
            while number not in self._done and not self._stopped:
                self._changed.wait()
            batch, failure = self._done.pop(number, (None, None))
            self._asked = number + 1
            self._changed.notify_all()
        if failure is not None:
            raise failure
        return batch

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._done.clear()
            self._changed.notify_all()


# ---- processes
#
#   caller                                   worker
#   (epoch, number, slabs given back)  -->   reads the samples into a slab of its own
#   layout, slab's key             <--       and the slab's file, where it is a new one
#
# Worker n % count makes batch n. Both map the slabs; a slab goes back with the next task after the
# last array over it is gone.


class Processes:
    """Batches made by ``count`` processes that are started anew, and not forked.

    They live until this object does, over epochs. A worker's death is an error where its batch is
    asked for. An interrupt is the caller's: it closes the pipes, at which workers end.
    """

    def __init__(self, reader: Reader, count: int) -> None:
        self._workers: list[_Worker] = []
        self._pid = os.getpid()
        try:
            for i in range(count):
                self._workers.append(_Worker(reader, i))
        except BaseException:
            self.stop()
            raise
        in_child(self)

    @property
    def usable(self) -> bool:
        """True in the process that started them, while no batch is on its way."""
        return self._pid == os.getpid() and not any(w.waited for w in self._workers)

    def ask(self, epoch: int, number: int) -> None:
        """Have a batch made."""
        self._workers[number % len(self._workers)].ask(epoch, number)

    def get(self, number: int) -> Any:
        """The batch of a number; those of each worker in the order in which they were asked for."""
        return self._workers[number % len(self._workers)].get()

    def stop(self) -> None:
        """End them now."""
        if self._pid == os.getpid():
            for w in self._workers:
                w.stop()
        self._workers = []

    def forked(self) -> None:
        """They are the parent's: a child must not end them when it exits."""
        for w in self._workers:
            multiprocessing.process._children.discard(w.process)  # type: ignore[attr-defined] # noqa: SLF001


class Epoch:
    """One epoch of Processes: ``ahead`` batches are asked for before they are needed."""

    def __init__(
        self, processes: Processes, epoch: int, numbers: range, ahead: int,
        finished: Callable[[Processes], None],
    ) -> None:  # fmt: skip
        self._processes, self._epoch, self._finished = processes, epoch, finished
        self._left = iter(numbers)
        self._end = numbers.stop
        for _ in range(ahead):
            self._ask()

    def get(self, number: int) -> Any:
        """See Workers."""
        if number >= self._end:
            return None
        batch = self._processes.get(number)
        self._ask()
        return batch

    def close(self) -> None:
        """See Workers; idle processes are kept for another epoch."""
        if self._processes.usable:
            self._finished(self._processes)
        else:
            self._processes.stop()

    def _ask(self) -> None:
        number = next(self._left, None)
        if number is not None:
            self._processes.ask(self._epoch, number)


class _Worker:
    """One process, its pipe and its slabs."""

    def __init__(self, reader: Reader, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, reader), name=f"tunegrad.data {number}", daemon=True
        )
        try:
            self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"loader: the data and collate are sent to worker processes, which is not "
                f"possible ({error}); what is defined at the top of a module can be sent, and "
                "threads need nothing sent"
            ) from error
        finally:
            theirs.close()
        self.waited = 0
        """Batches that were asked for and not taken."""
        self._slabs: dict[int, Slab] = {}
        self._free: deque[int] = deque()

    def ask(self, epoch: int, number: int) -> None:
        freed = [self._free.popleft() for _ in range(len(self._free))]
        self.waited += 1
        with suppress(OSError):  # it is dead: its batch says so
            self._pipe.send((epoch, number, freed))

    def get(self) -> Any:
        wait([self._pipe, self.process.sentinel])
        try:
            if not self._pipe.poll():
                raise EOFError
            made = self._pipe.recv()
            if isinstance(made, _Failure):
                raise made.error()
            layout, key, nbytes = made
            if nbytes:
                file = recv_handle(self._pipe)
                try:
                    self._slabs[key] = Slab(nbytes, key, file)
                finally:
                    os.close(file)
        except (EOFError, ConnectionError) as error:
            self.process.join(1)
            raise DataError(
                f"loader: worker process {self.process.pid} died (exit code "
                f"{self.process.exitcode}); a script that starts processes has its work under "
                "'if __name__ == \"__main__\":'"
            ) from error
        self.waited -= 1
        free = self._free
        return over(layout, self._slabs[key].lent(lambda slab: free.append(slab.key)))

    def stop(self) -> None:
        self._pipe.close()
        self.process.terminate()
        self.process.join(1)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


class _Failure:
    """A DataError on its way from a worker, with the traceback as text."""

    def __init__(self, error: BaseException) -> None:
        self._samples = error.samples if isinstance(error, DataError) else ()
        self._said = str(error) if isinstance(error, DataError) else f"loader: {error!r}"
        self._trace = "".join(traceback.format_exception(error))

    def error(self) -> DataError:
        """The error, to be raised by the caller."""
        found = DataError(self._said, self._samples)
        found.add_note(f"in a worker process:\n{self._trace}")
        return found


def _serve(pipe: Connection, reader: Reader) -> None:
    """Make batches until the caller's end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    desk = _Desk()
    while True:
        try:
            epoch, number, freed = pipe.recv()
            desk.give_back(freed)
            try:
                reader.read(epoch, number, desk.take)
            except Exception as error:  # noqa: BLE001 - the caller raises it
                pipe.send(_Failure(error))
                continue
            layout, slab, file = desk.taken
            pipe.send((layout, slab.key, 0 if file is None else slab.nbytes))
            if file is not None:
                with file:
                    send_handle(pipe, file.fileno(), os.getppid())
        except (EOFError, OSError):
            return


class _Desk:
    """The slabs of a worker process. Mutable."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []
        self._free: list[Slab] = []
        self.taken: tuple[Any, Slab, Any]
        """The layout, slab and new file of the batch that was made last."""

    def give_back(self, keys: list[int]) -> None:
        self._free += [self._slabs[key] for key in keys]

    def take(self, layout: Any, nbytes: int) -> Any:
        slab, file = next((s for s in self._free if s.nbytes >= nbytes), None), None
        if slab is None:
            slab, file = shared_slab(nbytes, len(self._slabs))
            self._slabs.append(slab)
        else:
            self._free.remove(slab)
        self.taken = layout, slab, file
        return over(layout, slab.memory)


def streamed(batches: Iterator[Any]) -> Callable[[int], Any]:
    """The batches of a stream as those of numbers in order, None at its end."""
    return lambda _: next(batches, None)
