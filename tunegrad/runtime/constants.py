"""Constants in memory: each array once in its buffer's layout, each distinct pack of it once.

    array, layout                     -->   the flat buffer that kernels read
    array, layout, Pack               -->   the packed copy that a schedule staged at load

An array that every kernel reads through packs alone is not there. What two plans of one model
(stored winners, defaults) have in common is shared, and needs no elements of constants that it has
taken before.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.ir.fusion import Buffer
from tunegrad.ir.layout import Pack

from .engine import Engine, Memory

__all__ = ["Constants"]

Array = NDArray[Any]

_SLAB_BYTES = 1 << 20


class Constants:
    """Memory by content, layout and pack.

    ``untouched``: what is written whole need not be zeroed before.
    """

    def __init__(self, engine: Engine, untouched: bool = False) -> None:
        self._engine, self._touched = engine, not untouched
        self._known: dict[object, Any] = {}
        self._allocated: list[Memory] = []
        self._slab: Any = None
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all memory; arrays that are used where they lie are not counted."""
        return sum(memory.nbytes for memory in self._known.values())

    def damage(self) -> str:
        """Describe a write outside of the constants' memory; '' where there was none."""
        return next((found for m in self._allocated if (found := m.damage())), "")

    def flat(self, buffer: Buffer) -> Any:
        """A constant's memory, where kernels read it as it is: a copy, which the caller's array may
        change beside.
        """
        key = self._key(buffer)
        if key in self._known:
            return self._known[key]
        return self._keep(key, _rows(buffer))

    def packed(self, buffer: Buffer, pack: Pack) -> Any:
        """The elements of a constant that ``pack`` picks, in its order."""
        key = self._key(buffer, pack)
        if key in self._known:
            return self._known[key]
        rows = _rows(buffer)
        view = pack.view(rows)
        return self._keep(key, pack.run(rows) if view is None else view)

    def give(self, buffer: Buffer, pack: Pack | None, values: Array) -> None:
        """Keep ``values`` as the result of ``flat`` (no pack) or ``packed``: an array that does not
        change any more. It is used where it lies, if the device can.
        """
        key = self._key(buffer, pack)
        lent = self._engine.borrow(values)
        if lent is None:
            self._keep(key, values)
        else:
            self._known[key] = lent

    def _key(self, buffer: Buffer, pack: Pack | None = None) -> tuple[object, ...]:
        assert buffer.data is not None, buffer
        what = () if pack is None else (replace(pack, name="", source=""),)
        return buffer.data.digest, buffer.layout, *what

    def _keep(self, key: object, values: Array) -> Any:
        memory = self._take(values.nbytes)
        self._engine.write(memory, values)
        self._known[key] = memory
        return memory

    def _take(self, nbytes: int) -> Any:
        """Memory of its own for large ones, a part of a slab for small ones."""
        if nbytes > _SLAB_BYTES // 4:
            return self._allocate(nbytes)
        if self._slab is None or self._used + nbytes > _SLAB_BYTES:
            self._slab, self._used = self._allocate(_SLAB_BYTES), 0
        start, align = self._used, self._engine.align
        self._used = -(-(start + nbytes) // align) * align
        return self._engine.part(self._slab, start, nbytes)

    def _allocate(self, nbytes: int) -> Any:
        self._allocated.append(self._engine.allocate(nbytes, self._touched))
        return self._allocated[-1]


def _rows(buffer: Buffer) -> Array:
    """A constant in its layout, flat; the caller's array, where its layout is that."""
    data = buffer.data
    assert data is not None, buffer
    if data.array.size != prod(buffer.shape):
        raise InternalError(f"constants: {buffer} has no elements any more")
    if buffer.layout.is_row_major:
        return data.array.reshape(-1)
    return buffer.layout.pack(data.array)
