"""Memory of a program: its parameters and its scratch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..dtypes import DType

__all__ = ["Alloc", "Buffer"]

Space = Literal["thread", "team", "shared"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A parameter of the program: ``size`` elements of memory."""

    name: str
    dtype: DType
    size: int
    role: Literal["in", "const", "out", "pack"]


@dataclass(frozen=True, slots=True)
class Alloc:
    """Scratch memory, zero at no time: an element is written before it is read.

    ``swizzled`` is the bytes of a row, a power of two from 32 on, of shared memory whose chunks of
    16 bytes change places, so that chunk q of neighbouring rows lies in other banks: chunk q of row
    r lies at q ^ (r // max(1, 128 / swizzled) % min(8, swizzled / 16)). Offsets are those without
    it, and a vector lies within a chunk. 0: none do.
    """

    name: str
    dtype: DType
    size: int
    space: Space
    swizzled: int = 0
