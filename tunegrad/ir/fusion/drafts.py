"""A graph cut into kernels, and the same graph cut otherwise.

    realized_nodes  which tensors get memory    (rules about speed)
    draft_kernel    one kernel per such tensor  (proved legal, or a node is cut off and given
                                                memory)

A toggle flips one edge: a node with memory loses it and is computed again by each of its readers, a
node without gets some. Where no legal kernel is left without that memory, it stays, and the toggle
is void. Only the drafts that a toggle touches are made again.

A toggle past the last node, at ``place + len(order)``, makes attention of the product at ``place``:
the scores and their softmax lose their memory, and are rows of its kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from math import prod
from typing import Any, cast

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from ..dtypes import F32, I8, U8
from ..expr import FUNCTIONS, PRODUCTS, Apply, Op, nodes, tree_size
from ..graph import (
    MOVEMENT,
    VIEWS,
    Fence,
    GraphOp,
    Node,
    Step,
    converts_reads,
    is_plain,
    narrows,
    topological,
)
from ..kernel import Kernel
from ..rewrites.sums import stored_once
from .build import CutError, Draft, draft_kernel, interleaves, reshape_groups, sums_products

# ---- memory
#
# Chooses the tensors that get memory.
#
# One pass, sources first. Each tensor that has no memory of its own carries what a kernel that
# inlines it would hold:
#
#     FREE  nothing but elementwise work on buffers: can be computed anywhere
#     ROW   one element per point of a pending reduction's domain: the reduction and its epilogue
#           (conv + bias + relu)
#     BODY  a pending reduction's result spread over more dimensions (``own``): the body of a row
#           of softmax or layer norm
#
# and a tensor is realised, given memory, where going on would compute a reduction twice, nest one
# reduction in another (except over exactly the ``own`` dimensions of a BODY: the second pass over
# a row), repeat expensive work, or grow a kernel past ``MAX_OPS``. Every rule is a heuristic about
# speed: ``build`` proves each kernel legal on its own.


_SINK = -1


class Regions:
    """Consumers, positions and post-dominators of the nodes of one graph, by position in
    topological order.

    A tensor with several consumers can stay inside one kernel only if every path from it runs into
    one later node: its immediate post-dominator. The post-dominator tree is built sources-last,
    with jump pointers, so that a common ancestor is found in logarithmic time.
    """

    def __init__(self, order: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.order = order
        self.position = {id(n): i for i, n in enumerate(order)}
        self.consumers: list[list[int]] = [[] for _ in order]
        for i, n in enumerate(order):
            for s in {self.position[id(s)] for s in n.srcs}:
                self.consumers[s].append(i)
        self.outputs = {self.position[id(o)] for o in outputs}
        self._parent: dict[int, int] = {_SINK: _SINK}
        self._jump: dict[int, int] = {_SINK: _SINK}
        self._depth: dict[int, int] = {_SINK: 0}
        for i in range(len(order) - 1, -1, -1):
            self._insert(i)

    def meeting(self, i: int) -> int | None:
        """The position of the immediate post-dominator of node ``i``; None when uses never meet."""
        parent = self._parent[i]
        return None if parent == _SINK else parent

    def between(self, i: int, limit: int) -> list[int] | None:
        """Nodes on the paths from ``i`` to its meeting point, that one included, in order; None
        past ``limit``.
        """
        end = self.meeting(i)
        if end is None:
            return None
        found: set[int] = set()
        stack = list(self.consumers[i])
        while stack:
            n = stack.pop()
            if n in found:
                continue
            found.add(n)
            if len(found) > limit:
                return None
            if n != end:
                stack.extend(self.consumers[n])
        return sorted(found)

    def _insert(self, i: int) -> None:
        parent = _SINK if i in self.outputs or not self.consumers[i] else self.consumers[i][0]
        for c in self.consumers[i][1:]:
            if parent == _SINK:
                break
            parent = self._common(parent, c)
        jump = self._jump[parent]
        far = self._jump[jump]
        even = self._depth[parent] - self._depth[jump] == self._depth[jump] - self._depth[far]
        self._parent[i], self._jump[i] = parent, (far if even else parent)
        self._depth[i] = self._depth[parent] + 1

    def _common(self, a: int, b: int) -> int:
        if self._depth[a] < self._depth[b]:
            a, b = b, a
        while self._depth[a] > self._depth[b]:
            a = self._jump[a] if self._depth[self._jump[a]] >= self._depth[b] else self._parent[a]
        while a != b:
            if self._jump[a] != self._jump[b]:
                a, b = self._jump[a], self._jump[b]
            else:
                a, b = self._parent[a], self._parent[b]
        return a


EXPENSIVE = FUNCTIONS | {Op.RECIP, Op.DIV, Op.FLOORDIV, Op.MOD}

MAX_OPS = 200
"""Operations of one inlined expression."""

MAX_ROW_OPS = 160
"""The same beside a reduction that is no contraction, shared ones as often as they are used: long
chains of a row's statistics are stored, else the loop over the row has them, too.
"""

MAX_TREE = 1 << 20
"""The same, shared ones as often as they are used."""

MAX_DEPTH = 80

MAX_PENDING = 6
"""Reductions of one kernel."""

CHEAP_OPS = 4
"""Elementwise operations worth repeating rather than storing."""

_SERVED = 32
"""Results along an axis of a register tile, which compute a factor of theirs once: 16 to 48."""

_STORED, _HELD, _LAUNCHED = (1, 4), 1 << 18, 1 << 14
"""The cost of memory for a factor, in operations: of an element that is written and read back, in
caches and beyond them (more elements than the second number), and of one launch more, some 2 us. On
one thread of an Emerald Rapids, medians of turns: with (operations + 1) times uses of 32 it took
0.3 to 0.6 of the time to store 64 KiB to 1 MiB; of 3 to 26 MiB with 64 it took 1.25 to 1.35 of it,
with 128 1.0 to 1.1, with 256 and more 0.4 to 0.8.
"""

REGION_LIMIT = 256

SERIAL_LIMIT, SERIAL_ROWS = 32768, 8
"""Elements of a row above which a kernel of fewer rows is cut, so that cores share the work."""

FREE, ROW, BODY = 0, 1, 2

_IN_PLACE = (GraphOp.MAP, GraphOp.CAST)
"""Operations that read each element where it stands."""


@dataclass(frozen=True, slots=True)
class State:
    """The contents of a kernel that inlines the node."""

    kind: int = FREE
    pending: frozenset[Node] = frozenset()
    heavy: Node | None = None
    """The contraction (matmul, convolution) among ``pending``."""
    own: frozenset[int] = frozenset()
    mixed: bool = False
    """``own`` was lost in a reshape: a further reduction can not match it."""
    rows: tuple[Node, ...] = ()
    """The nodes that were expanded into this BODY."""
    ops: int = 0
    """Operations, shared ones as often as they are used."""
    depth: int = 0
    expensive: bool = False
    reuse: bool = False
    """A buffer element is read for several elements of the node."""
    product: bool = False
    gathered: bool = False
    """An element of a buffer is read at a position that another one holds."""
    merged: frozenset[int] = frozenset()
    """Dimensions that views made of several ones of ``heavy``."""


_LEAF = State()


def resolve(node: Node) -> Node:
    """The node behind plain fences.

    One that asks for a layout or a schedule has memory of its own.
    """
    while node.op is GraphOp.CONTIGUOUS and is_plain(node) and not _asks_layout(node.srcs[0]):
        node = node.srcs[0]
    return node


def target_of(output: Node) -> Node:
    """The node that an output's kernel computes: a copy, where a fence asks for a layout."""
    if _asks_layout(output):
        return Node(GraphOp.CONTIGUOUS, (output,), None, output.shape, output.dtype)
    return resolve(output)


def _asks_layout(node: Node) -> bool:
    fence = cast(Fence | None, node.arg) if node.op is GraphOp.CONTIGUOUS else None
    return fence is not None and fence.layout is not None


def realized_nodes(outputs: tuple[Node, ...]) -> tuple[list[Node], set[Node]]:
    """The graph in topological order, and the nodes that get memory: no inputs, no constants."""
    order = topological(outputs)
    r = _Realizer(order, outputs)
    for i in range(len(order)):
        r.visit(i)
    return order, r.realized


class _Realizer:
    def __init__(self, order: list[Node], outputs: tuple[Node, ...]) -> None:
        self.regions = Regions(order, outputs)
        fences = [n for n in order if n.op is GraphOp.CONTIGUOUS]
        self.realized: set[Node] = {resolve(n) for n in (*outputs, *fences)}
        self.covered: set[Node] = set(self.realized)
        """Nodes that are realised, or views of one that is."""
        self.states: dict[Node, State] = {}

    def state(self, n: Node) -> State:
        """The contents of a kernel that inlines ``n``, given the tensors realised by now."""
        if n in self.covered:
            return _LEAF
        s = self.states[n]
        if s.kind == BODY and all(r in self.covered for r in s.rows):
            return replace(
                s, kind=FREE, pending=frozenset(), heavy=None, own=frozenset(), mixed=False, rows=()
            )
        return s

    def visit(self, i: int) -> None:
        """Set the state of node ``i``, realising it or some of its sources where they must be."""
        n = self.regions.order[i]
        state = self._infer(n)
        self.states[n] = state
        if n in self.realized or n.op is GraphOp.CONTIGUOUS or self._narrows_next(i):
            return
        shared = len(self.regions.consumers[i]) > 1
        if (
            (state.ops > MAX_ROW_OPS and self._is_large(n, state))
            or state.depth > MAX_DEPTH
            or (shared and not self._shareable(i, state))
        ):
            self.realize(n)

    def _is_large(self, n: Node, state: State) -> bool:
        """True if a kernel that inlines ``n`` has too many operations."""
        if state.kind != FREE and state.heavy is None:
            return True
        stack, seen, ops = [n], set[Node](), 0
        while stack and ops <= MAX_OPS < state.ops <= MAX_TREE:
            at = stack.pop()
            if at not in seen and (at is n or self.state(at) != _LEAF):
                seen.add(at)
                ops += at.op is GraphOp.MAP
                stack.extend(at.srcs)
        return ops > MAX_OPS or state.ops > MAX_TREE

    def _narrows_next(self, i: int) -> bool:
        """True if a cast to 16 bits is all that reads node ``i``: if any, that one is stored."""
        consumers = self.regions.consumers[i]
        return len(consumers) == 1 and narrows(self.regions.order[consumers[0]])

    def realize(self, n: Node) -> None:
        """Give ``n`` memory: below the views, widening casts and roundings to tf32 that end it, at
        the one with the fewest dimensions, not yet spread out.

        Above the views where they interleave dimensions (pixels of a transposed convolution,
        windows of an image): the kernel that stores splits its axes for that, one that reads would
        divide indices.

        The nodes that spread it out are then cheap: they read that memory. So are those that
        dequantise bytes, which take a quarter of the memory.
        """
        chain, above = [n], list[Node]()
        while self.state(chain[0]) != _LEAF:
            if (dequantised := self._dequantised(chain[-1])) is not None:
                (*between, found) = dequantised
                above, chain = [*above, *chain, *between], [found]
                continue
            if not (
                chain[-1].op in (*VIEWS, GraphOp.EXPAND, GraphOp.PAD)
                or converts_reads(chain[-1])
                or _has_places(chain[-1])
            ):
                break
            below = chain[-1].srcs[0]
            if self.state(below) == _LEAF:
                break
            if chain[-1].op in (GraphOp.EXPAND, GraphOp.PAD):
                above, chain = [*above, *chain], [below]
            else:
                chain = [*chain, below]
        if self.state(chain[0]) == _LEAF:
            return
        dims = [sum(s != 1 for s in c.shape) for c in chain]
        best = max(k for k, d in enumerate(dims) if d == min(dims))
        while (
            best > 0
            and chain[best - 1].op is GraphOp.RESHAPE
            and dims[best - 1] == dims[best]
            and len(chain[best - 1].shape) <= len(chain[best].shape)
        ):
            best -= 1
        if dims[0] == dims[best] and interleaves(chain[: best + 1]):
            best = next(k for k, c in enumerate(chain) if not converts_reads(c))
        self.realized.add(chain[best])
        self.covered.update(chain[: best + 1])
        for spread in reversed(above):
            if spread in self.states:
                self.states[spread] = self._infer(spread)

    def _dequantised(self, n: Node) -> list[Node] | None:
        """The nodes below ``n`` down to bytes that are computed, where it is f32 of those less a
        number, times another; None where it is none.

        One that is a factor of sums of products is none, as each would compute it many times. Whole
        numbers, without a scale, are what sums of each channel were made for.
        """
        found: list[Node] = []
        if n.op is GraphOp.MAP and n.arg is Op.MUL and self._products(self.regions.position[id(n)]):
            return None
        for _ in range(3):
            if n.op is GraphOp.CAST:
                below = n.srcs[0]
                bytes_ = below.dtype in (I8, U8) and n.dtype == F32 and self.state(below) != _LEAF
                return [*found, below] if bytes_ else None
            if n.op is not GraphOp.MAP or n.arg not in (Op.SUB, Op.MUL):
                return None
            computed = [s for s in n.srcs if self.state(s) != _LEAF and not _of_constant(s)]
            if len(computed) != 1:
                return None
            (n,) = computed
            found.append(n)
        return None

    def _infer(self, n: Node) -> State:
        op = n.op
        if not n.srcs or op is GraphOp.CONTIGUOUS:
            return _LEAF
        if op is GraphOp.MAP:
            return self._map(n)
        src = n.srcs[0]
        s = self.state(src)
        if op is GraphOp.CAST:
            return replace(s, depth=s.depth + 1)
        if op is GraphOp.REDUCE:
            return self._reduce(n, src)
        if op is GraphOp.EXPAND:
            return self._expand(n, src, s)
        if op in (GraphOp.PAD, GraphOp.WINDOW, GraphOp.GATHER):
            return self._window(n, src, s)
        if op is GraphOp.PERMUTE:
            return _permuted(n, s)
        if op is GraphOp.RESHAPE:
            return _reshaped(n, src, s)
        if op is GraphOp.SHRINK and any(n.shape[d] != src.shape[d] for d in s.merged):
            # its loops would be over what is left, from which // and % lead to those of the sum
            self.realize(src)
            return self.state(src)
        return s

    def _map(self, n: Node) -> State:
        states = [self.state(s) for s in n.srcs]
        if any(s.kind != FREE for s in states):
            self._settle(n)
            states = [self.state(s) for s in n.srcs]
        pending = _union(states)
        op = cast(Op, n.arg)
        bodies = [s for s in states if s.kind == BODY]
        return State(
            kind=max(s.kind for s in states),
            pending=pending,
            heavy=next((s.heavy for s in states if s.heavy is not None), None),
            own=bodies[0].own if bodies else frozenset(),
            mixed=any(s.mixed for s in states),
            rows=tuple(dict.fromkeys(r for s in states for r in s.rows)),
            # matrix units round what they read to TF32
            ops=(op is not Op.TF32) + sum(s.ops for s in states),
            depth=1 + max(s.depth for s in states),
            expensive=op in EXPENSIVE or any(s.expensive for s in states),
            reuse=any(s.reuse for s in states),
            product=op in PRODUCTS or any(s.product for s in states),
            gathered=any(s.gathered for s in states),
            merged=frozenset(d for s in states for d in s.merged),
        )

    def _settle(self, n: Node) -> None:
        """Realise sources of a MAP until the rest can share one kernel."""
        bodies = [s for s in n.srcs if self.state(s).kind == BODY]
        rows = [s for s in n.srcs if self.state(s).kind == ROW]
        first = self.state(bodies[0]) if bodies and not rows else None
        for body in map(self.state, bodies):
            if first is None or (body.own, body.mixed) != (first.own, first.mixed):
                self._realize_rows(body)
        if len({self.state(s).pending for s in rows}) > 1:
            self._settle_rows(rows)
        pending = _union([self.state(s) for s in n.srcs])
        if len(pending) > MAX_PENDING:
            for s in n.srcs:
                if self.state(s).kind != FREE:
                    self.realize(s)

    def _settle_rows(self, rows: list[Node]) -> None:
        """Of several reductions that meet, a contraction goes on alone, the largest one; plain ones
        go together.
        """
        heavy = {s.heavy for s in map(self.state, rows) if s.heavy is not None}
        if not heavy:
            return
        main = max(heavy, key=lambda h: (h.srcs[0].size, -self.regions.position[id(h)]))
        for r in rows:
            if self.state(r).pending != frozenset((main,)):
                self.realize(r)

    def _realize_rows(self, s: State) -> None:
        for r in s.rows:
            self.realize(r)

    def _reduce(self, n: Node, src: Node) -> State:
        op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
        s = self.state(src)
        wide = frozenset(a for a in axes if src.shape[a] != 1)
        if not wide:
            return s
        if s.kind == BODY and (s.mixed or s.own != wide or len(s.pending) >= MAX_PENDING):
            if s.reuse or len(s.rows) == 1:
                self._realize_rows(s)
            else:
                self.realize(src)
        elif s.kind == ROW:
            self.realize(src)
        s = self.state(src)
        if s.kind == BODY:
            return State(ROW, s.pending | {n})
        heavy = n if op is Op.ADD and s.product and s.reuse else None
        return State(ROW, frozenset((n,)), heavy)

    def _expand(self, n: Node, src: Node, s: State) -> State:
        factor = n.size // max(1, src.size)
        grown = frozenset(
            d for d, (a, b) in enumerate(zip(src.shape, n.shape, strict=True)) if a != b
        )
        if s.kind == FREE:
            if s.expensive or s.ops > CHEAP_OPS or self._feeds_products(src, s.ops):
                self.realize(src)
                s = self.state(src)
            return replace(s, reuse=s.reuse or src.size > 1)
        serial = src.size < SERIAL_ROWS and factor > SERIAL_LIMIT
        if s.kind == BODY or s.heavy is not None or serial:
            self.realize(src)
            return State(reuse=src.size > 1)
        return replace(s, kind=BODY, own=grown, rows=(src,))

    def _window(self, n: Node, src: Node, s: State) -> State:
        repeats = n.op is GraphOp.GATHER or (n.op is GraphOp.WINDOW and cast(Any, n.arg)[1] > 1)
        dear = s.expensive or s.ops > CHEAP_OPS or (s.gathered and n.op is GraphOp.WINDOW)
        if repeats and s.kind == FREE and not dear:
            dear = self._feeds_products(src, self._computed(src, choices=not self._is_square(n)))
        if s.kind != FREE or (repeats and dear):
            self.realize(src)
            s = self.state(src)
        return replace(
            s,
            reuse=s.reuse or repeats,
            ops=s.ops + (n.op is GraphOp.PAD and s.ops > 0),
            gathered=s.gathered or n.op is GraphOp.GATHER,
        )

    def _shareable(self, i: int, state: State) -> bool:
        """True if node ``i``, which has several consumers, may stay without memory."""
        if state.kind == FREE:
            if not state.expensive and state.ops <= 2 * CHEAP_OPS:
                return state.reuse or not self._stored_for_products(i, state.ops)
            return self._meets(i, FREE, False, apart=True)
        if state.kind == BODY and state.ops > 2 * CHEAP_OPS:
            return False
        if state.kind == ROW and any(
            self.regions.order[c].op is GraphOp.REDUCE for c in self.regions.consumers[i]
        ):
            return False
        heavy = state.heavy is not None
        return self._meets(i, state.kind, heavy, apart=not heavy)

    def _feeds_products(self, n: Node, ops: int) -> bool:
        """True if ``n`` is stored for products, of ``ops`` operations. Windows are not: what they
        are of was asked, and is some times smaller.
        """
        below = n
        while below.op in MOVEMENT and self.state(below) != _LEAF:
            if below.op is GraphOp.WINDOW and cast(Any, below.arg)[1] > 1:
                return False
            below = below.srcs[0]
        return self._stored_for_products(self.regions.position[id(n)], ops)

    def _is_square(self, n: Node) -> bool:
        """True for the first of two windows of 3 neighbours, as of convolutions that Winograd's
        transforms may compute: of images that are joined, they read each, once.
        """
        after = (
            self.regions.order[c] for c in self.regions.consumers[self.regions.position[id(n)]]
        )
        windows = [cast(Any, w.arg)[1:] for w in (n, *after) if w.op is GraphOp.WINDOW]
        return windows == [(3, 1, 1)] * 2

    def _computed(self, n: Node, *, choices: bool) -> int:
        """Operations of a kernel that inlines ``n``; with ``choices``, those of joined images."""
        stack, seen = [n], set[Node]()
        while stack:
            at = stack.pop()
            if at not in seen and self.state(at) != _LEAF:
                seen.add(at)
                stack.extend(at.srcs)
        free = (Op.TF32,) if choices else (Op.TF32, Op.WHERE)
        return sum(x.op is GraphOp.MAP and x.arg not in free for x in seen)

    def _stored_for_products(self, i: int, ops: int) -> bool:
        """True if node ``i`` is a factor of sums of products that would together take longer to
        compute it, again and again, than it takes to store it and to read it back.

        A register tile computes a factor for its own results alone: panels are copies of operands
        as they lie in memory. Each time takes ``ops`` and one more, which spreads what is computed
        over the lanes; loads spread what they read for nothing.
        """
        if not ops:
            return False
        size = self.regions.order[i].size
        again = (ops + 1) * self._products(i) // _SERVED
        return again > _STORED[size > _HELD] * size + _LAUNCHED

    def _products(self, i: int) -> int:
        """The products, in the sums of which node ``i`` is a factor, repeated by views between
        them; none of a sum along whose axes it is constant, which computes it before its loops.
        """
        differs = frozenset(d for d, n in enumerate(self.regions.order[i].shape) if n != 1)
        stack, seen, found = [(i, False, differs)], set[tuple[int, bool]](), 0
        while stack:
            at, repeated, dims = stack.pop()
            for c in self.regions.consumers[at]:
                n = self.regions.order[c]
                again = repeated or n.op in (GraphOp.EXPAND, GraphOp.WINDOW)
                if n.op in (*MOVEMENT, GraphOp.CAST):
                    if (c, again) not in seen:
                        seen.add((c, again))
                        stack.append((c, again, _followed(n, dims)))
                elif again and n.op is GraphOp.MAP and n.arg is Op.MUL:
                    found += n.size * len(self._sums(c, dims))
        return found

    def _sums(self, i: int, dims: frozenset[int]) -> set[int]:
        """The sums of node ``i`` along some of its dimensions ``dims``."""
        return {
            c
            for c in self.regions.consumers[i]
            if self.regions.order[c].op is GraphOp.REDUCE
            and cast(Any, self.regions.order[c].arg)[0] is Op.ADD
            and not dims.isdisjoint(cast(Any, self.regions.order[c].arg)[1])
        }

    def _meets(self, i: int, kind: int, heavy: bool, apart: bool) -> bool:
        """True if all paths from node ``i`` meet again with nothing between that would need memory.

        Where they read other elements of it (halves of a product), the kernel that they meet in
        computes it several times, and is no product any more: only ``apart`` allows that.
        """
        region = self.regions.between(i, REGION_LIMIT)
        if region is None:
            return False
        kinds: dict[int, int] = {i: kind}
        views: dict[int, tuple[object, ...]] = {i: ()}
        for c in region:
            node = self.regions.order[c]
            if c != region[-1] and (c in self.regions.outputs or node in self.realized):
                return False
            places = [self.regions.position[id(s)] for s in node.srcs]
            below = max(kinds.get(p, FREE) for p in places)
            after = _after(node.op, below, kind == FREE or heavy)
            seen = {views[p] for p in places if p in views}
            if after is None or (len(seen) > 1 and not apart):
                return False
            kinds[c] = after
            for view in seen:
                views[c] = view if node.op in _IN_PLACE else (*view, node.op, node.arg)
        return True


def _after(op: GraphOp, kind: int, plain: bool) -> int | None:
    """The kind that ``op`` makes of ``kind`` inside a kernel; None where memory is needed.

    ``plain``: no rows.
    """
    if op in (GraphOp.MAP, GraphOp.CAST, GraphOp.SHRINK, *VIEWS):
        return kind
    if plain or op not in (GraphOp.EXPAND, GraphOp.REDUCE):
        return None
    if op is GraphOp.EXPAND:
        return BODY if kind == ROW else None
    return ROW if kind == BODY else None


def _union(states: Iterable[State]) -> frozenset[Node]:
    return frozenset(p for s in states for p in s.pending)


def _of_constant(n: Node) -> bool:
    """True for a constant that is cast or moved."""
    while len(n.srcs) == 1:
        n = n.srcs[0]
    return n.op is GraphOp.CONST


def _has_places(n: Node) -> bool:
    """True of windows of one element, at each one: of a 1x1 convolution's image, in memory as it is
    elsewhere.
    """
    return n.op is GraphOp.WINDOW and cast(Any, n.arg)[1] == 1 and n.size == n.srcs[0].size


def _followed(n: Node, dims: frozenset[int]) -> frozenset[int]:
    """The dimensions of movement ``n`` along which elements differ that do along ``dims``."""
    if n.op is GraphOp.PERMUTE:
        return _permuted(n, State(own=dims)).own
    if n.op is GraphOp.RESHAPE:
        return _reshaped(n, n.srcs[0], State(own=dims)).own
    if n.op is GraphOp.WINDOW and cast(Any, n.arg)[0] in dims:
        return dims | {len(n.shape) - 1}
    return dims


def _permuted(n: Node, s: State) -> State:
    """The state seen through a permutation."""
    if not s.own and not s.merged:
        return s
    order = cast(tuple[int, ...], n.arg)
    own, merged = (
        frozenset(d for d, o in enumerate(order) if o in dims) for dims in (s.own, s.merged)
    )
    return replace(s, own=own, merged=merged)


def _reshaped(n: Node, src: Node, s: State) -> State:
    """The state through a reshape: groups of dimensions all own, or none of them, keep it."""
    if s.heavy is not None:
        groups = reshape_groups(src.shape, n.shape)
        merged = (after for before, after in groups if len(before) > 1 or s.merged & {*before})
        s = replace(s, merged=frozenset(d for after in merged for d in after))
    if not s.own or s.mixed:
        return s
    own: set[int] = set()
    mixed = False
    for before, after in reshape_groups(src.shape, n.shape):
        inside = [d in s.own for d in before]
        if all(inside):
            own.update(after)
        elif any(inside):
            mixed = True
    if mixed:
        own = {d for d in range(len(n.shape)) if n.shape[d] != 1}
    return replace(s, own=frozenset(own), mixed=mixed or prod(n.shape) == 0)


# ---- cuts


def scores_of(product: Node, drafts: Mapping[Node, Draft]) -> tuple[Node, ...]:
    """The nodes whose memory attention does without, scores first, then their softmax; none where
    ``product`` ends no attention.

    Only what a single draft reads can go.
    """

    def alone(n: Node) -> bool:
        return sum(n in d.reads.values() for d in drafts.values()) == 1

    if not is_product(drafts[product].kernel):
        return ()
    for softmax in drafts[product].reads.values():
        if softmax in drafts and _is_softmax(drafts[softmax].kernel) and alone(softmax):
            for scores in drafts[softmax].reads.values():
                if scores in drafts and is_product(drafts[scores].kernel) and alone(scores):
                    return scores, softmax
    return ()


def is_product(k: Kernel) -> bool:
    """True if a kernel is one sum of products of its inputs, and its epilogue."""
    return len(k.reduces) == 1 and sums_products(k.reduces[0])


def _is_softmax(k: Kernel) -> bool:
    """True if a kernel folds the maximum of each row, and then a sum of exponentials."""
    return (
        [r.op for r in k.reduces] == [Op.MAX, Op.ADD]
        and all(len(s.axes) == 1 for s in k.stores)
        and any(isinstance(x, Apply) and x.op is Op.EXP for x in nodes(k.reduces[1].expr))
    )


_ROUNDS = 4
"""Most times that a graph is cut: where repeats are stored once, it may be cut otherwise."""

_MAX_OPS = 4 * MAX_OPS
"""Operations of a kernel, above which a toggle is left out, for the compiler's sake."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """One draft per tensor that is needed in memory and is no constant, by node.

    ``order`` is topological; ``targets`` are the outputs'.

    ``buffers`` may have memory (the nodes of ``drafts`` do), ``fixed`` always do: outputs and
    fences. A kernel has up to ``most`` parameters (zero: any).
    """

    order: tuple[Node, ...]
    targets: tuple[Node, ...]
    fixed: frozenset[Node]
    buffers: frozenset[Node]
    drafts: dict[Node, Draft]
    place: dict[Node, int] = field(repr=False)
    """The position of each node in ``order``: its name in every process."""
    steps: tuple[Step, ...] = field(default=(), repr=False)
    """Rewrites that made ``targets`` of the outputs' own."""
    most: int = 0

    @staticmethod
    def of(outputs: tuple[Node, ...], most: int = 0) -> Drafts:
        """The graph as the rules cut it; no intermediate stores copies of what repeats itself."""
        targets = tuple(target_of(o) for o in outputs)
        steps: list[Step] = []
        for left in reversed(range(_ROUNDS)):
            order, realized = realized_nodes(targets)
            fences = {n.srcs[0] if is_plain(n) else n for n in order if n.op is GraphOp.CONTIGUOUS}
            made = _Cutting(targets, {n for n in realized if n.srcs}, {}, frozenset(), most)
            made.run()
            fixed = frozenset((*targets, *fences))
            found = list[Step]()
            once = stored_once(targets, order, made.done.keys() - fixed, found)
            if once == targets or not left:
                break
            targets = once
            steps += found
        place = {n: i for i, n in enumerate(order)}
        buffers = frozenset(made.buffers)
        return Drafts(tuple(order), targets, fixed, buffers, made.done, place, tuple(steps), most)

    def sorted(self) -> list[Draft]:
        """The drafts, sources first."""
        return [self.drafts[n] for n in sorted(self.drafts, key=self.place.__getitem__)]

    def toggled(self, toggles: Set[int]) -> Drafts:
        """The graph cut otherwise at the nodes of these positions.

        Leaves, outputs and fences stay as they are.
        """
        nodes = {self.order[i] for i in toggles if 0 <= i < len(self.order)} - self.fixed
        off = frozenset(n for n in nodes if n in self.drafts)
        on = {n for n in nodes if n.srcs and n.size and n.op is not GraphOp.CONTIGUOUS} - off
        rows = self._attentions(toggles, off, on)
        off = off.union(*(gone for _, gone in rows))
        if not off and not on:
            return self
        kept = {
            n: d
            for n, d in self.drafts.items()
            if n not in off and off.isdisjoint(d.reads.values()) and on.isdisjoint(d.inlined)
        }
        kept.update({d.node: d for d, _ in rows})
        made = _Cutting(self.targets, (set(self.buffers) - off) | on, kept, off, self.most)
        made.run()
        return replace(self, buffers=frozenset(made.buffers), drafts=made.done)

    def attentions(self) -> dict[int, tuple[Node, ...]]:
        """By toggle, the nodes that lose their memory: scores, then their softmax."""
        found = {self.place[n] + len(self.order): self.scores_of(n) for n in self.drafts}
        return {i: found[i] for i in sorted(found) if found[i]}

    def scores_of(self, product: Node) -> tuple[Node, ...]:
        """The nodes whose memory attention that ends in ``product`` does without: scores, then
        their softmax; none where there is none, or an output or a fence needs one of them.
        """
        if product not in self.drafts:
            return ()
        found = scores_of(product, self.drafts)
        return () if self.fixed.intersection(found) else found

    def _attentions(
        self, toggles: Set[int], off: frozenset[Node], on: Set[Node]
    ) -> list[tuple[Draft, tuple[Node, ...]]]:
        """The kernels of attention that toggles ask for, with the nodes that lose their memory."""
        made = []
        for i in sorted(i - len(self.order) for i in toggles if i >= len(self.order)):
            product = self.order[i] if i < len(self.order) else None
            gone = () if product is None or product in off else self.scores_of(product)
            if product is None or not gone or off.intersection(gone):
                continue
            try:
                draft = draft_kernel(product, {*(self.buffers - off), *on} - {*gone}, rows=True)
            except CutError:
                continue
            made.append((draft, gone))
        return made


@dataclass(slots=True)
class _Cutting:
    """Drafting in progress.

    Mutable: ``buffers`` grows until every kernel is legal. ``off`` lost its memory.
    """

    targets: tuple[Node, ...]
    buffers: set[Node]
    done: dict[Node, Draft]
    off: frozenset[Node]
    most: int

    def run(self) -> None:
        """Draft all that the targets need; no reduction twice."""
        while True:
            self._draft_all()
            twice = self._computed_twice()
            if not twice:
                return
            self.buffers |= twice
            self.done = {
                n: d for n, d in self.done.items() if n not in twice and twice.isdisjoint(d.inlined)
            }

    def _draft_all(self) -> None:
        """Fill ``done`` with the drafts of the targets and all they read; drop what is not read."""
        stack, needed = list(self.targets), set[Node]()
        while stack:
            n = stack.pop()
            if n in needed or not n.size or n.op is GraphOp.CONST:
                continue
            needed.add(n)
            while n not in self.done:
                self._draft(n)
            stack.extend(s for s in self.done[n].reads.values() if s.op is not GraphOp.INPUT)
        for n in [n for n in self.done if n not in needed]:
            del self.done[n]

    def _draft(self, n: Node) -> None:
        try:
            draft = draft_kernel(n, self.buffers)
        except CutError as e:
            if e.node in self.buffers:  # again and again
                raise InternalError(f"{n}: it can not be drafted: {e}") from e
            self.buffers.add(e.node)
            return
        inlined = self.off.intersection(draft.inlined) - {n}
        over = 0 < self.most < len(draft.kernel.params)
        if inlined and (over or operation_count(draft) > _MAX_OPS):
            self.buffers |= inlined
        elif over and (part := _part_of(draft, self.most - 1)) is not None:
            self.buffers.add(part)
        else:
            self.done[n] = draft

    def _computed_twice(self) -> set[Node]:
        """Reductions that two kernels compute."""
        seen: set[Node] = set()
        twice: set[Node] = set()
        for d in self.done.values():
            for n in d.inlined:
                if n.op is GraphOp.REDUCE and n is not d.node:
                    (twice if n in seen else seen).add(n)
        return twice


def _part_of(draft: Draft, most: int) -> Node | None:
    """The smallest of the nodes inside a kernel that read the most tensors, up to ``most``; None
    where each reads one, or more than that.
    """
    below = {n: frozenset((n,)) for n in draft.reads.values()}
    inside: list[Node] = []
    stack = [draft.node]
    while stack:
        n = stack[-1]
        left = [s for s in n.srcs if s not in below]
        stack += left
        if not left:
            stack.pop()
            if n not in below:
                below[n] = frozenset[Node]().union(*(below[s] for s in n.srcs))
                inside.append(n)
    found = [n for n in inside if n is not draft.node and 1 < len(below[n]) <= most]
    return max(found, key=lambda n: (len(below[n]), -n.size), default=None)


def operation_count(draft: Draft) -> int:
    """Operations of a kernel; very many where they are too many as trees."""
    exprs = [s.expr for s in draft.kernel.stages]
    if tree_size(*exprs) > MAX_TREE:
        return MAX_TREE
    return sum(isinstance(x, Apply) for e in exprs for x in nodes(e))
