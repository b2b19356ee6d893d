"""From a draft to the kernel that is tuned: as few axes and dimensions as it can have, in one order.

Parameters take their layouts and are seen in storage order without extent-1 dimensions, so that a channels-last
tensor is a row-major one with other indices; neighbouring axes merge; then

    shared and own axes   in the order of the first output's storage, outermost first
    reduce axes           in the order in which the stage's loads mention them
    parameters            outputs, then by first use
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..expr import Load
from ..index import Index
from ..kernel import Axis, Kernel, Param, Reduce, Store
from ..layout import Layout
from .axes import distinct_leaves, rewritten
from .merge import merge_axes

__all__ = ["normalized"]


def normalized(k: Kernel, layouts: Mapping[str, Layout]) -> tuple[Kernel, tuple[str, ...]]:
    """The canonical kernel, and the draft's name of each of its parameters in order."""
    k = replace(k, params=tuple(replace(p, layout=layouts.get(p.name, p.layout)) for p in k.params))
    k = merge_axes(_in_storage_order(k))
    k = _ordered(k)
    return k.canonical(), tuple(p.name for p in k.params)


def _in_storage_order(k: Kernel) -> Kernel:
    """Parameters without extent-1 dimensions, permuted so that plain layouts are row-major."""
    orders: dict[str, tuple[int, ...]] = {}
    params: list[Param] = []
    for p in k.params:
        if not _is_permuted(p.layout):
            params.append(p)
            continue
        order = tuple(part.dim for part in p.layout.parts if p.shape[part.dim] != 1)
        params.append(Param.dense(p.name, p.dtype, tuple(p.shape[d] for d in order), p.role))
        orders[p.name] = order

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        order = orders.get(param)
        return index if order is None else tuple(index[d] for d in order)

    return replace(rewritten(k, {}, {}, access), params=tuple(params))


def _is_permuted(layout: Layout) -> bool:
    return len(layout.parts) == len(layout.shape) and all(
        part.step == 1 and part.extent == layout.shape[part.dim] for part in layout.parts
    )


def _ordered(k: Kernel) -> Kernel:
    stages = tuple(replace(s, axes=_by_mention(s.axes, _mentions(s))) for s in k.stages)
    k = replace(k, axes=_by_mention(k.axes, k.stores[0].index), stages=stages)
    names = [s.param for s in k.stores]
    names += [x.param for s in k.stages for x in distinct_leaves(s.expr) if isinstance(x, Load)]
    params = {p.name: p for p in k.params}
    return replace(k, params=tuple(params[n] for n in dict.fromkeys(names)))


def _mentions(s: Reduce | Store) -> tuple[Index, ...]:
    if isinstance(s, Store):
        return s.index
    return tuple(i for x in distinct_leaves(s.expr) if isinstance(x, Load) for i in x.index)


def _by_mention(axes: tuple[Axis, ...], indices: tuple[Index, ...]) -> tuple[Axis, ...]:
    """Axes by the first index that mentions them, the larger coefficient first."""
    place: dict[str, tuple[int, int]] = {}
    for n, index in enumerate(indices):
        for name in index.names():
            place.setdefault(name, (n, -abs(index.coefficient(name) or 0)))
    return tuple(sorted(axes, key=lambda a: place.get(a.name, (len(indices), 0))))
