"""Memory that this process only sees by copying it, on devices whose drivers keep no kernel from
writing anywhere.

guard zones   around what kernels may use: bytes that are compared when asked
protection    a digest of the content, compared when asked
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.job import WROTE_READ_ONLY, Array, Geometry, Lowered, Parameter, io_of
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.program import Alloc, Pack, Program
from tunegrad.render.c_family import arguments, kernel_name

GUARD_BYTES = 4096
"""Of the guard zone before memory, and at least as many of the one after it."""


class RemoteMemory(ABC):
    """See ``devices.device.Memory``. Guard zones hold ``guard`` (None: none); keeps ``owner``."""

    __slots__ = ("_digest", "_guard", "_owner", "nbytes")

    def __init__(self, nbytes: int, guard: int | None, owner: object) -> None:
        self.nbytes, self._guard, self._owner = nbytes, guard, owner
        self._digest = b""

    @abstractmethod
    def _bytes(self) -> NDArray[np.uint8]:
        """A copy of what kernels may use."""

    @abstractmethod
    def _zones(self) -> Iterator[tuple[NDArray[np.uint8], str]]:
        """Copies of the guard zones, and where they lie; none where there are none."""

    def view(self, dtype: str) -> Array | None:
        return None

    def read(self, dtype: str) -> Array:
        return self._bytes().view(buffer_dtype(dtype).numpy)

    def protect(self, on: bool = True) -> None:
        self._digest = self.content() if on else b""

    def damage(self) -> str:
        if self._digest and self._digest != self.content():
            return WROTE_READ_ONLY
        for zone, place in self._zones():
            wrong = int((zone != self._guard).sum())
            if wrong:
                return f"wrote {place} ({wrong} guard bytes changed, buffer of {self.nbytes} bytes)"
        return ""

    def content(self) -> bytes:
        """A digest of the bytes that kernels may use."""
        return hashlib.blake2b(self._bytes().data, digest_size=16).digest()


def packed(pack: Pack, source: Array, nbytes: int, rest: int) -> NDArray[np.uint8]:
    """The ``nbytes`` bytes of a packed constant, made of ``source``; ``rest`` past its end."""
    values = pack.run(source).view(np.uint8)
    filled = np.full(nbytes, rest, np.uint8)
    filled[: values.size] = values
    return filled


# ---- lowering to C
#
# A program's text in a dialect of C, and all that a launch needs beside it.


def lowered_c(program: Program, text: str, shared_bytes: int = 0) -> Lowered:
    """The kernel's arguments are the program's buffers, packs that are none of them, and scratch
    that all groups share. A launch gives each group ``shared_bytes``.
    """
    io, given = io_of(program), arguments(program)
    packs = (Parameter(a.name, a.dtype.name, a.size, "pack") for a in given if isinstance(a, Pack))
    scratch = tuple(a.size * a.dtype.itemsize for a in given if isinstance(a, Alloc))
    geometry = Geometry(program.threads, program.local, shared_bytes)
    return Lowered(
        text, kernel_name(program), replace(io, params=(*io.params, *packs)), scratch, geometry
    )
