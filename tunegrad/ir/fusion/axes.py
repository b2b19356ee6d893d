"""Rewriting the axes of a kernel: substitution, splitting away divisions, merging neighbours.

    split     axis k:768 read as k // 64 and k % 64            ->  axes k0:12 k1:64
    merge     axes h:56 w:56 used only as [.., h, w, ..] of adjacent stored dimensions, or as 56*h + w  ->  axis hw:3136
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..expr import Expr, IndexValue, Inside, Load, leaves, rebuild
from ..index import FloorDiv, Index, Mod, Valid, Var
from ..kernel import Axis, Kernel, Param, Reduce, Stage, Store

__all__ = ["Access", "merge_axes", "rewritten", "split_axes"]

Access = Callable[[str, tuple[Index, ...]], tuple[Index, ...]]


def rewritten(k: Kernel, env: Mapping[str, Index], axes: Mapping[str, tuple[Axis, ...]], access: Access | None = None) -> Kernel:
    """``k`` with axes replaced by index expressions of new ones.

    ``axes`` gives what stands in the place of a replaced axis; ``access`` then rewrites the index tuple of each
    parameter's use.
    """

    def index_of(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        index = tuple(i.substitute(env) for i in index)
        return index if access is None else access(param, index)

    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load):
            return Load(x.param, index_of(x.param, x.index), x.dtype, x.valid.substitute(env))
        if isinstance(x, IndexValue):
            return IndexValue(x.index.substitute(env), x.dtype)
        if isinstance(x, Inside):
            return Inside(x.valid.substitute(env))
        return x

    def replaced(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(new for a in old for new in axes.get(a.name, (a,)))

    stages: list[Stage] = []
    for s in k.stages:
        expr = rebuild(s.expr, leaf)
        if isinstance(s, Reduce):
            stages.append(replace(s, axes=replaced(s.axes), expr=expr))
        else:
            stages.append(Store(s.param, index_of(s.param, s.index), expr, replaced(s.axes)))
    return replace(k, axes=replaced(k.axes), stages=tuple(stages))


def conditions(k: Kernel) -> Iterator[Valid]:
    """Every condition of a kernel."""
    for s in k.stages:
        for x in leaves(s.expr):
            if isinstance(x, Load | Inside):
                yield x.valid


def all_indices(k: Kernel) -> Iterator[Index]:
    """Every index of a kernel, those in conditions too."""
    for s in k.stages:
        if isinstance(s, Store):
            yield from s.index
        for x in leaves(s.expr):
            if isinstance(x, Load):
                yield from x.index
            elif isinstance(x, IndexValue):
                yield x.index
    for v in conditions(k):
        for r in v.ranges:
            yield r.index


def split_axes(k: Kernel) -> Kernel:
    """``k`` with each axis split that is read through a division or modulus by a divisor of its extent."""
    while True:
        found = _division(k)
        if found is None:
            return k
        axis, by = found
        high, low = Axis(f"{axis.name}h", axis.extent // by), Axis(f"{axis.name}l", by)
        k = rewritten(k, {axis.name: high.index * by + low.index}, {axis.name: (high, low)})


def _division(k: Kernel) -> tuple[Axis, int] | None:
    extents = {a.name: a for a in k.all_axes()}
    for index in all_indices(k):
        for name, by in _divisions(index):
            axis = extents[name]
            if by < axis.extent and axis.extent % by == 0:
                return axis, by
    return None


def _divisions(index: Index) -> Iterator[tuple[str, int]]:
    """Divisions of a bare axis by a constant, in an index."""
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv | Mod):
            terms = atom.num.terms
            if len(terms) == 1 and isinstance(terms[0][0], Var) and terms[0][1] == 1 and atom.num.const == 0:
                yield terms[0][0].name, atom.den
            yield from _divisions(atom.num)


def merge_axes(k: Kernel) -> Kernel:
    """``k`` with neighbouring axes merged wherever that needs no division; parameters are in storage order."""
    while True:
        groups = [k.axes, *(s.axes for s in k.stages)]
        pairs = ((a, b) for g in groups for a in g for b in g if a is not b)
        merged = next((m for m in (_merged(k, a, b) for a, b in pairs) if m is not None), None)
        if merged is None:
            return k
        k = merged


def _merged(k: Kernel, a: Axis, b: Axis) -> Kernel | None:
    """``k`` with ``a`` (outer) and ``b`` (inner) as one axis; None when an index would need a division."""
    dims = _merged_dims(k, a, b)
    if dims is None:
        return None
    ab = Axis(f"{a.name}{b.name}", a.extent * b.extent)
    env = {a.name: ab.index // b.extent, b.name: ab.index % b.extent}

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        d = dims.get(param)
        return index if d is None else (*index[:d], index[d] * b.extent + index[d + 1], *index[d + 2 :])

    merged = rewritten(k, env, {a.name: (ab,), b.name: ()}, access)
    params = tuple(_merge_dims(p, dims[p.name]) if p.name in dims else p for p in k.params)
    if sum(i.divisions() for i in all_indices(merged)) > sum(i.divisions() for i in all_indices(k)):
        return None
    return replace(merged, params=params)


def _merge_dims(p: Param, d: int) -> Param:
    shape = (*p.shape[:d], p.shape[d] * p.shape[d + 1], *p.shape[d + 2 :])
    return Param.dense(p.name, p.dtype, shape, p.role)


def _merged_dims(k: Kernel, a: Axis, b: Axis) -> dict[str, int] | None:
    """Per parameter the dimension d such that every use of it reads [.., a, b, ..] at d, d+1 and both span their
    dimension; None when the axes are used in any way that could not merge."""
    for v in conditions(k):
        if v.names() & {a.name, b.name}:
            return None
    params = {p.name: p for p in k.params}
    found: dict[str, int | None] = {}
    for param, index in _uses(k):
        p = params[param]
        where_a = [d for d, i in enumerate(index) if a.name in i.names()]
        where_b = [d for d, i in enumerate(index) if b.name in i.names()]
        d: int | None = None
        if where_a != where_b:
            if len(where_a) != 1 or where_b != [where_a[0] + 1] or not p.layout.is_row_major:
                return None
            d = where_a[0]
            if index[d].key != a.name or index[d + 1].key != b.name:
                return None
            if p.shape[d] != a.extent or p.shape[d + 1] != b.extent:
                return None
        elif any(not _joins(index[i], a, b) for i in where_a):
            return None
        if found.setdefault(param, d) != d:
            return None
    return {name: d for name, d in found.items() if d is not None}


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
