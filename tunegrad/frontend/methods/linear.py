"""Products of matrices, and what is made of them: einsum, attention.

A product is nothing special in the graph: expand, multiply, sum (``reduction.matmul``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunegrad.errors import ShapeError
from tunegrad.ir.dtypes import promote

from .. import reduction
from ..arrays import DTypeLike
from ..elementwise import Scalar, broadcast_shapes
from ..handle import TensorLike, apply, lift, optional
from ..handle import where as select
from ..movement import axes_of, axis_of, integer
from ..reduction import accumulator
from .activation import Activation

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Linear", "attention"]


class Linear(Activation):
    """``matmul``, ``addmm``, ``outer``, ``linear`` and the like."""

    __slots__ = ()

    def matmul(self, other: TensorLike, accumulate: DTypeLike | None = None) -> Tensor:
        """``self @ other``, its sums in ``accumulate``: f32 or f64 for floats, at least as wide as
        the operands.
        """
        fold = functools.partial(reduction.matmul, accumulate=accumulate)
        return apply("matmul", fold, self, lift(other, "matmul"))

    def _product(self, op: str, other: TensorLike, left: int, right: int) -> Tensor:
        y = lift(other, op)
        if (self.ndim, y.ndim) != (left, right):
            raise ShapeError(
                f"{op}: shapes {self.shape} and {y.shape} must have {left} and {right} dimensions"
            )
        return self @ y

    def mm(self, mat2: TensorLike) -> Tensor:
        """The product of two matrices."""
        return self._product("mm", mat2, 2, 2)

    def bmm(self, mat2: TensorLike) -> Tensor:
        """The products of two batches of matrices."""
        return self._product("bmm", mat2, 3, 3)

    def mv(self, vec: TensorLike) -> Tensor:
        """The product of a matrix and a vector."""
        return self._product("mv", vec, 2, 1)

    def dot(self, other: TensorLike) -> Tensor:
        """The sum of the products of two vectors; with more dimensions, numpy's ``dot``."""
        y = lift(other, "dot")
        if self.ndim <= 2 and y.ndim <= 2 and self.shape and y.shape:
            return self @ y
        return self * y if not self.shape or not y.shape else self.tensordot(y, ([-1], [-2]))

    vdot = dot

    def inner(self, other: TensorLike) -> Tensor:
        """Sums of products over the last dimensions of both."""
        y = lift(other, "inner")
        if not self.shape or not y.shape:
            return self * y
        return self.tensordot(y, ([-1], [-1]))

    def outer(self, vec2: TensorLike) -> Tensor:
        """All products of the elements of two vectors."""
        y = lift(vec2, "outer")
        return self.reshape(-1, 1) * y.reshape(1, -1)

    ger = outer

    def addmm(
        self, mat1: TensorLike, mat2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
    ) -> Tensor:
        """``beta * self + alpha * (mat1 @ mat2)``."""
        return self._sum(beta, alpha, lift(mat1, "addmm").mm(mat2))

    def addmv(
        self, mat: TensorLike, vec: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
    ) -> Tensor:
        """``beta * self + alpha * (mat @ vec)``."""
        return self._sum(beta, alpha, lift(mat, "addmv").mv(vec))

    def addr(
        self, vec1: TensorLike, vec2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
    ) -> Tensor:
        """``beta * self + alpha * outer(vec1, vec2)``."""
        return self._sum(beta, alpha, lift(vec1, "addr").outer(vec2))

    def baddbmm(
        self, batch1: TensorLike, batch2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
    ) -> Tensor:
        """``beta * self + alpha * (batch1 @ batch2)`` of batches of matrices."""
        return self._sum(beta, alpha, lift(batch1, "baddbmm").bmm(batch2))

    def addbmm(
        self, batch1: TensorLike, batch2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
    ) -> Tensor:
        """``beta * self + alpha * sum(batch1 @ batch2)`` over the batch."""
        return self._sum(beta, alpha, lift(batch1, "addbmm").bmm(batch2).sum(0))

    def _sum(self, beta: Scalar, alpha: Scalar, product: Tensor) -> Tensor:
        scaled = product if alpha == 1 else product * alpha
        return scaled if beta == 0 else (self if beta == 1 else self * beta) + scaled

    def tensordot(self, other: TensorLike, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
        """Sums of products over the last ``dims`` dimensions of self and the first of ``other``, or
        over those of two lists.
        """
        y = lift(other, "tensordot")
        if isinstance(dims, int):
            n = integer("tensordot", "dims", dims, 0)
            left, right = tuple(range(self.ndim - n, self.ndim)), tuple(range(n))
        else:
            left = axes_of("tensordot", _listed(dims[0]), self.shape)
            right = axes_of("tensordot", _listed(dims[1]), y.shape)
        if [self.shape[a] for a in left] != [y.shape[a] for a in right]:
            raise ShapeError(
                f"tensordot: dimensions {left} of {self.shape} and {right} of {y.shape} differ"
            )
        rows = [a for a in range(self.ndim) if a not in left]
        columns = [a for a in range(y.ndim) if a not in right]
        inner = math.prod(self.shape[a] for a in left)
        outer = [self.shape[a] for a in rows] + [y.shape[a] for a in columns]
        m = math.prod(self.shape[a] for a in rows)
        n = math.prod(y.shape[a] for a in columns)
        x = self.permute(*rows, *left).reshape(m, inner)
        return (x @ y.permute(*right, *columns).reshape(inner, n)).reshape(outer)

    def kron(self, other: TensorLike) -> Tensor:
        """The Kronecker product: ``other`` scaled by each element of self."""
        y = lift(other, "kron")
        rank = max(self.ndim, y.ndim)
        a = (1,) * (rank - self.ndim) + self.shape
        b = (1,) * (rank - y.ndim) + y.shape
        x = self.reshape([e for s in a for e in (s, 1)])
        return (x * y.reshape([e for s in b for e in (1, s)])).reshape(
            [p * q for p, q in zip(a, b, strict=True)]
        )

    def matrix_power(self, n: int) -> Tensor:
        """A square matrix multiplied by itself, ``n >= 0`` times."""
        from ..creation import eye

        count = integer("matrix_power", "n", n, 0)
        if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(f"matrix_power: shape {self.shape} is no square matrix")
        found, square = None, self._same()
        while count:
            if count & 1:
                found = square if found is None else found @ square
            count >>= 1
            square = square @ square if count else square
        return eye(self.shape[-1], dtype=self.dtype).expand(self.shape) if found is None else found

    def cross(self, other: TensorLike, dim: int = -1) -> Tensor:
        """The cross product of vectors of three along ``dim``."""
        y = lift(other, "cross")
        shape = broadcast_shapes("cross", self.shape, y.shape)
        at = axis_of("cross", dim, shape)
        if shape[at] != 3:
            raise ShapeError(f"cross: shapes {self.shape} and {y.shape} have no 3 along {dim}")
        a, b = self.expand(shape), y.expand(shape)
        return a.roll(-1, at) * b.roll(-2, at) - a.roll(-2, at) * b.roll(-1, at)

    def linear(
        self,
        weight: TensorLike,
        bias: TensorLike | None = None,
        accumulate: DTypeLike | None = None,
    ) -> Tensor:
        """``self @ weight.T + bias``: (.., in), weight (out, in) and bias (out,) give (.., out).

        The bias is added in the accumulator's dtype.
        """
        w, b = lift(weight, "linear"), optional(bias, "linear")
        if w.ndim != 2 or not self.shape or self.shape[-1] != w.shape[1]:
            raise ShapeError(
                f"linear: input {self.shape} and weight {w.shape} must be (.., in) and (out, in)"
            )
        if b is not None and b.shape != w.shape[:1]:
            raise ShapeError(f"linear: bias {b.shape} for weight {w.shape}, must be {w.shape[:1]}")
        kind = promote(self.dtype, w.dtype)
        acc = accumulator("linear", kind, accumulate)
        result = self.cast(acc) @ w.cast(acc).T
        return (result if b is None else result + b.cast(acc)).cast(kind if kind.is_float else acc)

    def bilinear(
        self, input2: TensorLike, weight: TensorLike, bias: TensorLike | None = None
    ) -> Tensor:
        """``self' weight[o] input2 + bias[o]`` for every output o: weight is (out, in1, in2)."""
        y, w, b = lift(input2, "bilinear"), lift(weight, "bilinear"), optional(bias, "bilinear")
        if w.ndim != 3 or self.shape[-1:] != w.shape[1:2] or y.shape[-1:] != w.shape[2:]:
            raise ShapeError(
                f"bilinear: inputs {self.shape} and {y.shape} and weight {w.shape} must be (.., "
                "in1), (.., in2) and (out, in1, in2)"
            )
        left = self.tensordot(w, ([-1], [1]))  # (.., out, in2)
        result = (left * y.unsqueeze(-2)).sum(-1)
        return result if b is None else result + b

    def cosine_similarity(self, x2: TensorLike, dim: int = 1, eps: float = 1e-8) -> Tensor:
        """The cosine of the angle between vectors along ``dim``, whose lengths count as ``eps`` at
        least.
        """
        x, y = self._wide(), lift(x2, "cosine_similarity")._wide()
        lengths = x.norm(2, dim).clamp(eps) * y.norm(2, dim).clamp(eps)
        return ((x * y).sum(dim) / lengths)._as(self.float_type)

    def pairwise_distance(
        self, x2: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
    ) -> Tensor:
        """The p-norm of ``self - x2 + eps`` along the last dimension."""
        return (self - lift(x2, "pairwise_distance") + eps).norm(p, -1, keepdim)

    def cdist(self, x2: TensorLike, p: float = 2.0) -> Tensor:
        """The p-norm of the difference of every row of self and every row of ``x2``."""
        return (self.unsqueeze(-2) - lift(x2, "cdist").unsqueeze(-3)).norm(p, -1)


def _listed(dims: int | Sequence[int]) -> Sequence[int]:
    return (dims,) if isinstance(dims, int) else dims


def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(scale * query @ key' + mask) @ value``: (.., L, E), (.., S, E) and (.., S, Ev) give
    (.., L, Ev).

    ``attn_mask``: bool, true where a query may look, or numbers that are added to the scores.
    ``is_causal``: query i looks at keys 0 to i. ``scale``: 1 / sqrt(E) unless given.
    ``enable_gqa``: heads (dimension -3) of key and value are repeated to those of the query. A
    query from which a mask hides all keys gives zeros.

    Raises ShapeError for shapes that do not fit, or both a mask and ``is_causal``.
    """
    op = "scaled_dot_product_attention"
    q, k, v = lift(query, op), lift(key, op), lift(value, op)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{op}: query {q.shape}, key {k.shape} and value {v.shape} must be (.., L, E), (.., S, "
            "E) and (.., S, Ev)"
        )
    if attn_mask is not None and is_causal:
        raise ShapeError(f"{op}: attn_mask and is_causal exclude each other")
    if enable_gqa:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    kind = promote(q.dtype, k.dtype)
    wide = kind.compute
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q.cast(wide) @ k.cast(wide).mT) * factor
    mask = optional(attn_mask, op)
    if is_causal:
        from ..creation import ones

        mask = ones((q.shape[-2], k.shape[-2]), dtype="bool").tril()
    if mask is not None and mask.dtype.is_bool:
        scores = select(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask.cast(wide)
    weights = scores.softmax(-1) if attn_mask is None else scores.masked_softmax()
    return (weights @ v.cast(wide))._as(kind)
