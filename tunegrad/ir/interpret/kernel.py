"""The meaning of a kernel, run with numpy: the oracle for schedules, and the reference for
verification.

Points of the shared axes are taken in chunks: boxes of them, with a dimension for each axis, or any
points, with one dimension. A stage's own axes follow, with a dimension for each or one for all, so
every array here has a shape of (*points, *own points) or broadcasts to it. In boxes what a load
reads is a part of the memory, mostly. ``as_float64`` does all float arithmetic and accumulation in
f64, and gives float results as f64; explicit casts to f16 and bf16 still round. Sums of products at
all points are matrix products then: see ``contraction``.
"""

from __future__ import annotations

import ctypes
import functools
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from numpy.linalg import _umath_linalg

from tunegrad.errors import InternalError

from ..dtypes import F64, DType
from ..expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value, leaves, names_of
from ..index import Index, Valid
from ..kernel import Axis, Kernel, Reduce, Stage, Store, identity
from .numeric import FOLDS, Array, bytes_of, compute, convert, halves_of, to_compute, to_memory

# ---- contraction
#
# Sums of products of a kernel as matrix products in float64: what makes numpy fast enough to be a
# full reference.
#
#     v0 = add over ra: mul(x[a, ra], w[ra, b])    -->    for each batch:  X[m, k] @ W[k, n]
#
# An axis that both factors read is one of the batch (shared) or of the fold (reduce); one that a
# single factor reads is a row or a column, or is folded within that factor beforehand. Which
# elements the factors read is for the interpreter to say: nothing of lowering or rendering is
# involved. Words are taken apart, as further terms; their sums are exact in float64 and wrap around
# in i32.


_SET_THREADS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)
"""Name of the setter in the OpenBLAS of numpy's wheels."""

_MOST = 1 << 24
"""Elements of one factor at most: 128 MiB."""

_PARTS = {Op.DOT4: bytes_of, Op.DOT2I: halves_of}
"""The numbers of words that operations multiply."""

Evaluate = Callable[[Expr, tuple[Axis, ...]], Array]
"""An expression at every point of the axes: an array that broadcasts to one dimension for each."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reduction as a product of two factors over their axes.

    ``rows`` and ``columns`` are shared axes of one factor alone, ``inner`` the reduce axes of both.
    ``left_own`` and ``right_own`` are the reduce axes of one.
    """

    reduce: Reduce
    left: Expr
    right: Expr
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    left_own: tuple[Axis, ...]
    right_own: tuple[Axis, ...]

    @property
    def steps(self) -> int:
        """Cost in steps of the interpreter: one step gathers four elements, or multiplies 512."""
        sizes = self._extents()
        products = prod(_extent(a) for a in (self.batch, self.rows, self.columns, self.inner))
        return sum(sizes) // 4 + products // 512

    def _extents(self) -> tuple[int, int]:
        left = (self.batch, self.rows, self.inner, self.left_own)
        right = (self.batch, self.columns, self.inner, self.right_own)
        return prod(_extent(a) for a in left), prod(_extent(a) for a in right)

    @property
    def fits(self) -> bool:
        """True if both factors are small enough to be held."""
        return max(self._extents()) <= _MOST

    def run(self, shared: tuple[Axis, ...], evaluate: Evaluate) -> Array:
        """The folded value at every point of the shared axes, flat, in float64, or i32 of bytes."""
        batch, inner = _extent(self.batch), _extent(self.inner)
        left = _factor(self.left, (*self.batch, *self.rows, *self.inner), self.left_own, evaluate)
        right = _factor(
            self.right, (*self.batch, *self.inner, *self.columns), self.right_own, evaluate
        )
        left, right = left.reshape(batch, -1, inner), right.reshape(batch, inner, -1)
        if not self.reduce.dtype.is_float:
            parts = _PARTS[cast(Apply, self.reduce.expr).op]
            a, b = (parts(x).astype(np.float64) for x in (left, right.swapaxes(1, 2)))
            left, right = a.reshape(*a.shape[:2], -1), b.reshape(*b.shape[:2], -1).swapaxes(1, 2)
        with np.errstate(all="ignore"):
            product = np.matmul(left, right)
        if not self.reduce.dtype.is_float:
            product = product.astype(np.int64).astype(np.int32)
        order = (*self.batch, *self.rows, *self.columns)
        at = [order.index(a) for a in shared]
        return np.ascontiguousarray(
            product.reshape([a.extent for a in order]).transpose(at)
        ).reshape(-1)


@functools.cache
def one_blas_thread() -> None:
    """Let numpy's matrix products run on one thread in this process from now on, where its BLAS is
    OpenBLAS.

    Each core has a worker of its own; with two threads in each, products took two to four times as
    long.
    """
    numpys = ctypes.CDLL(_umath_linalg.__file__)
    for name in _SET_THREADS:
        if hasattr(numpys, name):
            getattr(numpys, name)(ctypes.c_int(1))


def contraction_of(k: Kernel, r: Reduce) -> Contraction | None:
    """A sum of products as a contraction; None for others, or if a factor reads an earlier one."""
    x = r.expr
    if r.rows or r.op is not Op.ADD or not isinstance(x, Apply):
        return None
    if (x.op is Op.MUL) != r.dtype.is_float or x.op not in (Op.MUL, *_PARTS):
        return None
    left, right = x.args
    first, second = _names(left), _names(right)
    if first is None or second is None:
        return None
    both, right_only = first & second, second - first

    def among(axes: tuple[Axis, ...], chosen: Callable[[str], bool]) -> tuple[Axis, ...]:
        return tuple(a for a in axes if chosen(a.name))

    found = Contraction(
        r, left, right,
        batch=among(k.axes, lambda n: n in both),
        rows=among(k.axes, lambda n: n not in both and n not in right_only),
        columns=among(k.axes, lambda n: n in right_only),
        inner=among(r.axes, lambda n: n in both),
        left_own=among(r.axes, lambda n: n not in both and n not in right_only),
        right_own=among(r.axes, lambda n: n in right_only),
    )  # fmt: skip
    apart = found.left_own or found.right_own
    return found if found.fits and not (apart and x.op in _PARTS) else None


def _factor(x: Expr, kept: tuple[Axis, ...], folded: tuple[Axis, ...], evaluate: Evaluate) -> Array:
    """A factor at every point of ``kept``, summed over ``folded``: one dimension for each axis."""
    axes = (*kept, *folded)
    values = np.broadcast_to(evaluate(x, axes), [a.extent for a in axes])
    if folded:
        with np.errstate(all="ignore"):
            values = values.sum(axis=tuple(range(len(kept), len(axes))), dtype=np.float64)
    return values if values.dtype.kind in "iu" else values.astype(np.float64, copy=False)


def _names(x: Expr) -> frozenset[str] | None:
    """The axes that an expression depends on; None where it reads a reduction."""
    every = [*leaves(x)]
    if any(isinstance(leaf, Value) for leaf in every):
        return None
    return frozenset[str]().union(*map(names_of, every))


def _extent(axes: tuple[Axis, ...]) -> int:
    return prod(a.extent for a in axes)


# ---- kernel


CHUNK = 1 << 18
"""Elements of one array."""


def interpret(
    k: Kernel, arrays: Mapping[str, Array], *, as_float64: bool = False
) -> dict[str, Array]:
    """Every output of ``k`` as a flat array in its layout, for its inputs by parameter name as flat
    arrays in theirs.

    Elements that no store writes (layout padding) are zero. With ``as_float64`` float outputs are
    f64.
    """
    run = Run(k, arrays, as_float64)
    outputs = {p.name: np.zeros(p.size, _memory_dtype(p.dtype, as_float64)) for p in k.outputs}
    contracted = _contractions(k) if as_float64 else {}
    early = {n for n, c in contracted.items() if _sums_too_early(k, c)}
    if early and not _all_finite(k, arrays):
        contracted = {n: c for n, c in contracted.items() if n not in early}
    sums = {name: c.run(k.axes, run.evaluate) for name, c in contracted.items()}
    step = max(1, CHUNK // max([1, *(_width(s) for s in k.stages if not _among(s, contracted))]))
    extents = [a.extent for a in k.axes]
    for box in _boxes(k.axes, step):
        part = tuple(slice(r.first, r.first + r.extent) for r in box)
        known = {name: v.reshape(extents)[part] for name, v in sums.items()}
        for param, offsets, values in run.at(Points.of_box(box), known):
            outputs[param][offsets] = values
    return outputs


def interpret_steps(k: Kernel) -> int:
    """Elements that ``interpret(..., as_float64=True)`` handles: its time goes with them."""
    contracted = _contractions(k)
    others = (s for s in k.stages if not _among(s, contracted))
    return sum(c.steps for c in contracted.values()) + k.points * sum(map(_steps, others))


def interpret_at(
    k: Kernel,
    arrays: Mapping[str, Array],
    points: Mapping[str, Array],
    *,
    as_float64: bool = False,
    known: Mapping[str, Array] | None = None,
) -> dict[str, tuple[Array, Array]]:
    """The elements that the given points of the shared axes write: per output their offsets and
    values, both flat.

    ``points`` gives each shared axis an int array of one length; own axes of stores are run in
    full. ``known`` gives reductions the values that they are taken to have, one for each point.
    """
    run = Run(k, arrays, as_float64)
    found: dict[str, list[tuple[Array, Array]]] = {}
    for at, part in parts_of(k, points):
        given = {n: v[at].reshape(part.shape) for n, v in (known or {}).items()}
        for param, offsets, values in run.at(part, given):
            found.setdefault(param, []).append((offsets, values))
    return {
        p: (np.concatenate([o for o, _ in f]), np.concatenate([v for _, v in f]))
        for p, f in found.items()
    }


def folds_at(
    k: Kernel, arrays: Mapping[str, Array], points: Mapping[str, Array], *, as_float64: bool = False
) -> dict[str, Array]:
    """Results of the reductions at the given points of the shared axes, one value for each; those
    whose results are rows are left out.
    """
    run = Run(k, arrays, as_float64)
    found: dict[str, list[Array]] = {r.name: [] for r in k.reduces if not r.rows}
    for _, part in parts_of(k, points):
        values = run.folds(part)
        for name, parts in found.items():
            parts.append(values[name].reshape(-1))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def boxes_of(k: Kernel) -> Iterator[Points]:
    """All points of the shared axes, in boxes that memory can hold."""
    step = max(1, CHUNK // max([1, *(_extent(s.axes) for s in k.stages)]))
    for box in _boxes(k.axes, step):
        yield Points.of_box(box)


def parts_of(k: Kernel, points: Mapping[str, Array]) -> Iterator[tuple[slice, Points]]:
    """Points of the shared axes in parts that memory can hold, and which ones they are."""
    names = {a.name for a in k.axes}
    if set(points) != names or len({len(v) for v in points.values()}) > 1:
        raise InternalError(
            f"kernel {k.name}: points need one array per axis {sorted(names)}, got {sorted(points)}"
        )
    count = len(next(iter(points.values()))) if points else 1
    step = max(1, CHUNK // max([1, *(_extent(s.axes) for s in k.stages)]))
    for first in range(0, count, step):
        at = slice(first, first + step)
        part = {n: np.asarray(v[at], np.int64) for n, v in points.items()}
        yield at, Points.of(part, min(step, count - first))


def _contractions(k: Kernel) -> dict[str, Contraction]:
    """The reductions that are sums of products, by name."""
    found = ((r.name, contraction_of(k, r)) for r in k.reduces)
    return {name: c for name, c in found if c is not None}


def _sums_too_early(k: Kernel, c: Contraction) -> bool:
    """True where a factor's own axes are summed before the product, which matters to infinities (an
    infinity times each of two signs is NaN, times their sum it is not), and few points do not.
    """
    return bool(c.left_own or c.right_own) and k.points * _extent(c.reduce.axes) <= _MOST


def _all_finite(k: Kernel, arrays: Mapping[str, Array]) -> bool:
    """True where every float that a kernel reads is finite."""
    floats = ((p, arrays[p.name]) for p in k.params if p.role != "out" and p.dtype.is_float)
    return all(bool(np.isfinite(to_compute(a, p.dtype)).all()) for p, a in floats)


def _among(s: Stage, contracted: Mapping[str, Contraction]) -> bool:
    return isinstance(s, Reduce) and s.name in contracted


def _width(s: Stage) -> int:
    """Elements of the largest array that a stage needs for each point of a box."""
    if isinstance(s, Reduce) and _row_factors(s) is not None:
        return max(_extent(s.row), _extent(s.folds))
    return _extent(s.axes)


def _steps(s: Stage) -> int:
    """Cost of a stage at each point, in elements that are handled one by one."""
    if isinstance(s, Reduce) and _row_factors(s) is not None:
        return _extent(s.row) + _extent(s.folds) + _extent(s.axes) // 512
    return _extent(s.axes)


def _row_factors(s: Reduce) -> tuple[Expr, Expr] | None:
    """The factors of a row of sums of products."""
    x = s.expr
    if not s.rows or s.op is not Op.ADD or not s.dtype.is_float:
        return None
    return (x.args[0], x.args[1]) if isinstance(x, Apply) and x.op is Op.MUL else None


def _unravel(flat: Array, axes: tuple[Axis, ...]) -> dict[str, Array]:
    """The value of each axis at row-major positions ``flat``."""
    env: dict[str, Array] = {}
    for a in reversed(axes[1:]):
        env[a.name] = flat % a.extent
        flat = flat // a.extent
    return env | {a.name: flat for a in axes[:1]}


def _memory_dtype(dtype: DType, as_float64: bool) -> np.dtype[np.generic]:
    return F64.numpy if as_float64 and dtype.is_float else dtype.numpy


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of an axis: a dimension of arrays, along which its values are consecutive."""

    name: str
    first: int
    extent: int


@dataclass(frozen=True, slots=True)
class Points:
    """Points of axes: each one's values, which broadcast to ``shape``.

    ``box``: what they are, where they are one.
    """

    values: Mapping[str, Array]
    shape: tuple[int, ...]
    box: tuple[_Span, ...] | None = None

    @staticmethod
    def of(values: Mapping[str, Array], count: int) -> Points:
        """Any points; one alone is a box."""
        if count == 1:
            return Points.of_box(tuple(_Span(name, int(v[0]), 1) for name, v in values.items()))
        return Points(values, (count,))

    @staticmethod
    def of_box(box: tuple[_Span, ...]) -> Points:
        values = {
            r.name: np.arange(r.first, r.first + r.extent, dtype=np.int64).reshape(
                [r.extent if other is r else 1 for other in box]
            )
            for r in box
        }
        return Points(values, tuple(r.extent for r in box), box)

    def with_own(self, own: Points) -> Points:
        """These points, each with all of ``own``, which are the last dimensions."""
        values = {n: v.reshape(v.shape + (1,) * len(own.shape)) for n, v in self.values.items()}
        box = None if self.box is None or own.box is None else self.box + own.box
        return Points({**values, **own.values}, self.shape + own.shape, box)


def _boxes(axes: tuple[Axis, ...], most: int) -> Iterator[tuple[_Span, ...]]:
    """All points of the axes in order, in boxes of about ``most`` points."""
    whole = len(axes)
    while whole and _extent(axes[whole - 1 :]) <= most:
        whole -= 1
    if not whole:
        yield tuple(_Span(a.name, 0, a.extent) for a in axes)
        return
    cut = axes[whole - 1]
    step = max(1, most // _extent(axes[whole:]))
    rest = tuple(_Span(a.name, 0, a.extent) for a in axes[whole:])
    for at in np.ndindex(*(a.extent for a in axes[: whole - 1])):
        outer = tuple(_Span(a.name, i, 1) for a, i in zip(axes, at, strict=False))
        for first in range(0, cut.extent, step):
            yield (*outer, _Span(cut.name, first, min(step, cut.extent - first)), *rest)


def own_points(axes: tuple[Axis, ...], first: int, extent: int) -> Points:
    """A part of a stage's own points: a box where it is all of them, or of one axis."""
    if extent == _extent(axes):
        return Points.of_box(tuple(_Span(a.name, 0, a.extent) for a in axes))
    if len(axes) == 1:
        return Points.of_box((_Span(axes[0].name, first, extent),))
    return Points(_unravel(np.arange(first, first + extent, dtype=np.int64), axes), (extent,))


class Run:
    """One kernel on one set of arrays."""

    def __init__(self, k: Kernel, arrays: Mapping[str, Array], as_float64: bool) -> None:
        self.kernel, self.as_float64 = k, as_float64
        self.params = {p.name: p for p in k.params}
        self.memory: dict[str, Array] = {}
        self.offsets: dict[tuple[str, tuple[Index, ...]], Index] = {}
        self.points = Points({}, ())
        """The points at which expressions are evaluated now."""
        self.own = 0
        """Number of the dimensions of these points that are the stage's own."""
        for p in k.params:
            if p.role == "out":
                continue
            a = arrays[p.name]
            if a.shape != (p.size,) or a.dtype != p.dtype.numpy:
                raise InternalError(
                    f"kernel {k.name}: {p.name} is {a.dtype}{a.shape}, not flat {p.dtype}[{p.size}]"
                )
            self.memory[p.name] = a

    @property
    def env(self) -> Mapping[str, Array]:
        """Values that indices depend on: axes, and the memory of buffers that they read."""
        return ChainMap(cast(Any, self.points.values), self.memory)

    def evaluate(self, x: Expr, axes: tuple[Axis, ...]) -> Array:
        """An expression that reads no reduction, at every point of ``axes``: one dimension for
        each, or of extent 1.
        """
        self.points = Points.of_box(tuple(_Span(a.name, 0, a.extent) for a in axes))
        return self._eval(x, {}, {})

    def at(
        self, points: Points, known: Mapping[str, Array] | None = None
    ) -> list[tuple[str, Array, Array]]:
        """(parameter, offsets, values in memory form) of every store at the given points of the
        shared axes.

        ``known``: reductions that were worked out before, one value for each point.
        """
        values = self.folds(points, known)
        memo: dict[int, Array] = {}
        return [
            self._store(s, points, values, {} if s.axes else memo)
            for s in self.kernel.stages
            if isinstance(s, Store)
        ]

    def folds(self, points: Points, known: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The reductions at the given points of the shared axes, ``known`` ones as they are."""
        values: dict[str, Array] = dict(known or {})
        for r in self.kernel.reduces:
            if r.name not in values:
                values[r.name] = self._fold(r, points, values)
        return values

    def _fold(self, s: Reduce, points: Points, values: dict[str, Array]) -> Array:
        dtype = self._dtype(s.dtype)
        if s.rows:
            return self._row(s, points, values)
        total = np.full(points.shape, identity(s.op, s.dtype), dtype)
        extent = _extent(s.axes)
        for first in range(0, extent, CHUNK):
            self._go_to(points, own_points(s.axes, first, min(CHUNK, extent - first)))
            x = np.broadcast_to(self._eval(s.expr, values, {}), self.points.shape).reshape(
                *points.shape, -1
            )
            with np.errstate(all="ignore"):
                part = FOLDS[s.op].reduce(x, axis=-1, dtype=dtype)
                total = np.asarray(FOLDS[s.op](total, part))
        return total

    def _row(self, s: Reduce, points: Points, values: dict[str, Array]) -> Array:
        """A reduction whose result is a row: dimensions of the points, then one for each axis."""
        self._go_to(points, own_points(s.axes, 0, _extent(s.axes)))
        dtype, shape = self._dtype(s.dtype), self.points.shape
        kept, factors = len(points.shape) + s.rows, _row_factors(s)
        with np.errstate(all="ignore"):
            if factors is not None:
                left, right = (self._eval(x, values, {}) for x in factors)
                product = _product(left, right, shape, kept)
                if product is not None:
                    return np.ascontiguousarray(product.astype(dtype, copy=False))
            x = np.broadcast_to(self._eval(s.expr, values, {}), shape)
            folded = FOLDS[s.op].reduce(x.reshape(*shape[:kept], -1), axis=-1, dtype=dtype)
            return np.asarray(folded)

    def _store(
        self, s: Store, points: Points, values: dict[str, Array], memo: dict[int, Array]
    ) -> tuple[str, Array, Array]:
        p = self.params[s.param]
        self._go_to(points, own_points(s.axes, 0, _extent(s.axes)))
        shape, env = self.points.shape, self.env
        offsets = np.broadcast_to(_at(p.layout.offset(s.index), env), shape)
        x = np.broadcast_to(self._eval(s.expr, values, memo), shape)
        if not (self.as_float64 and p.dtype.is_float):
            x = to_memory(x, p.dtype)
        return s.param, self._kept(s, offsets), self._kept(s, x)

    def _kept(self, s: Store, x: Array) -> Array:
        """Of what is known at every point now, in a row, what the store keeps."""
        if s.valid.always:
            return x.reshape(-1)
        return np.asarray(x[np.broadcast_to(_holds(s.valid, self.env), self.points.shape)])

    def _go_to(self, points: Points, own: Points) -> None:
        """Evaluate there from now on: at all of ``own`` for each of the points."""
        self.points, self.own = points.with_own(own), len(own.shape)

    def _eval(self, x: Expr, values: dict[str, Array], memo: dict[int, Array]) -> Array:
        found = memo.get(id(x))
        if found is None:
            found = memo[id(x)] = self._compute(x, values, memo)
        return found

    def _compute(self, x: Expr, values: dict[str, Array], memo: dict[int, Array]) -> Array:
        if isinstance(x, Const):
            return np.asarray(x.value, self._dtype(x.dtype))
        if isinstance(x, Load):
            return self._load(x)
        if isinstance(x, Value):
            value = values[x.stage]
            if x.index:
                return self._element(value, [_at(i, self.env) for i in x.index])
            return value.reshape(value.shape + (1,) * self.own)
        if isinstance(x, IndexValue):
            return _at(x.index, self.env).astype(self._dtype(x.dtype))
        if isinstance(x, Inside):
            return _holds(x.valid, self.env)
        if isinstance(x, Cast):
            return self._wide(convert(self._eval(x.x, values, memo), self._cast_to(x.dtype)))
        result = compute(x.op, *(self._eval(a, values, memo) for a in x.args))
        return (
            result
            if x.dtype.is_bool
            else np.asarray(result.astype(self._dtype(x.dtype), copy=False))
        )

    def _element(self, row: Array, at: list[Array]) -> Array:
        """The elements of a row at these places, at every point."""
        points, dims = row.ndim - len(at), len(self.points.shape)
        at = [x.reshape((1,) * (dims - x.ndim) + x.shape) for x in at]
        whole = len(at) == 1 and at[0].size == row.shape[-1] == prod(at[0].shape[points:])
        if whole and np.array_equal(at[0].reshape(-1), np.arange(at[0].size)):
            return row.reshape(row.shape[:-1] + at[0].shape[points:])
        ones = (1,) * (dims - 1)
        grid = [
            np.arange(n).reshape((*ones[:d], n, *ones[d:]))
            for d, n in enumerate(row.shape[:points])
        ]
        return np.asarray(row[(*grid, *at)])

    def _load(self, x: Load) -> Array:
        key, env = (x.param, x.index), self.env
        offset = self.offsets.get(key)
        if offset is None:
            offset = self.offsets[key] = self.params[x.param].layout.offset(x.index)
        memory, dtype = self.memory[x.param], self.params[x.param].dtype
        view = (
            None
            if self.points.box is None
            else _strided(memory, offset, self.points.box, beside=not x.valid.always)
        )
        if view is not None and x.valid.always:
            return self._read(view, dtype)
        if view is not None:
            return self._read(
                np.where(_holds(x.valid, env), view, np.zeros((), memory.dtype)), dtype
            )
        where = _at(offset, env)
        if x.valid.always:
            return self._read(np.asarray(memory[where]), dtype)
        valid = _holds(x.valid, env)
        if not memory.size:
            return self._read(
                np.zeros(np.broadcast_shapes(where.shape, valid.shape), memory.dtype), dtype
            )
        return self._read(
            np.where(valid, memory[np.where(valid, where, 0)], np.zeros((), memory.dtype)), dtype
        )

    def _read(self, stored: Array, dtype: DType) -> Array:
        return self._wide(to_compute(stored, dtype))

    def _dtype(self, dtype: DType) -> np.dtype[np.generic]:
        return _memory_dtype(dtype.compute, self.as_float64)

    def _cast_to(self, dtype: DType) -> DType:
        return F64 if self.as_float64 and dtype.is_float and not dtype.is_half else dtype

    def _wide(self, x: Array) -> Array:
        return x.astype(np.float64) if self.as_float64 and x.dtype.kind == "f" else x


def _product(left: Array, right: Array, shape: tuple[int, ...], kept: int) -> Array | None:
    """The product of two factors that broadcast to ``shape``, summed over all but its first
    ``kept`` dimensions; None where a dimension is in neither of them, or where a sum over one
    factor alone, which is taken first, meets a number that is not finite: an infinity times each
    of two signs is NaN, times their sum it is not.
    """
    factors = [x.reshape((1,) * (len(shape) - x.ndim) + x.shape) for x in (left, right)]
    dims = [[d for d, n in enumerate(x.shape) if n != 1] for x in factors]
    both = {*dims[0], *dims[1]}
    if any(n != 1 and d not in both for d, n in enumerate(shape)):
        return None
    alone = any(d >= kept for d in {*dims[0]} ^ {*dims[1]})
    if alone and not all(np.isfinite(x).all() for x in factors):
        return None
    out = [d for d in range(kept) if d in both]
    a, b = (x.reshape([x.shape[d] for d in own]) for x, own in zip(factors, dims, strict=True))
    found = np.einsum(a, dims[0], b, dims[1], out, optimize=True)
    return np.asarray(found).reshape(shape[:kept])


def _strided(memory: Array, offset: Index, box: tuple[_Span, ...], *, beside: bool) -> Array | None:
    """The part of the memory that a load reads in a box; of extent 1 along axes that the load does
    not depend on.

    None where its steps are not known, or not forwards. ``beside``: it may read beside the memory,
    and finds zeros.
    """
    if any(True for _ in offset.elements()):
        return None
    steps = [offset.coefficient(r.name) for r in box]
    known = [s for s in steps if s is not None and s >= 0]
    if len(known) < len(steps) or not memory.size:
        return None
    shape = [r.extent if s else 1 for r, s in zip(box, known, strict=True)]
    first = offset.const + sum(s * r.first for s, r in zip(known, box, strict=True))
    last = first + sum(s * (extent - 1) for s, extent in zip(known, shape, strict=True))
    before, after = max(0, -first), max(0, last + 1 - memory.size)
    if before or after:
        if not beside:
            return None
        memory = np.concatenate(
            [np.zeros(before, memory.dtype), memory, np.zeros(after, memory.dtype)]
        )
    strides = [s * memory.itemsize for s in known]
    return np.lib.stride_tricks.as_strided(
        memory[first + before :], shape, strides, writeable=False
    )


def _at(index: Index, env: Mapping[str, Array]) -> Array:
    """An index at arrays of axis values."""
    return np.asarray(index.evaluate(cast(Any, env)))


def _holds(valid: Valid, env: Mapping[str, Array]) -> Array:
    result = np.asarray(not valid.never)
    for r in valid.ranges:
        index = _at(r.index, env)
        result = result & (index >= r.lo) & (index < r.hi)
    return result
