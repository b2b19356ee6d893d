"""The one descriptor between this process and a worker that runs generated code, and what passes
through it.

    here --> worker  lengths, pickle, arrays beside it    the worker trusts its parent
    worker --> here  length, MessagePack of a given type  its length is bounded, and nothing
                                                          of it is run

Reading and writing here has a deadline, so that half a frame, or no end of frames, ends as well.
"""

from __future__ import annotations

import pickle
import select
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tunegrad.errors import InternalError

# ---- how a process ended
#
# Endings of a call of a worker process: with a value, with the worker's death, or at its time
# limit.


@dataclass(frozen=True, slots=True)
class Finished:
    """The call returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Died:
    """The worker's process ended: ``code`` is its exit code, negative for a signal.

    ``why``: for what it was ended by us, or what it failed of; empty where it ended by itself.
    """

    code: int
    why: str = ""

    @property
    def text(self) -> str:
        if self.why:
            return self.why
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

    @property
    def text(self) -> str:
        return f"over {self.limit_s:g} s"


Ending = Finished | Died | TimedOut


# ---- channel


Kind = Literal["ready", "value", "failed"]

_LENGTH = struct.Struct("<Q")


class ChannelClosed(Exception):
    """The other side has closed its end: its process is over, or closes its descriptors."""


class Overdue(Exception):
    """The deadline has passed."""


class ForgedReply(Exception):
    """A reply that does not fit what was asked."""


class Request(msgspec.Struct, frozen=True):
    """A call for the worker, pickled by its owner. ``nonce`` comes back with the reply."""

    nonce: str
    function: Any
    arguments: tuple[Any, ...]


class Packed:
    """A request as bytes: its pickle, and the arrays' memory, neither copied nor pickled."""

    def __init__(self, request: Request) -> None:
        arrays: list[pickle.PickleBuffer] = []
        body = pickle.dumps(request, protocol=5, buffer_callback=arrays.append)
        self._raw = [a.raw() for a in arrays]
        lengths = [len(body), *(a.nbytes for a in self._raw)]
        self._head = b"".join([_LENGTH.pack(len(lengths)), *map(_LENGTH.pack, lengths), body])

    @property
    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """Pieces to send, in order."""
        return self._head, *(a for a in self._raw if a.nbytes)


class _Reply(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The reply: the value as MessagePack of the type asked for, or text of what failed."""

    nonce: str
    kind: Kind
    body: msgspec.Raw


class Channel:
    """This process's end. ``left_s`` says how many seconds a call has left, each time that so many
    have passed; 0 or less ends it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """Its descriptor, for ``select``."""
        return self._socket.fileno()

    def quiet(self) -> bool:
        """True when nothing has come, and the other side is there.

        Nothing should come that was not asked for.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLRDHUP)
        return not poll.poll(0)

    def send(self, request: Packed, left_s: Callable[[], float]) -> None:
        """Send a request. Raises ChannelClosed, Overdue."""
        try:
            for piece in request.pieces:
                view, at = memoryview(piece).cast("B"), 0
                while at < len(view):
                    self._limit(left_s)
                    with suppress(TimeoutError):
                        at += self._socket.send(view[at:])
        except OSError as error:
            raise ChannelClosed from error

    def receive(
        self, nonce: str, reply_type: Any, left_s: Callable[[], float], most_bytes: int
    ) -> tuple[Kind, Any]:
        """(kind, value) of the reply to ``nonce``, which has ``most_bytes`` at most.

        Raises ChannelClosed, Overdue, and ForgedReply for anything else.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, left_s))
        if length > most_bytes:
            raise ForgedReply(f"a reply of {length} bytes: at most {most_bytes}")
        try:
            reply = msgspec.msgpack.decode(self._read(length, left_s), type=_Reply)
            if reply.nonce != nonce:
                raise ForgedReply("a reply to something else")
            value = msgspec.msgpack.decode(
                reply.body, type=reply_type if reply.kind == "value" else str
            )
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ForgedReply(f"a reply that is none: {error}") from error
        return reply.kind, value

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, count: int, left_s: Callable[[], float]) -> bytearray:
        try:
            return _exactly(self._socket, count, lambda: self._limit(left_s))
        except (OSError, EOFError) as error:
            raise ChannelClosed from error

    def _limit(self, left_s: Callable[[], float]) -> None:
        seconds = left_s()
        if seconds <= 0:
            raise Overdue
        self._socket.settimeout(seconds)


def receive(end: socket.socket) -> Request:
    """In the worker: the next request. Raises EOFError when there will be none."""
    (count,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    body, *arrays = [
        _exactly(end, n) for (n,) in _LENGTH.iter_unpack(_exactly(end, count * _LENGTH.size))
    ]
    request = pickle.loads(body, buffers=arrays)  # noqa: S301  # from the process that started this one
    if not isinstance(request, Request):
        raise InternalError(f"worker: {type(request).__name__} is not a Request")
    return request


def answer(end: socket.socket, nonce: str, kind: Kind, value: Any) -> None:
    """In the worker: send what came of a request."""
    frame = msgspec.msgpack.encode(_Reply(nonce, kind, msgspec.Raw(msgspec.msgpack.encode(value))))
    end.sendall(_LENGTH.pack(len(frame)) + frame)


def _exactly(
    end: socket.socket, count: int, before: Callable[[], None] = lambda: None
) -> bytearray:
    """So many bytes; ``before`` is called before each wait for some, and after one that timed out.

    Raises EOFError where there are less.
    """
    got = bytearray(count)
    view, at = memoryview(got), 0
    while at < count:
        before()
        try:
            received = end.recv_into(view[at:])
        except TimeoutError:
            continue
        if not received:
            raise EOFError
        at += received
    return got
