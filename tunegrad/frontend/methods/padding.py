"""Padding: numbers, mirrored, repeated or wrapped elements before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tunegrad.errors import ShapeError
from tunegrad.ir import graph

from .. import movement
from ..elementwise import Scalar
from ..movement import integer
from .linear import Linear
from .movement import join

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Padding"]

Mode = Literal["constant", "reflect", "replicate", "circular"]
Pairs = Sequence[Sequence[int]]


class Padding(Linear):
    """``pad``."""

    __slots__ = ()

    def pad(
        self, pad: Sequence[int] | Pairs, mode: Mode | Scalar = "constant",
        value: Scalar | None = None,
    ) -> Tensor:  # fmt: skip
        """Elements before and after each dimension.

        ``pad``: one pair for each dimension, or a flat list of numbers as PyTorch has it: before
        and after the last dimension, then the one before it, and so on. Negative ones cut away.
        ``mode``: ``"constant"`` puts ``value`` there (zero unless given), ``"reflect"`` mirrors at
        the edge element, ``"replicate"`` repeats it, ``"circular"`` goes on at the other end.

        Raises ShapeError for widths or a mode that do not fit.
        """
        pairs = self._pairs(pad)
        if not isinstance(mode, str):  # pad(widths, value)
            return self._constant(pairs, mode)
        if mode == "constant":
            return self._constant(pairs, 0 if value is None else value)
        if mode not in _EDGES:
            raise ShapeError(
                f"pad: mode={mode!r} is not one of 'constant', {', '.join(map(repr, _EDGES))}"
            )
        x = self._constant([(min(a, 0), min(b, 0)) for a, b in pairs], 0)
        for at, (a, b) in enumerate(pairs):
            x = _edges(x, mode, at, max(a, 0), max(b, 0))
        return x

    def _pairs(self, pad: Sequence[int] | Pairs) -> list[tuple[int, int]]:
        flat = list(pad)
        if flat and all(isinstance(n, int) for n in flat):
            if len(flat) % 2 or len(flat) > 2 * self.ndim:
                raise ShapeError(
                    f"pad: width {flat[0]} of shape {self.shape} must be a pair (before, after); "
                    f"a flat list of {len(flat)} is not two numbers for each of the last dimensions"
                )
            ends = [(integer("pad", "a width", flat[i]), integer("pad", "a width", flat[i + 1]))
                    for i in range(0, len(flat), 2)]  # fmt: skip
            return [(0, 0)] * (self.ndim - len(ends)) + ends[::-1]
        pairs: list[tuple[int, int]] = []
        for width in flat:
            if not isinstance(width, Sequence) or len(width) != 2:
                raise ShapeError(
                    f"pad: width {width!r} of shape {self.shape} must be a pair (before, after)"
                )
            a, b = (integer("pad", "a width", w) for w in width)
            pairs.append((a, b))
        if len(pairs) != self.ndim:
            raise ShapeError(
                f"pad: {len(pairs)} pairs of widths for the {self.ndim} dimensions of {self.shape}"
            )
        return pairs

    def _constant(self, pairs: list[tuple[int, int]], value: Scalar) -> Tensor:
        x = self.node
        if any(a < 0 or b < 0 for a, b in pairs):
            limits = [(-min(a, 0), s + min(b, 0)) for s, (a, b) in zip(x.shape, pairs, strict=True)]
            if any(begin > end for begin, end in limits):
                raise ShapeError(f"pad: widths {pairs} cut more away than {x.shape} has")
            x = graph.shrink(x, tuple(limits))
        return self._with(movement.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], value))


_EDGES = ("reflect", "replicate", "circular")


def _edges(x: Tensor, mode: str, at: int, before: int, after: int) -> Tensor:
    """One dimension made longer by elements of its own."""
    if not before and not after:
        return x
    extent = x.shape[at]
    most = extent - 1 if mode == "reflect" else extent if mode == "circular" else before + after
    if extent == 0 or before > most or after > most:
        raise ShapeError(
            f"pad: mode {mode!r} has {extent} elements of dimension {at} of {x.shape} for widths "
            f"{(before, after)}"
        )
    if mode == "circular":
        parts = (x.narrow(at, extent - before, before), x, x.narrow(at, 0, after))
    elif mode == "reflect":
        parts = (
            x.narrow(at, 1, before).flip(at), x, x.narrow(at, extent - 1 - after, after).flip(at)
        )  # fmt: skip
    else:
        first, last = x.narrow(at, 0, 1), x.narrow(at, extent - 1, 1)
        shape = [list(x.shape) for _ in range(2)]
        shape[0][at], shape[1][at] = before, after
        parts = (first.expand(shape[0]), x, last.expand(shape[1]))
    return join("pad", [p for p in parts if p.shape[at]], at)
