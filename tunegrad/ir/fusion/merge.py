"""Merging neighbouring axes, so that what is flat in memory is flat in the kernel.

    store C[h, w, o] = sum over c: x[h, w, c] * k[o, c]       a 1x1 convolution, axes h:56 w:56 o:64
    store C[m, o]    = sum over c: x[m, c] * k[o, c]          the same with axis m:3136

Two axes of one group (shared, or own of one stage) merge when every use of a parameter reads them
as neighbouring dimensions ``[.., a, b, ..]`` that they span, or inside one dimension as ``c * (B *
a + b)``. Dimensions of a parameter that is used several times (softmax) merge only together, and so
do the axes that read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..expr import Value
from ..index import Element, Index
from ..kernel import Axis, Kernel, Param
from .axes import all_indices, conditions, distinct_leaves, rewritten, uses

__all__ = ["merge_axes"]


def merge_axes(k: Kernel) -> Kernel:
    """``k`` with axes merged as long as any can be; parameters with plain layouts must be
    row-major.
    """
    while True:
        groups = (k.axes, *(s.axes for s in k.stages))
        facts = _Facts.of(k)
        pairs = ((a, b) for g in groups for a in g if a.name in facts.free for b in g if a is not b)
        merged = next((m for m in (_merged(facts, a, b) for a, b in pairs) if m is not None), None)
        if merged is None:
            return k
        k = merged


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts that decide on a merge."""

    kernel: Kernel
    params: dict[str, Param]
    uses: tuple[tuple[str, tuple[Index, ...]], ...]
    groups: dict[str, dict[str, Axis]]
    """By axis name, the axes of its group by name."""
    free: frozenset[str]
    """Axes that no condition depends on, and that neither index a row nor are one's."""
    divisions: int

    @staticmethod
    def of(k: Kernel) -> _Facts:
        groups = [{a.name: a for a in g} for g in (k.axes, *(s.axes for s in k.stages))]
        bound = {n for v in conditions(k) for n in v.names()}
        bound |= {a.name for r in k.reduces for a in r.row}
        read = (x for s in k.stages for x in distinct_leaves(s.expr) if isinstance(x, Value))
        bound |= {n for x in read for i in x.index for n in i.names()}
        return _Facts(
            kernel=k,
            params={p.name: p for p in k.params},
            uses=tuple(dict.fromkeys(uses(k))),
            groups={name: g for g in groups for name in g},
            free=frozenset(a.name for a in k.all_axes() if a.name not in bound),
            divisions=sum(i.divisions() for i in all_indices(k)),
        )


@dataclass(slots=True)
class _MergeState:
    """A merge being worked out: what must be merged along with what."""

    facts: _Facts
    pairs: dict[str, tuple[Axis, Axis]] = field(default_factory=dict)
    """By the name of the outer axis."""
    taken: set[str] = field(default_factory=set)
    dims: dict[str, set[int]] = field(default_factory=dict)
    """Per parameter the d for which dimensions d and d+1 merge."""

    def pair(self, a: Axis, b: Axis) -> bool:
        """Note that ``a`` and ``b`` merge; False when one of them merges with another."""
        if a.name in self.pairs and self.pairs[a.name][1] == b:
            return True
        if a.name in self.taken or b.name in self.taken or not {a.name, b.name} <= self.facts.free:
            return False
        self.pairs[a.name] = (a, b)
        self.taken |= {a.name, b.name}
        return True


def _merged(facts: _Facts, a: Axis, b: Axis) -> Kernel | None:
    """The kernel with ``a`` (outer) and ``b`` (inner) as one axis, and all that must go with them;
    or None.
    """
    m = _MergeState(facts)
    if not m.pair(a, b) or not _closed(m):
        return None
    k, params = facts.kernel, facts.params
    env: dict[str, Index] = {}
    axes: dict[str, tuple[Axis, ...]] = {}
    for outer, inner in m.pairs.values():
        both = Axis(f"{outer.name}{inner.name}", outer.extent * inner.extent)
        env[outer.name], env[inner.name] = both.index // inner.extent, both.index % inner.extent
        axes[outer.name], axes[inner.name] = (both,), ()

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        for d in sorted(m.dims.get(param, ()), reverse=True):
            index = (
                *index[:d],
                index[d] * params[param].shape[d + 1] + index[d + 1],
                *index[d + 2 :],
            )
        return index

    merged = rewritten(k, env, axes, access)
    if sum(i.divisions() for i in all_indices(merged)) > facts.divisions:
        return None
    return replace(
        merged, params=tuple(_merge_dims(p, m.dims.get(p.name, set())) for p in k.params)
    )


def _merge_dims(p: Param, dims: set[int]) -> Param:
    shape = p.shape
    for d in sorted(dims, reverse=True):
        shape = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
    return Param.dense(p.name, p.dtype, shape, p.role) if dims else p


def _closed(m: _MergeState) -> bool:
    """Add to ``m`` all that its pairs imply; False when that is impossible."""
    while True:
        before = (len(m.pairs), sum(map(len, m.dims.values())))
        for param, index in m.facts.uses:
            p = m.facts.params[param]
            if not all(_use_fits(m, p, index, a, b) for a, b in tuple(m.pairs.values())):
                return False
            if not all(_dims_fit(m, p, index, d) for d in m.dims.get(param, ())):
                return False
        if before == (len(m.pairs), sum(map(len, m.dims.values()))):
            return True


def _use_fits(m: _MergeState, p: Param, index: tuple[Index, ...], a: Axis, b: Axis) -> bool:
    """True if one use of ``p`` lets ``a`` and ``b`` merge; the dimensions that merge with them are
    noted.
    """
    at_a = [d for d, i in enumerate(index) if a.name in i.names()]
    at_b = [d for d, i in enumerate(index) if b.name in i.names()]
    if at_a == at_b:
        return all(_joins(index[d], a, b) for d in at_a)
    if len(at_a) != 1 or at_b != [at_a[0] + 1] or not p.layout.is_row_major:
        return False
    d = at_a[0]
    m.dims.setdefault(p.name, set()).add(d)
    return (
        index[d].key == a.name
        and index[d + 1].key == b.name
        and p.shape[d : d + 2] == (a.extent, b.extent)
    )


def _dims_fit(m: _MergeState, p: Param, index: tuple[Index, ...], d: int) -> bool:
    """True if one use of ``p`` reads dimensions d and d+1 with a pair of axes that spans them; the
    pair is noted.
    """
    outer, inner = index[d].key, index[d + 1].key
    group = m.facts.groups.get(outer, {})
    if inner not in group:
        return False
    a, b = group[outer], group[inner]
    return p.shape[d : d + 2] == (a.extent, b.extent) and m.pair(a, b)


def _joins(index: Index, a: Axis, b: Axis) -> bool:
    """True if the index holds c * (b.extent * a + b), and its elements' offsets as well."""
    for e in {e for e in index.elements() if {a.name, b.name} & e.names}:
        if not _joins(e.num, a, b):
            return False
    plain = Index(tuple(t for t in index.terms if not isinstance(t[0], Element)), 0)
    if plain.names().isdisjoint((a.name, b.name)):
        return True
    index = plain
    ca, cb = index.coefficient(a.name), index.coefficient(b.name)
    return ca is not None and cb is not None and ca == cb * b.extent
