"""Replies of the bench and the referee: plain values within bounds, and nothing else is read.

A bench has run candidates, so what it says is held against what was asked: ``measured`` must be the
``identity`` of the code and the input set. A reply that does not fit costs the candidate, see
``examine``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

__all__ = [
    "EXIT_WROTE",
    "MOST_TOLD",
    "WROTE_READ_ONLY",
    "Ran",
    "Samples",
    "Timed",
    "Verdict",
    "digest",
    "identity",
]

EXIT_WROTE = 128
"""The exit code of a process whose candidate wrote to what is watched first; the next ones are of
those that follow."""

MOST_TOLD = 64
"""Places that have an exit code of their own; later ones are told as the last of these."""

Text = Annotated[str, Meta(max_length=8192)]
Seconds = Annotated[float, Meta(ge=0.0, lt=1e9)]
Digest = Annotated[str, Meta(max_length=64)]
Samples = Annotated[tuple[Seconds, ...], Meta(max_length=65536)]
State = Annotated[
    tuple[tuple[Annotated[str, Meta(pattern="^[a-z_]{1,32}$")], float], ...], Meta(max_length=32)
]
"""Names and numbers; see ``Device.state``."""


WROTE_READ_ONLY = "the candidate wrote to this buffer, which it may only read"
"""The damage of memory that was protected."""


def digest(image: bytes) -> bytes:
    """Of a candidate's code."""
    return hashlib.blake2b(image, digest_size=16).digest()


def identity(code: bytes, kernel_key: str, index: int) -> str:
    """Of a candidate with this ``digest`` on one input set."""
    return hashlib.blake2b(code + f"{kernel_key}\0{index}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Ran:
    """One run on one input set, ``once_s`` seconds long.

    ``damage``: what it wrote outside its buffers, in words.

    ``written``: the digest of its outputs. ``unprepared``: this process has no inputs for the
    kernel. In the last two states ``damage`` says why.
    """

    measured: Digest
    state: Literal["ran", "unprepared", "compile_error", "out_of_resources"] = "ran"
    once_s: Seconds = 0.0
    damage: Text = ""
    written: Digest = ""


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples in seconds, and what was found after them: damage, and the digest of the outputs.

    ``reference_samples_s`` are of the program beside it, turn by turn; empty where there is none.
    ``state`` is the device's, right after the samples.
    """

    measured: Digest
    samples_s: Samples
    damage: Text = ""
    written: Digest = ""
    reference_samples_s: Samples = ()
    state: State = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The referee's verdict on outputs: no ``error`` where they are right.

    ``sets``: how many input sets the kernel has; 0 where the referee knows no such kernel.
    """

    sets: Annotated[int, Meta(ge=0)] = 0
    error: Text = ""
    max_error: float = 0.0
