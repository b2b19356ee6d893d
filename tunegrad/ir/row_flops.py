"""Operations of a row's terms, each once for the axes that it depends on.

v3[e] = add over j: mul(exp(v0[j]), V[j, e])     J exponentials for all e, and E * J products
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from .expr import Apply, Cast, Expr, IndexValue, Inside, Load, Op, Value

__all__ = ["row_flops"]


def row_flops(
    root: Expr, shared: Mapping[str, int], own: Mapping[str, int], costs: Mapping[Op, int]
) -> int:
    """Floating-point operations of one run, without the fold itself.

    ``shared`` and ``own`` are the extents of the shared axes and of the stage's; ``costs`` are of
    operations that do not count as one. A result of an earlier reduction depends on all shared
    axes.
    """
    known: dict[int, frozenset[str]] = {}
    extents = {**shared, **own}
    total = 0

    def names(x: Expr) -> frozenset[str]:
        nonlocal total
        if id(x) in known:
            return known[id(x)]
        if isinstance(x, Apply | Cast):
            args = x.args if isinstance(x, Apply) else (x.x,)
            found = frozenset[str]().union(*map(names, args))
            if isinstance(x, Apply) and x.dtype.is_float:
                total += costs.get(x.op, 1) * prod(extents[n] for n in found)
        else:
            found = _mentioned(x, frozenset(shared))
        known[id(x)] = found
        return found

    names(root)
    return total


def _mentioned(x: Expr, shared: frozenset[str]) -> frozenset[str]:
    """The axes that a leaf depends on."""
    if isinstance(x, Load):
        return frozenset(x.valid.names()).union(*(i.names() for i in x.index))
    if isinstance(x, Value):
        return shared.union(*(i.names() for i in x.index))
    if isinstance(x, IndexValue):
        return frozenset(x.index.names())
    return frozenset(x.valid.names()) if isinstance(x, Inside) else frozenset()
