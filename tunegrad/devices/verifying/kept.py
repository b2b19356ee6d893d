"""Inputs that the referee drew, kept until they are wanted again: to refer ahead and to prepare
draws once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tunegrad.devices.job import Array

__all__ = ["KeptInputs"]

Sets = Sequence[dict[str, Array]]


class KeptInputs:
    """The input sets of the latest kernels by kernel key, ``limit_bytes`` of them; the oldest go
    first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[str, tuple[Sets, int]] = OrderedDict()

    def get(self, kernel_key: str) -> Sets | None:
        """The sets of a kernel; None where they were not kept."""
        found = self._kept.get(kernel_key)
        if found is None:
            return None
        self._kept.move_to_end(kernel_key)
        return found[0]

    def put(self, kernel_key: str, sets: Sets) -> None:
        """Keep the sets of a kernel that has none here, unless they alone are too large."""
        arrays = {
            (a.ctypes.data, a.nbytes) for each in sets for a in each.values()
        }  # the sets share constants
        nbytes = sum(size for _, size in arrays)
        if nbytes > self._limit or kernel_key in self._kept:
            return
        self._kept[kernel_key] = sets, nbytes
        self._bytes += nbytes
        while self._bytes > self._limit:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone
