"""The input sets of a kernel: those numbers that show what its candidates do wrong, and no more.

    ordinary  in the first domain where at least half of a sample of the results is finite
    exact     integers, up to the greatest reach for which the most results are exact; of one
              sign where that shows more (under a maximum, or where terms are clamped at zero);
              where results are not exact, one that single precision bears; else ordinary numbers
    special   at the wildest level where single precision, in numpy, meets the bar that
              candidates must meet, also where the terms of a sum cancel
    spread    over the widest span of exponents where it does
    level, even, opposite
              see ``inputs``; ordinary numbers where single precision does not meet the bar on them

The choices follow from kernel and seed alone, so every process makes the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.host.buffers import poison
from tunegrad.devices.job import Array, KernelIO, Reference
from tunegrad.devices.verifying import inputs
from tunegrad.devices.verifying.tolerance import Bar, rounding
from tunegrad.ir.expr import Apply, Cast, Const, Expr, Load, Op, Value, leaves, loads_in
from tunegrad.ir.fusion import compared
from tunegrad.ir.interpret.evaluate import unrounded
from tunegrad.ir.interpret.kernel import folds_at, interpret_at
from tunegrad.ir.interpret.numeric import bytes_of, to_compute
from tunegrad.ir.kernel import Kernel, Param, Reduce, memoized
from tunegrad.ir.rounding import Drawn, chain_steps, fold_steps, rounded_within

_TRIAL_STEPS = 1 << 16
_FEWEST, _MOST = 16, 4096
"""A trial of a set takes about that many operations, and points between these."""

_PART = 1 << 14
"""Values are looked at in parts that fit into a cache."""

MANY_SUMS = 16
"""Results of which some are as large as sums of such terms are: their root mean square says it."""

_LONG = 1 << 20
"""Steps of one element above which no level of special values is tried but the one with zeros."""

_TINY = 2.0**-6
"""Constants below it are added to keep something from being 0."""

_SUMMED, _ROUNDED, _TURNS = 2, 3, 5
"""The first of the spans that is tried where numbers are added up, where they are rounded to 16
bits on the way, and where the sine of what is computed is taken.
"""

_HIDDEN = 0.01
"""The share of results that two sets may hide at clamps."""

_NEARLY_HALF = 0.3
"""Functions that are defined on one side have half of the numbers, more or less; of three rows one
may be NaN and one infinite.
"""

_FINITE = 16
"""One element in so many has to be finite, or nothing can be verified."""

_PARTIAL = frozenset((Op.LOG, Op.LOG2, Op.LOG10, Op.SQRT, Op.RECIP, Op.DIV, Op.POW, Op.EXP))
"""Operations for which most arguments may give no finite result."""

_SENSITIVE = frozenset((Op.LOG, Op.LOG2, Op.LOG10, Op.RECIP, Op.DIV, Op.POW))
"""Operations that make much of a small error of an argument near zero."""

_JUMPS = frozenset((Op.FLOORDIV, Op.MOD, Op.POW, Op.FLOOR, Op.ROUND))
"""Large arguments that were rounded give other results altogether."""


def draw_set(kernel: Kernel, io: KernelIO, seed: int, kind: inputs.Kind) -> dict[str, Array]:
    """The inputs of one set, in each buffer's layout; padding is poison."""
    how = inputs.Draw(kind, domain_of(kernel, io))
    if kind == "exact":
        signs = inputs.signs_of(kernel, how.domain)
        for reach, exact in inputs.reaches(kernel, how.domain):
            arrays = _drawn(kernel, io, seed, replace(how, reach=reach), signs)
            if exact or _sound(kernel, arrays):
                return arrays
        return _drawn(kernel, io, seed, replace(how, kind="ordinary"))
    if kind == "special":
        for level, spoiled in _levels(kernel):
            arrays = _drawn(kernel, io, seed, replace(how, level=level, spoiled=spoiled))
            if _sound(kernel, arrays):
                return arrays
        return _drawn(kernel, io, seed, replace(how, level=inputs.MILDEST))
    if kind == "spread":
        for span in inputs.SPANS[_first_span(kernel) :]:
            arrays = _drawn(kernel, io, seed, replace(how, span=span))
            if _sound(kernel, arrays):
                return arrays
    if kind in ("level", "even"):
        for whole in (True, False):
            arrays = _patterned(kernel, io, seed, kind, how, whole)
            if _sound(kernel, arrays, random=False):
                return arrays
    if kind == "opposite":
        return _opposite(kernel, io, seed, how)
    return _drawn(kernel, io, seed, replace(how, kind="ordinary"))


def _first_span(kernel: Kernel) -> int:
    """The widest span that is tried."""
    turned = (
        x.args[0]
        for s in kernel.stages
        for x in inputs.applied(s.expr)
        if x.op in (Op.SIN, Op.COS, Op.TAN)
    )
    if not all(isinstance(x, Load) for x in turned):
        return _TURNS
    if rounded_within(kernel):
        return _ROUNDED
    return _SUMMED if kernel.reduces else 0


def _patterned(
    kernel: Kernel, io: KernelIO, seed: int, kind: inputs.Kind, how: inputs.Draw, whole: bool
) -> dict[str, Array]:
    """A level or an even set: patterns in what sums read, small integers in all other inputs.

    ``whole``: with rows of masked elements, or of one value, of which a kernel may make no numbers.
    """
    drawn = _drawn(kernel, io, seed, replace(how, kind="exact", reach=4))
    summed = {x.param for r in kernel.reduces for x in loads_in(r.expr)}
    rng = np.random.default_rng(seed)
    scales = [*_scales(kernel), *([0.0] if whole else [])] if kind == "even" else []
    for p in kernel.params:
        if p.role == "in" and p.dtype.is_float and p.name in summed:
            made = _level(p, rng, whole) if kind == "level" else _even(p, rng, scales)
            gaps = gaps_of(p)
            values = drawn[p.name] = p.layout.pack(inputs.stored(made, p.dtype)).copy()
            if gaps is not None:
                values.view(np.uint8).reshape(values.size, -1)[gaps] = poison(p.dtype)
    return drawn


def _level(p: Param, rng: np.random.Generator, masked: bool) -> Array:
    """Rows of zeros; of four the second has, in half of its places, what exp makes nothing of, the
    third is all masked, and so is a half of the fourth.
    """
    values = np.zeros(p.shape, np.float32)
    if len(p.shape) > 1:
        rows = values.reshape(prod(p.shape[:-1]), p.shape[-1])
        odd = rows[1::4]
        odd[rng.random(odd.shape) < 0.5] = -256.0
        if masked:
            rows[2::4] = -np.inf
            rows[3::4, : p.shape[-1] // 2] = -np.inf
    return values


def _even(p: Param, rng: np.random.Generator, scales: Sequence[float]) -> Array:
    """Rows of two values, as many of each along every axis of an even extent; each row has a scale
    of its own, and lies about 0 or about 1.
    """
    coarse = rng.integers(0, 2, [-(-n // 2) for n in p.shape]).astype(np.int8)
    places = np.ix_(*(np.arange(n) for n in p.shape))
    signs = coarse[tuple(i // 2 for i in places)] + sum(places, start=np.zeros((), np.int64))
    rows = places[0] if len(p.shape) > 1 else np.zeros((), np.int64)
    scale = np.asarray(scales, np.float32)[rows % len(scales)]
    about = (rows // len(scales) % 2).astype(np.float32)
    return np.asarray(about + np.where(signs % 2 == 0, scale, -scale), np.float32)


def _scales(kernel: Kernel) -> list[float]:
    """Powers of two near the square roots of the small constants that a kernel adds, and 1."""
    found = {
        2.0 ** round(log2(a.value) / 2)
        for s in kernel.stages
        for x in inputs.applied(s.expr)
        if x.op in (Op.ADD, Op.SUB, Op.MAX, Op.FMA) and x.dtype.is_float
        for a in x.args
        if isinstance(a, Const) and 0.0 < a.value < _TINY
    }
    return [*sorted(found), 1.0]


def _opposite(kernel: Kernel, io: KernelIO, seed: int, how: inputs.Draw) -> dict[str, Array]:
    """The first set with the signs of some inputs changed, or smaller, whichever leaves the fewest
    results at the constants that they are clamped at, in both sets.
    """
    first = inputs.kinds_of(kernel)[0]
    base = draw_set(
        kernel, io, seed - inputs.seed_of(0, "opposite") + inputs.seed_of(0, first), first
    )
    names = [p.name for p in kernel.params if p.role == "in" and p.dtype.is_float]
    if not inputs.signed(how.domain):
        names = []
    hidden = {n: _clamped(kernel, v) for n, v in _at(kernel, base).items()}
    best, least = None, 2.0
    for scale in (1.0, 2.0**-4, 2.0**-8):
        for changed in dict.fromkeys([tuple(names), *((n,) for n in names[:4]), ()]):
            if scale == 1.0 and not changed:
                continue
            arrays = dict(base)
            for p in kernel.params:
                if p.name in names:
                    arrays[p.name] = _scaled(
                        p, base[p.name], -scale if p.name in changed else scale
                    )
            here = _at(kernel, arrays)
            share = max(
                float((hidden[n] & _clamped(kernel, v)).mean()) for n, v in here.items() if v.size
            )
            if share < least and _sound(kernel, arrays):
                best, least = arrays, share
            if least < _HIDDEN:
                break
        if least < _HIDDEN:
            break
    return best if best is not None else _drawn(kernel, io, seed, replace(how, kind="ordinary"))


_KNOWN_AGAIN = 16
"""Elements at each end of an input that a changed set leaves as they are."""


def changed_inputs(kernel: Kernel, arrays: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Inputs of which a drawn half of the elements change places with each other, and of which one
    drawn row is of zeros if it has both signs; both ends, the padding and constants stay.
    """
    rng, found = np.random.default_rng(seed), dict(arrays)
    for p in kernel.params:
        if p.role == "in":
            memory, gaps = arrays[p.name], gaps_of(p)
            places = np.arange(memory.size) if gaps is None else np.flatnonzero(~gaps)
            if places.size > 3 * _KNOWN_AGAIN:
                places = places[_KNOWN_AGAIN:-_KNOWN_AGAIN]
            places = places[1:][rng.random(max(0, places.size - 1)) < 0.5]
            values = found[p.name] = memory.copy()
            values[places] = memory[rng.permutation(places)]
            if gaps is None and p.dtype.is_float and len(p.shape) > 1 and kernel.reduces:
                row = p.shape[-1]
                inner = np.arange(-(-_KNOWN_AGAIN // row), (memory.size - _KNOWN_AGAIN) // row)
                if inner.size and (to_compute(memory[: row * 4], p.dtype) < 0).any():
                    start = row * rng.choice(inner)
                    values[start : start + row] = 0
    return found


def _clamped(kernel: Kernel, values: Array) -> NDArray[np.bool_]:
    return np.isin(values, [np.float32(c) for c in inputs.clamps_of(kernel)])


def _scaled(p: Param, memory: Array, factor: float) -> Array:
    """A parameter's memory times a power of two, its padding as it is."""
    if p.dtype.is_pair or p.dtype.is_quad:
        return memory
    gaps = gaps_of(p)
    values = inputs.stored(to_compute(memory, p.dtype) * np.float32(factor), p.dtype)
    return values if gaps is None else np.where(gaps, memory, values)


def domain_of(kernel: Kernel, io: KernelIO) -> inputs.Domain:
    """The first domain in which half of a sample of every result is finite; else the one where the
    most is.

    Sums of both signs that something is divided by come near zero in a few rows, where any rounding
    is too much: such a kernel has no normal numbers.
    """
    if not float_operations(kernel) & _PARTIAL:
        return inputs.DOMAINS[0]
    domains = inputs.DOMAINS[1:] if _divides_by_a_sum(kernel) else inputs.DOMAINS
    best, most = domains[0], -1.0
    for domain in domains:
        share = _finite(_at(kernel, _drawn(kernel, io, 0, inputs.Draw(domain=domain))))
        if share >= 0.5:
            return domain
        if share > most:
            best, most = domain, share
    return best


def _divides_by_a_sum(kernel: Kernel) -> bool:
    """True when a sum of either sign is divided by, or has its logarithm or a power taken."""
    sums = {
        r.name
        for r in kernel.reduces
        if r.op is Op.ADD and r.dtype.is_float and not _not_negative(r.expr)
    }
    for s in kernel.stages:
        for x in inputs.applied(s.expr):
            if (
                x.op in _SENSITIVE
                and x.dtype.is_float
                and _reads(x.args[-1 if x.op is Op.DIV else 0], sums)
            ):
                return True
    return False


def _not_negative(x: Expr) -> bool:
    """True for a term that is a square, an exponential, or made of such by what keeps signs."""
    if isinstance(x, Cast):
        return _not_negative(x.x)
    if not isinstance(x, Apply):
        return False
    if x.op is Op.EXP or (x.op is Op.MUL and x.args[0] == x.args[1]):
        return True
    return x.op in (Op.ADD, Op.MUL, Op.DIV, Op.SQRT, Op.RECIP) and all(map(_not_negative, x.args))


def _reads(x: Expr, names: Collection[str]) -> bool:
    return any(isinstance(leaf, Value) and leaf.stage in names for leaf in leaves(x))


def judgeable(r: Reference) -> Reference:
    """The reference, with a fault where hardly any element is finite: anything would pass."""
    finite = int(np.isfinite(r.values).sum())
    if r.fault or finite * _FINITE >= r.values.size:
        return r
    return replace(r, fault=(
        f"nothing can be verified: {finite} of {r.values.size} elements of the reference are "
        "finite, at least one in "
        f"{_FINITE} has to be, whatever numbers were drawn ({', '.join(inputs.DOMAINS)})"
    ))  # fmt: skip


def drawn_values(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, Drawn | None]:
    """Known facts of every parameter's values, padding left out; None where they are no multiples
    of 2^-8.

    Of constants nothing is worked out where nothing is known of the inputs: sums with both are
    rounded anyway.
    """
    found = {p.name: _values(p, arrays[p.name]) for p in kernel.params if p.role == "in"}
    ordinary = bool(found) and not any(found.values())
    for p in kernel.params:
        if p.role == "const":
            found[p.name] = None if ordinary else _values(p, arrays[p.name])
    return found


def _values(p: Param, memory: Array) -> Drawn | None:
    gaps = gaps_of(p)
    stored = memory if gaps is None else memory[~gaps]
    if not (p.dtype.is_float or p.dtype.is_pair):
        values = bytes_of(stored) if p.dtype.is_quad else to_compute(stored, p.dtype)
        return Drawn(float(np.abs(values.astype(np.float64)).max(initial=0.0)), 1.0)
    parts = np.array_split(stored, -(-stored.size // _PART)) if stored.size else []
    unit, size, negative = 1.0, 0.0, 0
    for part in parts:
        values = _numbers(part, p)
        found = next((u for u in (1.0, 0.25, 2.0**-8) if u <= unit and _multiples(values, u)), None)
        if found is None:
            return None
        unit, size = found, max(size, float(values.max()), -float(values.min()))
        negative += int(np.count_nonzero(values < 0))
    count = stored.size * (2 if p.dtype.is_pair else 1)
    return Drawn(size, unit, (2 * negative - count) ** 2 <= 36 * count)


def _numbers(stored: Array, p: Param) -> Array:
    if not p.dtype.is_pair:
        return to_compute(stored, p.dtype)
    return np.stack([stored << 16, stored & np.uint32(0xFFFF0000)]).view(np.float32)


def gaps_of(p: Param) -> NDArray[np.bool_] | None:
    """Mask of the elements of a parameter's memory that are padding; None where none is."""
    return None if p.size == prod(p.shape) else _gaps(p)


def random_rows(rng: np.random.Generator, kernel: Kernel, count: int) -> Array:
    """Points of the shared axes, one a row."""
    columns = [rng.integers(0, a.extent, count) for a in kernel.axes]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int64)


@lru_cache(maxsize=8)
def _gaps(p: Param) -> NDArray[np.bool_]:
    """Kept: a kernel's input sets come one after the other."""
    empty: NDArray[np.bool_] = p.layout.pack(np.ones(p.shape, np.uint8)) == 0
    empty.flags.writeable = False
    return empty


def _drawn(
    kernel: Kernel,
    io: KernelIO,
    seed: int,
    how: inputs.Draw,
    signs: Mapping[str, inputs.Sign] | None = None,
) -> dict[str, Array]:
    drawn = inputs.draw_inputs(io, seed, kernel.key, how, signs, _middle(kernel, how))
    divides = _divides_integers(kernel)
    for p in kernel.params:
        gaps = None if p.role == "out" else gaps_of(p)
        changed = p.role != "out" and divides and p.dtype.is_int
        if not changed and gaps is None:
            continue
        values = drawn[p.name] = drawn[p.name].copy()  # constants are kept
        if changed:
            values[(values == 0) | (values == p.dtype.least)] = 1  # least // -1 is out of range
        if gaps is not None:
            values.view(np.uint8).reshape(values.size, -1)[gaps] = poison(p.dtype)
    return drawn


def _middle(kernel: Kernel, how: inputs.Draw) -> dict[str, tuple[int, int]]:
    """Ranges of integers that are compared with positions: the middle half of them, so that either
    outcome is frequent. Special ones have their whole range, unless that shows too little.
    """
    if how.kind == "special" and how.level < inputs.MILDEST - 1:
        return {}
    return {
        name: (extent // 4, extent - extent // 4)
        for name, extent in compared(kernel).items()
        if kernel.param(name).role == "in"
    }


@memoized(64)
def _divides_integers(kernel: Kernel) -> bool:
    return any(
        x.op in (Op.FLOORDIV, Op.MOD) and x.dtype.is_int
        for s in kernel.stages
        for x in inputs.applied(s.expr)
    )


def _levels(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Levels of special values that are tried, with the elements that are not finite: of few
    results three may spoil most, and one does not. NaN and an infinity come before large numbers.
    """
    if float_operations(kernel) & _JUMPS:
        return ((3, 3), (3, 1), (inputs.MILDEST - 1, 0))
    if _steps(kernel) > _LONG:
        return ()
    tried = ((0, 3), (1, 3), (1, 2), (3, 3), (3, 2), (1, 1), (2, 0), (3, 1), (4, 0))
    return tried[1 if kernel.reduces else 0 :]


def _sound(kernel: Kernel, arrays: Mapping[str, Array], random: bool = True) -> bool:
    """True when single precision is near enough to double for these inputs, and nearly half of the
    results are finite. ``random``: any sum of terms of both signs may cancel.
    """
    exact, points = unrounded(kernel), _trial_points(kernel)
    folds = folds_at(exact, arrays, points, as_float64=True)
    wide = interpret_at(exact, arrays, points, as_float64=True, known=folds)
    narrow = interpret_at(kernel, arrays, points)
    terms = max(1, sum(map(chain_steps, kernel.reduces)))
    allowed: dict[str, float] = {}
    for p in kernel.outputs:
        count = None if p.dtype.is_float else 0
        known = Reference(wide[p.name][1], terms, roundings=count, within=rounded_within(kernel))
        bar = Bar.of(p.dtype.name, known)
        if (
            _finite({p.name: bar.expected}) < _NEARLY_HALF
            or bar.judge(narrow[p.name][1]).first >= 0
        ):
            return False
        if (np.isfinite(bar.expected) & ~np.isfinite(bar.numbers(narrow[p.name][1]))).any():
            return False  # something overflows on the way
        allowed[p.name] = float(bar.allowed.min(initial=np.inf))
    return not random or all(
        _bears(exact, arrays, points, folds, r, allowed)
        for r in exact.reduces
        if r.name in folds and r.op is Op.ADD and r.dtype.is_float and not _not_negative(r.expr)
    )


def _bears(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    points: Mapping[str, Array],
    folds: Mapping[str, Array],
    r: Reduce,
    allowed: Mapping[str, float],
) -> bool:
    """True when results stay within ``allowed`` where the terms of the sum ``r`` cancel.

    A sum of large terms that comes out small has the rounding errors of large ones. Where results
    grow with the sum, as in max(sum, 0), the bar grows with them. It does not where they are
    bounded, as in min(max(sum, 0), 6), and such sums are so rare that few points show none: so they
    are made.
    """
    finite = folds[r.name][np.isfinite(folds[r.name])]
    size = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    if not 1.0 < size < np.inf:
        return True
    error = rounding(r.dtype) * np.sqrt(fold_steps(r)) * size
    after = _that_read(kernel, r.name)
    known = {name: values for name, values in folds.items() if name not in after}
    small = folds[r.name] / size
    results = [
        interpret_at(kernel, arrays, points, as_float64=True, known={**known, r.name: sums})
        for sums in (small, small + error)
    ]
    with np.errstate(invalid="ignore"):
        apart = {
            name: np.abs(np.subtract(results[1][name][1], results[0][name][1], dtype=np.float64))
            for name in allowed
        }
    return not any((apart[name] > most).any() for name, most in allowed.items())


def _that_read(kernel: Kernel, name: str) -> set[str]:
    """The reductions that depend on that one."""
    found = {name}
    for r in kernel.reduces:
        if _reads(r.expr, found):
            found.add(r.name)
    return found - {name}


def _trial_points(kernel: Kernel) -> dict[str, Array]:
    """Random points of the shared axes, by axis; each of them where there are few."""
    count = min(_MOST, max(_FEWEST, _TRIAL_STEPS // _operations(kernel)))
    if kernel.axes and kernel.points <= count:
        each = np.unravel_index(np.arange(kernel.points), [a.extent for a in kernel.axes])
        return {a.name: at for a, at in zip(kernel.axes, each, strict=True)}
    points = random_rows(np.random.default_rng(0), kernel, min(count, max(1, kernel.points)))
    return {a.name: points[:, i] for i, a in enumerate(kernel.axes)}


def _at(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every output at random points, in float64."""
    found = interpret_at(kernel, arrays, _trial_points(kernel), as_float64=True)
    return {name: values for name, (_, values) in found.items()}


@memoized(64)
def float_operations(kernel: Kernel) -> frozenset[Op]:
    """Operations that give floats somewhere in the kernel."""
    return frozenset(
        x.op for s in kernel.stages for x in inputs.applied(s.expr) if x.dtype.is_float
    )


@memoized(64)
def _operations(kernel: Kernel) -> int:
    """Operations that one point of the shared axes takes, one at least for a step."""
    return sum(
        prod(a.extent for a in s.axes) * max(1, sum(1 for _ in inputs.applied(s.expr)))
        for s in kernel.stages
    )


def _steps(kernel: Kernel) -> int:
    """Steps that one point of the shared axes takes."""
    return max(1, sum(prod(a.extent for a in s.axes) for s in kernel.stages))


def _finite(values: Mapping[str, Array]) -> float:
    """The share of finite numbers, of the output where it is least."""
    return min((float(np.isfinite(v).mean()) for v in values.values() if v.size), default=1.0)


def _multiples(values: Array, unit: float) -> bool:
    """True for finite multiples of ``unit`` alone."""
    with np.errstate(over="ignore"):
        scaled = values if unit == 1.0 else values * values.dtype.type(1 / unit)
    whole = (scaled == np.rint(scaled)).all()  # NaN is no number
    return bool(whole and np.isfinite(values.min()) and np.isfinite(values.max()))
