"""Rewriting the axes of a kernel: substitution, and splitting so that divisions go away.

axis k:768 read as k // 64 and k % 64    -->    axes kh:12 kl:64 read as kh and kl
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ..expr import Apply, Cast, Expr, IndexValue, Inside, Load, Value, leaves, nodes, rebuild
from ..index import Element, FloorDiv, Index, Mod, Valid, Var
from ..kernel import Axis, Kernel, Reduce, Stage, Store

__all__ = [
    "Access",
    "all_indices",
    "conditions",
    "distinct_leaves",
    "rewritten",
    "split_axes",
    "uses",
]

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

    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load):
            return Load(x.param, index_of(x.param, x.index), x.dtype, x.valid.substitute(env))
        if isinstance(x, IndexValue):
            return IndexValue(x.index.substitute(env), x.dtype)
        if isinstance(x, Value) and x.index:
            return Value(x.stage, x.dtype, tuple(i.substitute(env) for i in x.index))
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
            index, valid = index_of(s.param, s.index), s.valid.substitute(env)
            stages.append(replace(s, index=index, expr=expr, axes=replaced(s.axes), valid=valid))
    return replace(k, axes=replaced(k.axes), stages=tuple(stages))


def distinct_leaves(x: Expr) -> list[Expr]:
    """The leaves of an expression, left to right, shared parts once."""
    return [node for node in nodes(x) if not isinstance(node, Apply | Cast)]


def conditions(k: Kernel) -> Iterator[Valid]:
    """The conditions of a kernel: those of its stores, of its loads, and those that it computes
    with.
    """
    return _conditions((s, distinct_leaves(s.expr)) for s in k.stages)


def _conditions(stages: Iterable[tuple[Stage, list[Expr]]]) -> Iterator[Valid]:
    for s, found in stages:
        if isinstance(s, Store):
            yield s.valid
        yield from (x.valid for x in found if isinstance(x, Load | Inside))


def uses(k: Kernel) -> Iterator[tuple[str, tuple[Index, ...]]]:
    """The index tuples that parameters are read and written at."""
    return _uses((s, distinct_leaves(s.expr)) for s in k.stages)


def _uses(
    stages: Iterable[tuple[Stage, list[Expr]]],
) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for s, found in stages:
        if isinstance(s, Store):
            yield s.param, s.index
        yield from ((x.param, x.index) for x in found if isinstance(x, Load))


def all_indices(k: Kernel) -> Iterator[Index]:
    """The indices of a kernel, those in conditions too."""
    stages = [(s, distinct_leaves(s.expr)) for s in k.stages]
    for _, index in _uses(stages):
        yield from index
    for _, found in stages:
        yield from (x.index for x in found if isinstance(x, IndexValue))
        for x in found:
            if isinstance(x, Value):
                yield from x.index
    for v in _conditions(stages):
        yield from (r.index for r in v.ranges)


def compared(k: Kernel) -> dict[str, int]:
    """The parameters whose integers are compared with positions (``c <= place``, as in masks), and
    the extent of the positions.
    """
    found: dict[str, int] = {}
    integers = {p.name for p in k.params if p.dtype.is_int}
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
    extent; those of rows, which are read by their index, stay whole.
    """
    while True:
        found = _division(k)
        if found is None:
            return k
        axis, by = found
        high, low = Axis(f"{axis.name}h", axis.extent // by), Axis(f"{axis.name}l", by)
        k = rewritten(k, {axis.name: high.index * by + low.index}, {axis.name: (high, low)})


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
