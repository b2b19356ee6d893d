"""The cotangent of a node, as a sum of products that is not added up yet.

    G[s] = sum over r of  f0[s, r] * f1[s, r] * ...

Factors keep extents of 1 where they do not depend on a dimension, and adjoints of movements move
each factor by itself. So the adjoint of a convolution's windows meets the gradient, which depends
on the place, and the weight, which depends on the tap, apart; and the sum over channels waits until
the one over taps is there, too:

    y[o, p]    = sum over c, k of x[c, p + k] * w[o, c, k]
    dx[c, i]   = sum over o, k of dy[o, i - k] * w[o, c, k]        one reduction of two factors

It is added up where something else than a movement reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tunegrad.ir import graph
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import MOVEMENT, GraphOp, Node
from tunegrad.lazy import dataclass

from ..nodes.elementwise import constant
from ..nodes.movement import extended, inverse, mirrored_windows, spaced


@dataclass(frozen=True, slots=True)
class Cotangent:
    """Factors have ``shape`` (the node's), then ``summed`` dimensions; each full, or 1."""

    shape: tuple[int, ...]
    factors: tuple[Node, ...]
    summed: tuple[int, ...] = ()

    @staticmethod
    def of(node: Node) -> Cotangent:
        """One that is a node."""
        return Cotangent(node.shape, (narrow(node),))

    # ---- values

    def added_up(self) -> Cotangent:
        """The same with one factor and nothing left to sum."""
        if not self.summed:
            return self.multiplied()
        product = self.multiplied().factors[0]
        rank, dtype = len(self.shape), product.dtype
        lead, tail = product.shape[:rank], product.shape[rank:]
        repeats = prod(n for n, e in zip(self.summed, tail, strict=True) if e == 1)
        axes = tuple(rank + i for i, e in enumerate(tail) if e != 1)
        total = graph.reduce(Op.ADD, graph.cast(product, dtype.compute), axes)
        total = graph.cast(graph.reshape(total, lead), dtype)
        if repeats != 1:
            total = _times(total, graph.full(float(repeats), total.shape, dtype.compute))
        return Cotangent(self.shape, (total,))

    def node(self) -> Node:
        """Its value."""
        return graph.expand(self.added_up().factors[0], self.shape)

    def multiplied(self) -> Cotangent:
        """The same with one factor."""
        first, *rest = self.factors
        for f in rest:
            first = _times(first, f)
        return Cotangent(self.shape, (first,), self.summed)

    def times(self, other: Node) -> Cotangent:
        """Multiplied by a node of its shape."""
        factor, mine = narrow(other), self.added_up() if self.summed else self
        if is_full(factor, 1):
            return mine
        kept = tuple(f for f in mine.factors if not is_full(f, 1))
        return Cotangent(self.shape, (*kept, factor))

    # ---- adjoints of movements; ``shape`` is the source's

    def reshaped(self, shape: tuple[int, ...]) -> Cotangent:
        """Dimensions that were split, joined or dropped, each factor by itself where none of the
        groups depends on a part of its dimensions alone.
        """
        if 0 in shape:
            return Cotangent.of(graph.reshape(self.node(), shape))
        groups = list(_groups(self.shape, shape))

        def moved(f: Node) -> Node:
            grown, new = list[int](), list[int]()
            for (a, b), (c, d) in groups:
                part = f.shape[a:b]
                if prod(part) == 1:
                    grown += part
                    new += [1] * (d - c)
                else:
                    grown += self.shape[a:b]
                    new += shape[c:d]
            tail = f.shape[len(self.shape) :]
            return graph.reshape(graph.expand(f, (*grown, *tail)), (*new, *tail))

        return Cotangent(shape, tuple(map(moved, self.factors)), self.summed)

    def permuted(self, order: Sequence[int]) -> Cotangent:
        """Adjoint of PERMUTE(order)."""
        rank = len(self.shape)
        back = inverse(order)
        whole = (*back, *range(rank, rank + len(self.summed)))
        shape = tuple(self.shape[d] for d in back)
        return Cotangent(shape, tuple(graph.permute(f, whole) for f in self.factors), self.summed)

    def repeated(self, shape: tuple[int, ...]) -> Cotangent:
        """Adjoint of EXPAND: the dimensions that it repeated are left to sum.

        What is left to sum before is added up first. As one sum it would be as much arithmetic, and
        the inner sum is what others read: a product's gradient beside that of its bias.
        """
        if self.summed:
            return self.added_up().repeated(shape)
        axes = [d for d, (a, b) in enumerate(zip(shape, self.shape, strict=True)) if a != b]
        extents = tuple(self.shape[d] for d in axes)
        moved = tuple(_behind(f, axes) for f in self.factors)
        return Cotangent(shape, moved, (*self.summed, *extents))

    def spread(self, shape: tuple[int, ...]) -> Cotangent:
        """Adjoint of a sum that kept its axes with extent 1: the same everywhere along them."""
        return Cotangent(shape, self.factors, self.summed)

    def cut(self, widths: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> Cotangent:
        """Adjoint of PAD(widths)."""
        limits = [(lo, lo + n) for (lo, _), n in zip(widths, shape, strict=True)]

        def moved(f: Node) -> Node:
            kept = [
                limits[d] if d < len(shape) and e == self.shape[d] and e != 1 else (0, e)
                for d, e in enumerate(f.shape)
            ]
            return graph.shrink(f, tuple(kept))

        return Cotangent(shape, tuple(map(moved, self.factors)), self.summed)

    def padded(self, limits: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> Cotangent:
        """Adjoint of SHRINK(limits); all is multiplied first, as zero times infinity is no zero."""
        (f,) = self.multiplied().factors
        widths = [(lo, n - hi) for (lo, hi), n in zip(limits, shape, strict=True)]
        grown = [self.shape[d] if any(w) else f.shape[d] for d, w in enumerate(widths)]
        f = graph.expand(f, (*grown, *f.shape[len(shape) :]))
        return Cotangent(shape, (graph.pad(f, (*widths, *((0, 0) for _ in self.summed))),),
                         self.summed)  # fmt: skip

    def flipped(self, dims: Sequence[int]) -> Cotangent:
        """Adjoint of FLIP(dims)."""
        moved = (graph.flip(f, tuple(d for d in dims if f.shape[d] != 1)) for f in self.factors)
        return Cotangent(self.shape, tuple(moved), self.summed)

    def unwindowed(
        self, dim: int, size: int, stride: int, dilation: int, shape: tuple[int, ...],
        padding: int = 0,
    ) -> Cotangent:  # fmt: skip
        """Adjoint of WINDOW: ``dx[i] = sum of g[o, k] over o * stride + k * dilation = i``.

        Windows that do not overlap are laid one behind the other. Else the gradient, with zeros
        between its elements, is read by mirrored windows of stride 1; of a product with weights of
        taps, a stride apart, each phase by its own taps (``_phases``). Of large weights and few
        places the product comes first (``_by_places``). ``padding`` is how many elements at the
        front will be cut.
        """
        if 0 in shape:
            return Cotangent.of(constant(0, shape, self.factors[0].dtype))
        last, count = len(self.shape) - 1, self.shape[dim]
        if count == 1 or stride >= dilation * (size - 1) + 1:
            apart = shape[dim] if count == 1 else stride
            return self._laid_out(dim, size, apart, dilation, shape)
        places = [f for f in self.factors if f.shape[dim] != 1]
        if any(f.shape[last] != 1 for f in places):
            return self._mirrored(dim, size, stride, dilation, shape)
        if self._has_few_places(dim, last):
            return self._by_places(last)._mirrored(dim, size, stride, dilation, shape)
        taps = [_behind(f, [last]) for f in self.factors if f.shape[dim] == 1]
        if not places:
            rank = len(self.shape) + len(self.summed)
            places = [constant(1, (1,) * rank, self.factors[0].dtype)]
        (both,) = Cotangent(self.shape, tuple(places), self.summed).multiplied().factors
        both = graph.expand(both, (*both.shape[:dim], count, *both.shape[dim + 1 :]))
        taps = [_dropped(t, last) for t in taps]
        if stride > 1 and dilation == 1 and any(t.shape[-1] == size for t in taps):
            return self._phases(_dropped(both, last), taps, dim, size, stride, shape, padding)
        read = mirrored_windows(_dropped(both, last), dim, size, stride, dilation, shape[dim])
        return Cotangent(shape, (read, *taps), (*self.summed, size))

    def _has_few_places(self, dim: int, last: int) -> bool:
        """True for a product of places and taps that sums ``_FEW`` times as many terms as it has
        places: its weights are as much larger than its results.
        """
        lead = range(len(self.shape))
        places, taps = (
            {d for f in self.factors if f.shape[of] != 1 for d in lead if f.shape[d] != 1}
            for of in (dim, last)
        )
        rows, dtype = prod(self.shape[d] for d in places), self.factors[0].dtype
        apart = last in taps and not places & taps and dtype == dtype.compute
        return apart and _FEW * rows <= max(self.summed, default=0)

    def _by_places(self, last: int) -> Cotangent:
        """The same added up: a matrix product of places and weights as these lie, which are read
        once and along their rows.

            z[o, (c, k)] = sum over m of g[o, m] * w[m, (c, k)]       dx[c, o + k] += z[o, (c, k)]
        """
        rank = len(self.shape)
        taps = [f for f in self.factors if f.shape[last] != 1]
        order = (*sorted(range(rank), key=lambda d: any(f.shape[d] != 1 for f in taps)),)
        stored = graph.contiguous(graph.permute(self.node(), order))
        return Cotangent(self.shape, (graph.permute(stored, inverse(order)),))

    def _phases(
        self, places: Node, taps: Sequence[Node], dim: int, size: int, stride: int,
        shape: tuple[int, ...], padding: int,
    ) -> Cotangent:  # fmt: skip
        """Of a product of places and taps, element ``i = stride * q + r`` by the taps of its
        phase r alone, not by zeros between two places:

            dx[stride * q + r] = sum over t of g[q - t] * w[stride * t + r]

        Zeros stand before the taps, so that the phases begin where padding ends. Where a phase has
        no tap, both factors are zero, and lowering leaves the term out.
        """
        lead = -padding % stride
        steps = -(-(lead + size) // stride)
        count = -(-(lead + shape[dim]) // stride)
        ends = lead, steps * stride - lead - size

        def by_phase(f: Node) -> Node:
            """Taps last, to phases beside the places."""
            f = graph.pad(f, (*((0, 0) for _ in f.shape[:-1]), ends))
            f = graph.reshape(f, (*f.shape[:-1], steps, stride))
            order = [*range(len(f.shape) - 1)]
            order.insert(dim + 1, len(f.shape) - 1)
            f = graph.permute(f, tuple(order))
            return _beside(
                graph.expand(f, (*f.shape[:dim], count, *f.shape[dim + 1 :])), dim, stride
            )

        read = mirrored_windows(places, dim, steps, 1, 1, count)
        each = graph.expand(graph.reshape(read, (*read.shape, 1)), (*read.shape, stride))
        flat = graph.reshape(each, (*read.shape[:-1], steps * stride))
        within = (*((0, e) for e in flat.shape[:-1]), (lead, lead + size))
        factors = [by_phase(graph.shrink(flat, within))]
        for t in taps:
            of_taps = t.shape[-1] == size
            factors.append(by_phase(_stored(t, dim, len(shape))) if of_taps else t)
        limits = (lead, lead + shape[dim])
        cut = (
            graph.shrink(f, tuple(limits if d == dim else (0, e) for d, e in enumerate(f.shape)))
            if f.shape[dim] != 1
            else f
            for f in factors
        )
        return Cotangent(shape, tuple(cut), (*self.summed, steps))

    def _laid_out(
        self, dim: int, size: int, stride: int, dilation: int, shape: tuple[int, ...]
    ) -> Cotangent:
        """Windows beside each other: (.., o, .., k) to (.., o * stride + k * dilation, ..).

        Where gaps are between them, all is added up first: no sum is made for a gap.
        """
        gaps = stride > dilation * (size - 1) + 1
        f, last, count = (self.added_up() if gaps else self)._of_both(dim, size)
        summed, rank = () if gaps else self.summed, len(f.shape)
        order = [d for d in range(rank) if d != last]
        order.insert(dim + 1, last)
        f = graph.permute(f, tuple(order))
        f = extended(spaced(f, dim + 1, dilation), dim + 1, stride)
        f = graph.reshape(f, (*f.shape[:dim], count * stride, *f.shape[dim + 2 :]))
        return Cotangent(shape, (extended(f, dim, shape[dim]),), summed)

    def _mirrored(
        self, dim: int, size: int, stride: int, dilation: int, shape: tuple[int, ...]
    ) -> Cotangent:
        """Of a product that depends on both: windows over places for each tap, of which the one of
        that tap is kept (the diagonal of a square of taps).
        """
        f, last, _ = self._of_both(dim, size)
        f = _dropped(_behind(f, [last]), last)
        read = mirrored_windows(f, dim, size, stride, dilation, shape[dim])
        *lead, _, _ = read.shape
        flat = graph.reshape(read, (*lead, size * size))
        table = graph.reshape(extended(flat, len(lead), size * (size + 1)),
                              (*lead, size, size + 1))  # fmt: skip
        column = graph.reshape(extended(table, len(lead) + 1, 1), (*lead, size))
        return Cotangent(shape, (column,), (*self.summed, size))

    def _of_both(self, dim: int, size: int) -> tuple[Node, int, int]:
        """One factor that has places and taps; the dimension of taps, and how many places."""
        (f,) = self.multiplied().factors
        last, count = len(self.shape) - 1, self.shape[dim]
        grown = list(f.shape)
        grown[dim], grown[last] = count, size
        return graph.expand(f, tuple(grown)), last, count


def added(cotangents: Sequence[Cotangent]) -> Cotangent:
    """The sum of all that flows into one node."""
    first, *rest = cotangents
    if not rest:
        return first
    total = first.added_up().factors[0]
    for c in rest:
        total = _common(Op.ADD, total, c.added_up().factors[0])
    return Cotangent(first.shape, (total,))


_FEW = 4
"""Terms to a place from which a small image's gradient is a matrix product first, and a sum over
windows of that after. oneDNN's time over ours, without and with it, in turns: 16 terms (512
channels at 2x2) 1.09 and 2.01, behind a stride 1.18 and 2.17; 4 terms 0.96 and 1.41; 2 terms (256
channels) 1.58 and 1.20, at 4x4 1.35 and 1.12.
"""

_MOST_APART = 8
"""Products that flow side by side, at most: each movement is made for each of them."""


def apart(cotangents: Sequence[Cotangent]) -> list[Cotangent]:
    """All that flows into a movement, whose adjoint is that of each part: products each by itself,
    since the sum that EXPAND leaves is one reduction for each of two factors.

        x @ q, x @ k, x @ v:    dx = sum of dq * q + sum of dk * k + sum of dv * v
    """
    products = [c for c in cotangents if c.summed or len(c.factors) > 1]
    if not 1 < len(products) <= _MOST_APART:
        return [added(cotangents)]
    rest = [c for c in cotangents if not (c.summed or len(c.factors) > 1)]
    return [*products, *([added(rest)] if rest else [])]


def narrow(n: Node) -> Node:
    """A node without its repetitions: extents of 1 in their place."""
    while n.op is GraphOp.EXPAND:
        n = n.srcs[0]
    if n.op is GraphOp.FULL and n.size:
        return graph.full(n.arg[2], (1,) * len(n.shape), n.dtype)  # type: ignore[index]
    return n


def is_full(n: Node, value: float) -> bool:
    """True for that number everywhere."""
    return n.op is GraphOp.FULL and bool(n.arg[2] == value)  # type: ignore[index]


def _times(a: Node, b: Node) -> Node:
    if is_full(a, 1) and prod(a.shape) == 1:
        return b
    return a if is_full(b, 1) and prod(b.shape) == 1 else _common(Op.MUL, a, b)


def _common(op: Op, a: Node, b: Node) -> Node:
    """An operation on two nodes of one rank, broadcast; 16-bit floats are computed in f32."""
    shape = tuple(y if x == 1 else x for x, y in zip(a.shape, b.shape, strict=True))
    x, y = (graph.expand(graph.cast(n, a.dtype.compute), shape) for n in (a, b))
    return graph.cast(graph.elementwise(op, x, y), a.dtype)


def _groups(
    a: tuple[int, ...], b: tuple[int, ...]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The smallest groups of dimensions of two shapes that have equal products."""
    i = j = 0
    while i < len(a) or j < len(b):
        begin, p, q = (i, j), 1, 1
        if i < len(a):
            p, i = a[i], i + 1
        if j < len(b):
            q, j = b[j], j + 1
        while p != q:
            if p < q:
                p, i = p * a[i], i + 1
            else:
                q, j = q * b[j], j + 1
        yield (begin[0], i), (begin[1], j)


def _behind(f: Node, axes: Sequence[int]) -> Node:
    """Axes moved behind all others, and extents of 1 in their place."""
    kept = [d for d in range(len(f.shape)) if d not in axes]
    moved = graph.permute(f, (*kept, *axes))
    lead = (1 if d in axes else e for d, e in enumerate(f.shape))
    return graph.reshape(moved, (*lead, *(f.shape[a] for a in axes)))


def _stored(taps: Node, dim: int, rank: int) -> Node:
    """Weights with their taps first and the dimensions before ``dim`` last in memory, as each tap
    reads them; what is stored already stays.
    """
    base = taps
    while base.op in MOVEMENT:
        base = base.srcs[0]
    if base.op is GraphOp.CONTIGUOUS:
        return taps
    last = len(taps.shape) - 1
    order = (last, *range(dim, rank), *range(rank, last), *range(dim))
    return graph.permute(graph.contiguous(graph.permute(taps, order)), inverse(order))


def _beside(f: Node, dim: int, count: int) -> Node:
    """Dimensions ``dim`` and ``dim + 1`` joined, the latter of 1 or ``count`` elements."""
    f = graph.expand(f, (*f.shape[: dim + 1], count, *f.shape[dim + 2 :]))
    return graph.reshape(f, (*f.shape[:dim], f.shape[dim] * count, *f.shape[dim + 2 :]))


def _dropped(f: Node, dim: int) -> Node:
    """Without a dimension of extent 1."""
    return graph.reshape(f, f.shape[:dim] + f.shape[dim + 1 :])
