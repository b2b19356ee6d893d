"""Merging neighbouring axes, so that what is flat in memory is flat in the kernel.

    store C[h, w, o] = sum over c: x[h, w, c] * k[o, c]        a 1x1 convolution, axes h:56 w:56 o:64
    store C[m, o]    = sum over c: x[m, c] * k[o, c]           the same with axis m:3136

Two axes of one group (shared, or own of one stage) merge when every use of a parameter reads them as neighbouring
dimensions ``[.., a, b, ..]`` that they span, or inside one dimension as ``c * (B * a + b)``. Dimensions of a parameter
that is used several times (softmax) merge only together, and so do the axes that read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..expr import Load, leaves
from ..index import Index
from ..kernel import Axis, Kernel, Param, Store
from .axes import all_indices, conditions, rewritten

__all__ = ["merge_axes"]


def merge_axes(k: Kernel) -> Kernel:
    """``k`` with axes merged as long as any can be; parameters with plain layouts must be row-major."""
    while True:
        groups = (k.axes, *(s.axes for s in k.stages))
        pairs = ((a, b) for g in groups for a in g for b in g if a is not b)
        merged = next((m for m in (_merged(k, a, b) for a, b in pairs) if m is not None), None)
        if merged is None:
            return k
        k = merged


@dataclass(slots=True)
class _MergeState:
    """A merge being worked out: what must be merged along with what."""

    kernel: Kernel
    pairs: dict[str, tuple[Axis, Axis]] = field(default_factory=dict)
    """By the name of the outer axis."""
    taken: set[str] = field(default_factory=set)
    dims: dict[str, set[int]] = field(default_factory=dict)
    """Per parameter the d for which dimensions d and d+1 merge."""

    def pair(self, a: Axis, b: Axis) -> bool:
        """Note that ``a`` and ``b`` merge; False when one of them merges with another."""
        if a.name in self.pairs and self.pairs[a.name][1] == b:
            return True
        if a.name in self.taken or b.name in self.taken:
            return False
        self.pairs[a.name] = (a, b)
        self.taken |= {a.name, b.name}
        return True


def _merged(k: Kernel, a: Axis, b: Axis) -> Kernel | None:
    """``k`` with ``a`` (outer) and ``b`` (inner) as one axis, and all that must go with them; None where it can not."""
    m = _MergeState(k)
    m.pair(a, b)
    if not _closed(m):
        return None
    env: dict[str, Index] = {}
    axes: dict[str, tuple[Axis, ...]] = {}
    for outer, inner in m.pairs.values():
        both = Axis(f"{outer.name}{inner.name}", outer.extent * inner.extent)
        env[outer.name], env[inner.name] = both.index // inner.extent, both.index % inner.extent
        axes[outer.name], axes[inner.name] = (both,), ()
    params = {p.name: p for p in k.params}

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        for d in sorted(m.dims.get(param, ()), reverse=True):
            index = (*index[:d], index[d] * params[param].shape[d + 1] + index[d + 1], *index[d + 2 :])
        return index

    merged = rewritten(k, env, axes, access)
    if sum(i.divisions() for i in all_indices(merged)) > sum(i.divisions() for i in all_indices(k)):
        return None
    return replace(merged, params=tuple(_merge_dims(p, m.dims.get(p.name, set())) for p in k.params))


def _merge_dims(p: Param, dims: set[int]) -> Param:
    shape = p.shape
    for d in sorted(dims, reverse=True):
        shape = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
    return Param.dense(p.name, p.dtype, shape, p.role) if dims else p


def _closed(m: _MergeState) -> bool:
    """Add to ``m`` all that its pairs imply; False when that is impossible."""
    groups = {a.name: g for g in (m.kernel.axes, *(s.axes for s in m.kernel.stages)) for a in g}
    while True:
        before = (len(m.pairs), sum(map(len, m.dims.values())))
        for v in conditions(m.kernel):
            if not v.names().isdisjoint(m.taken):
                return False
        for param, index in _uses(m.kernel):
            p = m.kernel.param(param)
            if not all(_use_fits(m, p, index, a, b) for a, b in tuple(m.pairs.values())):
                return False
            if not all(_dims_fit(m, p, index, d, groups) for d in m.dims.get(param, ())):
                return False
        if before == (len(m.pairs), sum(map(len, m.dims.values()))):
            return True


def _use_fits(m: _MergeState, p: Param, index: tuple[Index, ...], a: Axis, b: Axis) -> bool:
    """Whether one use of ``p`` lets ``a`` and ``b`` merge, noting the dimensions that merge with them."""
    at_a = [d for d, i in enumerate(index) if a.name in i.names()]
    at_b = [d for d, i in enumerate(index) if b.name in i.names()]
    if at_a == at_b:
        return all(_joins(index[d], a, b) for d in at_a)
    if len(at_a) != 1 or at_b != [at_a[0] + 1] or not p.layout.is_row_major:
        return False
    d = at_a[0]
    m.dims.setdefault(p.name, set()).add(d)
    return index[d].key == a.name and index[d + 1].key == b.name and p.shape[d : d + 2] == (a.extent, b.extent)


def _dims_fit(m: _MergeState, p: Param, index: tuple[Index, ...], d: int, groups: dict[str, tuple[Axis, ...]]) -> bool:
    """Whether one use of ``p`` reads dimensions d and d+1 with a pair of axes that spans them; the pair is noted."""
    outer, inner = index[d].key, index[d + 1].key
    group = {a.name: a for a in groups.get(outer, ())}
    if inner not in group:
        return False
    a, b = group[outer], group[inner]
    return p.shape[d : d + 2] == (a.extent, b.extent) and m.pair(a, b)


def _joins(index: Index, a: Axis, b: Axis) -> bool:
    """Whether the index holds c * (b.extent * a + b)."""
    ca, cb = index.coefficient(a.name), index.coefficient(b.name)
    return ca is not None and cb is not None and ca == cb * b.extent


def _uses(k: Kernel) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for s in k.stages:
        if isinstance(s, Store):
            yield s.param, s.index
        for x in leaves(s.expr):
            if isinstance(x, Load):
                yield x.param, x.index
