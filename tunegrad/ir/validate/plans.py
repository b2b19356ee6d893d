"""Validates that the kernels of a plan compute the graph that it is of, buffer by buffer.

Every buffer that stands for a node is written by one launch, or by the launches of a variant with
buffers of their own in between. Both sides are worked out at drawn elements of it, in terms of the
other nodes that have memory: the graph by its nodes, the plan by its kernels, layouts and views.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache, partial
from itertools import permutations
from math import factorial, floor, prod
from typing import Any, cast

import numpy as np

from tunegrad.errors import WrongPlan
from tunegrad.lazy import dataclass

from ..dtypes import I32, DType
from ..expr import Op
from ..fusion.parts import separated
from ..fusion.plan import VALIDATION, Buffer, Combined, Launch, LaunchPlan
from ..graph import ConstData, GraphOp, Node
from ..interpret.numeric import Array
from ..kernel import Kernel, Param, Store
from ..layout import Layout
from ..rewrites.ranges import interval
from . import graphs, kernels
from .numbers import Number, Numbers, P, deep, spread, sum_of_products, symmetric

_MOST, _LEAST, _POINTS = 128, 2, 3
"""Samples, at most and at least; points of a variant's last kernel."""

_PLACES, _CORNERS = 64, 2
"""Elements that have some of the terms of a long sum worked out, where few have all."""

_NEAR = 1e-12
"""Relative distance of a fraction from a number of a matrix that is made of it in f64."""

_MANY = 1 << 12
"""Elements of arrays by whose values results are kept, at most."""


@dataclass(frozen=True, slots=True)
class Group:
    """The launches that write one buffer that stands for a node: its own, and those that write
    inputs of it for which no node stands.
    """

    plan: LaunchPlan
    out: int
    launches: tuple[Launch, ...]
    held: Mapping[Node, int] = field(repr=False)
    """The nodes that these launches read from memory, by what tells them apart."""

    @property
    def node(self) -> Node:
        """The node that the buffer stands for."""
        return cast(Node, self.plan.buffers[self.out].node)

    @property
    def stands(self) -> Iterator[Node | Combined | None]:
        """The nodes that the buffers of its launches stand for."""
        return (self.plan.buffers[i].node for x in self.launches for i in x.args)

    @property
    def on_floats(self) -> bool:
        """True if a sum of bytes is computed on floats."""
        made = (n for n in self.stands if isinstance(n, Combined))
        return any(n.node.dtype.is_quad and not n.pairs for n in made)

    @property
    def launch(self) -> Launch:
        """The one that writes the buffer."""
        return self.launches[0]

    @property
    def key(self) -> Hashable:
        """A key that tells it apart from others of the same node, without its text."""
        launches = tuple((x.kernel.text, x.args) for x in self.launches)
        numbers = sorted(
            {self.plan.memory(i) for x in self.launches for i in x.args}
            | {i for x in self.launches for i in x.args}
        )
        return launches, tuple(
            (i, b.dtype.name, b.layout, None if b.node is self.node else b.node, b.base, b.start)
            for i in numbers
            for b in (self.plan.buffers[i],)
        )

    def cone(self) -> list[Node]:
        """The nodes behind the buffer down to those that have memory, sources first."""
        order: list[Node] = []
        seen: set[int] = set()
        stack = [(self.node, False)]
        while stack:
            n, done = stack.pop()
            if done:
                order.append(n)
            elif id(n) not in seen:
                seen.add(id(n))
                stack.append((n, True))
                if n is self.node or n not in self.held:  # a copy reads the node that it writes
                    stack.extend((s, False) for s in reversed(n.srcs))
        return order

    def text(self, cone: list[Node]) -> str:
        """All that the result depends on; equal layers of a model have one text."""
        places, near = {n: i for i, n in enumerate(cone)}, self.on_floats
        lines = [f"{VALIDATION}"]
        for n in cone:
            if n in self.held and n is not self.node:
                bits = "" if not near or n.dtype != I32 else f" {_digits(n)}"
                lines.append(f"held {n.shape} {n.dtype}{bits}")
                continue
            arg = "" if isinstance(n.arg, ConstData) or n.op is GraphOp.INPUT else n.arg
            srcs = [places[s] for s in n.srcs]
            lines.append(f"{n.op} {srcs} {arg} {n.shape} {n.dtype}")
        numbers: dict[int, int] = {}
        for launch in self.launches:
            args = [numbers.setdefault(i, len(numbers)) for i in launch.args]
            lines.append(f"launch {args} {launch.kernel.key}")
        for i in list(numbers):
            base = self.plan.memory(i)
            if base != i:
                numbers.setdefault(base, len(numbers))
        for i, number in numbers.items():
            b = self.plan.buffers[i]
            what: object = places.get(b.node) if isinstance(b.node, Node) else b.node
            if isinstance(b.node, Node) and what is None:
                what = places[b.node] = len(places)
            if isinstance(b.node, Combined):
                what = places.setdefault(b.node.node, len(places)), b.node.text
            base = -1 if b.base is None else numbers[b.base]
            lines.append(f"{number} {b.dtype} {b.shape} {b.layout} {what} {base} {b.start}")
        return "\n".join(lines)


def groups_of(plan: LaunchPlan) -> Iterator[Group]:
    """The buffers of a plan that stand for nodes, with what writes them.

    Parts of a buffer are buffers of their own, and it is written by one more launch. Raises
    WrongPlan for an input or a constant that stands for another one.
    """
    plan = separated(plan)
    writers = {i: x for x in plan.launches for i in x.writes}
    for b in plan.buffers:
        if isinstance(b.node, Node):
            _check_leaf(b)
    for out, launch in writers.items():
        if not isinstance(plan.buffers[out].node, Node):
            continue
        found, stack = {id(launch): launch}, [launch]  # equal ones are several
        while stack:
            for i in stack.pop().args:
                i = plan.memory(i)
                if i in writers and plan.buffers[i].node is None and id(writers[i]) not in found:
                    found[id(writers[i])] = writers[i]
                    stack.append(writers[i])
        launches = tuple(found.values())
        yield Group(plan, out, launches, _read_by(plan, launches))


def _read_by(plan: LaunchPlan, launches: Sequence[Launch]) -> dict[Node, int]:
    """The nodes that launches read from memory, in order; none that they only write."""
    found: dict[Node, int] = {}
    for i in (i for x in launches for i in x.reads):
        b = plan.buffers[plan.memory(i)]
        n = b.node.node if isinstance(b.node, Combined) else b.node
        if n is not None:
            found.setdefault(n, len(found))
    return found


def _check_leaf(b: Buffer) -> None:
    n = cast(Node, b.node)
    fits = n.shape == b.shape and n.dtype == b.dtype
    if b.role == "input":
        fits = fits and n.op is GraphOp.INPUT and n.arg == b.name
    elif b.role == "const":
        fits = fits and n.op is GraphOp.CONST and n.arg == b.data
    if not fits:
        raise WrongPlan(f"plan: {b} stands for {n}, which is another tensor")


def validate_group(group: Group, cone: list[Node]) -> None:
    """Raise WrongPlan unless what is written is what the graph says, at every drawn element.

    Raises Unvalidated for what can not be worked out. A launch is right if it is so in the field,
    or where numbers are known one by one: only there have literals that a mask chooses the order
    of the reals, which is theirs where one of them is met alone. Where positions become floats,
    that is looked at first, and says it all of a single launch; of Winograd's tiles such numbers
    are rounded sums.
    """
    terms = graphs.terms_behind(cone, group.held, group.node, leaves=False)
    exactly = _positions_become_floats(cone)
    try:
        _compare(group, cone, terms, exactly=exactly)
    except WrongPlan:
        if exactly and len(group.launches) == 1:
            raise
        _compare(group, cone, terms, exactly=not exactly)


def _positions_become_floats(cone: list[Node]) -> bool:
    """True if there are positions, and integers or truths that become floats."""
    return any(n.op is GraphOp.IOTA for n in cone) and any(
        n.dtype.is_float
        and (n.op is GraphOp.IOTA or (n.op is GraphOp.CAST and not n.srcs[0].dtype.is_float))
        for n in cone
    )


def _selects(group: Group, cone: list[Node]) -> bool:
    """True if samples with NaN are worth drawing: a mask or a choice may leave it out, or there is
    no sum, which makes them cheap.
    """
    if not any(n.op is GraphOp.REDUCE for n in cone):
        return True
    if any(n.op is GraphOp.PAD or (n.op is GraphOp.MAP and n.arg is Op.WHERE) for n in cone):
        return True
    return any(not x.valid.always for _, x in group.launch.kernel.loads)


def _compare(group: Group, cone: list[Node], terms: int, *, exactly: bool = False) -> None:
    k = group.launch.kernel
    seed = int.from_bytes(hashlib.sha256(k.key.encode()).digest()[:4], "big")
    samples, known = min(_MOST, max(_LEAST, graphs.SAMPLED_TERMS // terms)), graphs.borders(cone)
    if len(group.launches) == 1:
        at = every = graphs.sampled(group.node.shape, max(samples, _PLACES), known, seed)
        if at and samples < min(_PLACES, len(at[0])):  # of corners most is padding
            at = tuple(i[_CORNERS:][: samples // 2] for i in at)
        count = len(at[0]) if at else 1
        spoiled = 0 if not _selects(group, cone) else count if terms == 1 else (count + 3) // 4
        rarely = 1 << (2 * terms * len(group.held)).bit_length()
        numbers = Numbers.drawn(
            count + spoiled, seed, exactly=exactly, spoiled=spoiled, rarely=rarely
        )
        twice = tuple(np.concatenate((i, i[count - spoiled :])) for i in at) if spoiled else at
        try:
            _Comparison(group, twice, numbers).by_element()
        except graphs.TooLongError:
            _compare_terms(group, cone, twice, numbers)
            return
        if every is not at:
            numbers = Numbers.drawn(len(every[0]), seed, exactly=exactly)
            _compare_terms(group, cone, every, numbers, graphs.SAMPLED_TERMS // 2 // len(every[0]))
        return
    # a sum of bytes on floats is compared without roundings: each side has others
    drawn = partial(Numbers.drawn, seed=seed, exactly=exactly, on_purpose=group.on_floats)
    at = graphs.sampled(group.node.shape, _MOST, known, seed)
    numbers = drawn(len(at[0]) if at else 1)
    whole = _Comparison(group, at, numbers)
    whole.written()
    at = graphs.sampled(tuple(a.extent for a in k.axes), min(samples, _POINTS), (), seed)
    numbers = drawn(len(at[0]) if at else 1)
    numbers.patient = True
    work = _Comparison(group, (), numbers)
    work.strides = whole.strides
    work.by_point({a.name: i for a, i in zip(k.axes, at, strict=True)})


def _compare_terms(
    group: Group, cone: list[Node], at: graphs.At, numbers: Numbers, each: int = 0
) -> None:
    """Compare long reductions by some of their terms; ``each``: about so many.

    One kernel folds as many as the graph, in its order or in another one of axes: each is there
    once, and those at ends and drawn ones are equal. Otherwise all are worked out.
    """
    axes = [tuple(a.extent for a in r.folds) for r in group.launch.kernel.reduces]
    sums = [
        tuple(n.srcs[0].shape[d] for d in cast(Any, n.arg)[1])
        for n in cone
        if n.op is GraphOp.REDUCE and (n is group.node or n not in group.held)
    ]
    numbers.terms = graphs.drawn_terms(
        [x for x in (*sums, *axes) if prod(x) > 1], graphs.borders(cone), each
    )
    most = [factorial(max(map(len, x), default=0)) for x in (sums, axes)]
    turns = [*((n, 0) for n in range(most[0])), *((0, n) for n in range(1, most[1]))]
    if len(sums) == len(axes) == 1:  # first those in which both have the same extents
        turns.sort(key=lambda t: _turned(sums[0], t[0]) != _turned(axes[0], t[1]))
    for turn in turns:
        numbers.turn = turn
        with suppress(WrongPlan):
            _Comparison(group, at, numbers).by_element()
            return
    numbers.terms, numbers.patient = {}, True
    _Comparison(group, at, numbers).by_element()


def _turned(extents: tuple[int, ...], turn: int) -> tuple[int, ...]:
    """Extents in the order of axes of a turn."""
    orders = [*permutations(extents)]
    return orders[turn % len(orders)]


class _Comparison:
    """Both sides of one group at some elements."""

    def __init__(self, group: Group, at: graphs.At, numbers: Numbers) -> None:
        self.group, self.at, self.numbers = group, at, numbers
        self.buffer = group.plan.buffers[group.out]
        self.writers = {i: x for x in group.launches for i in x.writes}
        launch = group.launch
        pairs = zip(launch.kernel.params, launch.args, strict=True)
        param = next(p for p, i in pairs if i == group.out)
        self.stores = [s for s in launch.kernel.stores if s.param == param.name]
        self.runs: dict[tuple[object, ...], kernels.KernelValues] = {}
        self.strides: dict[int, kernels.Strides] = {}
        self.points: dict[tuple[object, ...], tuple[kernels.Env, Array]] = {}
        self.dtype = group.node.dtype.compute
        whole = (n for n in group.held if group.on_floats and n.dtype == I32)
        self.halves = {n: (1 << _digits(n)) >> 1 for n in whole}
        self.layouts = _layouts_of(group)

    def by_element(self) -> None:
        """Compare at elements of the tensor."""
        wanted = self._wanted(self.numbers, self.at)
        left, offsets = self._left(), self._offsets()
        for s in self.stores:
            env, writes = self._points(self.group.launch.kernel, s, offsets)
            chosen = np.flatnonzero(writes & left)
            left &= ~writes
            if len(chosen):
                numbers = self.numbers.of(chosen)
                env = {n: v[chosen] if len(v) > 1 else v for n, v in env.items()}
                self._compare(s, numbers, env, wanted[chosen], chosen)
        self._check_all(left)

    def written(self) -> None:
        """Check that stores write the elements."""
        left, offsets = self._left(), self._offsets()
        for s in self.stores:
            left &= ~self._points(self.group.launch.kernel, s, offsets)[1]
        self._check_all(left)

    def by_point(self, env: dict[str, Array]) -> None:
        """Compare what each store writes at points of the shared axes; with all stores at the same
        ones, what they have in common is worked out once.
        """
        k, launch = self.group.launch.kernel, self.group.launch
        places = []
        run = self._kernel(launch, self.numbers, env, 1)
        for s in self.stores:
            if s.axes:
                raise graphs.Unvalidated("a store with axes of its own, of a variant")
            inside = np.broadcast_to(run.holds(s.valid, run.scope), self.numbers.scale.shape)
            at = tuple(run.index(i, run.scope) for i in s.index)
            offsets = kernels.memory_of(at, k.param(s.param).layout, 1)
            places.append((s, inside, np.broadcast_to(offsets, inside.shape)))
        chosen = np.concatenate([np.flatnonzero(inside) for _, inside, _ in places])
        if not len(chosen):
            return
        offset = np.concatenate([o[inside] for _, inside, o in places])
        position = kernels.position_of(offset, self.buffer.layout)
        shape = self.group.node.shape
        if (position >= prod(shape)).any():
            raise WrongPlan(f"plan: {launch} writes outside of {self.buffer}")
        self.at = tuple(np.unravel_index(position, shape)) if shape else ()
        numbers = self.numbers.of(chosen)
        wanted = self._wanted(numbers, self.at)
        found = [self._kept(self.numbers, run.stored(s))[inside] for s, inside, _ in places]
        same = numbers.same(np.concatenate(found), wanted, self.dtype)
        first = 0
        for (s, _, _), its in zip(places, found, strict=True):
            part = np.arange(first, first := first + len(its))
            self._check(s, same[part], part)

    def _strides(self, k: Kernel, s: Store) -> kernels.Strides:
        if id(s) not in self.strides:
            self.strides[id(s)] = kernels.strides_of(k, s)
        return self.strides[id(s)]

    def _points(self, k: Kernel, s: Store, offset: Array) -> tuple[kernels.Env, Array]:
        """The point of the axes at which a store writes each of some offsets, and a mask of those
        that it writes. Stores of one kernel most often differ in where they begin alone.
        """
        strides = self._strides(k, s)
        rest = offset - strides.first if strides.first else offset
        if rest.size > _MANY:
            env, inside = kernels.digits_of(k, s, strides, rest)
        else:
            key = id(k), s.axes, strides.terms, rest.shape, rest.tobytes()
            if key not in self.points:
                self.points[key] = kernels.digits_of(k, s, strides, rest)
            env, inside = self.points[key]
        return env, kernels.holds_at(s, env, inside)

    def _left(self) -> Array:
        return np.ones(len(self.numbers.scale), np.bool_)

    def _offsets(self) -> Array:
        return spread(kernels.memory_of(self.at, self.buffer.layout, 1), self.numbers.scale.shape)

    def _wanted(self, numbers: Numbers, at: graphs.At) -> Array:
        held = partial(self._held, numbers)
        found = graphs.GraphValues(numbers, held).root(self.group.node, at)
        return self._kept(numbers, found)

    def _kept(self, numbers: Numbers, found: Number) -> Array:
        """The numbers of a result that memory keeps, in the buffer's type."""
        kept = numbers.cast(found, self.dtype, self.group.node.dtype)
        return spread(numbers.array(kept, self.dtype, 1), numbers.scale.shape)

    def _compare(
        self, s: Store, numbers: Numbers, env: dict[str, Array], wanted: Array, chosen: Array
    ) -> None:
        found = self._kernel(self.group.launch, numbers, env, 1).stored(s)
        self._check(s, numbers.same(self._kept(numbers, found), wanted, self.dtype), chosen)

    def _check(self, s: Store, same: Array, chosen: Array) -> None:
        if not same.all():
            self._refuse(chosen[np.flatnonzero(~same)[0]], str(s.expr), int(same.sum()), len(same))

    def _check_all(self, left: Array) -> None:
        if left.any():
            at = np.flatnonzero(left)[0]
            self._refuse(at, "nothing: no store writes it", int((~left).sum()), len(left))

    def _kernel(
        self, launch: Launch, numbers: Numbers, env: Any, depth: int
    ) -> kernels.KernelValues:
        args = {p.name: i for p, i in zip(launch.kernel.params, launch.args, strict=True)}

        key: tuple[object, ...] = ()
        if sum(v.size for v in env.values()) <= 1 << 16:
            key = id(launch), numbers.scale.tobytes(), depth
            key += tuple((n, v.shape, v.tobytes()) for n, v in env.items())
            if key in self.runs:
                return self.runs[key]

        def reads(name: str, offset: Array, p: Param, depth: int, numbers: Numbers) -> Number:
            return self._read(args[name], p.dtype, offset, numbers, depth)

        buffers, memory = self.group.plan.buffers, self.group.plan.memory
        made = frozenset(n for n, i in args.items() if i in self.writers and not numbers.exactly)
        leaves = frozenset(n for n, i in args.items() if isinstance(buffers[memory(i)].node, Node))
        run = kernels.KernelValues(launch.kernel, numbers, reads, env, depth, made, leaves)
        if key:
            self.runs[key] = run
        return run

    def _read(
        self, buffer: int, dtype: DType, offset: Array, numbers: Numbers, depth: int
    ) -> Number:
        """Elements of memory as values of ``dtype``."""
        b = self.group.plan.buffers[buffer]
        if b.base is not None:
            base = self.group.plan.buffers[b.base]
            offset = offset + b.start // b.dtype.itemsize
            b = (
                base
                if base.dtype == b.dtype
                else Buffer(base.id, b.dtype, (), base.layout, base.role, base.name, node=base.node)
            )
            if base.dtype != b.dtype:
                return self._words(base.id, b.dtype, offset, numbers, depth)
        if dtype != b.dtype:
            return self._words(b.id, dtype, offset, numbers, depth)
        if isinstance(b.node, Node):
            return self._leaf(b.node, self._place(b.node, offset, b.layout), numbers)
        if isinstance(b.node, Combined):
            return self._combined(b.node, offset, numbers, depth)
        return self._written(b.id, offset, numbers, depth)

    def _words(
        self, buffer: int, dtype: DType, offset: Array, numbers: Numbers, depth: int
    ) -> Number:
        """Neighbours in memory as words."""
        part = self.group.plan.buffers[buffer].dtype
        if dtype.of != part:
            raise WrongPlan(f"plan: {self.group.plan.buffers[buffer]} is read as {dtype}")
        count = dtype.itemsize // part.itemsize
        parts = [self._read(buffer, part, offset * count + i, numbers, depth) for i in range(count)]
        op = Op.PAIR if dtype.is_pair else Op.QUAD
        return numbers.apply(op, parts, [part.compute] * count, dtype, depth)

    def _written(self, buffer: int, offset: Array, numbers: Numbers, depth: int) -> Number:
        """Values that the launches of a variant leave in a buffer of theirs."""
        launch = self.writers.get(buffer)
        if launch is None:
            raise WrongPlan(f"plan: nothing writes {self.group.plan.buffers[buffer]}")
        k = launch.kernel
        param = next(p for p, i in zip(k.params, launch.args, strict=True) if i == buffer)
        dtype = param.dtype.compute
        stores = [(s, self._strides(k, s)) for s in k.stores if s.param == param.name]
        lines = offset.reshape(len(offset), -1)
        low, high, first = lines.min(axis=1), lines.max(axis=1), int(offset.flat[0])
        stores.sort(key=lambda s: not kernels.may_write(s[1], first))
        total: Any = None
        own, left = False, np.ones(offset.shape, np.bool_)
        for s, strides in stores:
            rows = np.flatnonzero((low <= strides.last) & (high >= strides.first))
            if not len(rows):
                continue
            few = len(rows) < len(low) == len(numbers.scale) and not numbers.exactly
            some, its = (offset[rows], numbers.of(rows)) if few else (offset, numbers)
            env, writes = self._points(k, s, some)
            if not writes.any():
                continue
            found = self._kernel(launch, its, env, depth).stored(s)
            found = its.cast(found, dtype, param.dtype)  # as memory keeps it
            if few:
                values = numbers.array(found, dtype, depth)
                if not own:
                    others: Any = 0 if total is None else numbers.array(total, dtype, depth)
                    total = np.array(np.broadcast_to(others, offset.shape), values.dtype)
                total[rows] = values if writes.all() else np.where(writes, values, total[rows])
                left[rows] &= ~writes
                own = True
                continue
            if writes.all():
                return found
            total = found if total is None else numbers.where(writes, found, total, dtype, depth)
            left &= ~writes
            own = False
        if total is None or left.any():
            raise WrongPlan(
                f"plan: {launch} does not write all of {self.group.plan.buffers[buffer]} that is "
                f"read"
            )
        return cast(Number, total)

    def _held(self, numbers: Numbers, n: Node, at: graphs.At, depth: int) -> Number | None:
        if not graphs.is_leaf(n) and n not in self.group.held:
            return None
        layout = self.layouts.get(n)
        place = (
            graphs.flat_position(at, n.shape)
            if layout is None
            else kernels.memory_of(at, layout, depth)
        )
        return self._leaf(n, deep(place, depth), numbers)

    def _place(self, n: Node, offset: Array, layout: Layout) -> Array:
        """A number for the element of a node that has this offset in memory: the offset, where all
        of the node's memory has one layout; else its row-major position.
        """
        return offset if n in self.layouts else kernels.position_of(offset, layout)

    def _leaf(self, n: Node, position: Array, numbers: Numbers) -> Array:
        seed = self.group.held.get(n)
        if seed is None:  # a leaf that the plan does not read
            seed = -1 - id(n) % (1 << 32)
        found = numbers.leaf(seed + 2, position, n.dtype)
        half = self.halves.get(n)
        if half is None:
            return found
        return np.asarray((found.astype(np.int64) % (2 * half + 1) - half).astype(np.int32))

    def _combined(self, made: Combined, offset: Array, numbers: Numbers, depth: int) -> Array:
        """Transformed weights, from the weights."""
        _, channels, outputs = made.shape
        row = offset // (channels * outputs)
        pair = offset - row * (channels * outputs)
        first = row.reshape(len(row), -1)[:, :1].reshape((len(row),) + (1,) * (depth - 1))
        row = first if (row == first).all() else row
        known: dict[bytes, int] = {}  # the same weights are in many rows
        lines = np.array([known.setdefault(line.tobytes(), len(known)) for line in pair])
        some = np.unique(lines, return_index=True)[1]
        channel, output = np.divmod(pair[some], outputs)

        def parts(channel: Array) -> Array:
            products = []
            for q, factors in enumerate(_elements(made.matrix).T):
                at = kernels.memory_of(made.index(channel, output, q), made.layout, depth)
                place = self._place(made.node, at, made.memory)
                window = self._leaf(made.node, place, numbers.of(some))
                if (part := made.node.dtype.of) is not None:
                    byte = channel // made.channels
                    words = window.view(np.uint32) >> (part.bits * byte).astype(np.uint32)
                    exact = words.astype(np.uint8).view(part.numpy)
                    window = (exact.astype(np.int64) % P).astype(np.uint64)
                products.append(factors[row] * window[lines])
            return sum_of_products(products)

        if not made.pairs:
            return parts(channel)
        low, high = (symmetric(parts(channel + by)) for by in (0, channels))
        return np.asarray((low & 0xFFFF | high << 16).astype(np.int32))

    def _refuse(self, sample: int, expr: str, right: int, many: int) -> None:
        at = [int(i[sample]) for i in self.at]
        launch = self.group.launch
        cone = self.group.cone()
        shown = ", ".join(f"{n.op} {n.arg if n.srcs else ''}{list(n.shape)}" for n in cone[-8:])
        raise WrongPlan(
            f"plan: launch {launch.name}: element {at} of {self.buffer} is not what the graph "
            f"says (of {many} that were compared here, {right} are right)\n"
            f"  kernel: {expr:.2000}\n  graph, its last nodes: {shown:.2000}\n"
            + "\n".join(f"  {line}" for x in self.group.launches for line in _lines(x))
        )


def _layouts_of(group: Group) -> dict[Node, Layout]:
    """Layout of each node that launches read, where it is one layout."""
    found: dict[Node, set[Layout]] = {}
    for i in (i for x in group.launches for i in x.args if i != group.out):
        b = group.plan.buffers[group.plan.memory(i)]
        if isinstance(b.node, Combined):
            found.setdefault(b.node.node, set()).add(b.node.memory)
        elif b.node is not None:
            found.setdefault(b.node, set()).add(b.layout)
    return {n: layouts.pop() for n, layouts in found.items() if len(layouts) == 1}


def _digits(n: Node) -> int:
    """Binary digits of the largest integer that a tensor may have.

    Integers that a sum of bytes is less are drawn below that: others take the difference beyond
    2^31, where integers wrap around and floats do not.
    """
    return max(abs(x) for x in interval(n)).bit_length()


def _lines(launch: Launch) -> list[str]:
    return [str(launch), *(f"  {line}" for line in str(launch.kernel).splitlines())]


@cache
def _elements(matrix: tuple[tuple[float, ...], ...]) -> Array:
    """Small fractions as elements of the field."""
    return np.array([[_element(x) for x in row] for row in matrix], np.uint64)


@cache
def _element(x: float) -> int:
    """A small fraction, which a float is near to, as an element: the first convergent of its
    continued fraction that is as near.
    """
    (num, den), (num_before, den_before), rest = (floor(x), 1), (1, 0), x - floor(x)
    while abs(num / den - x) > _NEAR * abs(x):
        whole = floor(1 / rest)
        rest = 1 / rest - whole
        num, num_before = whole * num + num_before, num
        den, den_before = whole * den + den_before, den
    return num % P * pow(den, -1, P) % P
