"""What a kernel means, run with numpy: the oracle for schedules, and the reference for verification.

Points of the shared axes are taken in chunks; a stage's own axes are a second dimension, so every array here is
(points, own points) or broadcasts to it. ``as_float64`` does all float arithmetic and accumulation in f64, and
gives float results as f64; explicit casts to f16 and bf16 still round. Sums of products at all points are matrix
products then: see ``contraction``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, cast

import numpy as np

from tunegrad.errors import InternalError

from .contraction import Contraction, contraction_of
from .dtypes import F64, DType
from .expr import Cast, Const, Expr, IndexValue, Inside, Load, Value
from .index import Index, Valid
from .kernel import Axis, Kernel, Reduce, Stage, Store, identity
from .numeric import FOLDS, Array, compute, convert, to_compute, to_memory

__all__ = ["interpret", "interpret_at", "interpret_steps"]

CHUNK = 1 << 18
"""Elements of one array."""


def interpret(k: Kernel, arrays: Mapping[str, Array], *, as_float64: bool = False) -> dict[str, Array]:
    """Every output of ``k`` as a flat array in its layout, for its inputs by parameter name as flat arrays in theirs.

    Elements that no store writes (layout padding) are zero. With ``as_float64`` float outputs are f64.
    """
    run = _Run(k, arrays, as_float64)
    outputs = {p.name: np.zeros(p.size, _memory_dtype(p.dtype, as_float64)) for p in k.outputs}
    contracted = _contractions(k) if as_float64 else {}
    sums = {name: c.run(k.axes, run.evaluate) for name, c in contracted.items()}
    step = max(1, CHUNK // max([1, *(_extent(s.axes) for s in k.stages if not _among(s, contracted))]))
    for first in range(0, k.points, step):
        flat = np.arange(first, min(k.points, first + step), dtype=np.int64)
        known = {name: v[first : first + len(flat)].reshape(-1, 1) for name, v in sums.items()}
        for param, offsets, values in run.at(_unravel(flat, k.axes), known):
            outputs[param][offsets] = values
    return outputs


def interpret_steps(k: Kernel) -> int:
    """Elements that ``interpret(..., as_float64=True)`` handles: its time goes with them."""
    contracted = _contractions(k)
    others = (s for s in k.stages if not _among(s, contracted))
    return sum(c.steps for c in contracted.values()) + k.points * sum(_extent(s.axes) for s in others)


def interpret_at(
    k: Kernel, arrays: Mapping[str, Array], points: Mapping[str, Array], *, as_float64: bool = False
) -> dict[str, tuple[Array, Array]]:
    """The elements that the given points of the shared axes write: per output their offsets and values, both flat.

    ``points`` gives each shared axis an int array of one length; own axes of stores are run in full.
    """
    names = {a.name for a in k.axes}
    if set(points) != names or len({len(v) for v in points.values()}) > 1:
        raise InternalError(f"kernel {k.name}: points need one array per axis {sorted(names)}, got {sorted(points)}")
    run = _Run(k, arrays, as_float64)
    count = len(next(iter(points.values()))) if points else 1
    step = max(1, CHUNK // max([1, *(_extent(s.axes) for s in k.stages)]))
    found: dict[str, list[tuple[Array, Array]]] = {}
    for first in range(0, count, step):
        part = {n: np.asarray(v[first : first + step], np.int64) for n, v in points.items()}
        for param, offsets, values in run.at(part):
            found.setdefault(param, []).append((offsets, values))
    return {p: (np.concatenate([o for o, _ in f]), np.concatenate([v for _, v in f])) for p, f in found.items()}


def _contractions(k: Kernel) -> dict[str, Contraction]:
    """The reductions that are sums of products, by name."""
    found = ((r.name, contraction_of(k, r)) for r in k.reduces)
    return {name: c for name, c in found if c is not None}


def _among(s: Stage, contracted: Mapping[str, Contraction]) -> bool:
    return isinstance(s, Reduce) and s.name in contracted


def _extent(axes: tuple[Axis, ...]) -> int:
    return prod(a.extent for a in axes)


def _unravel(flat: Array, axes: tuple[Axis, ...]) -> dict[str, Array]:
    """The value of each axis at row-major positions ``flat``."""
    env: dict[str, Array] = {}
    for a in reversed(axes[1:]):
        env[a.name] = flat % a.extent
        flat = flat // a.extent
    return env | {a.name: flat for a in axes[:1]}


def _memory_dtype(dtype: DType, as_float64: bool) -> np.dtype[np.generic]:
    return F64.numpy if as_float64 and dtype.is_float else dtype.numpy


class _Run:
    """One kernel on one set of arrays."""

    def __init__(self, k: Kernel, arrays: Mapping[str, Array], as_float64: bool) -> None:
        self.kernel, self.as_float64 = k, as_float64
        self.params = {p.name: p for p in k.params}
        self.memory: dict[str, Array] = {}
        self.offsets: dict[tuple[str, tuple[Index, ...]], Index] = {}
        self.grid: tuple[Axis, ...] = ()
        """Axes at all points of which ``evaluate`` is, one dimension for each."""
        self.along = ""
        """The reduce axis along which one sum runs, its values consecutive; where there is none, ''."""
        for p in k.params:
            if p.role == "out":
                continue
            a = arrays[p.name]
            if a.shape != (p.size,) or a.dtype != p.dtype.numpy:
                raise InternalError(f"kernel {k.name}: {p.name} is {a.dtype}{a.shape}, not flat {p.dtype}[{p.size}]")
            self.memory[p.name] = a

    def evaluate(self, x: Expr, axes: tuple[Axis, ...]) -> Array:
        """An expression that reads no reduction, at every point of ``axes``: one dimension for each, or of extent 1."""
        env = {
            a.name: np.arange(a.extent, dtype=np.int64).reshape([a.extent if b is a else 1 for b in axes]) for a in axes
        }
        self.grid = axes
        try:
            return self._eval(x, env, {}, {})
        finally:
            self.grid = ()

    def at(
        self, points: Mapping[str, Array], known: Mapping[str, Array] | None = None
    ) -> list[tuple[str, Array, Array]]:
        """(parameter, offsets, values in memory form) of every store at the given points of the shared axes.

        ``known``: reductions that were worked out before, one value for each point.
        """
        shared = {n: v.reshape(-1, 1) for n, v in points.items()}
        count = len(next(iter(points.values()))) if points else 1
        values: dict[str, Array] = dict(known or {})
        written: list[tuple[str, Array, Array]] = []
        memo: dict[int, Array] = {}
        for s in self.kernel.stages:
            if isinstance(s, Reduce):
                if s.name not in values:
                    values[s.name] = self._fold(s, shared, values, count)
            else:
                written.append(self._store(s, shared, values, count, {} if s.axes else memo))
        return written

    def _fold(self, s: Reduce, shared: dict[str, Array], values: dict[str, Array], count: int) -> Array:
        dtype = self._dtype(s.dtype)
        total = np.full((count, 1), identity(s.op, s.dtype), dtype)
        extent = _extent(s.axes)
        self.along = s.axes[0].name if count == 1 and len(s.axes) == 1 else ""
        for first in range(0, extent, CHUNK):
            flat = np.arange(first, min(extent, first + CHUNK), dtype=np.int64)
            env = shared | {n: v.reshape(1, -1) for n, v in _unravel(flat, s.axes).items()}
            x = np.broadcast_to(self._eval(s.expr, env, values, {}), (count, len(flat)))
            with np.errstate(all="ignore"):
                part = FOLDS[s.op].reduce(x, axis=1, dtype=dtype, keepdims=True)
                total = FOLDS[s.op](total, part)
        self.along = ""
        return total

    def _store(
        self, s: Store, shared: dict[str, Array], values: dict[str, Array], count: int, memo: dict[int, Array]
    ) -> tuple[str, Array, Array]:
        p = self.params[s.param]
        own = _unravel(np.arange(_extent(s.axes), dtype=np.int64), s.axes)
        env = shared | {n: v.reshape(1, -1) for n, v in own.items()}
        shape = (count, _extent(s.axes))
        offsets = np.broadcast_to(_at(p.layout.offset(s.index), env), shape)
        x = np.broadcast_to(self._eval(s.expr, env, values, memo), shape)
        if not (self.as_float64 and p.dtype.is_float):
            x = to_memory(x, p.dtype)
        if not s.valid.always:
            kept = np.broadcast_to(_holds(s.valid, env), shape)
            return s.param, offsets[kept], x[kept]
        return s.param, offsets.reshape(-1), x.reshape(-1)

    def _eval(self, x: Expr, env: dict[str, Array], values: dict[str, Array], memo: dict[int, Array]) -> Array:
        found = memo.get(id(x))
        if found is None:
            found = memo[id(x)] = self._compute(x, env, values, memo)
        return found

    def _compute(self, x: Expr, env: dict[str, Array], values: dict[str, Array], memo: dict[int, Array]) -> Array:
        if isinstance(x, Const):
            return np.asarray(x.value, self._dtype(x.dtype))
        if isinstance(x, Load):
            return self._load(x, env)
        if isinstance(x, Value):
            return values[x.stage]
        if isinstance(x, IndexValue):
            return _at(x.index, env).astype(self._dtype(x.dtype))
        if isinstance(x, Inside):
            return _holds(x.valid, env)
        if isinstance(x, Cast):
            return self._wide(convert(self._eval(x.x, env, values, memo), self._cast_to(x.dtype)))
        result = compute(x.op, *(self._eval(a, env, values, memo) for a in x.args))
        return result if x.dtype.is_bool else np.asarray(result.astype(self._dtype(x.dtype), copy=False))

    def _load(self, x: Load, env: dict[str, Array]) -> Array:
        key = (x.param, x.index)
        offset = self.offsets.get(key)
        if offset is None:
            offset = self.offsets[key] = self.params[x.param].layout.offset(x.index)
        memory, dtype = self.memory[x.param], self.params[x.param].dtype
        view = self._view(memory, offset, env, within=x.valid.always)
        if view is not None and x.valid.always:
            return self._read(view, dtype)
        if view is not None:
            return self._read(np.where(_holds(x.valid, env), view, np.zeros((), memory.dtype)), dtype)
        where = _at(offset, env)
        if x.valid.always:
            return self._read(np.asarray(memory[where]), dtype)
        valid = _holds(x.valid, env)
        if not memory.size:
            return self._read(np.zeros(np.broadcast_shapes(where.shape, valid.shape), memory.dtype), dtype)
        return self._read(np.where(valid, memory[np.where(valid, where, 0)], np.zeros((), memory.dtype)), dtype)

    def _view(self, memory: Array, offset: Index, env: Mapping[str, Array], *, within: bool) -> Array | None:
        """What a load reads, as a part of the memory: no index of each element. None where its steps are not known.

        ``within``: nothing beside the memory is read; else there is anything there.
        """
        if self.grid and (not within or offset.hi < memory.size):
            return _strided(memory, offset, self.grid)
        if not within:
            return None
        step = offset.coefficient(self.along) if self.along else None
        if step is None or step <= 0:
            return None
        run = env[self.along]
        start = int(_at(offset, {**env, self.along: run[:, :1]}).reshape(-1)[0])
        return memory[start : start + step * (run.size - 1) + 1 : step].reshape(1, -1)

    def _read(self, stored: Array, dtype: DType) -> Array:
        return self._wide(to_compute(stored, dtype))

    def _dtype(self, dtype: DType) -> np.dtype[np.generic]:
        return _memory_dtype(dtype.compute, self.as_float64)

    def _cast_to(self, dtype: DType) -> DType:
        return F64 if self.as_float64 and dtype.is_float and dtype.bits != 16 else dtype

    def _wide(self, x: Array) -> Array:
        return x.astype(np.float64) if self.as_float64 and x.dtype.kind == "f" else x


def _strided(memory: Array, offset: Index, axes: tuple[Axis, ...]) -> Array | None:
    """What a load reads at every point of ``axes``; of extent 1 along those that it does not depend on.

    Where it reads beside the memory it finds zeros there.
    """
    steps = [offset.coefficient(a.name) for a in axes]
    known = [s for s in steps if s is not None and s >= 0]
    if len(known) < len(steps) or not memory.size:
        return None
    shape = [a.extent if s else 1 for a, s in zip(axes, known, strict=True)]
    last = offset.const + sum(s * (extent - 1) for s, extent in zip(known, shape, strict=True))
    before, after = max(0, -offset.const), max(0, last + 1 - memory.size)
    if before or after:
        memory = np.concatenate([np.zeros(before, memory.dtype), memory, np.zeros(after, memory.dtype)])
    strides = [s * memory.itemsize for s in known]
    return np.lib.stride_tricks.as_strided(memory[offset.const + before :], shape, strides, writeable=False)


def _at(index: Index, env: dict[str, Array]) -> Array:
    """An index at arrays of axis values."""
    return np.asarray(index.evaluate(cast(Any, env)))


def _holds(valid: Valid, env: dict[str, Array]) -> Array:
    result = np.asarray(not valid.never)
    for r in valid.ranges:
        index = _at(r.index, env)
        result = result & (index >= r.lo) & (index < r.hi)
    return result
