"""A driver's compiler in a process of its own, for processes that must not end with it.

    compile_apart --request--> stdin of  python -m tunegrad.devices.opencl.apart
                  <---reply---  its stdout; none where the driver's compiler took the process down

Drivers crash on some texts: Intel's for CPUs does on conversions. A search has compile workers for
that; a model that is loaded compiles here. The process imports nothing of the user's, unlike a
worker of ``multiprocessing``: a script without a main guard may load a model. It ends when no
request comes for a while, and with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

import msgspec

from tunegrad.devices.job import KernelIO, Lowered
from tunegrad.devices.processes.confine import silence
from tunegrad.errors import CandidateCrashed, CandidateFailure, CompileFailure

Identity = tuple[tuple[str, str], ...]

_IDLE_S = 10.0
"""Kernels of a model are compiled one right after the other; then the memory is given back."""
_STDOUT, _STDERR = 1, 2


class _Request(msgspec.Struct, frozen=True):
    identity: Identity
    text: str
    entry: str


class _Reply(msgspec.Struct, frozen=True):
    image: bytes
    error: str


def compile_apart(identity: Identity, lowered: Lowered) -> bytes:
    """The image of a text for the device with this identity.

    Raises CompileFailure in the driver's words, and CandidateCrashed where its compiler ended its
    process twice: a crash that does not come again was not the text's.
    """
    request = msgspec.msgpack.encode(_Request(identity, lowered.text, lowered.entry))
    crashes = 0
    while True:
        reply = _process.ask(request)
        if isinstance(reply, bytes):
            break
        crashes += reply != 0  # 0: it had just ended for want of requests
        if crashes > 1:
            ended = f"the driver's compiler ended with {_named(reply)}"
            raise CandidateCrashed(f"program {lowered.entry}: {ended}, twice")
    found = msgspec.msgpack.decode(reply, type=_Reply)
    if found.error:
        raise CompileFailure(found.error)
    return found.image


@dataclass(frozen=True, slots=True)
class _Running:
    """The process, and this side's ends of its pipes."""

    process: subprocess.Popen[bytes]
    requests: Connection
    replies: Connection


class _Process:
    """The process, started when asked and replaced once it has ended. Threads take turns."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def ask(self, request: bytes) -> bytes | int:
        """The reply, or the exit code where there is none."""
        with self._lock:
            running = self._open()
            try:
                running.requests.send_bytes(request)
                return running.replies.recv_bytes()
            except (OSError, EOFError):  # it ended: before the request, in the reply, or before it
                return self._close(killed=False)
            except BaseException:  # an interrupt: the reply would be the next request's
                self._close()
                raise

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """In a fork of this process: it is the parent's."""
        self._lock, self._running = threading.Lock(), None

    def _open(self) -> _Running:
        if self._running is not None and self._running.process.poll() is not None:
            self._close()
        if self._running is None:
            (asked, requests), (replies, told) = Pipe(duplex=False), Pipe(duplex=False)
            with asked, told:
                process = subprocess.Popen(
                    [sys.executable, "-P", *self._words],
                    stdin=asked.fileno(),
                    stdout=told.fileno(),
                    env=os.environ | {"PYTHONPATH": _path()},
                    start_new_session=True,  # Ctrl-C is for the parent to handle
                )
            self._running = _Running(process, requests, replies)
        return self._running

    def _close(self, killed: bool = True) -> int:
        """Its exit code. What has closed its side ends by itself; else it is ``killed``."""
        running, self._running = self._running, None
        if running is None:
            return 0
        if killed:
            running.process.kill()
        running.requests.close()
        running.replies.close()
        return running.process.wait()


def _path() -> str:
    """This process's path, Python's own library first: a script's folder may hold a ``types.py``,
    which this process, running already, did not take for the library's.
    """
    library = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    library += [os.path.join(p, "lib-dynload") for p in library]  # noqa: PTH118
    return os.pathsep.join(sorted(filter(None, sys.path), key=lambda p: p not in library))


_process = _Process("-m", "tunegrad.devices.opencl.apart")
atexit.register(_process.close)
os.register_at_fork(after_in_child=_process.forget)


def _named(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _answer(request: _Request) -> _Reply:
    from tunegrad.devices.opencl.device import found

    lowered = Lowered(request.text, request.entry, KernelIO(()))
    for device in found():
        if device.identity == request.identity:
            try:
                return _Reply(device.compile(lowered, killable=True), "")
            except CandidateFailure as failure:
                return _Reply(b"", str(failure))
    return _Reply(b"", f"program {request.entry}: its device is not found by another process")


def main() -> None:
    """Answer until no request comes. What the driver prints goes nowhere."""
    replies, requests = Connection(os.dup(_STDOUT), readable=False), Connection(0, writable=False)
    silence(_STDOUT, _STDERR)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while requests.poll(_IDLE_S):
            asked = msgspec.msgpack.decode(requests.recv_bytes(), type=_Request)
            replies.send_bytes(msgspec.msgpack.encode(_answer(asked)))


if __name__ == "__main__":
    main()
