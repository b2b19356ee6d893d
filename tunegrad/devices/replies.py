"""What the bench and the referee may say: plain values within bounds, and nothing else is read.

A bench has run candidates, so what it says is held against what was asked: ``measured`` must be the ``identity`` of the
code and the input set. A reply that does not fit costs the candidate, see ``examine``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

__all__ = ["Ran", "Samples", "Timed", "Verdict", "identity"]

Text = Annotated[str, Meta(max_length=8192)]
Seconds = Annotated[float, Meta(ge=0.0, lt=1e9)]
Digest = Annotated[str, Meta(max_length=64)]
Samples = Annotated[tuple[Seconds, ...], Meta(max_length=65536)]


def identity(image: bytes, kernel_key: str, index: int) -> str:
    """Of one candidate on one input set."""
    found = hashlib.blake2b(image, digest_size=16)
    found.update(f"{kernel_key}\0{index}".encode())
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Ran:
    """One run on one input set, ``once_s`` seconds long. ``damage``: what it wrote outside its buffers, in words.

    ``unprepared``: this process has no inputs for the kernel. In the last two states ``damage`` says why.
    """

    measured: Digest
    state: Literal["ran", "unprepared", "compile_error", "out_of_resources"] = "ran"
    once_s: Seconds = 0.0
    damage: Text = ""


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples in seconds, and the damage that was found after them."""

    measured: Digest
    samples_s: Samples
    damage: Text = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the referee says of outputs: no ``error`` where they are right.

    ``sets``: how many input sets the kernel has; 0 where the referee knows no such kernel.
    """

    sets: Annotated[int, Meta(ge=0)] = 0
    error: Text = ""
    max_error: float = 0.0
