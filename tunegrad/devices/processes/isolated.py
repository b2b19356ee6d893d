"""One killable worker process that runs generated code, cut off from everything but its channel.

    IsolatedWorker(init, arguments) -- first call --> a process: begin, init, confine --> ready
    call(function, ...)             -- pickle ------> function(...) --> plain data of reply_type
                                                      dies, hangs, babbles --> killed;
                                                      the next call starts another

The process runs ``init`` once, which imports what the functions need and starts its threads; then
it gives up files, sockets and processes (see ``confine``) and answers calls, one at a time. It is
in a session of its own, has no descriptor but its channel, and dies with this process. What it
answers is read as plain data of a given type.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import resource
import secrets
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from tunegrad.config import machine_bytes
from tunegrad.devices.device import Confinement
from tunegrad.devices.processes.channel import (
    Channel,
    ChannelClosed,
    Died,
    Ending,
    Finished,
    ForgedReply,
    Overdue,
    Packed,
    Request,
    TimedOut,
    answer,
    receive,
)
from tunegrad.devices.processes.confine import Protections, begin
from tunegrad.errors import DeviceError, InternalError

_preloaded = dict.fromkeys(("tunegrad.devices.worker", "tunegrad.devices.processes.isolated"))
"""Modules for the process that workers are forked from, and for one that takes its place."""
_LAST = "tunegrad.devices.processes.hearing"

_CHANNEL = 3
_LEAVING_S = 0.5
"""Seconds in which a process that has closed its channel may end by itself."""
_KILLED_S = 60.0
"""Seconds in which a process has to be gone once it was killed: a stalled machine frees nothing."""
_LEAST_FILES = 64
"""Files that a process with workers must be able to open: twice what was seen to be enough."""
_LEAST_BYTES = 1 << 30
"""Addresses that a process must be able to use: with less its workers die while they start."""
_STARTS = 2
_HELD_UP = 20.0
"""Limits that a call may wait for a core beyond its own."""
_REPLY_BYTES = 1 << 20
"""The most bytes of a reply, unless a call expects more."""
_FRAMES, _MOST_TEXT = 3, 4000
"""Limits of a report on a function that raised: frames of its traceback, and letters."""


def preload(modules: Iterable[str]) -> None:
    """Have ``modules`` imported where workers are forked from: else each worker does so while it
    starts.

    For a process that is not running yet; ``start_fork_server`` starts it, or else the first worker
    does.
    """
    _preloaded.update(dict.fromkeys(modules))


def start_fork_server(modules: Iterable[str] = ()) -> None:
    """Start the process that workers are forked from, if there is none, without waiting for it."""
    preload(modules)
    fork_server()


def fork_server() -> ForkServerContext:
    """Return what starts worker processes; the process that they are forked from is started.

    That process hears no Ctrl-C, which a terminal tells all processes, not even while it imports.
    Raises DeviceError where this process may open too few files for workers. Ends a worker that
    comes here while it imports the script that was run: its parent says why.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _LEAST_FILES:
        raise DeviceError(
            f"workers can not start: a process may open {files} files here (ulimit -n), and "
            f"{_LEAST_FILES} are needed"
        )
    if machine_bytes() < _LEAST_BYTES:
        raise DeviceError(
            f"workers can not start: a process may use {machine_bytes() >> 20} MB of addresses "
            f"here (ulimit -v), and {_LEAST_BYTES >> 20} are needed"
        )
    context = multiprocessing.get_context("forkserver")
    _forget_a_main_without_file()
    context.set_forkserver_preload([*_preloaded, _LAST])
    resource_tracker.ensure_running()  # its start would let SIGINT through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def no_start(function: Callable[..., Any]) -> InternalError | DeviceError:
    """Return the error of a worker for ``function`` that never lives long enough to be asked; where
    a limit of memory is set, one of this machine.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        return DeviceError(
            f"{function.__name__}: the workers die while they start; this process may use "
            f"{limit >> 20} MB of addresses (ulimit -v), and theirs may be more: raise the limit, "
            "or see their error output"
        )
    return InternalError(
        f"{function.__name__}: the workers die while they start, see their error output; each of "
        "them imports the script that was run, so a script may call this only under "
        '`if __name__ == "__main__":`'
    )


def _forget_a_main_without_file() -> None:
    """A program that came through stdin says that it is the file ``<stdin>``, which a worker would
    look for and not find; without a name there is nothing to look for.
    """
    main = sys.modules.get("__main__")
    name = getattr(main, "__file__", None) or ""
    if name.startswith("<") and name.endswith(">") and not os.path.exists(name):  # noqa: PTH110
        del main.__file__  # type: ignore[union-attr]  # it has one


class IsolatedWorker:
    """One process at a time, replaced when it dies. Not for concurrent use by several threads.

    ``init(*arguments)`` runs once in each process, with all rights and before the first call; it
    may keep state in its module. Arguments that are ``SharedMemory`` arrive as ``Mapped``.
    """

    def __init__(
        self,
        init: Callable[..., None],
        arguments: Sequence[object],
        start_s: float,
        confinement: Confinement | None = None,
    ) -> None:
        preload({init.__module__} - {"__main__"})
        self._init = init
        self._arguments = tuple(arguments)
        self._start_s = start_s
        self._confinement = Confinement() if confinement is None else confinement
        self._running: _Running | None = None
        self.started = 0

    def call(
        self,
        function: Callable[..., Any],
        *arguments: object,
        limit_s: float,
        reply_type: Any,
        reply_bytes: int = _REPLY_BYTES,
    ) -> Ending:
        """Run ``function`` in the worker, for ``limit_s`` seconds at most from when it was asked.
        Of the later half of them, those in which it waited for a core do not count.

        ``reply_type`` is what msgspec shall read the reply as: bounded, frozen data, of
        ``reply_bytes`` at most. ``Died`` also stands for a function that raised, and for a reply
        that is none: a process that ran a candidate may have been made to say anything. Left by an
        interrupt, the process is killed. Raises InternalError where no worker starts.
        """
        return self.begin(
            function, *arguments, limit_s=limit_s, reply_type=reply_type, reply_bytes=reply_bytes
        )()

    def begin(
        self,
        function: Callable[..., Any],
        *arguments: object,
        limit_s: float,
        reply_type: Any,
        reply_bytes: int = _REPLY_BYTES,
    ) -> Callable[[], Ending]:
        """Begin a ``call``; what it returns waits for its ending, before anything else is asked."""
        running = self._ready(function)
        nonce = secrets.token_hex(8)
        request = Packed(Request(nonce, function, arguments))
        left_s = _Left(limit_s, running.process.pid or 0)

        def step(what: Callable[[], Ending | None]) -> Ending | None:
            try:
                return running.unless_over(what, limit_s)
            except BaseException:
                self.close()
                raise

        over = step(lambda: running.channel.send(request, left_s))

        def wait() -> Ending:
            ending = over or step(lambda: running.answer(nonce, reply_type, left_s, reply_bytes))
            if ending is None:
                raise InternalError(f"{function.__name__}: no ending")
            if not isinstance(ending, Finished):
                self._running = None
            return ending

        return wait

    def fileno(self) -> int:
        """The descriptor of its channel; -1 where it is not running."""
        return -1 if self._running is None else self._running.channel.fileno()

    @staticmethod
    def first_to_answer(asked: Collection[IsolatedWorker], limit_s: float) -> IsolatedWorker:
        """The first of workers that were asked something whose answer is here, or that has ended;
        any of them where none is after ``limit_s`` seconds.
        """
        channels = {w.fileno(): w for w in asked}
        if -1 in channels:
            return channels[-1]
        poll = select.poll()
        for channel in channels:
            poll.register(channel, select.POLLIN)
        ready = poll.poll(1e3 * limit_s)
        return channels[ready[0][0]] if ready else next(iter(asked))

    def protections(self) -> Protections:
        """The protections that the worker has. Starts it where it is not running."""
        return self._ready(self.protections).protections

    def close(self) -> None:
        """Kill the process, busy or not, and wait until it is gone.

        The next call starts another.
        """
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def _ready(self, function: Callable[..., Any]) -> _Running:
        """A process that waits for a call; one that died or babbled is replaced."""
        if self._running is not None and not self._running.channel.quiet():
            self.close()
        for _ in range(_STARTS):
            if self._running is None:
                self._running = self._start()
        if self._running is None:
            raise no_start(function)
        return self._running

    def _start(self) -> _Running | None:
        """A process that is ready; None where it died before."""
        here, there = socket.socketpair()
        with there:
            try:
                process = fork_server().Process(
                    target=_serve,
                    args=(there, self._init, self._arguments, self._confinement),
                    daemon=True,
                )
                process.start()
            except (OSError, EOFError):  # the fork server is gone; the next try starts another
                here.close()
                return None
        self.started += 1
        channel = Channel(here)
        running = _Running(process, channel)
        try:
            left_s = _Left(self._start_s, process.pid or 0)
            kind, found = channel.receive("", Protections, left_s, _REPLY_BYTES)
        except (ChannelClosed, ForgedReply):
            running.end()
            return None
        except Overdue:
            running.end()
            raise InternalError(
                f"{self._init.__name__}: no worker was ready within {self._start_s:g} s"
            ) from None
        except BaseException:
            running.end()
            raise
        if kind != "value":
            running.end()
            return None
        running.protections = found
        return running


class _Left:
    """Seconds that a process has left of a limit. Mutable.

        0 ----- half ----- limit ----- limit + what it waited for a core after half of it
                 what its threads have waited so far is read here

    On a busy machine a sound call is late because others have the cores; one that hangs, asleep or
    spinning on a core of its own, ends at its limit. So do more spinning threads than cores, which
    wait for each other: of the seconds since half, those in which the process ran are none that it
    waited, each thread's divided by the cores that it may use.
    """

    def __init__(self, limit_s: float, pid: int) -> None:
        self._began_s, self._limit_s, self._pid = time.monotonic(), limit_s, pid
        self._half_s, self._before = 0.0, dict[str, tuple[float, float]]()

    def __call__(self) -> float:
        gone_s = time.monotonic() - self._began_s
        if not self._half_s:
            if gone_s < self._limit_s / 2:
                return self._limit_s / 2 - gone_s
            self._half_s, self._before = gone_s, _threads_s(self._pid)
        if gone_s < self._limit_s:
            return self._limit_s - gone_s
        ran_s = waited_s = 0.0
        for thread, (ran, waited) in _threads_s(self._pid).items():
            ran_before, waited_before = self._before.get(thread, (0.0, 0.0))
            ran_s += ran - ran_before
            waited_s = max(waited_s, waited - waited_before)
        held_up_s = min(waited_s, gone_s - self._half_s - ran_s / _cores(self._pid))
        return self._limit_s + max(0.0, min(held_up_s, _HELD_UP * self._limit_s)) - gone_s


def _threads_s(pid: int) -> dict[str, tuple[float, float]]:
    """Seconds that each thread has run and waited for a core; none where that is unknown."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):  # one that has just ended
                ran, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
                found[thread.name] = int(ran) * 1e-9, int(waited) * 1e-9
    return found


def _cores(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.sched_getaffinity(pid))
    return 1


class _Running:
    """A process and this end of its channel. Mutable: it learns what protections it has."""

    def __init__(self, process: ForkServerProcess, channel: Channel) -> None:
        self.process, self.channel = process, channel
        self.protections = Protections(False, 0, False, False, False, False)

    def answer(
        self, nonce: str, reply_type: Any, left_s: Callable[[], float], reply_bytes: int
    ) -> Ending:
        """The reply to a call; the process is gone unless it is a value."""
        kind, found = self.channel.receive(nonce, reply_type, left_s, reply_bytes)
        return Finished(found) if kind == "value" else Died(self.end(), found)

    def unless_over(self, step: Callable[[], Ending | None], limit_s: float) -> Ending | None:
        """The result of a step of a call; the process is gone where that ends the call."""
        try:
            return step()
        except Overdue:
            self.end()
            return TimedOut(limit_s)
        except ChannelClosed:
            self.process.join(_LEAVING_S)  # its channel goes first
            return Died(self.end())
        except ForgedReply as error:
            return Died(self.end(), str(error))

    def end(self) -> int:
        """Kill the process, unless it has ended, and wait until it is gone; its exit code."""
        if self.process.is_alive() and self.process.pid is not None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.process.pid, signal.SIGKILL)
            self.process.join(_KILLED_S)
        code = self.process.exitcode
        self.channel.close()
        if code is None:
            raise InternalError(
                f"worker {self.process.pid}: still there {_KILLED_S:g} s after it was killed"
            )
        self.process.close()
        return code


def _serve(
    channel: socket.socket,
    init: Callable[..., None],
    arguments: tuple[object, ...],
    confinement: Confinement,
) -> None:
    """Run the worker's process: begin, confine, and answer calls."""
    if channel.fileno() != _CHANNEL:
        os.dup2(channel.fileno(), _CHANNEL)
        channel.detach()
        channel = socket.socket(fileno=_CHANNEL)
    beginning = begin(confinement, _CHANNEL)
    threading.Thread(target=_die_when_closed, args=(channel,), daemon=True).start()
    init(*arguments)
    answer(channel, "", "value", beginning.confine())
    while True:
        try:
            request = receive(channel)
        except EOFError:
            os._exit(0)
        try:
            found = request.function(*request.arguments)
        except (
            Exception
        ) as bug:  # or memory that a candidate damaged: it costs this call and this process
            logging.getLogger(__name__).exception("%s failed", request.function)
            where = "".join(traceback.format_tb(bug.__traceback__)[-_FRAMES:])
            answer(
                channel,
                request.nonce,
                "failed",
                f"{type(bug).__name__}: {bug}\n{where}"[:_MOST_TEXT],
            )
        else:
            answer(channel, request.nonce, "value", found)


def _die_when_closed(channel: socket.socket) -> None:
    """End this process once its parent is gone, whatever it runs; the kernel does so, too."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)
