"""A kernel: what to compute, with no order.

    kernel
      param C f32[1024,1024] out   param A f32[1024,1024] in   param B f32[1024,1024] in
      axis  m 1024   n 1024                     shared: every stage runs for each point of these
      s0 = sum over k 1024 of f32: mul(A[m, k], B[k, n])
      store C[m, n] = max(s0, 0.0)

Shared axes are spatial. A ``Reduce`` folds its expression over its own reduce axes into one value
per point of the shared axes; later stages read it as ``Value``. A ``Store`` writes one element per
point of the shared axes and of its own spatial axes (the ``p`` of a softmax row). Stages run in
order. Softmax and layer norm are one kernel.

The first axes of a ``Reduce`` may be spatial, too: its result is a row then, one value for each of
their points, which no memory outside the kernel holds. Later stages read an element of it by its
index. Attention is one kernel: its scores are a row, and so are its sums of values.

      s[j] = add over j 1024 k 64 in f32: mul(Q[i, k], K[j, k])
      top = max over u 1024: s[u]
      total = add over v 1024: exp(s[v] - top)
      y[e] = add over e 64 w 1024: mul(exp(s[w] - top), V[w, e])
      store Y[i, t] over t 64 = y[t] / total

A folded value starts from the operation's identity and is folded in ``dtype``, the accumulator's
type: changing it is a change of the kernel, never of a schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import field, replace
from math import inf, prod
from typing import Concatenate, Literal, ParamSpec, TypeVar

from tunegrad.errors import InternalError
from tunegrad.forks import ForkSafeLock
from tunegrad.lazy import dataclass, sha256

from .dtypes import BOOL, DType
from .expr import (
    Apply,
    Cast,
    Const,
    Expr,
    IndexValue,
    Inside,
    Load,
    Op,
    Value,
    equal,
    loads_in,
    names_of,
    nodes,
    rebuild,
    rebuilder,
    substituting,
    tree_size,
)
from .index import ALWAYS, Index, Range, Valid, var
from .layout import Layout


def key_of(text: str) -> str:
    """32 hex digits of the SHA-256 of a canonical text; of any text, also a damaged file's."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def operations(k: Kernel, stage: Stage, cost: Callable[[Apply], int]) -> int:
    """Operations of one run of a stage, without the fold itself, each done once for every point of
    the axes that it depends on; a result of an earlier reduction depends on all shared ones.

    v3[e] = add over j: mul(exp(v0[j]), V[j, e])     J exponentials for all e, and E * J products
    """
    known: dict[int, frozenset[str]] = {}
    shared = frozenset(a.name for a in k.axes)
    extents = {a.name: a.extent for a in (*k.axes, *stage.axes)}
    total = 0

    def names(x: Expr) -> frozenset[str]:
        nonlocal total
        if id(x) in known:
            return known[id(x)]
        if isinstance(x, Apply | Cast):
            args = x.args if isinstance(x, Apply) else (x.x,)
            found = frozenset[str]().union(*map(names, args))
            if isinstance(x, Apply):
                total += cost(x) * prod(extents[n] for n in found)
        else:
            found = names_of(x).union(shared if isinstance(x, Value) else ())
        known[id(x)] = found
        return found

    names(stage.expr)
    return total


Role = Literal["in", "const", "out"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of iteration, ``0 <= name < extent``."""

    name: str
    extent: int

    @property
    def index(self) -> Index:
        return var(self.name, self.extent)


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer argument: its logical shape and its layout.

    ``const`` buffers are known when the model is loaded. An output that says ``over`` the name of
    an input may lie in the memory of that input, each element where the input's is
    (``overwriting_fault``).
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Role
    layout: Layout
    over: str = ""

    @staticmethod
    def dense(name: str, dtype: DType, shape: tuple[int, ...], role: Role) -> Param:
        """A row-major parameter."""
        return Param(name, dtype, shape, role, Layout.row_major(shape))

    @property
    def size(self) -> int:
        """Elements of memory."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Reduce:
    """``name`` = fold ``expr`` with ``op`` (ADD, MAX, MIN, MUL) over ``axes``, per point of the
    shared axes.

    The first ``rows`` of the axes are spatial: there is a value for each of their points.
    """

    name: str
    op: Op
    axes: tuple[Axis, ...]
    expr: Expr
    dtype: DType
    rows: int = 0

    @property
    def row(self) -> tuple[Axis, ...]:
        """The axes that its result has; none where it is one value."""
        return self.axes[: self.rows]

    @property
    def folds(self) -> tuple[Axis, ...]:
        """The axes that are folded."""
        return self.axes[self.rows :]


@dataclass(frozen=True, slots=True)
class Store:
    """``param[index] = expr`` where ``valid`` holds, for every point of the shared axes and of
    ``axes``.

    Several stores may share a parameter; together they write each of its elements once.
    """

    param: str
    index: tuple[Index, ...]
    expr: Expr
    axes: tuple[Axis, ...] = ()
    valid: Valid = ALWAYS


Stage = Reduce | Store


def own_axes(s: Stage) -> tuple[Axis, ...]:
    """The axes of a stage that are neither shared nor those of a row."""
    return s.folds if isinstance(s, Reduce) else s.axes


def identity(op: Op, dtype: DType) -> float | int | bool:
    """The value that folding with ``op`` starts from."""
    if op is Op.ADD:
        return 0.0 if dtype.is_float else 0
    if op is Op.MUL:
        return 1.0 if dtype.is_float else 1
    if op in (Op.MAX, Op.MIN):
        if dtype.is_float:
            return -inf if op is Op.MAX else inf
        if dtype.is_bool:
            return op is Op.MIN
        return dtype.least if op is Op.MAX else dtype.greatest
    raise InternalError(f"{op} has no identity: a reduction folds with add, mul, max or min")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One unit of scheduling.

    ``name`` and ``origin`` are for people and are no part of its text or key.

    ``fixed`` is the action text that a fence prescribes; empty where the schedule is free to
    choose.
    """

    params: tuple[Param, ...]
    axes: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    name: str = field(default="kernel", compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)
    fixed: str = ""
    _canonical: bool = field(default=False, init=False, repr=False, compare=False)
    _text: str = field(default="", init=False, repr=False, compare=False)
    _flops: int = field(default=-1, init=False, repr=False, compare=False)
    _bytes: int = field(default=-1, init=False, repr=False, compare=False)
    _loads: tuple[tuple[Stage, Load], ...] = field(
        default=(), init=False, repr=False, compare=False
    )
    _leaves: tuple[tuple[Stage, tuple[Expr, ...]], ...] = field(
        default=(), init=False, repr=False, compare=False
    )
    _again: dict[int, dict[int, list[Expr]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __hash__(self) -> int:
        return hash((self.params, self.axes, len(self.stages), self.fixed))

    def __eq__(self, other: object) -> bool:
        """True for the same fields; parts that expressions share are compared once."""
        if not isinstance(other, Kernel) or self is other:
            return self is other
        return _header(self) == _header(other) and all(
            equal(a.expr, b.expr) for a, b in zip(self.stages, other.stages, strict=True)
        )

    def param(self, name: str) -> Param:
        """The parameter of that name."""
        for p in self.params:
            if p.name == name:
                return p
        raise InternalError(f"kernel {self.name} has no parameter {name!r}")

    @property
    def outputs(self) -> tuple[Param, ...]:
        return tuple(p for p in self.params if p.role == "out")

    @property
    def overwritten(self) -> dict[str, str]:
        """Outputs that may lie in an input's memory, by the name of that input."""
        return {p.over: p.name for p in self.params if p.over}

    @property
    def apart(self) -> Kernel:
        """The same kernel, whose outputs lie over no input."""
        if not self.overwritten:
            return self
        made = replace(self, params=tuple(replace(p, over="") for p in self.params))
        return made.canonical() if self._canonical else made

    @property
    def reduces(self) -> tuple[Reduce, ...]:
        return tuple(s for s in self.stages if isinstance(s, Reduce))

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple(s for s in self.stages if isinstance(s, Store))

    def all_axes(self) -> Iterator[Axis]:
        """Shared axes, then each stage's own."""
        yield from self.axes
        for s in self.stages:
            yield from s.axes

    @property
    def loads(self) -> tuple[tuple[Stage, Load], ...]:
        """Every load of every stage."""
        if not self._loads:
            found = tuple((s, x) for s in self.stages for x in loads_in(s.expr))
            object.__setattr__(
                self, "_loads", found
            )  # once: every action that stages, every sample asks
        return self._loads

    @property
    def leaves(self) -> tuple[tuple[Stage, tuple[Expr, ...]], ...]:
        """Each stage and its expression's leaves, left to right, shared parts once."""
        if not self._leaves:
            found = tuple(
                (s, tuple(x for x in nodes(s.expr) if not isinstance(x, Apply | Cast)))
                for s in self.stages
            )
            object.__setattr__(self, "_leaves", found)  # once: each step of a plan asks
        return self._leaves

    def made_again(self, stage: int) -> dict[int, list[Expr]]:
        """By later stage, the nodes that compute what reduce ``stage`` folds at its own place."""
        found = self._again.get(stage)
        if found is None:  # once: every sample, action and stage that keeps values asks
            found = self._again[stage] = dict(_made_again(self, stage))
        return found

    @property
    def points(self) -> int:
        """Points of the shared axes."""
        return prod(a.extent for a in self.axes)

    @property
    def text(self) -> str:
        """Its canonical text: axes, parameters and stages renumbered, so equal computations print
        alike.
        """
        if not self._text:
            object.__setattr__(
                self, "_text", _print(self.canonical())
            )  # once: it is asked for often
        return self._text

    @property
    def key(self) -> str:
        """The store's key: 32 hex digits of the SHA-256 of ``text``."""
        return key_of(self.text)

    def canonical(self) -> Kernel:
        """The same kernel with canonical names.

        Axes a, b ... (shared), ra, rb ... (reduce), sa ... (own spatial); parameters p0, p1 ... in
        order; reductions v0, v1 ... One that has come out of this is not renamed again.
        """
        if self._canonical:
            return self
        axes: dict[str, Axis] = {}
        for i, a in enumerate(self.axes):
            axes[a.name] = Axis(axis_name(i), a.extent)
        counts = {"r": 0, "s": 0}
        for s in self.stages:
            kind = "r" if isinstance(s, Reduce) else "s"
            for a in s.axes:
                axes[a.name] = Axis(axis_name(counts[kind], kind), a.extent)
                counts[kind] += 1
        params = {p.name: f"p{i}" for i, p in enumerate(self.params)}
        values = {r.name: f"v{i}" for i, r in enumerate(self.reduces)}
        made = self.renamed(axes, params, values)
        object.__setattr__(made, "_canonical", True)
        return made

    def named(self, name: str, origin: tuple[str, ...], fixed: str = "") -> Kernel:
        """The kernel by another name, of other operations, its schedule free, or ``fixed``."""
        made = replace(self, name=name, origin=origin, fixed=fixed)
        object.__setattr__(made, "_canonical", self._canonical)
        if fixed == self.fixed:
            object.__setattr__(made, "_text", self.text)  # names are no part of it
        return made

    def renamed(
        self, axes: dict[str, Axis], params: dict[str, str], values: dict[str, str]
    ) -> Kernel:
        """The kernel with every axis, parameter and reduction renamed."""
        env = {old: new.index for old, new in axes.items()}
        places: dict[int, Index] = {}

        def place(index: Index) -> Index:
            found = places.get(id(index))
            if found is None:
                found = places[id(index)] = index.substitute(env).reading(params)
            return found

        def condition(valid: Valid) -> Valid:
            return valid.substitute(env).reading(params)

        def leaf(x: Expr) -> Expr:
            if isinstance(x, Load):
                return Load(
                    params[x.param], tuple(map(place, x.index)), x.dtype, condition(x.valid)
                )
            if isinstance(x, Value):
                return Value(values[x.stage], x.dtype, tuple(map(place, x.index)))
            if isinstance(x, IndexValue):
                return IndexValue(place(x.index), x.dtype)
            if isinstance(x, Inside):
                return Inside(condition(x.valid))
            return x

        rebuilt = rebuilder(leaf)
        stages: list[Stage] = []
        for s in self.stages:
            own = tuple(axes[a.name] for a in s.axes)
            if isinstance(s, Reduce):
                stages.append(Reduce(values[s.name], s.op, own, rebuilt(s.expr), s.dtype, s.rows))
            else:
                index, valid = tuple(map(place, s.index)), condition(s.valid)
                stages.append(Store(params[s.param], index, rebuilt(s.expr), own, valid))
        renamed = tuple(
            replace(p, name=params[p.name], over=params[p.over] if p.over else "")
            for p in self.params
        )
        return replace(
            self, params=renamed, axes=tuple(axes[a.name] for a in self.axes), stages=tuple(stages)
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of a run: arithmetic counts 1, FMA 2, DOT2 3, a fold step 1."""
        if self._flops < 0:
            object.__setattr__(self, "_flops", self._count())  # once: every schedule's facts ask
        return self._flops

    def _count(self) -> int:
        total = 0
        shared: set[int] = set()
        for s in self.stages:
            n = self.points * prod(a.extent for a in s.axes)
            if isinstance(s, Reduce) and s.rows:
                total += n + operations(self, s, _flops)
                continue
            ops = _ops(
                s.expr, set() if s.axes else shared
            )  # stores at the same points share their subexpressions
            total += n * (ops + (1 if isinstance(s, Reduce) else 0))
        return total

    @property
    def unique_bytes(self) -> int:
        """Bytes of every parameter, once; of one that is read by data, no more than are read."""
        if self._bytes < 0:
            found = sum(min(p.nbytes, self._read(p)) for p in self.params)
            object.__setattr__(self, "_bytes", found)
        return self._bytes

    def _read(self, p: Param) -> int:
        """Bytes that loads at elements of other parameters read of one, each point's own; all of
        one that is read in another way.
        """
        total = 0
        for s, x in self.loads:
            if x.param == p.name:
                if not any(True for i in x.index for _ in i.elements()):
                    return p.nbytes
                names = frozenset().union(*(i.names() for i in x.index))
                total += prod(a.extent for a in (*self.axes, *s.axes) if a.name in names)
        return total * p.dtype.itemsize if total else p.nbytes

    def __str__(self) -> str:
        return _print(self)


def _made_again(k: Kernel, stage: int) -> Iterator[tuple[int, list[Expr]]]:
    made = k.stages[stage]
    if not isinstance(made, Reduce) or made.rows or not isinstance(made.expr, Apply):
        return
    for j, later in enumerate(k.stages[stage + 1 :], stage + 1):
        own = own_axes(later)
        if [a.extent for a in own] == [a.extent for a in made.axes]:
            env = {a.name: b.index for a, b in zip(made.axes, own, strict=True)}
            wanted = rebuild(made.expr, substituting(env))
            if same := [x for x in nodes(later.expr) if x == wanted]:
                yield j, same


def overwriting_fault(k: Kernel, out: str, source: str) -> str:
    """The reason why ``out`` may not lie in the memory of the input ``source``; '' where it may.

    Loads see old values. So every load of ``source`` is at the place that the same point of the
    iteration stores to, and no stage reads it after that store.

        store a[i] = add(a[i], b[i])        legal
        store a[i, j] = a[j, i]             another point has stored there
        v = add over j: a[i, j]             a reduction reads what stores of a block replace
    """
    into, at = k.param(out), k.param(source)
    if (into.dtype, into.shape, into.layout) != (at.dtype, at.shape, at.layout):
        return f"{out} and {source} differ in dtype, shape or layout"
    last = max((n for n, s in enumerate(k.stages) if _stores(s, out)), default=-1)
    for n, s in enumerate(k.stages):
        found = [x for x in loads_in(s.expr) if x.param == source]
        if isinstance(s, Reduce) and found:
            return f"reduction {s.name} reads {source}"
        if any(e.buffer == source for i in _indices(s) for e in i.elements()):
            return f"an index is read from {source}"
        if not isinstance(s, Store) or not found:
            continue
        stores = [x for x in k.stores if x.param == out]
        if s.param != out and (len(stores) != 1 or stores[0].axes or s.axes or n > last):
            return f"the store to {s.param} reads {source} at points or times of its own"
        place = s if s.param == out else stores[0]
        if any(x.index != place.index or x.valid != place.valid for x in found):
            return f"{source} is read where {out} is not stored at that point"
    return ""


def _stores(s: Stage, param: str) -> bool:
    return isinstance(s, Store) and s.param == param


def _indices(s: Stage) -> Iterator[Index]:
    """Every index of a stage, those of conditions and of numbers included."""
    if isinstance(s, Store):
        yield from s.index
        yield from (r.index for r in s.valid.ranges)
    for x in nodes(s.expr):
        if isinstance(x, Load | Value):
            yield from x.index
        if isinstance(x, Load | Inside):
            yield from (r.index for r in x.valid.ranges)
        if isinstance(x, IndexValue):
            yield x.index


def products_summed(k: Kernel, op: Op = Op.MUL) -> tuple[Reduce, Expr, Expr] | None:
    """The one reduction of a kernel that adds up products, by ``op``, with both factors, where all
    stores are at the shared points; None for another kernel.
    """
    if len(k.reduces) != 1 or any(s.axes for s in k.stores):
        return None
    (reduce,), x = k.reduces, k.reduces[0].expr
    if reduce.op is not Op.ADD or not isinstance(x, Apply) or x.op is not op:
        return None
    return reduce, x.args[0], x.args[1]


def on_both(k: Kernel) -> tuple[Range, ...]:
    """The conditions on both factors of a sum of products: without one of them a term is 0 * 0.

    One factor alone says nothing, as 0 times infinity is no zero.
    """
    found = products_summed(k)
    if found is None:
        return ()
    left, right = (_zero_without(x) for x in found[1:])
    return tuple(r for r in left if r in right)


def _zero_without(x: Expr) -> tuple[Range, ...]:
    """The conditions without each of which an expression is zero."""
    if isinstance(x, Load):
        return x.valid.ranges
    if isinstance(x, Cast):
        return _zero_without(x.x)
    if isinstance(x, Apply) and x.op is Op.WHERE and isinstance(x.args[0], Inside):
        zero = isinstance(x.args[2], Const) and x.args[2].value == 0
        return (*x.args[0].valid.ranges, *_zero_without(x.args[1])) if zero else ()
    return ()


def axis_name(i: int, kind: str = "") -> str:
    """The canonical name of a kernel's ``i``-th shared axis; ``r`` for reduce, ``s`` for store.

    No digits: those are of the loops that an axis is split into. The 18th is ``at``.
    """
    return f"{kind}{'abcdefghijklmnopq'[i % 17]}{'t' * (i // 17)}"


_FLOPS = {Op.FMA: 2, Op.DOT2: 3, Op.LOW: 0, Op.HIGH: 0, Op.TF32: 0}


def _flops(x: Apply) -> int:
    return _FLOPS.get(x.op, 1) if x.dtype.is_float else 0


def _ops(x: Expr, seen: set[int]) -> int:
    stack, total = [x], 0
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Apply):
            total += _flops(node)
            stack.extend(node.args)
        elif isinstance(node, Cast):
            stack.append(node.x)
    return total


def _print(k: Kernel) -> str:
    lines = ["kernel"]
    for p in k.params:
        shape = ",".join(map(str, p.shape))
        over = f" over {p.over}" if p.over else ""
        lines.append(f"  param {p.name} {p.dtype}[{shape}] {p.role}{over} {p.layout}")
    lines.append("  axis " + " ".join(f"{a.name}:{a.extent}" for a in k.axes))
    shared = _Shared(k)
    for s in k.stages:
        own = " ".join(f"{a.name}:{a.extent}" for a in s.axes)
        text = shared.show(s.expr, lines)
        if isinstance(s, Reduce):
            row = f"[{', '.join(a.name for a in s.row)}]" if s.rows else ""
            lines.append(f"  {s.name}{row} = {s.op} over {own} in {s.dtype}: {text}")
        else:
            over = f" over {own}" if own else ""
            where = "" if s.valid.always else f" if {s.valid}"
            lines.append(
                f"  store {s.param}[{', '.join(i.key for i in s.index)}{where}]{over} = {text}"
            )
    if k.fixed:
        lines.append(f"  schedule {k.fixed}")
    return "\n".join(lines)


def _header(k: Kernel) -> tuple[object, ...]:
    """All that is compared of a kernel but its expressions."""
    none = Const(0, BOOL)
    return k.params, k.axes, k.fixed, tuple(replace(s, expr=none) for s in k.stages)


_LONG = 1000
"""Operations, shared ones as often as they are used, above which they are printed once."""


class _Shared:
    """Prints the expressions of a kernel; in one of several stores, or of more than ``_LONG``
    operations, a node used more than once gets a line of its own.
    """

    def __init__(self, k: Kernel) -> None:
        self.uses: dict[int, int] = {}
        self.names: dict[int, str] = {}
        exprs = [s.expr for s in k.stages]
        apart = len(k.stores) > 1 or tree_size(*exprs) > _LONG
        stack: list[Expr] = exprs if apart else []
        while stack:
            x = stack.pop()
            self.uses[id(x)] = self.uses.get(id(x), 0) + 1
            if self.uses[id(x)] == 1:
                stack.extend(
                    x.args if isinstance(x, Apply) else [x.x] if isinstance(x, Cast) else []
                )

    def show(self, x: Expr, lines: list[str]) -> str:
        """The text of an expression; lines that it needs first are appended to ``lines``."""
        if not self.uses:
            return str(x)
        name = self.names.get(id(x))
        if name is not None:
            return name
        if isinstance(x, Apply):
            text = f"{x.op}({', '.join(self.show(a, lines) for a in x.args)})"
        else:
            text = f"{x.dtype}({self.show(x.x, lines)})" if isinstance(x, Cast) else str(x)
        if self.uses[id(x)] == 1 or isinstance(x, Const | Value):
            return text
        name = self.names[id(x)] = f"t{len(self.names)}"
        lines.append(f"  {name} = {text}")
        return name


def loads(k: Kernel) -> tuple[tuple[Stage, Load], ...]:
    """Every load of every stage."""
    return k.loads


P = ParamSpec("P")

T = TypeVar("T")


KERNELS = 4096
"""Kernels that processes remember small facts of: several times those of the largest model."""


def memoized(
    most: int = KERNELS,
) -> Callable[[Callable[Concatenate[Kernel, P], T]], Callable[Concatenate[Kernel, P], T]]:
    """Decorates a function of a kernel, and of hashable arguments, to keep the ``most`` values that
    were last found; fewer where a value is large.

    Kernels are told apart by their text and fixed actions: a text is hashed once, a kernel each
    time it is looked up. Several threads may ask at once.
    """

    def decorate(f: Callable[Concatenate[Kernel, P], T]) -> Callable[Concatenate[Kernel, P], T]:
        known: dict[Hashable, T] = {}
        lock = ForkSafeLock()

        @functools.wraps(f)
        def looked_up(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = kernel.text, kernel.fixed, args, tuple(kwargs.items())
            with lock:
                if key in known:
                    return known[key]
            value = f(kernel, *args, **kwargs)
            with lock:
                if len(known) >= most:
                    known.pop(next(iter(known)))
                known[key] = value
            return value

        looked_up.cache_clear = known.clear  # type: ignore[attr-defined]  # as functools' has it
        return looked_up

    return decorate
