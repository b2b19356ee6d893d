"""The kernel's verifier: names, types, scopes, bounds, and that every output element is written
exactly once.

Bounds are proved from the index algebra and the conditions of a load, and by running through all
values of the axes concerned where that is not enough; what neither settles is rejected. A dimension
that all stores of an output count through by an axis of its own is left out of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import VerifyError

from ..dtypes import F32, DType
from ..expr import (
    Apply,
    Cast,
    Const,
    Expr,
    IndexValue,
    Inside,
    Load,
    Op,
    Value,
    fold_takes,
    nodes,
    result_type,
)
from ..index import Element, Index, Valid, Var
from ..kernel import Axis, Kernel, Param, Reduce, Store, overwriting_fault

BRUTE_FORCE = 1 << 22
"""Most points of a search through all values of some axes."""


def verify_kernel(k: Kernel, points: int | None = None) -> None:
    """Raise VerifyError, naming the kernel, the part and the rule, unless ``k`` is well formed.

    ``points`` bounds all searches through values of axes together, for kernels of strangers.
    """
    _Verifier(k, points).run()


class _Verifier:
    def __init__(self, k: Kernel, points: int | None) -> None:
        self.kernel = k
        self.left: float = inf if points is None else points
        self.params = {p.name: p for p in k.params}
        self.values: dict[str, DType] = {}
        self.rows: dict[str, tuple[Axis, ...]] = {}
        self.read: set[str] = set()
        self.stored: set[str] = set()
        self.scope: dict[str, int] = {}
        self.proved: set[tuple[Index, int, Valid]] = set()

    def fail(self, what: str) -> VerifyError:
        return VerifyError(f"kernel {self.kernel.name}: {what}")

    def searchable(self, *points: int) -> bool:
        """Charge grids of so many points; True if they can be run through."""
        self.left -= sum(points)
        return max(points) <= BRUTE_FORCE and self.left >= 0

    def run(self) -> None:
        k = self.kernel
        names = (
            [p.name for p in k.params]
            + [a.name for a in k.all_axes()]
            + [r.name for r in k.reduces]
        )
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise self.fail(
                f"name {twice[0]!r} is used twice among parameters, axes and reductions"
            )
        for p in k.params:
            if p.layout.shape != p.shape:
                raise self.fail(
                    f"parameter {p.name} of shape {p.shape} has a layout of shape {p.layout.shape}"
                )
        for a in k.all_axes():
            if a.extent < 1:
                raise self.fail(f"axis {a.name} has extent {a.extent}, must be >= 1")
        for s in k.stages:
            self.scope = {a.name: a.extent for a in (*k.axes, *s.axes)}
            self._expr(s.expr)
            self._reduce(s) if isinstance(s, Reduce) else self._store(s)
        for p in k.outputs:
            self._written_once(p, [s for s in k.stores if s.param == p.name])
        self._roles()
        self._overwritten()

    def _roles(self) -> None:
        for p in self.kernel.params:
            if p.role == "out" and (p.name not in self.stored or p.name in self.read):
                raise self.fail(f"output {p.name} must be stored and never loaded")
            if p.role != "out" and p.name not in self.read:
                raise self.fail(f"input {p.name} is never loaded")

    def _overwritten(self) -> None:
        """Each output lies over an input of its own, at whose places it is stored."""
        over = [p for p in self.kernel.params if p.over]
        for p in over:
            source = self.params.get(p.over)
            if p.role != "out" or source is None or source.role != "in":
                raise self.fail(f"{p.role} {p.name} over {p.over}: an output lies over an input")
            if sum(x.over == p.over for x in over) > 1:
                raise self.fail(f"two outputs lie over {p.over}")
            fault = overwriting_fault(self.kernel, p.name, p.over)
            if fault:
                raise self.fail(f"{p.name} over {p.over}: {fault}")

    def _reduce(self, s: Reduce) -> None:
        if not fold_takes(s.op, s.dtype) or s.dtype.is_half:
            raise self.fail(f"{s.name}: {s.op} can not fold {s.dtype}")
        if s.expr.dtype != s.dtype:
            raise self.fail(f"{s.name}: folds {s.dtype}, its expression is {s.expr.dtype}")
        if not 0 <= s.rows <= max(0, len(s.axes) - 1):
            raise self.fail(
                f"{s.name}: a row over {s.rows} of its {len(s.axes)} axes leaves none to fold"
            )
        self.values[s.name], self.rows[s.name] = s.dtype, s.row

    def _store(self, s: Store) -> None:
        p = self.params.get(s.param)
        if p is None or p.role != "out":
            raise self.fail(f"store to {s.param}, which is not an output")
        self.stored.add(s.param)
        places = (*s.index, *(r.index for r in s.valid.ranges))
        if any(True for i in places for _ in i.elements()):
            raise self.fail(f"store to {s.param}{list(s.index)}: its place depends on data")
        if s.expr.dtype != p.dtype:
            raise self.fail(f"store of {s.expr.dtype} to {p.name}, which is {p.dtype}")
        self._index(s.index, p)
        self._conditions(s.valid)
        self._bounds(s.index, s.valid, p)

    def _expr(self, root: Expr) -> None:
        for x in nodes(root):
            if isinstance(x, Load):
                self._load(x)
            elif isinstance(x, Value):
                if self.values.get(x.stage) != x.dtype:
                    raise self.fail(
                        f"{x.stage} is read as {x.dtype}; earlier reductions: {self.values}"
                    )
                self._element_of_row(x)
            elif isinstance(x, IndexValue):
                self._scope(x.index)
                if x.dtype.is_bool or x.dtype.is_word or x.dtype.is_half:
                    raise self.fail(f"{x}: an index can not be a {x.dtype}")
            elif isinstance(x, Inside):
                self._conditions(x.valid)
            elif isinstance(x, Const):
                self._const(x)
            elif isinstance(x, Cast):
                self._cast(x)
            else:
                self._apply(x)

    def _element_of_row(self, x: Value) -> None:
        """A row is read at one index for each of its axes, which provably stays inside."""
        row = self.rows[x.stage]
        if len(x.index) != len(row):
            raise self.fail(f"{x}: {len(x.index)} indices of a row of {len(row)} axes")
        for i, a in zip(x.index, row, strict=True):
            self._scope(i)
            if any(True for _ in i.elements()):
                raise self.fail(f"{x}: its place in the row depends on data")
            if i.lo < 0 or i.hi >= a.extent:
                raise self.fail(f"{x}: index {i} leaves [0, {a.extent})")

    def _const(self, x: Const) -> None:
        kind = {"bool": bool, "float": float}.get(x.dtype.category, int)
        if type(x.value) is not kind or x.dtype.is_half:
            raise self.fail(
                f"constant {x.value!r} of type {type(x.value).__name__} is not of type {x.dtype}"
            )
        if kind is int and not x.dtype.least <= x.value <= x.dtype.greatest:
            raise self.fail(f"constant {x.value} does not fit {x.dtype}")

    def _cast(self, x: Cast) -> None:
        if x.x.dtype == x.dtype or (
            (x.dtype.is_half or x.x.dtype.is_half) and F32 not in (x.dtype, x.x.dtype)
        ):
            raise self.fail(
                f"{x}: no cast from {x.x.dtype} to {x.dtype}; f16 and bf16 convert to and from "
                "f32 only"
            )
        if x.dtype.is_word or x.x.dtype.is_word:
            raise self.fail(
                f"{x}: no cast from {x.x.dtype} to {x.dtype}; words are made and taken apart "
                "by operations"
            )

    def _apply(self, x: Apply) -> None:
        types = [a.dtype for a in x.args]
        if x.op in (Op.DOT2_ADD, Op.DOT4_ADD, Op.DOT2I_ADD):
            raise self.fail(f"{x.op} is an operation of programs")
        if any(t.is_half for t in types):
            raise self.fail(
                f"{x.op} on {', '.join(map(str, types))}: f16 and bf16 are computed in f32"
            )
        if result_type(x.op, types) != x.dtype:
            raise self.fail(f"{x.op} on {', '.join(map(str, types))} does not give {x.dtype}")

    def _load(self, x: Load) -> None:
        p = self.params.get(x.param)
        if p is None:
            raise self.fail(f"load of {x.param}, which is not a parameter")
        self.read.add(x.param)
        if x.dtype != p.dtype:
            raise self.fail(f"load of {x.param} as {x.dtype}, it is {p.dtype}")
        self._index(x.index, p)
        self._conditions(x.valid)
        self._bounds(x.index, x.valid, p)

    def _index(self, index: tuple[Index, ...], p: Param) -> None:
        if len(index) != len(p.shape):
            raise self.fail(
                f"{p.name}{list(index)} has {len(index)} indices, {p.name} has {len(p.shape)} "
                "dimensions"
            )
        for i in index:
            self._scope(i)

    def _conditions(self, valid: Valid) -> None:
        for r in valid.ranges:
            self._scope(r.index)

    def _scope(self, index: Index) -> None:
        for e in index.elements():
            self._element(e)
        for v in index.variables():
            if self.scope.get(v.name) != v.hi + 1 or v.lo != 0:
                raise self.fail(
                    f"index {index}: {v.name} in [{v.lo}, {v.hi}] is not an axis of this stage: "
                    f"{self.scope}"
                )

    def _element(self, e: Element) -> None:
        p = self.params.get(e.buffer)
        if p is None or p.role == "out" or not p.dtype.is_int:
            raise self.fail(f"index {e}: {e.buffer} is not an input of integers")
        if not p.layout.is_row_major or p.size != e.size or e.den < 2:
            raise self.fail(f"index {e}: {e.buffer} has to be row-major, its extent 2 or more")
        self.read.add(e.buffer)

    def _bounds(self, index: tuple[Index, ...], valid: Valid, p: Param) -> None:
        if valid.never:
            return
        for i, extent in zip(index, p.shape, strict=True):
            if _within(i, extent, valid) or (i, extent, valid) in self.proved:
                continue
            names = sorted(i.names() | valid.names())
            read = any(True for x in (i, *(r.index for r in valid.ranges)) for _ in x.elements())
            if read or not self.searchable(prod(self.scope[n] for n in names)):
                raise self.fail(
                    f"{p.name}: index {i} if {valid} can not be proved to be in [0, {extent})"
                )
            env = _grid({n: self.scope[n] for n in names})
            values = np.asarray(i.evaluate(cast(Any, env)))
            wrong = _holds(valid, env) & ((values < 0) | (values >= extent))
            if wrong.any():
                raise self.fail(f"{p.name}: index {i} if {valid} leaves [0, {extent})")
            self.proved.add((i, extent, valid))

    def _written_once(self, p: Param, stores: list[Store]) -> None:
        if len(stores) == 1 and stores[0].valid.always:
            s = stores[0]
            axes = (*self.kernel.axes, *s.axes)
            if prod(a.extent for a in axes) != prod(p.shape):
                points = "*".join(str(a.extent) for a in axes)
                raise self.fail(
                    f"store to {p.name} runs over {points} points for {prod(p.shape)} elements"
                )
            if _is_mixed_radix(s.index, axes, p.shape):
                return
        dims = [
            d
            for d in range(len(p.shape))
            if not all(_counted_through(s, d, p.shape[d]) for s in stores)
        ]
        shape = [p.shape[d] for d in dims]
        grids = [self._own_axes(s, dims) for s in stores]
        if not self.searchable(prod(shape), *(prod(g.values()) for g in grids)):
            raise self.fail(f"stores to {p.name} can not be proved to write each element once")
        places = [_places(s, dims, shape, grid) for s, grid in zip(stores, grids, strict=True)]
        found = np.concatenate(places) if places else np.zeros(0, np.int64)
        if len(found) != prod(shape) or len(np.unique(found)) != len(found):
            what = (
                f"store to {p.name}{list(stores[0].index)} writes"
                if len(stores) == 1
                else f"stores to {p.name} write"
            )
            raise self.fail(f"{what} some elements twice and some never")

    def _own_axes(self, s: Store, dims: list[int]) -> dict[str, int]:
        """Extents of the axes that a store runs over, less those of the other dimensions."""
        gone = {n for d, i in enumerate(s.index) if d not in dims for n in i.names()}
        return {a.name: a.extent for a in (*self.kernel.axes, *s.axes) if a.name not in gone}


def _counted_through(s: Store, d: int, extent: int) -> bool:
    """True if dimension ``d`` of a store's index is one axis of that extent, its alone."""
    i = s.index[d]
    if (i.lo, i.hi) != (0, extent - 1) or len(i.terms) != 1:
        return False
    atom, c = i.terms[0]
    if not isinstance(atom, Var) or abs(c) != 1:
        return False
    others = [other.names() for e, other in enumerate(s.index) if e != d]
    return i.names().isdisjoint(s.valid.names().union(*others))


def _places(
    s: Store, dims: list[int], shape: list[int], grid: Mapping[str, int]
) -> NDArray[np.int64]:
    """Row-major positions, along those dimensions, that a store writes."""
    env = _grid(grid)
    count = len(next(iter(env.values()))) if env else 1
    place = np.zeros(count, np.int64)
    for d, extent in zip(dims, shape, strict=True):
        place = place * extent + np.asarray(s.index[d].evaluate(cast(Any, env)))
    return place[np.broadcast_to(_holds(s.valid, env), place.shape)]


def _within(i: Index, extent: int, valid: Valid) -> bool:
    """True if bounds, or one condition on the same sum, prove ``0 <= i < extent``."""
    if i.lo >= 0 and i.hi < extent:
        return True
    return any(r.index.terms == i.terms and r.lo + _shift(i, r.index) >= 0 and r.hi + _shift(i,
        r.index) <= extent
               for r in valid.ranges)  # fmt: skip


def _shift(i: Index, other: Index) -> int:
    return i.const - other.const


def _grid(extents: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Every combination of axis values, each axis as a flat array."""
    shape = tuple(extents.values())
    flat = np.arange(prod(shape), dtype=np.int64)
    return dict(zip(extents, np.unravel_index(flat, shape), strict=True)) if shape else {}


def _holds(valid: Valid, env: dict[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
    result = np.ones((), np.bool_)
    for r in valid.ranges:
        index = np.asarray(r.index.evaluate(cast(Any, env)))
        result = result & (index >= r.lo) & (index < r.hi)
    return np.asarray(result)


def _is_mixed_radix(
    index: tuple[Index, ...], axes: tuple[Axis, ...], shape: tuple[int, ...]
) -> bool:
    """True if each dimension's index counts through its extent with axes of its own."""
    extents = {a.name: a.extent for a in axes}
    for i, extent in zip(index, shape, strict=True):
        radix = 1
        for atom, c in sorted(i.terms, key=lambda t: t[1]):
            if not isinstance(atom, Var) or c != radix or atom.name not in extents:
                return False
            radix *= extents.pop(atom.name)
        if radix != extent or i.const:
            return False
    return all(e == 1 for e in extents.values())
