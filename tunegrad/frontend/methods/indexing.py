"""Reading and writing by position: keys, gather and its kin, scatter.

Positions are integers of any width; negative ones count from the end. One out of range is an error
when the result is computed, or at once where it is known. Where there is a ``mode``, ``"clip"``
makes it the first or last position, and ``"wrap"`` counts on from the other end. Writing gives a
new tensor: tensors do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tunegrad.errors import ShapeError

from .. import indexing, keys
from ..elementwise import Scalar
from ..handle import Handle, TensorLike, apply, lift
from ..movement import axis_of
from .movement import Movement

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Indexing"]

_FOLDS: dict[str, indexing.Mode] = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


class Indexing(Movement):
    """``x[...]``, ``gather``, ``index_select``, ``scatter`` and the like."""

    __slots__ = ()

    def __getitem__(self, key: object) -> Tensor:
        return keys.item(self._same(), key)

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError(
            f"setitem: tensors do not change; use where, masked_fill or scatter for x[{key!r}]"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len: a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def gather(self, dim: int, index: TensorLike, *, mode: indexing.Beyond = "raise") -> Tensor:
        """``out[i, j] = self[index[i, j], j]`` for dimension 0 of two; ``index`` is no longer than
        self along the other dimensions.
        """
        i = lift(index, "gather")
        if not self.shape:
            return self.reshape(1).gather(dim, i.reshape(-1), mode=mode).reshape(i.shape)
        return apply("gather", lambda x, n: indexing.gather(x, n, dim, mode), self, i)

    def take_along_dim(
        self, indices: TensorLike, dim: int | None = None, *, mode: indexing.Beyond = "raise"
    ) -> Tensor:
        """``gather`` with the other dimensions of both broadcast; of all in one row without a
        dimension.
        """
        i = lift(indices, "take_along_dim")
        if dim is None:
            return self.ravel().take_along_dim(i.ravel(), 0, mode=mode)
        return apply("take_along_dim", lambda x, n: indexing.take_along(x, n, dim, mode), self, i)

    def index_select(
        self, dim: int, index: TensorLike, *, mode: indexing.Beyond = "raise"
    ) -> Tensor:
        """The slices at the positions of a vector along ``dim``."""
        i = lift(index, "index_select")
        if i.ndim > 1:
            raise ShapeError(f"index_select: index {i.shape} for {self.shape} must be a vector")
        if not self.shape:
            return self.reshape(1).index_select(dim, i, mode=mode).reshape(())
        row = i.reshape(-1)
        return apply("index_select", lambda x, n: indexing.take(x, n, dim, mode), self, row)

    def take(
        self, index: TensorLike, dim: int | None = None, *, mode: indexing.Beyond = "raise"
    ) -> Tensor:
        """Elements at positions in the row of all; along ``dim``, where that is given, as numpy's.

        The result has the shape of ``index`` there.
        """
        x, at = (self.ravel(), 0) if dim is None else (self._same(), dim)
        return apply("take", lambda n, i: indexing.take(n, i, at, mode), x, lift(index, "take"))

    def scatter(
        self, dim: int, index: TensorLike, src: TensorLike | None = None,
        *, reduce: Literal["add", "multiply"] | None = None, value: Scalar | None = None,
    ) -> Tensor:  # fmt: skip
        """``self[index[i, j], j] = src[i, j]`` for dimension 0 of two, the last one of several; or
        folded into self.
        """
        mode = "set" if reduce is None else _FOLDS[reduce]
        return self._scattered("scatter", dim, index, value if src is None else src, mode)

    def scatter_add(self, dim: int, index: TensorLike, src: TensorLike) -> Tensor:
        """``self[index[i, j], j] += src[i, j]`` for dimension 0 of two."""
        return self._scattered("scatter_add", dim, index, src, "add")

    def scatter_reduce(
        self, dim: int, index: TensorLike, src: TensorLike,
        reduce: Literal["sum", "prod", "amax", "amin"], *, include_self: bool = True,
    ) -> Tensor:  # fmt: skip
        """Fold self with all elements of ``src`` that are written to the same place.

        Raises ShapeError for a fold that is not there, or without self.
        """
        if reduce not in _FOLDS or not include_self:
            raise ShapeError(
                f"scatter_reduce: reduce={reduce!r} with include_self={include_self} is not there; "
                "valid: 'sum', 'prod', 'amax', 'amin' with include_self"
            )
        return self._scattered("scatter_reduce", dim, index, src, _FOLDS[reduce])

    def _scattered(
        self, op: str, dim: int, index: TensorLike, src: TensorLike | None, mode: indexing.Mode
    ) -> Tensor:
        i = lift(index, op)
        if src is None:
            raise ShapeError(f"{op}: neither a source nor a value for {self.shape}")
        s = lift(src, op)
        if not isinstance(src, Handle) and not s.shape:
            s = s.cast(self.dtype).expand(i.shape)
        if not self.shape:
            row = self.reshape(1)._scattered(op, dim, i.reshape(-1), s.reshape(-1), mode)
            return row.reshape(())
        at = axis_of(op, dim, self.shape)
        if s.ndim == i.ndim:  # a source may be longer than the index
            limits = [(0, min(a, b)) for a, b in zip(i.shape, s.shape, strict=True)]
            s = s.shrink(limits)
        return apply(op, lambda x, n, v: indexing.scatter(x, n, v, at, mode), self, i, s)

    def index_add(
        self, dim: int, index: TensorLike, source: TensorLike, *, alpha: Scalar = 1
    ) -> Tensor:
        """The slices of ``source`` added to those at the positions of a vector."""
        s = lift(source, "index_add")
        return self._by_rows(dim, index, s if alpha == 1 else s * alpha, "add")

    def index_copy(self, dim: int, index: TensorLike, source: TensorLike) -> Tensor:
        """The slices of ``source`` in the place of those at the positions of a vector."""
        return self._by_rows(dim, index, lift(source, "index_copy"), "set")

    def index_fill(self, dim: int, index: TensorLike, value: Scalar) -> Tensor:
        """``value`` in the slices at the positions of a vector."""
        if not self.shape:
            return self.reshape(1).index_fill(dim, index, value).reshape(())
        at = axis_of("index_fill", dim, self.shape)
        i = lift(index, "index_fill")
        shape = [i.shape[0] if a == at else s for a, s in enumerate(self.shape)]
        return self._by_rows(dim, i, lift(value, "").cast(self.dtype).expand(shape), "set")

    def _within(self, op: str, low: int, high: int) -> Tensor:
        """These positions, held to ``low <= position < high``."""
        return apply(op, lambda n: indexing.within(op, n, low, high), self)

    def _by_rows(self, dim: int, index: TensorLike, s: Tensor, mode: indexing.Mode) -> Tensor:
        i = lift(index, "index")
        if not self.shape:
            return self.reshape(1)._by_rows(dim, i.reshape(-1), s.reshape(-1), mode).reshape(())
        return apply("index", lambda x, n, v: indexing.put(x, n, v, dim, mode), self, i, s)
