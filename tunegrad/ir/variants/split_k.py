"""Split of k: the long sum of a product with few results, in parts that run side by side, and a
second kernel that adds them up.

    v0 = sum over k: a(m, k) * b(k, n)
    store Y[m, n] = g(v0, m, n)
        -->
    v0 = sum over k': a(m, p*K/P + k') * b(p*K/P + k', n)         for p in P parts
    store T[p, m, n] = v0

    v0 = sum over p: T[p, m, n]
    store Y[m, n] = g(v0, m, n)

Both are ordinary kernels. Parts are the outermost axis of the first one, so that results lie side
by side as they did, and a matrix unit multiplies them as it did; T holds sums in the dtype in which
they are added. The second one adds the parts of a result in one order, whatever ran first: equal
inputs give equal bits. Every part has the same number of terms.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..expr import Apply, Cast, Expr, Load, Op
from ..kernel import Axis, Kernel, Reduce
from .split import Split, finish_of, partial_of

__all__ = ["PARTS", "split_k", "splits_of_k"]

PARTS = (2, 4, 8, 16)
_LEAST_TERMS = 256
"""Terms of a part: fewer are added up in less time than a second launch takes."""

_STEP = 16
"""Terms of a part of the axis that is cut are a multiple of these: matrix units have no tails."""


def splits_of_k(kernel: Kernel) -> tuple[int, ...]:
    """Into how many parts the sum of a product can be split; none for another kernel."""
    if not _is_product(kernel):
        return ()
    (reduce,) = kernel.reduces
    terms, extent = prod(a.extent for a in reduce.axes), _axis(reduce).extent
    return tuple(p for p in PARTS if terms // p >= _LEAST_TERMS and extent % (p * _STEP) == 0)


def split_k(kernel: Kernel, parts: int) -> Split:
    """The two kernels for one of ``splits_of_k``."""
    k = kernel.canonical()
    (reduce,) = k.reduces
    axis = _axis(reduce)
    rows = axis.extent // parts
    partial = partial_of(k, reduce, axis, (parts, rows, 1), outermost=True)
    finish = finish_of(k, reduce, axis, (parts, rows), outermost=True)
    places = {p.name: i for i, p in enumerate(k.params)}
    return Split(
        replace(partial.canonical(), name=f"{kernel.name} in {parts}"),
        replace(finish.canonical(), name=f"{kernel.name} of {parts}"),
        tuple(places[p.name] for p in partial.params[1:]),
        tuple(places.get(p.name) for p in finish.params),
    )


def _axis(reduce: Reduce) -> Axis:
    return max(reduce.axes, key=lambda a: a.extent)


def _is_product(kernel: Kernel) -> bool:
    """One sum of products of two loads, and stores at the shared points."""
    if len(kernel.reduces) != 1 or any(s.axes for s in kernel.stores):
        return False
    (reduce,) = kernel.reduces
    x = reduce.expr
    return (
        reduce.op is Op.ADD
        and reduce.dtype.is_float
        and isinstance(x, Apply)
        and x.op is Op.MUL
        and all(isinstance(_uncast(y), Load) for y in x.args)
        and _uncast(x.args[0]) != _uncast(x.args[1])
    )


def _uncast(x: Expr) -> Expr:
    """The expression that is widened, or rounded to tf32."""
    if isinstance(x, Apply) and x.op is Op.TF32:
        return x.args[0]
    return x.x if isinstance(x, Cast) else x
