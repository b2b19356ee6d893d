"""From a draft to the kernel that is tuned: as few axes and dimensions as it can have, in one
order.

Parameters take their layouts and are seen in storage order without extent-1 dimensions, so that a
channels-last tensor is a row-major one with other indices, and one of blocked channels has a
dimension more; axes whose digits are then used apart are split; where a part of a buffer is read,
that part is the parameter (``views``); neighbouring axes merge; then

    shared and own axes   in the order of the first output's storage, outermost first
    reduce axes           in the order in which the stage's loads mention them
    parameters            outputs, then by first use
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ..expr import Load
from ..index import Index
from ..kernel import Axis, Kernel, Param, Reduce, Store
from ..layout import Layout, Part
from .axes import all_indices, distinct_leaves, rewritten, split_axes
from .merge import merge_axes
from .views import VIEW_BYTES, viewed

__all__ = ["Places", "normalized"]

Places = tuple[tuple[str, int], ...]
"""The draft's name of each parameter of a kernel, and the byte at which it begins there."""


def normalized(
    k: Kernel, layouts: Mapping[str, Layout], view_bytes: int = VIEW_BYTES
) -> tuple[Kernel, Places]:
    """The canonical kernel, and where each of its parameters is, in order.

    Views of buffers begin at multiples of ``view_bytes``.
    """
    k = replace(k, params=tuple(replace(p, layout=layouts.get(p.name, p.layout)) for p in k.params))
    k, starts = viewed(_in_storage_order(k), view_bytes)
    k = _ordered(merge_axes(k))
    return k.canonical(), tuple((p.name, starts.get(p.name, 0)) for p in k.params)


def _in_storage_order(k: Kernel) -> Kernel:
    """Parameters with a dimension per digit of their layout, without extent-1 ones: all but padded
    ones are row-major.

    y[c, h, w] = x[c, h, w] * w[c], c:64, x and y blocked by 16
        -->
    y[c0, h, w, c1] = x[c0, h, w, c1] * w[16*c0+c1], c0:4 c1:16
    """
    digits: dict[str, tuple[Part, ...]] = {}
    old = {p.name: p for p in k.params}
    params: list[Param] = []
    for p in k.params:
        if p.layout.size != prod(p.shape):  # no index is where the padding is
            params.append(p)
            continue
        parts = digits[p.name] = tuple(part for part in p.layout.parts if part.extent != 1)
        params.append(Param.dense(p.name, p.dtype, tuple(part.extent for part in parts), p.role))

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        parts = digits.get(param)
        return index if parts is None else tuple(old[param].layout.digit(index, p) for p in parts)

    apart = any(p.step > 1 for parts in digits.values() for p in parts)
    k = replace(rewritten(k, {}, {}, access), params=tuple(params))
    return split_axes(k) if apart else k


def _ordered(k: Kernel) -> Kernel:
    stages = tuple(replace(s, axes=_own_by_mention(s)) for s in k.stages)
    k = replace(k, axes=_by_mention(k.axes, k.stores[0].index), stages=stages)
    names = [s.param for s in k.stores]
    names += [x.param for s in k.stages for x in distinct_leaves(s.expr) if isinstance(x, Load)]
    params = {p.name: p for p in k.params}
    for i in all_indices(k):
        for e in i.elements():
            if e.buffer not in names:  # nothing but indices: a row of them
                p = params[e.buffer]
                params[p.name] = Param.dense(p.name, p.dtype, (p.size,), p.role)
                names.append(p.name)
    return replace(k, params=tuple(params[n] for n in dict.fromkeys(names)))


def _own_by_mention(s: Reduce | Store) -> tuple[Axis, ...]:
    """A stage's own axes by mention; those of a row stay as they are, since it is read by them."""
    if isinstance(s, Store):
        return _by_mention(s.axes, s.index)
    return (*s.row, *_by_mention(s.folds, _mentions(s)))


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
