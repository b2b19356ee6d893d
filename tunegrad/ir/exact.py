"""Finds the results of a kernel that are exact in its own dtypes for given inputs: they are
compared with no tolerance.

A value is tracked as |value| <= size, a multiple of the power of two ``unit``. Sums and products of
such values are exact while size / unit is at most 2^24 (f32; 2^53 in f64): every such number is
representable. A sum of N terms is exact in any order where N * size fits. Where it does not, the
signs help: terms of independent random signs form a random walk, whatever order a schedule takes,
since schedules are not chosen after the signs. By Hoeffding's inequality a sum of a part of them
exceeds ``12 * sqrt(N) * size`` with a probability below 2 exp(-72) = 1e-31.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, prod, sqrt

from .dtypes import DType
from .expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value, loads_in
from .index import Var
from .kernel import Kernel, Reduce, Stage, Store, memoized

__all__ = ["Drawn", "Rounded", "fold_steps", "rounded_within", "roundings"]

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

    ``terms``: the fold steps of the reductions behind it that round.
    """

    count: int | None
    terms: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A value: see the module. ``count`` is None where its error is not relative to itself."""

    size: float
    unit: float
    count: int | None = 0
    sums: frozenset[str] = frozenset()

    @property
    def exact(self) -> bool:
        return self.count == 0


_BOOL = _Known(1.0, 1.0)
_ANY = _Known(inf, 1.0)
"""An exact value of which nothing is known: the first sum or product rounds it."""


def roundings(k: Kernel, drawn: Mapping[str, Drawn | None]) -> dict[str, Rounded]:
    """Rounding of every output, for inputs of which this much is known; None: any values."""
    return dict(_roundings(k, tuple((p.name, drawn.get(p.name)) for p in k.params)))


@memoized(64)
def _roundings(k: Kernel, drawn: tuple[tuple[str, Drawn | None], ...]) -> dict[str, Rounded]:
    """Kept: the sets of a kernel differ in what was drawn, and it is asked before they are drawn as
    well.
    """
    walk = _Walk(k, dict(drawn))
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
    return Rounded(count, max(a.terms, b.terms))


class _Walk:
    """One kernel; ``values`` holds what is known of each reduction so far."""

    def __init__(self, k: Kernel, drawn: Mapping[str, Drawn | None]) -> None:
        self.kernel, self.drawn = k, drawn
        self.values: dict[str, _Known] = {}
        self.steps = {r.name: fold_steps(r) for r in k.reduces}

    def stored(self, s: Store, x: _Known) -> Rounded:
        terms = sum(self.steps[name] for name in x.sums)
        return Rounded(x.count if self.kernel.param(s.param).dtype.is_float else 0, terms)

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
        """True if no two points of the reduce axes read one element: its strides are those of a
        mixed radix.
        """
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
            return _cast(self.known(x.x, memo), x.dtype)
        return _applied(x, [self.known(a, memo) for a in x.args])


def fold_steps(r: Reduce) -> int:
    """Steps of a whole fold that round; a product of pairs is added in two."""
    each = 2 if isinstance(r.expr, Apply) and r.expr.op is Op.DOT2 else 1
    return each * prod(a.extent for a in r.folds)


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


def _cast(x: _Known, dtype: DType) -> _Known:
    if dtype.is_bool:
        return _BOOL
    if dtype.is_int:
        return _Known(x.size, 1.0)
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


def _applied(x: Apply, args: list[_Known]) -> _Known:
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
