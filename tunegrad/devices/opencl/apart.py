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
import select
import signal
import subprocess
import sys
import threading
from typing import IO

import msgspec

from tunegrad.devices.job import KernelIO, Lowered
from tunegrad.devices.processes.confine import silence
from tunegrad.errors import CandidateCrashed, CandidateFailure, CompileFailure

__all__ = ["compile_apart"]

Identity = tuple[tuple[str, str], ...]

_IDLE_S = 10.0
"""Kernels of a model are compiled one right after the other; then the memory is given back."""
_HEAD = 8
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


class _Process:
    """The process, started when asked and replaced once it has ended. Threads take turns."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> bytes | int:
        """The reply, or the exit code where there is none."""
        with self._lock:
            process = self._open()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _send(process.stdin, request)
                reply = _receive(process.stdout)
            except BrokenPipeError:
                reply = None
            except BaseException:  # an interrupt: the reply would be the next request's
                self._close()
                raise
            return self._close(killed=False) if reply is None else reply

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """In a fork of this process: it is the parent's."""
        self._lock, self._running = threading.Lock(), None

    def _open(self) -> subprocess.Popen[bytes]:
        if self._running is not None and self._running.poll() is not None:
            self._close()
        if self._running is None:
            path = os.pathsep.join(p for p in sys.path if p)
            self._running = subprocess.Popen(
                [sys.executable, "-P", *self._words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the parent to handle
            )
        return self._running

    def _close(self, killed: bool = True) -> int:
        """Its exit code. What has closed its side ends by itself; else it is ``killed``."""
        process, self._running = self._running, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        if killed:
            process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


_process = _Process("-m", "tunegrad.devices.opencl.apart")
atexit.register(_process.close)
os.register_at_fork(after_in_child=_process.forget)


def _send(to: IO[bytes], data: bytes) -> None:
    to.write(len(data).to_bytes(_HEAD, "little") + data)
    to.flush()


def _receive(source: IO[bytes]) -> bytes | None:
    """A message; None where the other side ended first."""
    head = _exactly(source, _HEAD)
    return None if head is None else _exactly(source, int.from_bytes(head, "little"))


def _exactly(source: IO[bytes], size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = source.read(size - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


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
    replies = os.fdopen(os.dup(_STDOUT), "wb")
    silence(_STDOUT, _STDERR)
    requests = os.fdopen(0, "rb", buffering=0, closefd=False)  # select sees all that is left
    while select.select([requests], [], [], _IDLE_S)[0]:
        data = _receive(requests)
        if data is None:
            return
        _send(replies, msgspec.msgpack.encode(_answer(msgspec.msgpack.decode(data, type=_Request))))


if __name__ == "__main__":
    main()
