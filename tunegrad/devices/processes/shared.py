"""Memory that two processes see: how arrays pass between processes without being sent.

It is sparse: what was never written to takes no memory. Its size is sealed, so one process can not
cut it under another's feet.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Mapped", "SharedMemory"]

_SEALED = 0x1 | 0x2 | 0x4
"""No further seals, no shrinking, no growing: ``F_SEAL_*`` of ``fcntl.h``."""
_HOLE = 0x1 | 0x2
"""Give pages back and keep the size: ``FALLOC_FL_*`` of ``falloc.h``."""


class SharedMemory:
    """``nbytes`` of memory for this process and those that are started with it as an argument.

    Its maker holds a descriptor, and does not map it; a process that receives it has it mapped, and
    no descriptor. It lasts as long as one of them has either.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._descriptor = os.memfd_create("tunegrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, nbytes)
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALED)
        weakref.finalize(self, os.close, self._descriptor)

    def clear(self) -> None:
        """Give its memory back; from now on it reads as zeros."""
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            libc.fallocate(self._descriptor, _HOLE, ctypes.c_long(0), ctypes.c_long(self.nbytes))
            != 0
        ):
            number = ctypes.get_errno()
            raise OSError(number, f"shared memory of {self.nbytes} bytes: {os.strerror(number)}")

    def __reduce__(self) -> tuple[Callable[..., Mapped], tuple[Any, int]]:
        return Mapped, (reduction.DupFd(self._descriptor), self.nbytes)


class Mapped:
    """``SharedMemory`` in a process that was given it: all of its ``bytes``."""

    def __init__(self, descriptor: Any, nbytes: int) -> None:
        received = descriptor.detach()
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(received, nbytes), np.uint8)
        os.close(received)
