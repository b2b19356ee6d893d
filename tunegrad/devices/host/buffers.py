"""Aligned, touched memory with guard zones: what kernels read and write while they are measured and
run.

    a page of poison | data (64-byte aligned or better) | poison up to the page's end,
                                                          at least a page

A write next to a buffer lands in a guard zone and is found by ``check_guards``; one to a buffer
that is ``protect``-ed, or next to it, ends the process. A read next to a buffer finds poison, a
byte that makes every number of the buffer's dtype one that shows: NaN of any float width, integers
that are huge (0x7B7B7B7B). So does what was never written.
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

from tunegrad.ir.dtypes import DType, buffer_dtype

_PAGE = 4096
_HUGE = 2 << 20
_NAN = 0xFF
_HUGE_NUMBER = 0x7B
GUARD = 0x7D
"""Of buffers that are written (f32 and bf16 2.1e37): a copy of what lies beside shows, too."""


def poison(dtype: DType, nan: bool = True) -> int:
    """The byte whose repetition is no likely value of ``dtype``: NaN, a huge integer, neither bool.

    ``nan=False``: huge instead of NaN, for where NaN may be right (f32 and bf16 1.3e36, f16 61,280,
    f64 1.1e286).
    """
    return _NAN if nan and not dtype.is_int else _HUGE_NUMBER


class Buffer:
    """Zeroed memory of ``nbytes`` bytes between two guard zones; freed with the last array that
    views it.

    ``touched``: every page is there already; without it, the caller writes all of it before
    anything is timed. Buffers over 2 MiB start on a huge page and ask the kernel for huge pages.
    ``guard`` is the byte that both guard zones are filled with. ``shift``: it begins so many bytes
    beyond an aligned place. Raises MemoryError when there is no memory.
    """

    __slots__ = ("_back", "_front", "_guard", "_protected", "bytes", "nbytes")

    def __init__(
        self, nbytes: int, touched: bool = True, guard: int = GUARD, shift: int = 0
    ) -> None:
        self.nbytes = nbytes
        self._guard = guard
        align = _HUGE if nbytes > _HUGE else _PAGE
        body = -(-(shift + nbytes + _PAGE) // _PAGE) * _PAGE
        try:
            memory = mmap.mmap(
                -1, _PAGE + body + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        except OSError as error:
            raise MemoryError(f"buffer of {nbytes} bytes: {error}") from error
        whole: npt.NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)
        start = _PAGE + -(whole.ctypes.data + _PAGE) % align
        if align == _HUGE:
            _advise(memory, start, body)
        first = start + shift
        self._front = whole[start - _PAGE : first]
        self._back = whole[first + nbytes : start + body]
        self.bytes: npt.NDArray[np.uint8] = whole[first : first + nbytes]
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
        """Forbid writes to its pages from now on: one ends the process with SIGSEGV.

        ``on=False``: allow them again.

        Arrays that were taken before stay writable for numpy, and end the process as well.
        """
        if on == self._protected:
            return
        start, end = self.pages
        if (
            _libc().mprotect(
                start, end - start, mmap.PROT_READ if on else mmap.PROT_READ | mmap.PROT_WRITE
            )
            != 0
        ):
            raise MemoryError(f"buffer of {self.nbytes} bytes: {os.strerror(ctypes.get_errno())}")
        self._protected = on
        self.bytes.flags.writeable = not on

    def array(self, dtype: str) -> npt.NDArray[Any]:
        """The data as a one-dimensional array of a tunegrad dtype (bf16 as uint16)."""
        kind = buffer_dtype(dtype)
        return self.bytes[: self.nbytes // kind.itemsize * kind.itemsize].view(kind.numpy)

    view = read = array

    def damage(self) -> str:
        """Damage of the memory next to it, in words; '' for none, and for a protected one."""
        return "" if self._protected else self.check_guards()

    def check_guards(self) -> str:
        """Place of the first overwritten guard byte, in words; '' when both zones are intact."""
        for zone, offset in (
            (self._front, -self._front.size),
            (self._back, self.nbytes),
        ):
            wrong = zone != self._guard
            if wrong.any():
                at = offset + int(np.argmax(wrong))
                place = (
                    f"{-at} bytes before its start"
                    if at < 0
                    else f"{at - self.nbytes} bytes past its end"
                )
                return (
                    f"wrote {place} ({int(wrong.sum())} guard bytes changed, buffer of "
                    f"{self.nbytes} bytes)"
                )
        return ""

    def reset_guards(self) -> None:
        """Fill both zones with poison again."""
        self._front.fill(self._guard)
        self._back.fill(self._guard)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


def _advise(memory: mmap.mmap, start: int, length: int) -> None:
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, start, length // _PAGE * _PAGE)
