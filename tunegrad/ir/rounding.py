"""Results of a kernel in its own dtypes beside their float64 values: those that are exact, or
rounded so often, and bounds on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, prod, sqrt
from typing import Any

import numpy as np

from .dtypes import F32, F64, DType
from .expr import (
    FUNCTIONS,
    Apply,
    Cast,
    Const,
    Expr,
    IndexValue,
    Inside,
    Load,
    Op,
    Value,
    loads_in,
    nodes,
    rebuild,
)
from .index import Var
from .interpret.kernel import CHUNK, Points, Run, boxes_of, own_points, parts_of
from .interpret.numeric import Array
from .kernel import Kernel, Reduce, Stage, Store, memoized

# ---- exact results
#
# Finds the results of a kernel that are exact in its own dtypes for given inputs: they are
# compared with no tolerance.
#
# A value is tracked as |value| <= size, a multiple of the power of two ``unit``. Sums and products
# of such values are exact while size / unit is at most 2^24 (f32; 2^53 in f64): every such number
# is representable. A sum of N terms is exact in any order where N * size fits. Where it does not,
# the signs help: terms of independent random signs form a random walk, whatever order a schedule
# takes, since schedules are not chosen after the signs. By Hoeffding's inequality a sum of a part
# of them exceeds ``12 * sqrt(N) * size`` with a probability below 2 exp(-72) = 1e-31.


BLOCKED = 1504
"""Additions that a term of an f32 sum goes through, at most, on a CPU without matrix units
(``opts.lowering.reductions.longest_chain``)."""

_DIGITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
_DEVIATIONS = 12.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Known bounds of a parameter's values: |value| <= size, multiples of ``unit`` (a power of
    two).

    ``balanced``: signs are independent and random.
    """

    size: float
    unit: float
    balanced: bool = False


@dataclass(frozen=True, slots=True)
class Rounded:
    """Rounding of a result: ``count`` roundings of the result itself (0: exact), None where terms
    may cancel.

    ``terms``: the steps of the reductions behind it that round; ``chain``: those of them that do
    so one after the other.
    """

    count: int | None
    terms: int
    chain: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """A value: see the module. ``count`` is None where its error is not relative to itself;
    ``behind``: an integer that was made of a float that rounds.
    """

    size: float
    unit: float
    count: int | None = 0
    sums: frozenset[str] = frozenset()
    behind: bool = False

    @property
    def exact(self) -> bool:
        return self.count == 0


_BOOL = _Known(1.0, 1.0)
_ANY = _Known(inf, 1.0)
"""An exact value of which nothing is known: the first sum or product rounds it."""


def roundings(
    k: Kernel, drawn: Mapping[str, Drawn | None], chain: int = BLOCKED
) -> dict[str, Rounded]:
    """Rounding of every output, for inputs of which this much is known; None: any values.

    ``chain``: see ``chain_steps``.
    """
    return dict(_roundings(k, (*((p.name, drawn.get(p.name)) for p in k.params), chain)))


@memoized(64)
def _roundings(k: Kernel, known_of: tuple[Any, ...]) -> dict[str, Rounded]:
    """Kept: the sets of a kernel differ in what was drawn; it is asked before drawing as well."""
    *drawn, chain = known_of
    walk = _Walk(k, dict(drawn), chain)
    found: dict[str, Rounded] = {}
    for s in k.stages:
        known = walk.known(s.expr, {})
        if isinstance(s, Reduce):
            walk.values[s.name] = walk.folded(s, known)
        else:
            found[s.param] = _worse(found.get(s.param), walk.stored(s, known))
    return found


def _worse(a: Rounded | None, b: Rounded) -> Rounded:
    if a is None:
        return b
    count = None if a.count is None or b.count is None else max(a.count, b.count)
    return Rounded(count, max(a.terms, b.terms), max(a.chain, b.chain))


class _Walk:
    """One kernel; ``values`` holds what is known of each reduction so far."""

    def __init__(self, k: Kernel, drawn: Mapping[str, Drawn | None], chain: int) -> None:
        self.kernel, self.drawn = k, drawn
        self.values: dict[str, _Known] = {}
        self.steps = {r.name: fold_steps(r) for r in k.reduces}
        self.chains = {r.name: chain_steps(r, chain) for r in k.reduces}

    def stored(self, s: Store, x: _Known) -> Rounded:
        terms, chain = (sum(steps[name] for name in x.sums) for steps in (self.steps, self.chains))
        if not self.kernel.param(s.param).dtype.is_float:
            return Rounded(None if x.behind else 0, terms, chain)  # it may tip over
        return Rounded(x.count, terms, chain)

    def folded(self, r: Reduce, x: _Known) -> _Known:
        """A reduction of terms that are known."""
        if r.op in (Op.MAX, Op.MIN) or not r.dtype.is_float:
            return x if r.dtype.is_float else _Known(inf, 1.0)
        n = self.steps[r.name]
        if r.op is Op.ADD and x.exact:
            for reach in (float(n), _DEVIATIONS * sqrt(n) if self._random_signs(r) else inf):
                total = _Known(x.size * reach, x.unit)
                if _fits(total, r.dtype):
                    return total
        return _Known(inf, 1.0, None, x.sums | {r.name})

    def _random_signs(self, r: Reduce) -> bool:
        """True if every term is a product with a sign of its own: that of a load that reads each
        element once.
        """
        reads = [x.param for x in loads_in(r.expr)]
        factors = _factors(r.expr)
        return any(
            isinstance(f, Load)
            and reads.count(f.param) == 1 == factors.count(f)
            and self._balanced(f.param)
            and self._once(f, r)
            for f in factors
        )

    def _balanced(self, param: str) -> bool:
        drawn = self.drawn.get(param)
        return drawn is not None and drawn.balanced

    def _once(self, x: Load, r: Reduce) -> bool:
        """True if no two points of the reduce axes read one element: strides of a mixed radix."""
        offset = self.kernel.param(x.param).layout.offset(x.index)
        extents = {a.name: a.extent for a in r.folds if a.extent > 1}
        strides: dict[str, int] = {}
        for atom, c in offset.terms:
            inside = atom.names & extents.keys()
            if inside and not isinstance(atom, Var):
                return False
            strides.update({name: abs(c) for name in inside})
        reach = 1
        for stride, name in sorted((c, n) for n, c in strides.items()):
            if stride < reach:
                return False
            reach = stride * extents[name]
        return strides.keys() == extents.keys()

    def known(self, x: Expr, memo: dict[int, _Known]) -> _Known:
        found = memo.get(id(x))
        if found is None:
            found = memo[id(x)] = self._known(x, memo)
        return found

    def _known(self, x: Expr, memo: dict[int, _Known]) -> _Known:
        if isinstance(x, Load):
            drawn = self.drawn.get(x.param)
            return _ANY if drawn is None else _Known(drawn.size, drawn.unit)
        if isinstance(x, Const):
            return _constant(float(x.value))
        if isinstance(x, Value):
            return self.values[x.stage]
        if isinstance(x, IndexValue):
            return _Known(float(max(abs(x.index.lo), abs(x.index.hi))), 1.0)
        if isinstance(x, Inside):
            return _BOOL
        if isinstance(x, Cast):
            return _cast(self.known(x.x, memo), x.dtype, x.x.dtype)
        args = [self.known(a, memo) for a in x.args]
        found = _tracked(x, args)
        if not any(a.behind for a in args):
            return found
        return replace(found, sums=found.sums.union(*(a.sums for a in args)), behind=True)


def fold_steps(r: Reduce) -> int:
    """Steps of a whole fold that round; a product of pairs is added in two."""
    each = 2 if isinstance(r.expr, Apply) and r.expr.op is Op.DOT2 else 1
    return each * prod(a.extent for a in r.folds)


def chain_steps(r: Reduce, chain: int = BLOCKED) -> int:
    """Steps of a fold that round one after the other: f32 sums are added in blocks, each from 0,
    in which no term goes through more than ``chain`` additions.
    """
    steps = fold_steps(r)
    return min(steps, chain) if r.op is Op.ADD and r.dtype == F32 else steps


def _constant(value: float) -> _Known:
    """A literal, which the dtype that computes may round: the reference has it in f64."""
    if not isfinite(value):
        return _ANY
    numerator, denominator = value.as_integer_ratio()
    if abs(numerator) > 1 << 11:
        return _Known(abs(value), 1.0, 1)
    return _Known(abs(value), 1.0 / denominator)


def _factors(x: Expr) -> list[Expr]:
    """Factors of a product, below casts and negations."""
    if isinstance(x, Apply) and x.op is Op.MUL:
        return [f for a in x.args for f in _factors(a)]
    if isinstance(x, Cast):
        return _factors(x.x)
    return _factors(x.args[0]) if isinstance(x, Apply) and x.op is Op.NEG else [x]


def _fits(x: _Known, dtype: DType) -> bool:
    return x.size / x.unit <= 2.0 ** _DIGITS[dtype.name]


def _cast(x: _Known, dtype: DType, of: DType) -> _Known:
    if dtype.is_bool:
        return _BOOL
    if dtype.is_int:
        tips = of.is_float and not x.exact  # a comparison does not: it is an integer already
        return _Known(x.size, 1.0, 0, x.sums, x.behind or tips)
    if dtype.is_half:
        return _narrowed(x, 8)
    return _checked(x, dtype)


def _narrowed(x: _Known, digits: int) -> _Known:
    """Rounded to so many digits or more: what is exact is so in the reference, too, to the same."""
    return replace(x, size=x.size * (1 + 2.0**-digits)) if x.exact else _inexact((x,))


def _checked(x: _Known, dtype: DType) -> _Known:
    """An exact result that may not be one in ``dtype``."""
    if x.exact and dtype.is_float and not _fits(x, dtype.compute):
        return replace(x, count=1)
    return x


def _inexact(args: tuple[_Known, ...], count: int | None = None) -> _Known:
    return _Known(inf, 1.0, count, frozenset().union(*(a.sums for a in args)))


_SAME = (
    Op.NEG,
    Op.ABS,
    Op.FLOOR,
    Op.ROUND,
    Op.MAX,
    Op.MIN,
    Op.WHERE,
    Op.PAIR,
    Op.LOW,
    Op.HIGH,
    Op.QUAD,
)
_SCALES = (Op.MUL, Op.DIV, Op.RECIP)


def _tracked(x: Apply, args: list[_Known]) -> _Known:
    if x.dtype.is_bool:
        return _BOOL if all(a.exact for a in args) else _inexact(tuple(args))
    if not all(a.exact for a in args):
        return _inexact(tuple(args), _carried(x.op, args))
    if x.op is Op.TF32:
        return _narrowed(args[0], 11)
    if x.op in _SAME:
        used = args[1:] if x.op is Op.WHERE else args
        return _Known(max(a.size for a in used), min(a.unit for a in used))
    exact = _arithmetic(x.op, args)
    if exact is not None:
        return _checked(exact, x.dtype) if x.dtype.is_float else _Known(exact.size, 1.0)
    if not x.dtype.is_float:
        return _Known(inf, 1.0)
    return _inexact(tuple(args), 2 if x.op in _SCALES else None)


def _carried(op: Op, args: list[_Known]) -> int | None:
    """The roundings of a result whose arguments were rounded; None where they may cancel."""
    counts = [a.count for a in args if a.count is not None]
    if len(counts) < len(args) or (op is Op.WHERE and counts[0]):
        return None
    if op in _SCALES:
        return 2 + sum(counts)
    return max(counts) if op in (Op.NEG, Op.ABS, Op.MAX, Op.MIN, Op.WHERE) else None


def _arithmetic(op: Op, args: list[_Known]) -> _Known | None:
    """The exact result of additions and products."""
    a, b = args[0], args[-1] if len(args) == 1 else args[1]
    if op in (Op.ADD, Op.SUB):
        return _Known(a.size + b.size, min(a.unit, b.unit))
    product = _Known(a.size * b.size, a.unit * b.unit)
    if op is Op.MUL:
        return product
    if op is Op.FMA:
        return _Known(product.size + args[2].size, min(product.unit, args[2].unit))
    if op is Op.DOT4:
        return _Known(4 * product.size, product.unit)
    if op is Op.DOT2:
        return _Known(2 * product.size, product.unit)
    return None


@memoized(64)
def rounded_within(k: Kernel) -> str:
    """The coarsest 16-bit type, or tf32, that computed values are rounded to inside a kernel; ""
    for none.

    Where a result is stored does not count, nor does what is loaded and rounded at once: that has
    one right value, and a computed one next to the middle of two numbers may become either.
    """
    found = {name for s in k.stages for name in _casts(_before_store(s))}
    return next((name for name in ("bf16", "f16", "tf32") if name in found), "")


def _before_store(s: Stage) -> Expr:
    """A stage's expression, less the rounding to the type in which it is stored."""
    x = s.expr
    return x.x if isinstance(s, Store) and isinstance(x, Cast) and x.dtype.is_half else x


def _casts(x: Expr) -> set[str]:
    """The 16-bit types, and tf32, that computed parts of an expression are rounded to."""
    found: set[str] = set()
    seen: set[int] = set()
    stack = [x]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Cast):
            if node.dtype.is_half and not isinstance(node.x, Load):
                found.add(node.dtype.name)
            stack.append(node.x)
        elif isinstance(node, Apply):
            if node.op is Op.TF32 and not isinstance(node.args[0], Load):
                found.add("tf32")
            stack.extend(node.args)
    return found


# ---- bounds
#
# Bounds on the distance of a kernel's result from its float64 value, where it is computed in its
# own dtypes.
#
# A running error analysis (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 3.3):
# next to each value v stands a bound on the error that it brings,
#
#     x + y    ex + ey + u |v|                  exp(x)    |v| (e^ex - 1) + 64 u |v|
#     x * y    |x| ey + |y| ex + ex ey + u |v|  sum of t  sum of et + 16 sqrt(n) u (sum of |t|)
#
# with u the unit roundoff. A result that is exact and of numbers that are exact is not rounded:
# the sum of small integers, exp(0). A sum is exact where all its terms are multiples of a unit,
# and their sizes add up to fewer units than a significand holds, so any order gives it.
#
# A bound is infinite where the result is undecided: next to a jump of ``floor``, where a
# comparison may go either way, where something overflows on the way to a result that does not,
# where both signs of a sum overflow, and where what is divided by is a maximum of 0 and -0. It is
# NaN where nothing is known: a difference that may be 0 is divided by, or no rule is given here.


IN_STEPS = FUNCTIONS | {Op.RECIP, Op.DIV}
"""Operations that are rounded in more than one step."""

_STEADY = frozenset((Op.NEG, Op.ABS, Op.MAX, Op.MIN, Op.TANH, Op.ERF, Op.EXP))
"""Operations with one result for an infinity and for a number beyond f32."""

_DECIDES = frozenset(
    (Op.LOG, Op.LOG2, Op.LOG10, Op.SQRT, Op.POW, Op.SIN, Op.COS, Op.TAN, Op.FLOOR, Op.ROUND)
)
"""Operations that jump, or are no number, on the other side of some argument."""

_OF_ZERO = (Op.DIV, Op.RECIP, Op.POW)
"""Operations that make infinities of either sign of the two zeros."""

_STEPS = 64.0
"""Roundings that a function pays for: see ``tolerance``."""

_TURNS = 2.0**24
"""Sines of computed numbers beyond it are those of their roundings."""

_WALK = 16.0
_OVERFLOWS = 2.0**128 * (1 - 2.0**-16)
_LEAST = 2.0**-126
"""The least normal number of f32: what is smaller may be rounded to zero by a function."""


@memoized()
def has_jumps(k: Kernel) -> bool:
    """True if a kernel compares, floors or converts floats that it computed, maybe rounded."""
    return any(_jumps(x) for s in k.stages for x in nodes(s.expr))


def decisions_of(k: Kernel) -> Kernel | None:
    """A kernel that compares as ``k`` does, at each element of its outputs, and folds nothing; its
    values are others. None where nothing is compared, or what is compared reads a reduction.
    """
    if not k.reduces:
        return k if has_jumps(k) or _divides_by_extremes(k) else None
    if not has_jumps(k):
        return None
    for x in (x for s in k.stages for x in nodes(s.expr) if _jumps(x)):
        if any(isinstance(y, Value) for y in nodes(x)):
            return None

    def none(leaf: Expr) -> Expr:
        return (
            Const(0.0 if leaf.dtype.is_float else 0, leaf.dtype)
            if isinstance(leaf, Value)
            else leaf
        )

    stores = tuple(replace(s, expr=rebuild(s.expr, none)) for s in k.stores)
    return replace(k, stages=stores)


def _jumps(x: Expr) -> bool:
    if isinstance(x, Cast):
        return not x.dtype.is_float and _computed(x.x)
    if not isinstance(x, Apply) or not any(map(_computed, x.args)):
        return False
    return x.op in (Op.FLOOR, Op.ROUND, Op.FLOORDIV, Op.MOD) or x.op.compares


def steps_after_sums(k: Kernel) -> bool:
    """True if a sum of floats is rounded to whole numbers, and a float is stored behind that: it is
    a step off where the sum lies next to the middle of two.
    """
    sums = {r.name for r in k.reduces if r.op is Op.ADD and r.dtype.is_float}
    return bool(sums) and any(
        any(isinstance(y, Value) and y.stage in sums for y in nodes(x))
        for s in k.stages
        for x in nodes(s.expr)
        if _jumps(x) and not (isinstance(x, Apply) and x.op.compares)
    )


def with_squares(k: Kernel) -> tuple[Kernel, dict[str, str]]:
    """A kernel that folds squares of the terms of its sums of floats, too; names by the sums'."""
    squares = {
        r.name: replace(r, name=f"{r.name}_squared", expr=Apply(Op.MUL, (r.expr,) * 2, r.dtype))
        for r in k.reduces
        if r.op is Op.ADD and r.dtype.is_float and not r.rows
    }
    both = replace(k, stages=(*k.reduces, *squares.values(), *k.stores))
    return both, {name: r.name for name, r in squares.items()}


def with_moved_sums(k: Kernel, share: float, by: Mapping[str, float]) -> Kernel:
    """A kernel whose sums of floats are off: by a share of their size, and by so much each."""

    def moved(leaf: Expr) -> Expr:
        if not isinstance(leaf, Value) or leaf.stage not in by:
            return leaf
        dtype = leaf.dtype
        size = Apply(Op.MUL, (Apply(Op.ABS, (leaf,), dtype), Const(share, dtype)), dtype)
        off = Apply(Op.ADD, (size, Const(by[leaf.stage], dtype)), dtype)
        return Apply(Op.ADD, (leaf, off), dtype)

    return replace(k, stages=tuple(replace(s, expr=rebuild(s.expr, moved)) for s in k.stages))


@memoized()
def _divides_by_extremes(k: Kernel) -> bool:
    return any(_divisor_extremes(x) for s in k.stages for x in nodes(s.expr))


def _divisor(x: Apply) -> Expr:
    return x.args[-1 if x.op is Op.DIV else 0]


def _divisor_extremes(x: Expr) -> list[Apply]:
    """Maxima and minima behind what is divided by: of 0 and -0 processors give one or the other."""
    if not isinstance(x, Apply) or x.op not in _OF_ZERO:
        return []
    inside = (y for y in nodes(_divisor(x)) if isinstance(y, Apply))
    return [y for y in inside if y.op in (Op.MAX, Op.MIN)]


def _computed(x: Expr) -> bool:
    return x.dtype.is_float and not isinstance(x, Load | Const)


def error_bounds_at(
    k: Kernel, arrays: Mapping[str, Array], points: Mapping[str, Array] | None
) -> dict[str, tuple[Array, Array]] | None:
    """Per output the offsets of the elements that the given points of the shared axes write, all of
    them for None, and the bounds of their absolute errors, both flat.

    Values are those of ``interpret_at`` in float64. None for a kernel with rows, or with values of
    16 bits on the way.
    """
    if any(r.rows for r in k.reduces) or any(
        isinstance(x, Cast) and x.dtype.is_half for s in k.stages for x in nodes(s.expr)
    ):
        return None
    run = _Bounds(k, arrays)
    found: dict[str, list[tuple[Array, Array]]] = {}
    with np.errstate(all="ignore"):
        for part in boxes_of(k) if points is None else (p for _, p in parts_of(k, points)):
            for param, offsets, bounds in run.bounds(part):
                found.setdefault(param, []).append((offsets, bounds))
    return {
        p: (np.concatenate([o for o, _ in f]), np.concatenate([e for _, e in f]))
        for p, f in found.items()
    }


def _unit(dtype: DType) -> float:
    return 2.0**-53 if dtype.compute == F64 else 2.0**-24


@dataclass(frozen=True, slots=True)
class _Memo:
    """Of expressions at some points, by identity: their values, their bounds, and the masks of
    values that overflow f32, None where no value does.
    """

    values: dict[int, Array] = field(default_factory=dict)
    errors: dict[int, Array] = field(default_factory=dict)
    beyond: dict[int, Array | None] = field(default_factory=dict)


class _Bounds(Run):
    """A kernel on one set of arrays, with bounds beside the values. Mutable, as ``Run`` is."""

    def __init__(self, k: Kernel, arrays: Mapping[str, Array]) -> None:
        super().__init__(k, arrays, as_float64=True)
        self.sums: dict[str, Array] = {}
        """Bounds of the reductions at the points."""

    def bounds(self, points: Points) -> list[tuple[str, Array, Array]]:
        """(parameter, offsets, bounds) of every store at points of the shared axes."""
        values: dict[str, Array] = {}
        self.sums = {}
        for r in self.kernel.reduces:
            values[r.name], self.sums[r.name] = self._summed(r, points, values)
        shared = _Memo()
        found: list[tuple[str, Array, Array]] = []
        for s in self.kernel.stages:
            if isinstance(s, Store):
                memo = _Memo() if s.axes else shared
                _, offsets, _ = self._store(s, points, values, memo.values)
                error = np.broadcast_to(self._error(s.expr, values, memo), self.points.shape)
                found.append((s.param, offsets, self._kept(s, error)))
        return found

    def _summed(self, s: Reduce, points: Points, values: dict[str, Array]) -> tuple[Array, Array]:
        """A reduction and its bound."""
        value = self._fold(s, points, values)
        error, size = np.zeros(points.shape), np.zeros(points.shape)
        count, unit = np.zeros(points.shape), np.full(points.shape, np.inf)
        extent = prod(a.extent for a in s.axes)
        for first in range(0, extent, CHUNK):
            self._go_to(points, own_points(s.axes, first, min(CHUNK, extent - first)))
            memo = _Memo()
            x = self._flat(self._eval(s.expr, values, memo.values), points)
            e = self._flat(self._error(s.expr, values, memo), points)
            if s.op in (Op.MAX, Op.MIN):
                error = np.maximum(error, e.max(axis=-1))
                continue
            error = _either(error + e.sum(axis=-1), error, e.max(axis=-1, initial=0.0))
            if s.op is Op.ADD and s.dtype.is_float:
                size = size + np.abs(x).sum(axis=-1)
                count = count + np.count_nonzero(x, axis=-1)
                unit = np.minimum(unit, _units(x).min(axis=-1, initial=np.inf))
        if s.op in (Op.MAX, Op.MIN):
            return value, error
        if s.op is not Op.ADD or not s.dtype.is_float:
            return value, np.where(error == 0, 0.0, np.nan)
        u = _unit(s.dtype)
        exact = (error == 0) & (size * u <= unit)
        walk = (_WALK * np.sqrt(count) + 1.0) * u * size
        found = _either(np.where(exact, 0.0, error + walk), error)
        against = (size - np.abs(value)) / 2  # what the terms of the other sign add up to
        lost = _beyond(size, s.dtype) & (~_beyond(value, s.dtype) | _beyond(against, s.dtype))
        return value, np.where(lost, np.inf, found)

    def _flat(self, x: Array, points: Points) -> Array:
        """At every point of the shared axes, its own points in a row."""
        return np.broadcast_to(x, self.points.shape).reshape(*points.shape, -1)

    def _error(self, x: Expr, values: dict[str, Array], memo: _Memo) -> Array:
        found = memo.errors.get(id(x))
        if found is None:
            found = memo.errors[id(x)] = np.asarray(self._bound(x, values, memo))
        return found

    def _over(self, x: Expr, values: dict[str, Array], memo: _Memo) -> Array | None:
        """Mask of the values of a float that overflow f32, but not f64; None where none does."""
        if id(x) not in memo.beyond:
            mask = _beyond(_float(self._eval(x, values, memo.values)), F32)
            memo.beyond[id(x)] = mask if mask.any() else None
        return memo.beyond[id(x)]

    def _bound(self, x: Expr, values: dict[str, Array], memo: _Memo) -> Array:
        if isinstance(x, Const):
            near = float(np.float32(x.value)) if x.dtype.is_float and x.dtype != F64 else x.value
            return np.asarray(abs(near - x.value) if np.isfinite(near) else 0.0)
        if isinstance(x, Load | IndexValue | Inside):
            return np.zeros(())
        if isinstance(x, Value):
            error = self.sums[x.stage]
            return error.reshape(error.shape + (1,) * self.own)
        v = self._eval(x, values, memo.values)
        if isinstance(x, Cast):
            inner, e = self._eval(x.x, values, memo.values), self._error(x.x, values, memo)
            if not x.dtype.is_float:
                return _certain(e, np.trunc(inner - e) == np.trunc(inner + e))
            return np.asarray(e + _rounded(v, e == 0, x.dtype))
        args = [self._eval(a, values, memo.values) for a in x.args]
        errors = [self._error(a, values, memo) for a in x.args]
        if x.op.compares:
            apart = np.abs(_float(args[0]) - _float(args[1]))
            e = errors[0] + errors[1]
            return np.where((e == 0) | (apart > e), 0.0, np.inf)
        if not x.dtype.is_float:
            total = sum(errors, start=np.zeros(()))
            return _either(np.where(total == 0, 0.0, np.nan), *errors)
        if x.op is Op.WHERE:
            chosen = np.where(args[0], errors[1], errors[2])
            return np.where(errors[0] == 0, chosen, errors[0])
        found = np.asarray(_applied(x, v, args, errors))
        if x.op in _STEADY:
            return found
        bound = _either(found, *errors)
        if x.op in _DECIDES:
            bound = np.where(np.isinf(found), np.inf, bound)
        return self._with_overflows(x, bound, values, memo)

    def _with_overflows(
        self, x: Apply, found: Array, values: dict[str, Array], memo: _Memo
    ) -> Array:
        """The bound of a result, infinite where its arguments overflow f32 and it does not."""
        v = self._eval(x, values, memo.values)
        wide = x.dtype.compute == F64
        over = [None if wide else self._over(a, values, memo) for a in x.args]
        if x.op in (Op.DIV, Op.RECIP):
            beyond = over.pop()
            if beyond is not None:
                found = np.where(beyond & np.isfinite(found), found + np.abs(v), found)
        some = [mask for mask in over if mask is not None]
        if some:
            lost = np.logical_or.reduce(np.broadcast_arrays(*some, np.zeros(v.shape, bool)))
            lost = lost & ~_beyond(v, x.dtype)
            if x.op in (Op.ADD, Op.SUB, Op.FMA):
                args = [_float(self._eval(a, values, memo.values)) for a in x.args]
                a, b = args if x.op is not Op.FMA else (v - args[2], args[2])
                opposite = (np.sign(a) == np.sign(b)) == (x.op is Op.SUB)
                lost = lost | (opposite & _beyond(a, x.dtype) & _beyond(b, x.dtype))
            found = np.where(lost, np.inf, found)
        for node in _divisor_extremes(x):  # a zero may have either sign
            a, b = (_float(self._eval(y, values, memo.values)) for y in node.args)
            both = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
            zero = self._eval(_divisor(x), values, memo.values) == 0
            found = np.where(both & zero, np.inf, found)
        return found


def _float(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _either(found: Array, *errors: Array) -> Array:
    """Undecided where an argument is; not known where a bound of known ones is no number."""
    found = found if _all_finite(found) else np.where(np.isfinite(found), found, np.nan)
    for e in errors:
        if not _all_finite(e):
            found = np.where(np.isinf(e), np.inf, found)
    return found


def _all_finite(x: Array) -> bool:
    """True only if every number is finite. A sum says so in one pass, and may overflow."""
    return bool(np.isfinite(x.sum()))


def _beyond(v: Array, dtype: DType) -> Array:
    """Mask of the numbers that overflow f32, but not f64."""
    if dtype.compute == F64:
        return np.zeros(np.shape(v), bool)
    return (np.abs(v) > _OVERFLOWS) & np.isfinite(v)


def _units(x: Array) -> Array:
    """The greatest power of two that each number is a multiple of; infinity for 0."""
    fraction, exponent = np.frexp(x)
    whole = np.where(np.isfinite(x), fraction * 2.0**53, 0.0).astype(np.int64)
    return np.where(
        whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    )


def _rounded(v: Array, exact: Array, dtype: DType, steps: float = 1.0) -> Any:
    """The rounding of a result, none where it is exact and representable."""
    if dtype.compute == F64:
        return steps * 2.0**-53 * np.abs(v)
    found = steps * 2.0**-24 * np.abs(v) + 2.0**-149
    if not exact.any():
        return found
    with np.errstate(all="ignore"):
        same = exact & (np.asarray(v, np.float32) == v)
    return np.where(same, 0.0, found)


def _certain(error: Array, same: Array) -> Array:
    return np.where((error == 0) | same, 0.0, np.inf)


def _applied(x: Apply, v: Array, args: list[Array], errors: list[Array]) -> Any:
    """The bound of a float result."""
    a, ea = _float(args[0]), errors[0]
    b, eb = (_float(args[1]), errors[1]) if len(args) > 1 else (a, ea)
    match x.op:
        case Op.NEG | Op.ABS:
            return ea
        case Op.MAX | Op.MIN:
            return np.maximum(ea, eb)
        case Op.ADD | Op.SUB:
            return ea + eb + _rounded(v, (ea == 0) & (eb == 0), x.dtype)
        case Op.MUL:
            return _of_product(a, b, ea, eb) + _rounded(v, (ea == 0) & (eb == 0), x.dtype)
        case Op.FMA:
            once = _rounded(a * b, (ea == 0) & (eb == 0), x.dtype)
            both = _of_product(a, b, ea, eb) + errors[2] + once
            return both + _rounded(v, both == 0, x.dtype)
        case _:
            return _of_function(x, v, a, b, ea, eb)


def _of_product(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    """The bound that a product has of its factors'."""
    return np.asarray(np.abs(a) * eb + np.abs(b) * ea + ea * eb)


def _of_function(x: Apply, v: Array, a: Array, b: Array, ea: Array, eb: Array) -> Any:
    """The bound of a quotient, a power or a function."""
    u, size = _unit(x.dtype), np.abs(v)
    function = _STEPS * u * size + _LEAST
    near = np.where(ea == 0, 0.0, 8 * u)  # beside a zero of the function
    match x.op:
        case Op.DIV:
            left = np.maximum(np.abs(b) - eb, 0.0)
            found = (ea + size * eb) / left + 4 * u * size + _LEAST
            return np.where((ea == 0) & (eb == 0) & (v == 0), 0.0, found)
        case Op.RECIP:
            left = np.maximum(np.abs(a) - ea, 0.0)
            return ea / (np.abs(a) * left) + 4 * u * size + _LEAST
        case Op.SQRT:
            moved = ea / (size + np.sqrt(np.maximum(a - ea, 0.0)))
            found = np.where((ea > 0) & (np.abs(a) <= ea), np.inf, moved + 4 * u * size)
            return np.where((ea == 0) & (a == 0), 0.0, found)
        case Op.EXP:
            exact = (ea == 0) & ((a == 0) | (a == -np.inf))
            return np.where(exact, 0.0, size * np.expm1(ea) + function)
        case Op.LOG | Op.LOG2 | Op.LOG10:
            share = np.where(ea == 0, 0.0, ea / np.abs(a))
            base = {Op.LOG: np.e, Op.LOG2: 2, Op.LOG10: 10}[x.op]
            moved = -np.log1p(-share) / np.log(base)
            found = np.where(share < 1, moved, np.inf) + function + near / 2
            return np.where((ea == 0) & (a == 0), 0.0, found)
        case Op.SIN | Op.COS:
            found = np.minimum(1.2 * ea, 2.0) + function + near
            return np.where((np.abs(a) < _TURNS) | (ea == 0), found, np.inf)
        case Op.TAN:  # tan(a + d) - tan(a) = tan(d) (1 + tan(a)^2) / (1 - tan(a) tan(d))
            moved = np.tan(np.minimum(ea + near, 1.5))
            left = 1 - size * moved
            found = moved * (1 + size * size) / left + function
            known = ((np.abs(a) < _TURNS) | (ea == 0)) & (ea < 1.5) & (left > 0)
            return np.where(known, found, np.inf)
        case Op.TANH | Op.ERF:
            return np.minimum(1.2 * ea, 2.0) + function + near
        case Op.POW:
            grown = np.abs(b) * ea / np.abs(a) + np.abs(np.log(np.abs(a))) * eb
            bits = np.abs(b * np.log(np.abs(a)))
            found = size * np.expm1(grown) + (_STEPS + 4 * np.nan_to_num(bits)) * u * size + _LEAST
            return np.where((ea > 0) & (np.abs(a) <= ea), np.inf, found)
        case Op.FLOOR:
            return _certain(ea, np.floor(a - ea) == np.floor(a + ea))
        case Op.ROUND:
            return _certain(ea, np.rint(a - ea) == np.rint(a + ea))
        case _:
            return np.full(v.shape, np.nan)
