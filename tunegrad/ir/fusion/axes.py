"""The axes of a kernel: split where they are read in parts, merged where they are flat in memory,
and put in one order.

axis k:768 read as k // 64 and k % 64    -->    axes kh:12 kl:64 read as kh and kl
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from math import gcd, prod

from tunegrad.lazy import dataclass

from ..expr import (
    Apply,
    Cast,
    Expr,
    IndexValue,
    Inside,
    Load,
    Value,
    leaves,
    nodes,
    rebuild,
    rebuilder,
    substituting,
)
from ..index import Element, FloorDiv, Index, Mod, Valid, Var
from ..kernel import Axis, Kernel, Param, Reduce, Stage, Store
from ..layout import Layout, Part

Access = Callable[[str, tuple[Index, ...]], tuple[Index, ...]]


def rewritten(
    k: Kernel,
    env: Mapping[str, Index],
    axes: Mapping[str, tuple[Axis, ...]],
    access: Access | None = None,
) -> Kernel:
    """``k`` with axes replaced by index expressions of new ones.

    ``axes`` gives what stands in the place of a replaced axis; ``access`` then rewrites the index
    tuple of each parameter's use.
    """

    def index_of(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        index = tuple(i.substitute(env) for i in index)
        return index if access is None else access(param, index)

    moved = substituting(env)

    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load) and access is not None:
            return Load(x.param, index_of(x.param, x.index), x.dtype, x.valid.substitute(env))
        return moved(x)

    def replaced(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(new for a in old for new in axes.get(a.name, (a,)))

    stages: list[Stage] = []
    shared = rebuilder(leaf)  # stores of one point have parts in common
    for s in k.stages:
        expr = shared(s.expr) if len(k.stores) > 1 else rebuild(s.expr, leaf)
        if isinstance(s, Reduce):
            stages.append(replace(s, axes=replaced(s.axes), expr=expr))
        else:
            index, valid = index_of(s.param, s.index), s.valid.substitute(env)
            stages.append(replace(s, index=index, expr=expr, axes=replaced(s.axes), valid=valid))
    return replace(k, axes=replaced(k.axes), stages=tuple(stages))


def distinct_leaves(x: Expr) -> list[Expr]:
    """The leaves of an expression, left to right, shared parts once."""
    return [node for node in nodes(x) if not isinstance(node, Apply | Cast)]


def stages_read(x: Expr) -> set[str]:
    """The stages whose values an expression has."""
    return {node.stage for node in nodes(x) if node.__class__ is Value}


def conditions(k: Kernel) -> Iterator[Valid]:
    """The conditions of a kernel: of its stores, of its loads, and those it computes with."""
    return _conditions(k.leaves)


def _conditions(stages: Iterable[tuple[Stage, tuple[Expr, ...]]]) -> Iterator[Valid]:
    for s, found in stages:
        if isinstance(s, Store):
            yield s.valid
        yield from (x.valid for x in found if isinstance(x, Load | Inside))


def uses(k: Kernel) -> Iterator[tuple[str, tuple[Index, ...]]]:
    """The index tuples that parameters are read and written at."""
    return _uses(k.leaves)


def _uses(
    stages: Iterable[tuple[Stage, tuple[Expr, ...]]],
) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for s, found in stages:
        if isinstance(s, Store):
            yield s.param, s.index
        yield from ((x.param, x.index) for x in found if isinstance(x, Load))


def all_indices(k: Kernel) -> Iterator[Index]:
    """The indices of a kernel, those in conditions too."""
    stages = k.leaves
    for _, index in _uses(stages):
        yield from index
    for _, found in stages:
        yield from (x.index for x in found if isinstance(x, IndexValue))
        for x in found:
            if isinstance(x, Value):
                yield from x.index
    for v in _conditions(stages):
        yield from (r.index for r in v.ranges)


def params_of(k: Kernel) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters that a kernel uses, and those of them whose elements are indices."""
    looked_up = frozenset(e.buffer for i in all_indices(k) for e in i.elements())
    return looked_up.union(name for name, _ in uses(k)), looked_up


def compared(k: Kernel) -> dict[str, int]:
    """The parameters compared with positions (``c <= place``, as in masks), and the extent."""
    found: dict[str, int] = {}
    integers = {p.name for p in k.params if p.dtype.is_int}
    if not integers:
        return found
    comparisons = (
        x for s in k.stages for x in nodes(s.expr) if isinstance(x, Apply) and x.op.compares
    )
    for x in (x for x in comparisons if x.args[0].dtype.is_int):
        there = [leaf for side in x.args for leaf in leaves(side)]
        extents = [leaf.index.hi + 1 for leaf in there if isinstance(leaf, IndexValue)]
        for leaf in there if extents else ():
            if isinstance(leaf, Load) and leaf.param in integers:
                found[leaf.param] = max(*extents, found.get(leaf.param, 1))
    return found


def split_axes(k: Kernel) -> Kernel:
    """``k`` with each axis split that is read through a division or modulus by a divisor of its
    extent; those of rows, which are read by their index, stay whole. Conditions of whole blocks are
    those of the outer axis then.
    """
    whole = k
    while True:
        found = _division(k)
        if found is None:
            return k if k is whole or k.reduces else _conditions_of_blocks(k)
        axis, by = found
        high, low = Axis(f"{axis.name}h", axis.extent // by), Axis(f"{axis.name}l", by)
        k = rewritten(k, {axis.name: high.index * by + low.index}, {axis.name: (high, low)})


def _conditions_of_blocks(k: Kernel) -> Kernel:
    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load):
            return Load(x.param, x.index, x.dtype, x.valid.of_blocks())
        return Inside(x.valid.of_blocks()) if isinstance(x, Inside) else x

    shared = rebuilder(leaf)
    return replace(k, stages=tuple(replace(s, expr=shared(s.expr)) for s in k.stages))


def _division(k: Kernel) -> tuple[Axis, int] | None:
    extents = {a.name: a for a in k.all_axes()}
    whole = {a.name for r in k.reduces for a in r.row}
    for index in all_indices(k):
        for name, by in _divisions(index):
            axis = extents[name]
            if name not in whole and by < axis.extent and axis.extent % by == 0:
                return axis, by
    return None


def _divisions(index: Index) -> Iterator[tuple[str, int]]:
    """Divisions of a bare axis by a constant, in an index."""
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv | Mod):
            terms = atom.num.terms
            if (
                len(terms) == 1
                and isinstance(terms[0][0], Var)
                and terms[0][1] == 1
                and atom.num.const == 0
            ):
                yield terms[0][0].name, atom.den
            yield from _divisions(atom.num)
        elif isinstance(atom, Element):
            yield from _divisions(atom.num)


def merge_axes(k: Kernel) -> Kernel:
    """``k`` with axes merged as long as any can be; parameters with plain layouts must be
    row-major.

    store C[h, w, o] = sum over c: x[h, w, c] * k[o, c]       a 1x1 convolution, axes h:56 w:56 o:64
    store C[m, o]    = sum over c: x[m, c] * k[o, c]          the same with axis m:3136

    Two axes of one group (shared, or own of one stage) merge when every use of a parameter reads
    them as neighbouring dimensions ``[.., a, b, ..]`` that they span, or inside one dimension as
    ``c * (B * a + b)``. Dimensions of a parameter that is used several times (softmax) merge only
    together, and so do the axes that read them.
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
        read = (x for _, found in k.leaves for x in found if isinstance(x, Value))
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
    """The kernel with ``a`` (outer) and ``b`` (inner) as one axis, and what goes along; or None."""
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
    """True if one use of ``p`` lets ``a`` and ``b`` merge; notes the dimensions that merge."""
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
    """True if one use of ``p`` reads dimensions d, d+1 with a pair that spans them; notes it."""
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


VIEW_BYTES = 64
"""Alignment of views on a device of which nothing is known."""

_At = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """Rows of a parameter: its dimensions from ``dim`` on, the first of them from ``first`` on."""

    param: Param
    dim: int
    first: int
    start_bytes: int

    def access(self, index: _At) -> _At:
        if self.dim == len(index):
            return ()
        return (index[self.dim] - self.first, *index[self.dim + 1 :])


def viewed(k: Kernel, view_bytes: int) -> tuple[Kernel, dict[str, int]]:
    """The kernel with views in the place of buffers of which it reads a part, and the byte at which
    each view begins, by parameter.

    Parameters are row-major. Views begin at multiples of ``view_bytes``.

    p1 f32[128,1,512] read at [5, 0, g]      -->      p1 f32[512] read at [g], from byte 10240 on
    p1 f32[128,1,512] read at [6, 0, g]      -->      p1 f32[512] read at [g], from byte 12288 on

    So the steps of an unrolled loop are one kernel, which each launch gives another view of the
    same buffer (``plan.Buffer.base``). A part is whole rows: dimensions that are read at one index
    are gone, and of the next one nothing is left before the first row that is read. A device whose
    views begin at multiples of so many bytes has the rest of the distance in the kernel's index:
    kernels that read at other rests are others.
    """
    found = {v.param.name: v for v in _views(k, view_bytes)}
    if not found:
        return k, {}

    def access(param: str, index: _At) -> _At:
        view = found.get(param)
        return index if view is None else view.access(index)

    params = tuple(found[p.name].param if p.name in found else p for p in k.params)
    k = replace(rewritten(k, {}, {}, access), params=params)
    return k, {name: v.start_bytes for name, v in found.items()}


def _views(k: Kernel, view_bytes: int) -> Iterator[_View]:
    looked_up = {e.buffer for i in all_indices(k) for e in i.elements()}
    at: dict[str, list[_At]] = {}
    for name, index in uses(k):
        at.setdefault(name, []).append(index)
    for p in k.params:
        if p.role != "in" or not p.size or not p.layout.is_row_major:
            continue
        if p.name in at and p.name not in looked_up:
            view = _view(p, at[p.name], view_bytes)
            if view is not None:
                yield view


def _view(p: Param, uses: list[_At], view_bytes: int) -> _View | None:
    """The part that these reads need; None where that is the whole, or may begin before it."""
    start, row = 0, p.nbytes
    for d, extent in enumerate(p.shape):
        row //= extent
        first, last = min(i[d].lo for i in uses), max(i[d].hi for i in uses)
        if first < 0 or last >= extent:
            break  # a condition says what is read
        step = view_bytes // gcd(view_bytes, row)
        begin = first // step * step
        start += begin * row
        if begin == last:
            continue
        fixed = all(i[d].is_const for i in uses)
        end = last + 1 if begin or fixed else extent
        return _part(p, d, begin, (end - begin, *p.shape[d + 1 :]), start)
    else:
        d, extent = len(p.shape), 1
    return _part(p, d, 0, p.shape[d:], start)


def _part(p: Param, dim: int, first: int, shape: tuple[int, ...], start: int) -> _View | None:
    if prod(shape) == p.size:
        return None
    return _View(Param.dense(p.name, p.dtype, shape, p.role), dim, first, start)


Places = tuple[tuple[str, int], ...]
"""The draft's name of each parameter of a kernel, and the byte at which it begins there."""


def normalized(
    k: Kernel, layouts: Mapping[str, Layout], view_bytes: int = VIEW_BYTES
) -> tuple[Kernel, Places]:
    """The canonical kernel, and where each of its parameters is, in order.

    Views of buffers begin at multiples of ``view_bytes``.

    Parameters take their layouts and are seen in storage order without extent-1 dimensions, so that
    a channels-last tensor is a row-major one with other indices, and one of blocked channels has a
    dimension more; axes whose digits are then used apart are split; where a part of a buffer is
    read, that part is the parameter (``views``); neighbouring axes merge; then

        shared and own axes   in the order of the first output's storage, outermost first
        reduce axes           in the order in which the stage's loads mention them
        parameters            outputs, then by first use
    """
    if layouts:
        placed = (replace(p, layout=layouts.get(p.name, p.layout)) for p in k.params)
        k = replace(k, params=tuple(placed))
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
        if p.layout.is_row_major and 1 not in p.shape:
            params.append(p)
            continue
        parts = digits[p.name] = tuple(part for part in p.layout.parts if part.extent != 1)
        params.append(Param.dense(p.name, p.dtype, tuple(part.extent for part in parts), p.role))

    def access(param: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        parts = digits.get(param)
        return index if parts is None else tuple(old[param].layout.digit(index, p) for p in parts)

    if not digits:
        return k
    apart = any(p.step > 1 for parts in digits.values() for p in parts)
    k = replace(rewritten(k, {}, {}, access), params=tuple(params))
    return split_axes(k) if apart else k


def _ordered(k: Kernel) -> Kernel:
    stages = tuple(replace(s, axes=_own_by_mention(s)) for s in k.stages)
    k = replace(k, axes=_by_mention(k.axes, k.stores[0].index), stages=stages)
    names = [s.param for s in k.stores]
    names += [x.param for _, found in k.leaves for x in found if isinstance(x, Load)]
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
