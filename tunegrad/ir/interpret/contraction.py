"""Sums of products of a kernel as matrix products in float64: what makes numpy fast enough to be a
full reference.

    v0 = add over ra: mul(x[a, ra], w[ra, b])    -->    for each batch:  X[m, k] @ W[k, n]

An axis that both factors read is one of the batch (shared) or of the fold (reduce); one that a
single factor reads is a row or a column, or is folded within that factor beforehand. Which elements
the factors read is for the interpreter to say: nothing of lowering or rendering is involved. Words
of bytes are taken apart, as further terms; their sums are exact in float64 and wrap around in i32.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.linalg import _umath_linalg

from ..expr import Apply, Expr, IndexValue, Inside, Load, Op, Value, leaves
from ..kernel import Axis, Kernel, Reduce
from .numeric import Array, bytes_of

__all__ = ["Contraction", "contraction_of", "one_blas_thread"]

_SET_THREADS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)
"""Name of the setter in the OpenBLAS of numpy's wheels."""

_MOST = 1 << 24
"""Elements of one factor at most: 128 MiB."""

Evaluate = Callable[[Expr, tuple[Axis, ...]], Array]
"""An expression at every point of the axes: an array that broadcasts to one dimension for each."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reduction as a product of two factors over their axes.

    ``rows`` and ``columns`` are shared axes of one factor alone, ``inner`` the reduce axes of both.
    ``left_own`` and ``right_own`` are the reduce axes of one.
    """

    reduce: Reduce
    left: Expr
    right: Expr
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    left_own: tuple[Axis, ...]
    right_own: tuple[Axis, ...]

    @property
    def steps(self) -> int:
        """Cost in steps of the interpreter: one step gathers four elements, or multiplies 512."""
        sizes = self._extents()
        products = prod(_extent(a) for a in (self.batch, self.rows, self.columns, self.inner))
        return sum(sizes) // 4 + products // 512

    def _extents(self) -> tuple[int, int]:
        left = (self.batch, self.rows, self.inner, self.left_own)
        right = (self.batch, self.columns, self.inner, self.right_own)
        return prod(_extent(a) for a in left), prod(_extent(a) for a in right)

    @property
    def fits(self) -> bool:
        """True if both factors are small enough to be held."""
        return max(self._extents()) <= _MOST

    def run(self, shared: tuple[Axis, ...], evaluate: Evaluate) -> Array:
        """The folded value at every point of the shared axes, flat, in float64, or i32 of bytes."""
        batch, inner = _extent(self.batch), _extent(self.inner)
        left = _factor(self.left, (*self.batch, *self.rows, *self.inner), self.left_own, evaluate)
        right = _factor(
            self.right, (*self.batch, *self.inner, *self.columns), self.right_own, evaluate
        )
        left, right = left.reshape(batch, -1, inner), right.reshape(batch, inner, -1)
        if not self.reduce.dtype.is_float:
            a, b = (bytes_of(x).astype(np.float64) for x in (left, right.swapaxes(1, 2)))
            left, right = a.reshape(*a.shape[:2], -1), b.reshape(*b.shape[:2], -1).swapaxes(1, 2)
        with np.errstate(all="ignore"):
            product = np.matmul(left, right)
        if not self.reduce.dtype.is_float:
            product = product.astype(np.int64).astype(np.int32)
        order = (*self.batch, *self.rows, *self.columns)
        at = [order.index(a) for a in shared]
        return np.ascontiguousarray(
            product.reshape([a.extent for a in order]).transpose(at)
        ).reshape(-1)


@functools.cache
def one_blas_thread() -> None:
    """Let numpy's matrix products run on one thread in this process from now on, where its BLAS is
    OpenBLAS.

    Each core has a worker of its own; with two threads in each, products took two to four times as
    long.
    """
    numpys = ctypes.CDLL(_umath_linalg.__file__)
    for name in _SET_THREADS:
        if hasattr(numpys, name):
            getattr(numpys, name)(ctypes.c_int(1))


def contraction_of(k: Kernel, r: Reduce) -> Contraction | None:
    """A sum of products as a contraction; None for another reduction, or where a factor reads an
    earlier one.
    """
    x = r.expr
    if r.rows or r.op is not Op.ADD or not isinstance(x, Apply):
        return None
    if x.op is not (Op.MUL if r.dtype.is_float else Op.DOT4):
        return None
    left, right = x.args
    first, second = _names(left), _names(right)
    if first is None or second is None:
        return None
    both, right_only = first & second, second - first

    def among(axes: tuple[Axis, ...], chosen: Callable[[str], bool]) -> tuple[Axis, ...]:
        return tuple(a for a in axes if chosen(a.name))

    found = Contraction(
        r, left, right,
        batch=among(k.axes, lambda n: n in both),
        rows=among(k.axes, lambda n: n not in both and n not in right_only),
        columns=among(k.axes, lambda n: n in right_only),
        inner=among(r.axes, lambda n: n in both),
        left_own=among(r.axes, lambda n: n not in both and n not in right_only),
        right_own=among(r.axes, lambda n: n in right_only),
    )  # fmt: skip
    apart = found.left_own or found.right_own
    return found if found.fits and not (apart and x.op is Op.DOT4) else None


def _factor(x: Expr, kept: tuple[Axis, ...], folded: tuple[Axis, ...], evaluate: Evaluate) -> Array:
    """A factor at every point of ``kept``, summed over ``folded``: one dimension for each axis."""
    axes = (*kept, *folded)
    values = np.broadcast_to(evaluate(x, axes), [a.extent for a in axes])
    if folded:
        with np.errstate(all="ignore"):
            values = values.sum(axis=tuple(range(len(kept), len(axes))), dtype=np.float64)
    return values if values.dtype.kind in "iu" else values.astype(np.float64, copy=False)


def _names(x: Expr) -> frozenset[str] | None:
    """The axes that an expression depends on; None where it reads a reduction."""
    found: frozenset[str] = frozenset()
    for leaf in leaves(x):
        if isinstance(leaf, Value):
            return None
        if isinstance(leaf, Load):
            found = found.union(
                *(i.names() for i in leaf.index), *(r.index.names() for r in leaf.valid.ranges)
            )
        elif isinstance(leaf, IndexValue):
            found |= leaf.index.names()
        elif isinstance(leaf, Inside):
            found = found.union(*(r.index.names() for r in leaf.valid.ranges))
    return found


def _extent(axes: tuple[Axis, ...]) -> int:
    return prod(a.extent for a in axes)
