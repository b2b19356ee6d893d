"""Values that the kernels of a plan write to memory at some places, worked out from those that they
read there.

A place that a launch writes is turned into the point of its axes that writes it: an offset is a sum
of axes with strides, each a digit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from math import prod
from typing import Any, cast

import numpy as np

from tunegrad.errors import WrongPlan
from tunegrad.lazy import dataclass

from ..expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Value
from ..index import Atom, Element, FloorDiv, Index, Valid, Var, clamped
from ..interpret.numeric import Array
from ..kernel import Kernel, Param, Reduce, Store
from ..layout import Layout
from .graphs import Unvalidated, along, folded, position_value
from .numbers import Number, Numbers, deep, zero

Env = Mapping[str, Array]

Reads = Callable[[str, Array, Param, int, Numbers], Number]
"""The elements of a parameter at offsets of its memory, whose samples are those of the numbers."""


@dataclass(slots=True)
class _Scope:
    """Axes in some dimensions, and what is known there."""

    env: dict[str, Array]
    depth: int
    outer: dict[str, Array]
    known: dict[int, Number]
    indices: dict[Index, Array]


class KernelValues:
    """One kernel at some points of its shared axes, and of a store's own."""

    def __init__(
        self,
        k: Kernel,
        numbers: Numbers,
        reads: Reads,
        env: Env,
        depth: int,
        together: frozenset[str] = frozenset(),
        leaves: frozenset[str] = frozenset(),
    ) -> None:
        """``together``: parameters of which all loads of stores are one read, those that a
        condition guards only of ``leaves``, which have any elements.
        """
        self.kernel, self.numbers, self.reads = k, numbers, reads
        self.params = {p.name: p for p in k.params}
        self.folds = {r.name: r for r in k.reduces}
        self.has_rows = any(r.rows for r in k.reduces)  # at any places, axes inside their extents
        self.shared = {a.name: env[a.name] for a in k.axes}
        self.depth = depth
        self.values: dict[tuple[object, ...], Number] = {}
        self.scope = _Scope(dict(env), depth, self.shared, {}, {})
        self.together, self.leaves = together, leaves

    def stored(self, s: Store) -> Number:
        """Value that a store writes, in the compute type of its parameter."""
        return self.value(s.expr, self.scope)

    def value(self, x: Expr, scope: _Scope) -> Number:
        """An expression, in its compute type."""
        if isinstance(x, Const):
            return x
        found = scope.known.get(id(x))
        if found is None:
            found = scope.known[id(x)] = self._value(x, scope)
        return found

    def _value(self, x: Apply | Load | Value | Cast | IndexValue | Inside, scope: _Scope) -> Number:
        if isinstance(x, Apply):
            args = [self.value(a, scope) for a in x.args]
            of_field = self.numbers.of_field(x.op, args, x.dtype, scope.depth)
            if of_field is not None:
                return of_field
            dtypes = [a.dtype.compute for a in x.args]
            return self.numbers.apply(x.op, args, dtypes, x.dtype.compute, scope.depth)
        if isinstance(x, Load):
            return self._load(x, scope)
        if isinstance(x, Value):
            return self._folded(x, scope)
        if isinstance(x, Cast):
            inner = self.value(x.x, scope)
            return self.numbers.cast(inner, x.x.dtype, x.dtype)
        if isinstance(x, IndexValue):
            return position_value(self.numbers, self.index(x.index, scope), x.dtype.compute)
        return np.asarray(self.holds(x.valid, scope))

    def index(self, index: Index, scope: _Scope) -> Array:
        """An index at the axes' values."""
        found = scope.indices.get(index)
        if found is not None:
            return found
        total: Any = None
        for atom, c in index.terms:
            if isinstance(atom, Var):
                part: Any = scope.env[atom.name]
            elif isinstance(atom, FloorDiv):
                part = self.index(atom.num, scope) // atom.den
            elif isinstance(atom, Element):
                part = self._element(atom, scope)
            else:
                part = self.index(atom.num, scope) % atom.den
            part = part if c == 1 else part * c
            total = part if total is None else total + part
        if total is None:
            total = np.full((1,) * scope.depth, index.const, np.int64)
        elif index.const:
            total = total + index.const
        scope.indices[index] = total
        return np.asarray(total)

    def _element(self, e: Element, scope: _Scope) -> Array:
        at = self.index(e.num, scope)
        at = np.where((at >= 0) & (at < e.size), at, 0)
        p = self.params[e.buffer]
        read = self.reads(p.name, at, p, scope.depth, self.numbers)
        index = self.numbers.array(read, p.dtype, scope.depth)
        return np.asarray(clamped(index, e.den).astype(np.int64))

    def holds(self, valid: Valid, scope: _Scope) -> Any:
        """Mask of the points where a condition holds."""
        result: Any = None
        for r in valid.ranges:
            i = self.index(r.index, scope)
            part = (i >= r.lo) & (i < r.hi)
            result = part if result is None else result & part
        if result is None or valid.never:
            return np.full((1,) * scope.depth, not valid.never)
        return result

    @cached_property
    def _alike(self) -> dict[str, dict[int, Load]]:
        """Loads of stores that are one read, by parameters."""
        found: dict[str, dict[int, Load]] = {}
        if not self.leaves and not self.together:
            return found
        loads = {id(x): x for s, x in self.kernel.loads if isinstance(s, Store)}
        for key, x in loads.items():
            if x.param in self.leaves or (x.param in self.together and x.valid.always):
                found.setdefault(x.param, {})[key] = x
        return found

    def _read_together(self, loads: Mapping[int, Load]) -> None:
        """Loads of one parameter at the kernel's own points."""
        scope, samples = self.scope, len(self.numbers.scale)
        inside = [None if x.valid.always else self.holds(x.valid, scope) for x in loads.values()]
        places = list(map(self._place, loads.values(), inside, repeat(scope)))
        shape = np.broadcast_shapes(
            (samples,) + (1,) * (scope.depth - 1), *(i.shape for i in places)
        )
        at = np.empty((len(places), *shape), np.int64)
        for i, place in enumerate(places):
            at[i] = place
        x = next(iter(loads.values()))
        numbers = self.numbers.of(np.tile(np.arange(samples), len(places)))
        p = self.params[x.param]
        read = self.reads(p.name, at.reshape(-1, *shape[1:]), p, scope.depth, numbers)
        for i, (key, mask) in enumerate(zip(loads, inside, strict=True)):
            here = slice(i * samples, (i + 1) * samples)
            part = read if isinstance(read, Const) else cast(Array, read)[here]
            scope.known[key] = part if mask is None else self._masked(x, mask, part, scope)

    def _masked(self, x: Load, inside: Array, found: Number, scope: _Scope) -> Number:
        """The values of a load whose condition holds in places."""
        if inside.all():
            return found
        if not inside.any():
            return zero(x.dtype)
        return self.numbers.where(inside, found, zero(x.dtype), x.dtype.compute, scope.depth)

    def _load(self, x: Load, scope: _Scope) -> Number:
        p = self.params[x.param]
        together = self._alike.get(p.name, {}) if scope is self.scope else {}
        if len(together) > 1 and id(x) in together:
            self._read_together(together)
            return scope.known[id(x)]
        inside: Any = None if x.valid.always else self.holds(x.valid, scope)
        if inside is not None and not inside.any():
            return zero(x.dtype)
        place = self._place(x, inside, scope)
        found = self.reads(p.name, place, p, scope.depth, self.numbers)
        return found if inside is None else self._masked(x, inside, found, scope)

    def _place(self, x: Load, inside: Any, scope: _Scope) -> Array:
        """Offsets that a load reads, any ones where its condition does not hold."""
        p, at = self.params[x.param], [self.index(i, scope) for i in x.index]
        for d, extent in enumerate(p.shape):
            if not self.has_rows and x.index[d].lo >= 0 and x.index[d].hi < extent:
                continue
            out = at[d].view(np.uint64) >= extent  # below 0 is far beyond
            if not out.any():
                continue
            if inside is None or (out & inside).any():
                raise WrongPlan(
                    f"{x} reads outside of dimension {d} of {p.name}, which has {extent} elements"
                )
            at[d] = np.minimum(np.maximum(at[d], 0), extent - 1)
        return memory_of(at, p.layout, scope.depth)

    def _folded(self, x: Value, scope: _Scope) -> Number:
        r = self.folds[x.stage]
        if not r.rows:
            key: tuple[object, ...] = (r.name,)
            if key not in self.values:
                self.values[key] = self._fold(r, self.shared, self.depth)
            found = self.values[key]
            return found if isinstance(found, Const) else cast(Number, deep(found, scope.depth))
        row = [self.index(i, scope) for i in x.index]
        key = (r.name, scope.depth, *((i.shape, i.tobytes()) for i in row))
        if key not in self.values:
            env = {n: deep(v, scope.depth) for n, v in self.shared.items()}
            env |= {a.name: i for a, i in zip(r.row, row, strict=True)}
            self.values[key] = self._fold(r, env, scope.depth)
        return self.values[key]

    def _fold(self, r: Reduce, env: Env, depth: int) -> Number:
        within = depth + len(r.folds)
        outer = {n: deep(v, within) for n, v in env.items()}
        size = prod(np.broadcast_shapes(*(v.shape for v in outer.values())))

        def terms(lines: tuple[Array, ...], extents: tuple[int, ...]) -> Number:
            inner = dict(outer)
            for place, a in enumerate(r.folds):
                inner[a.name] = along(lines[place], depth + place, within)
            x = self.value(r.expr, _Scope(inner, within, self.shared, {}, {}))
            return self.numbers.fold(r.op, x, r.dtype, extents, depth)

        extents = tuple(a.extent for a in r.folds)
        turn = self.numbers.turn[1]
        return folded(self.numbers, r.op, r.dtype, extents, size, terms, depth, turn)


def memory_of(at: Sequence[Array], layout: Layout, depth: int) -> Array:
    """Offsets in memory of elements of a tensor."""
    total: Any = None
    stride = 1
    for p in reversed(layout.parts):  # whole arrays are made last, and only added to
        digit = at[p.dim] // p.step if p.step > 1 else at[p.dim]
        if p.step * p.extent < layout.shape[p.dim]:
            digit = digit % p.extent
        digit = digit * stride if stride > 1 else digit
        total = digit if total is None else digit + total
        stride *= p.extent
    return np.zeros((1,) * depth, np.int64) if total is None else np.asarray(total)


def position_of(offset: Array, layout: Layout) -> Array:
    """Row-major positions of the elements at offsets in memory; past them all where none is."""
    if layout.is_row_major:
        return offset
    at: list[Any] = [0] * len(layout.shape)
    rest = offset
    for p in reversed(layout.parts):
        at[p.dim] = at[p.dim] + rest % p.extent * p.step
        rest = rest // p.extent
    gap: Any = False
    total: Any = 0
    for i, extent in zip(at, layout.shape, strict=True):
        gap = gap | (i >= extent)
        total = total * extent + i
    return np.where(gap, offset + (1 << 48), total)


@dataclass(frozen=True, slots=True)
class Strides:
    """A store's offset: ``first``, (axis, stride, extent) by falling stride; at most ``last``."""

    first: int
    last: int
    terms: tuple[tuple[str, int, int], ...]


def strides_of(k: Kernel, store: Store) -> Strides:
    """Strides by which a store's offset is made of axes.

    Raises Unvalidated where it is no sum of axes, or these are not its digits; WrongPlan where it
    does not depend on one.
    """
    layout = k.param(store.param).layout
    first, stride, factors = 0, 1, dict[Atom, int]()
    for part in reversed(layout.parts):
        digit = layout.digit(store.index, part)
        first += digit.const * stride
        for atom, c in digit.terms:
            factors[atom] = factors.get(atom, 0) + c * stride
        stride *= part.extent
    if not all(isinstance(atom, Var) for atom in factors):  # the sum of parts may be simpler
        offset = layout.offset(store.index)
        first, factors = offset.const, dict(offset.terms)
    terms: list[tuple[str, int, int]] = []
    for atom, c in factors.items():
        if not isinstance(atom, Var) or c < 0:
            raise Unvalidated(f"a store at {layout.offset(store.index)}")
        if c:
            terms.append((atom.name, c, atom.hi + 1))
    terms.sort(key=lambda t: -t[1])
    reach = 0
    for _, c, extent in reversed(terms):
        if c <= reach:
            raise Unvalidated(f"a store at {layout.offset(store.index)}, whose axes overlap")
        reach += c * (extent - 1)
    names = {name for name, _, _ in terms}
    for a in (*k.axes, *store.axes):
        if a.extent > 1 and a.name not in names:
            raise WrongPlan(f"plan: a store to {store.param} does not depend on axis {a.name}")
    return Strides(first, first + reach, tuple(terms))


def may_write(strides: Strides, offset: int) -> bool:
    """True if a store may write an offset, its condition apart."""
    rest = offset - strides.first
    if rest < 0 or offset > strides.last:
        return False
    for _, c, extent in strides.terms:
        rest -= min(rest // c, extent - 1) * c
    return rest == 0


def digits_of(k: Kernel, store: Store, strides: Strides, rest: Array) -> tuple[Env, Array]:
    """The point of the axes at which a store writes what is ``rest`` behind its first offset, and
    a mask of those where there is one, its condition apart.
    """
    inside: Any = rest >= 0
    if not inside.all():
        rest = np.where(inside, rest, 0)
    env: dict[str, Array] = {}
    for name, c, extent in strides.terms:
        digit = np.minimum(rest // c if c > 1 else rest, extent - 1)
        env[name] = digit
        rest = rest - digit * c
    inside &= rest == 0
    for a in (*k.axes, *store.axes):
        if a.name not in env:
            env[a.name] = np.zeros((1,) * rest.ndim, np.int64)
    return env, inside


def holds_at(store: Store, env: Env, inside: Array) -> Array:
    """A mask of the points at which a store writes, of those that are inside."""
    for r in store.valid.ranges:
        i = np.asarray(r.index.evaluate(env))  # type: ignore[arg-type]
        inside = inside & (i >= r.lo) & (i < r.hi)
    return np.asarray(inside & (not store.valid.never))
