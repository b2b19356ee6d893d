"""Sums and products of floats together with what their rounding took away (Dekker 1971; Ogita, Rump
and Oishi 2005).

    s = a + b,  e = two_sum's second      s + e is a + b exactly
    p = a * b,  e = two_product's second  p + e is a * b exactly, where FMA rounds once

A device whose FMA rounds twice gives 0 as a product's second part: the result is then as exact as
without it. A result that is not finite has no second part worth adding: see ``finite``.
"""

from __future__ import annotations

from tunegrad.ir import graph
from tunegrad.ir.expr import Op

from ..handle import Handle, joined, where
from ..nodes.elementwise import Scalar, broadcast, broadcast_shapes, constant

__all__ = ["finite", "fma", "two_product", "two_sum"]


def fma(a: Handle, b: Handle | Scalar, c: Handle | Scalar) -> Handle:
    """``a * b + c``, rounded once where the device can; floats of one dtype, broadcast."""
    given = [
        x.node if isinstance(x, Handle) else constant(x, (), a.dtype, "fma") for x in (a, b, c)
    ]
    shape = broadcast_shapes("fma", *(n.shape for n in given))
    node = graph.elementwise(Op.FMA, *(broadcast(n, shape) for n in given))
    return Handle.of(node, joined([x for x in (a, b, c) if isinstance(x, Handle)]))


def two_sum(a: Handle, b: Handle | Scalar) -> tuple[Handle, Handle]:
    """The sum, and what rounding took from it (Knuth)."""
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def two_product(a: Handle, b: Handle | Scalar) -> tuple[Handle, Handle]:
    """The product, and what rounding took from it, where that is not below the least number."""
    product = a * b
    return product, fma(a, b, -product)


def finite(correction: Handle) -> Handle:
    """A correction, 0 where it is infinite or NaN."""
    return where(correction - correction == 0, correction, 0.0)
