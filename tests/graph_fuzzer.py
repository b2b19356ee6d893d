"""Random graphs: chains of movement, and pools of elementwise, reduce and movement operations."""

from __future__ import annotations

import random
from math import prod

import numpy as np
from numpy.typing import NDArray

from tunegrad.frontend.nodes import movement
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, BOOL, F32, I32, I64, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

Array = NDArray[np.generic]

FLOAT_UNARY = (Op.NEG, Op.ABS, Op.TANH, Op.ERF, Op.SIN, Op.FLOOR, Op.ROUND)
BINARY = (Op.ADD, Op.SUB, Op.MAX, Op.MIN, Op.MUL)
MAX_SIZE = 300


def factorization(rng: random.Random, n: int) -> tuple[int, ...]:
    """A random shape of n elements."""
    dims: list[int] = []
    while n > 1 and len(dims) < 4:
        divisors = [d for d in range(2, n + 1) if n % d == 0]
        d = rng.choice(divisors)
        dims.append(d)
        n //= d
    dims.append(n)
    if rng.random() < 0.3:
        dims.insert(rng.randrange(len(dims) + 1), 1)
    rng.shuffle(dims)
    return tuple(dims)


MOVES = ("reshape", "expand", "permute", "pad", "shrink", "flip", "window")


def moved(rng: random.Random, x: Node, joins: bool = True) -> Node:
    """``x`` under one random movement operation (or ``x`` where that would be too large).

    ``joins``: one of them is ``cat``, which is a choice between padded parts.
    """
    kind = rng.choice((*MOVES, "cat") if joins else MOVES)
    rank = len(x.shape)
    if kind == "cat":
        return _joined(rng, x) if rank else x
    if kind == "reshape" and x.size:
        return g.reshape(x, factorization(rng, x.size))
    if kind == "expand":
        shape = tuple(rng.choice((1, 2, 3)) if s == 1 else s for s in x.shape)
        return g.expand(x, shape) if prod(shape) <= MAX_SIZE else x
    if kind == "permute":
        return g.permute(x, tuple(rng.sample(range(rank), rank)))
    if kind == "pad":
        widths = tuple((rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 1))) for _ in range(rank))
        y = g.pad(x, widths)
        return y if y.size <= MAX_SIZE else x
    if kind == "shrink":
        limits = []
        for s in x.shape:
            begin = rng.randrange(s) if s and rng.random() < 0.5 else 0
            limits.append((begin, rng.randrange(begin, s) + 1 if s and rng.random() < 0.5 else s))
        return g.shrink(x, tuple(limits))
    if kind == "flip":
        return g.flip(x, tuple(d for d in range(rank) if rng.random() < 0.5))
    dims = [d for d, s in enumerate(x.shape) if s > 1]
    if kind == "window" and dims and rank < 6:
        d = rng.choice(dims)
        size = rng.randint(1, min(3, x.shape[d]))
        dilation = rng.randint(1, max(1, (x.shape[d] - 1) // size))
        y = g.window(x, d, size, rng.randint(1, 2), dilation)
        return y if y.size <= MAX_SIZE else x
    return x


def _joined(rng: random.Random, x: Node) -> Node:
    """``x`` beside what is like it: itself turned or cut, or one number."""
    d = rng.randrange(len(x.shape))
    limits = tuple((0, s - (i == d and s > 1)) for i, s in enumerate(x.shape))
    one = rng.random() < 0.5
    others = [
        g.flip(x, (d,)),
        g.shrink(x, limits),
        g.full(one if x.dtype.is_bool else 1, x.shape, x.dtype),
    ]
    parts = [x, *rng.sample(others, rng.choice((1, 1, 2)))]
    rng.shuffle(parts)
    y = movement.cat(parts, d)
    return y if y.size <= MAX_SIZE else x


def movement_chain(rng: random.Random, length: int, joins: bool = False) -> tuple[Node, Array]:
    """An i32 input under ``length`` movement operations that each move something, and distinct
    values for it; under fewer where a tensor of one or no elements has no more.
    """
    shape = factorization(rng, rng.choice((1, 6, 12, 16, 24, 30, 36, 60)))
    x = g.graph_input("x", shape, I32)
    values = np.arange(1, x.size + 1, dtype=np.int32).reshape(shape)
    for _ in range(length):
        x = next((y for y in (moved(rng, x, joins) for _ in range(20)) if y is not x), x)
    return x, values


def _cast(x: Node, dtype: DType) -> Node:
    return g.cast(x, dtype)


def _unary(rng: random.Random, x: Node) -> Node:
    if x.dtype.is_bool:
        return g.elementwise(Op.NOT, x)
    if x.dtype.is_int:
        return g.elementwise(rng.choice((Op.NEG, Op.ABS)), x)
    if rng.random() < 0.3:
        return g.elementwise(Op.EXP, g.elementwise(Op.TANH, x))
    return g.elementwise(rng.choice(FLOAT_UNARY), x)


def _fitted(rng: random.Random, y: Node, shape: tuple[int, ...]) -> Node | None:
    """``y`` reshaped and expanded to ``shape``, by matching dimensions from the right or one at a
    time.
    """
    if y.shape == shape:
        return y
    if y.size == prod(shape):
        return g.reshape(y, shape)
    dims = [s for s in y.shape if s != 1]
    line = [1] * len(shape)
    d = len(shape)
    for s in reversed(dims):
        d = next((k for k in range(d - 1, -1, -1) if shape[k] == s), -1)
        if d < 0:
            return None
        line[d] = s
    return g.expand(g.reshape(y, tuple(line)), shape)


def _least(dtype: DType) -> int:
    return dtype.least if dtype.is_int else -1


def _binary(rng: random.Random, x: Node, y: Node) -> Node:
    fitted = _fitted(rng, y, x.shape)
    y = (
        g.full(max(rng.choice((-1, 0, 1, 2)), _least(x.dtype)), x.shape, x.dtype)
        if fitted is None
        else _cast(fitted, x.dtype)
    )
    if x.dtype.is_bool:
        return g.elementwise(rng.choice((Op.AND, Op.OR, Op.XOR)), x, y)
    pick = rng.random()
    if pick < 0.15:
        return g.elementwise(rng.choice((Op.LT, Op.EQ, Op.NE)), x, y)
    if pick < 0.3:
        return g.elementwise(Op.WHERE, g.elementwise(Op.LT, x, y), y, x)
    op = rng.choice(BINARY)
    fused = op is Op.MUL and x.dtype.is_float and rng.random() < 0.5
    z = g.elementwise(Op.FMA, x, y, x) if fused else g.elementwise(op, x, y)
    return g.elementwise(Op.TANH, z) if op is Op.MUL and x.dtype.is_float else z


def _reduced(rng: random.Random, x: Node) -> Node:
    axes = tuple(d for d in range(len(x.shape)) if rng.random() < 0.5) or (len(x.shape) - 1,)
    if x.dtype.is_bool:
        return g.reduce(rng.choice((Op.MAX, Op.MIN)), x, axes)
    y = g.reduce(rng.choice((Op.ADD, Op.ADD, Op.MAX, Op.MIN)), x, axes)
    if rng.random() < 0.5:
        return g.elementwise(Op.SUB, x, g.expand(y, x.shape))
    return y


def _gathered(rng: random.Random, x: Node, y: Node, *, held: bool = False) -> Node:
    """``x`` at positions that ``y`` gives, out of range ones too: an error if ``held``."""
    d = rng.randrange(len(x.shape))
    count = rng.choice((1, 2, 3, x.shape[d]))
    shape = (*x.shape[:d], count, *x.shape[d + 1 :])
    fitted = _fitted(rng, y, shape)
    if fitted is None or not x.shape[d]:
        return x
    if fitted.dtype.is_float:  # rounded values would be other places
        fitted = g.iota(shape, rng.randrange(len(shape)), I32)
    index = _cast(fitted, rng.choice((I32, I64)))
    if held:
        n = x.shape[d]
        bounds = g.Bounds("gather", rng.choice((-n, 0)), n)
        some = g.reshape(g.shrink(x, tuple((0, 1) for _ in x.shape)), ()) if x.size else None
        conditional = some is not None and rng.random() < 0.2
        index = g.within(index, bounds, _cast(some, BOOL) if some and conditional else None)
    return g.gather(x, index, d)


def random_graph(
    rng: random.Random, size: int, dtypes: tuple[DType, ...] = (F32,), *, held: bool = False
) -> tuple[Node, ...]:
    """One to three outputs over a pool of ``size`` random operations on up to three inputs a,
    b, c. ``held``: more of them are gathers, whose positions are held to be in range.
    """
    pool: list[Node] = []
    for name in "abc":
        shape = factorization(rng, rng.choice((1, 4, 6, 12, 24)))
        pool.append(g.graph_input(name, shape, rng.choice(dtypes)))
    if rng.random() < 0.3:
        shape = factorization(rng, 12)
        pool.append(g.iota(shape, rng.randrange(len(shape)), rng.choice((I32, I64, F32))))
    for _ in range(size):
        x = rng.choice(pool[-6:])
        pick = rng.random()
        if pick < 0.15:
            y = _unary(rng, x)
        elif pick < 0.45:
            y = _binary(rng, x, rng.choice(pool[-8:]))
        elif pick < 0.65 and x.shape:
            y = _reduced(rng, x)
        elif pick < 0.7:
            y = g.contiguous(x) if pick < 0.68 else g.apart(x)
        elif pick < (0.9 if held else 0.72) and x.shape:
            y = _gathered(rng, x, rng.choice(pool[-8:]), held=held)
        elif pick < 0.75:
            y = _cast(x, rng.choice((*dtypes, F32, I32, BOOL)))
        else:
            y = moved(rng, x)
        pool.append(y)
    return tuple(rng.sample(pool[-4:], rng.randint(1, 3)))


def sibling_graph(rng: random.Random, dtypes: tuple[DType, ...] = (F32,)) -> tuple[Node, ...]:
    """Two to four outputs of one shape over inputs of it, which read each other, mostly at their
    own points, and sometimes one of another shape.
    """
    shape = factorization(rng, rng.choice((6, 16, 36, 60, 128)))
    pool = [g.graph_input(name, shape, rng.choice(dtypes)) for name in "abc"]
    line = tuple(s if d == len(shape) - 1 else 1 for d, s in enumerate(shape))
    pool.append(g.expand(g.graph_input("line", line, rng.choice(dtypes)), shape))
    made: list[Node] = []
    for _ in range(rng.randint(4, 9)):
        x, y = rng.choice((*pool[:3], *pool[-4:])), rng.choice((*pool[:3], *pool[-4:]))
        if rng.random() < 0.3:
            y = _elsewhere(rng, y)
        z = _unary(rng, x) if rng.random() < 0.2 else _binary(rng, x, y)
        if rng.random() < 0.3:
            z = _cast(z, rng.choice(dtypes))
        pool.append(z)
        made.append(z)
    outputs = rng.sample(made, min(len(made), rng.randint(2, 4)))
    if rng.random() < 0.2:
        outputs.append(_unary(rng, g.reshape(rng.choice(pool), factorization(rng, pool[0].size))))
    return tuple(outputs)


def row_graph(rng: random.Random, dtypes: tuple[DType, ...] = (F32,)) -> tuple[Node, ...]:
    """Two to four sums, maxima and minima of rows that they have in common, and sometimes what
    comes of one of them, or folds the other dimension.
    """
    folds = rng.choice(((3,), (8,), (17,), (50,), (4, 9), (3, 5, 4), (300,), (1100,)))
    shape = (rng.choice((8, 9, 16, 21)), *folds)
    x, y = (g.graph_input(name, shape, rng.choice(dtypes)) for name in "xy")
    axes = tuple(range(1, len(shape)))
    made: list[Node] = []
    for _ in range(rng.randint(2, 4)):
        a, b = rng.sample((x, y), 2)
        terms = rng.choice((a, g.elementwise(rng.choice(BINARY), a, _cast(b, a.dtype))))
        op = rng.choice((Op.ADD, Op.ADD, Op.MAX, Op.MIN))
        made.append(g.reduce(op, terms, axes if rng.random() < 0.9 else (0,)))
    if rng.random() < 0.3:
        spread = g.expand(made[0], shape) if made[0].shape[0] == shape[0] else x
        made.append(g.reduce(Op.MAX, g.elementwise(Op.SUB, x, _cast(spread, x.dtype)), axes))
    return tuple(made)


def literal_graph(rng: random.Random, dtypes: tuple[DType, ...] = (F32,)) -> tuple[Node, ...]:
    """One to three outputs of maxima, minima, clamps and comparisons of numbers that are literals
    at some positions, and inputs or other literals at others.
    """
    shape = factorization(rng, rng.choice((1, 3, 6, 12)))
    dtype = rng.choice(dtypes)

    def literal() -> Node:
        value = max(rng.choice((-2.5, -1, 0, 0, 0.37, 1, 2, 70.5)), _least(dtype))
        return g.full(value if dtype.is_float else int(value), shape, dtype)

    def chosen() -> Node:
        """A mask of positions."""
        d = rng.randrange(len(shape))
        at, value = g.iota(shape, d, I64), rng.randrange(shape[d] + 1)
        some = g.elementwise(rng.choice((Op.LT, Op.EQ)), at, g.full(value, shape, I64))
        return g.elementwise(Op.NOT, some) if rng.random() < 0.3 else some

    pool = [g.graph_input("a", shape, dtype), literal(), literal()]
    for _ in range(rng.randint(3, 14)):
        x, y = rng.choice((*pool[:1], *pool[-4:])), rng.choice(pool[-6:])
        pick = rng.random()
        if pick < 0.3:
            z = g.elementwise(Op.WHERE, chosen(), x, rng.choice((y, literal())))
        elif pick < 0.6:
            d, part = rng.randrange(len(shape)), list(zip((0,) * len(shape), shape, strict=True))
            first, end = sorted(rng.sample(range(shape[d] + 1), 2))
            part[d] = first, end
            z, w = (g.shrink(v, tuple(part)) for v in (x, rng.choice((y, literal()))))
            z = g.elementwise(rng.choice((Op.MAX, Op.MIN)), z, w)
            z = g.pad(z, tuple((b, s - e) for (b, e), s in zip(part, shape, strict=True)))
        elif pick < 0.7:
            test = g.elementwise(rng.choice((Op.LT, Op.EQ, Op.NE)), x, rng.choice((y, literal())))
            z = _cast(test, dtype) if rng.random() < 0.5 else g.elementwise(Op.WHERE, test, x, y)
        elif pick < 0.8:
            z = _elsewhere(rng, x)
        elif pick < 0.9:
            z = g.elementwise(rng.choice(BINARY), x, y)
        else:
            z = g.expand(g.reduce(rng.choice((Op.MAX, Op.MIN, Op.ADD)), x, (0,)), shape)
        pool.append(z)
    return tuple(rng.sample(pool[-3:], rng.randint(1, 3)))


def _elsewhere(rng: random.Random, x: Node) -> Node:
    """``x`` of the same shape, read at other points, or hidden at some."""
    if not x.shape:
        return x
    d, pick = rng.randrange(len(x.shape)), rng.random()
    if pick < 0.5:
        return g.flip(x, (d,))
    twin = next((e for e, s in enumerate(x.shape) if e != d and s == x.shape[d]), d)
    if pick < 0.65 and twin != d:
        order = list(range(len(x.shape)))
        order[d], order[twin] = twin, d
        return g.permute(x, tuple(order))
    at_start, moves = rng.random() < 0.5, rng.random() < 0.3

    def at(here: tuple[int, int], i: int) -> tuple[int, int]:
        return here if i == d else (0, x.shape[i])

    rank, extent = range(len(x.shape)), x.shape[d]
    left = (1, extent) if at_start else (0, extent - 1)
    width = (1, 0) if at_start != moves else (0, 1)
    part = g.shrink(x, tuple(at(left, i) for i in rank))
    return g.pad(part, tuple(width if i == d else (0, 0) for i in rank))


def random_inputs(seed: int, outputs: tuple[Node, ...]) -> dict[str, Array]:
    """Values between -2 and 2 for every input of a graph."""
    rng = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for n in g.topological(outputs):
        if n.op is g.GraphOp.INPUT:
            inputs[str(n.arg)] = random_array(rng, n.shape, n.dtype)
    return inputs


def with_constants(rng: random.Random, outputs: tuple[Node, ...], share: float) -> tuple[Node, ...]:
    """The graph with so many of its inputs replaced by constants."""
    arrays = np.random.default_rng(rng.randrange(1 << 30))
    new: dict[Node, Node] = {}
    for n in g.topological(outputs):
        if n.op is g.GraphOp.INPUT and rng.random() < share:
            new[n] = g.const(random_array(arrays, n.shape, n.dtype), n.dtype, str(n.arg))
        else:
            new[n] = Node(n.op, tuple(new[s] for s in n.srcs), n.arg, n.shape, n.dtype)
    return tuple(new[o] for o in outputs)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype.is_bool:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_int:
        return np.asarray(rng.integers(-3, 4, shape)).astype(dtype.numpy)
    # quarters are exact in every float type
    values = np.asarray(rng.integers(-8, 9, shape) / 4, np.float32)
    return (
        np.asarray((values.view(np.uint32) >> 16).astype(np.uint16))
        if dtype == BF16
        else values.astype(dtype.numpy)
    )
