"""Aligned, touched memory with guard zones: what kernels read and write while they are measured and run.

      canary page | data (64-byte aligned or better) | canary up to the page's end, at least 64 bytes

A write next to a buffer lands in a canary and is found by ``check_guards``; one to a buffer that is ``protect``-ed, or
next to it, ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.ir.dtypes import buffer_dtype

__all__ = ["Buffer"]

_PAGE = 4096
_HUGE = 2 << 20
_GUARD = 64
_CANARY = np.uint8(0xA5)
_INTACT = bytes([0xA5]) * (_PAGE + _GUARD)


class Buffer:
    """Zeroed memory of ``nbytes`` bytes between two guard zones; freed with the last array that views it.

    ``touched``: every page is there already; without it, the caller writes all of it before anything is timed.
    Buffers over 2 MiB start on a huge page and ask the kernel for huge pages. Raises MemoryError when there is none.
    """

    __slots__ = ("_back", "_front", "_protected", "bytes", "nbytes")

    def __init__(self, nbytes: int, touched: bool = True) -> None:
        self.nbytes = nbytes
        align = _HUGE if nbytes > _HUGE else _PAGE
        body = -(-(nbytes + _GUARD) // _PAGE) * _PAGE
        try:
            memory = mmap.mmap(-1, _PAGE + body + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"buffer of {nbytes} bytes: {error}") from error
        whole: npt.NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)
        start = _PAGE + -(whole.ctypes.data + _PAGE) % align
        if align == _HUGE:
            _advise(memory, start, body)
        self._front = whole[start - _PAGE : start]
        self._back = whole[start + nbytes : start + body]
        self.bytes: npt.NDArray[np.uint8] = whole[start : start + nbytes]
        self._protected = False
        if touched:
            self.bytes.fill(0)
        self.reset_guards()

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    @property
    def pages(self) -> tuple[int, int]:
        """(start, end) of the pages that it has to itself, guard zones and all."""
        front = int(self._front.ctypes.data)
        return front, front + self._front.size + self.nbytes + self._back.size

    def protect(self, on: bool = True) -> None:
        """Let nobody write to its pages from now on: who does ends with SIGSEGV. ``on=False``: let them again.

        Arrays that were taken before stay writable for numpy, and end the process as well.
        """
        if on == self._protected:
            return
        start, end = self.pages
        if _libc().mprotect(start, end - start, mmap.PROT_READ if on else mmap.PROT_READ | mmap.PROT_WRITE) != 0:
            raise MemoryError(f"buffer of {self.nbytes} bytes: {os.strerror(ctypes.get_errno())}")
        self._protected = on
        self.bytes.flags.writeable = not on

    def array(self, dtype: str) -> npt.NDArray[Any]:
        """The data as a one-dimensional array of a tunegrad dtype (bf16 as uint16)."""
        kind = buffer_dtype(dtype)
        return self.bytes[: self.nbytes // kind.itemsize * kind.itemsize].view(kind.numpy)

    def check_guards(self) -> str:
        """Where the first guard byte was overwritten, in words; '' when both zones are intact."""
        for zone, offset in ((self._front, -_PAGE), (self._back, self.nbytes)):
            if zone.tobytes() != _INTACT[: zone.size]:
                wrong = zone != _CANARY
                at = offset + int(np.argmax(wrong))
                place = f"{-at} bytes before its start" if at < 0 else f"{at - self.nbytes} bytes past its end"
                return f"wrote {place} ({int(wrong.sum())} guard bytes changed, buffer of {self.nbytes} bytes)"
        return ""

    def reset_guards(self) -> None:
        """Fill both zones with the canary again."""
        self._front.fill(_CANARY)
        self._back.fill(_CANARY)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


def _advise(memory: mmap.mmap, start: int, length: int) -> None:
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, start, length // _PAGE * _PAGE)
