"""Reading parts by position: numpy's basic keys, and arrays of positions known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunegrad.errors import ShapeError

from .. import keys
from .movement import Movement

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Indexing"]


class Indexing(Movement):
    """``x[...]``, ``len(x)`` and iteration."""

    __slots__ = ()

    def __getitem__(self, key: object) -> Tensor:
        return keys.item(self._same(), key)

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len: a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))
