"""Constants in memory: each array once in its buffer's layout, each distinct pack of it once.

    array, layout                     -->   the flat buffer that kernels read
    array, layout, Pack               -->   the packed copy that a schedule staged at load

An array that every kernel reads through packs alone is left where it is. What two plans of one model (stored winners,
defaults) have in common is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.fusion import Buffer
from tunegrad.ir.program import Pack

from .memory import ALIGN

__all__ = ["Constants"]

Allocate = Callable[[int], NDArray[np.uint8]]
Array = NDArray[Any]

_SLAB_BYTES = 1 << 20


class Constants:
    """Flat arrays by content, layout and pack. ``allocate`` gives zeroed, page-aligned bytes."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._known: dict[object, Array] = {}
        self._slab: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; those that are used where they lie are not counted."""
        return sum(array.nbytes for array in self._known.values())

    def flat(self, buffer: Buffer, in_place: bool = False) -> Array:
        """A constant's memory. With ``in_place`` the caller's own array serves, at its own alignment, if it can."""
        data = buffer.data
        assert data is not None, buffer
        key = (data.digest, buffer.layout)
        found = self._known.get(key)
        if found is not None:
            return found
        rowed = data.array.reshape(-1) if buffer.layout.is_row_major else buffer.layout.pack(data.array)
        if in_place:
            return rowed
        return self._keep(key, rowed)

    def packed(self, buffer: Buffer, pack: Pack) -> Array:
        """The elements of a constant that ``pack`` picks, in its order."""
        data = buffer.data
        assert data is not None, buffer
        key = (data.digest, buffer.layout, replace(pack, name="", source=""))
        found = self._known.get(key)
        return self._keep(key, pack.run(self.flat(buffer, in_place=True))) if found is None else found

    def _keep(self, key: object, values: Array) -> Array:
        memory = self._take(values.nbytes)[: values.nbytes].view(values.dtype)
        memory[:] = values
        memory.flags.writeable = False
        self._known[key] = memory
        return memory

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """Aligned bytes: an allocation of their own for large ones, a piece of a slab for small ones."""
        if nbytes > _SLAB_BYTES // 4:
            return self._allocate(nbytes)
        if self._used + nbytes > self._slab.nbytes:
            self._slab, self._used = self._allocate(_SLAB_BYTES), 0
        start = self._used
        self._used = -(-(start + nbytes) // ALIGN) * ALIGN
        return self._slab[start : start + nbytes]
