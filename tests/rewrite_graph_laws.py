"""The laws of rewrites of graphs: folding, repeats, products in words, and kernels drafted of them.

Graphs are evaluated before and after, on small integers and on the numbers at which rules differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tests.graph_builders import run_schedule
from tests.graph_fuzzer import (
    factorization,
    moved,
    random_graph,
    random_inputs,
    row_graph,
    sibling_graph,
)
from tests.rewrite_laws import CONSTANTS, FLOAT_BINARY, INT_BINARY, memory, same
from tunegrad.errors import WrongPlan
from tunegrad.frontend import Tensor, bf16_bits, functions, ones
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Draft, Fusion, joined, schedule, sliced
from tunegrad.ir.fusion.build import CutError, draft_kernel, reshape_groups
from tunegrad.ir.fusion.plan import without_copies
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.rewrites import (
    Scale,
    find_products,
    joined_scales,
    pair_dots,
    quad_dots,
    quantised,
    round_factors,
    single_scales,
    switched,
    whole_biases,
    widened,
)
from tunegrad.ir.rewrites.sums import Repeats, chain
from tunegrad.ir.target import Target
from tunegrad.ir.validate import check_rewrite

__all__ = ["GRAPH_LAWS"]

Array = NDArray[np.generic]
Law = Callable[[random.Random], None]
VNNI = Target("cpu", "cpu", "znver4", ("+avx512f", "+avx512vl", "+avx512vnni"), vector_bytes=64)


def kept(
    rule: str,
    before: Node,
    after: Node,
    inputs: dict[str, Array],
    zeros: bool = True,
    rounds: bool = False,
) -> None:
    """Assert that a node keeps its shape, its dtype and every bit; ``zeros``: also the sign of
    zero, which a sum of one product has, and a sum that begins at 0 has not. ``rounds``: all but
    the last bits.
    """
    assert (after.shape, after.dtype) == (before.shape, before.dtype), f"{rule}: {before} {after}"
    want, found = evaluate((before, after), inputs)
    if rounds:
        close(found, want)
        return
    equal = same(want, found) if zeros else bool((want == found).all())
    assert equal, f"{rule}: {before} is {want}, and {found} after it"


def _full_of(dtype: DType) -> list[float | int | bool]:
    if dtype.is_bool:
        return [True, False]
    return [0, 1, 2, 3, 7] if dtype.is_int else list(CONSTANTS)


def folding_of_maps(rng: random.Random) -> None:
    """Operations with a constant keep every bit: x * 1, x / 1, x - 0, x + -0.0, a chosen side."""
    dtypes = (F32, F64, F16, BF16, I32, I64, U8, BOOL)
    drawn: list[tuple[Node, dict[str, Array]]] = []
    for dtype in dtypes:
        x = g.graph_input("x", (16,), dtype)
        given = {"x": memory("x", dtype), "c": memory("x", BOOL)}
        fulls = [g.full(v, (16,), dtype) for v in _full_of(dtype)]
        ops = (Op.AND, Op.OR, Op.XOR) if dtype.is_bool else INT_BINARY
        for op in FLOAT_BINARY if dtype.is_float else ops:
            for f in fulls:
                drawn += [(g.elementwise(op, *pair), given) for pair in ((x, f), (f, x))]
            drawn += [(g.elementwise(op, a, b), given) for a, b in product(fulls, fulls[:3])]
        for c, f in product((g.full(True, (16,), BOOL), g.full(False, (16,), BOOL)), fulls[:2]):
            drawn += [(g.elementwise(Op.WHERE, c, *pair), given) for pair in ((x, f), (f, x))]
        for to in dtypes:
            drawn += [(g.cast(f, to), given) for f in fulls]
    for node, given in drawn:
        if node.arg is Op.POW and node.dtype.is_int:
            continue
        kept("folding", node, fold_constants((node,))[0], given)


def folding_of_shapes(rng: random.Random) -> None:
    """Movements, pads and reductions of one number are that number where they give it."""
    for dtype, value in product((F32, I32, U8, BOOL), (0, 1, -1, 3, 500, 0.1, 1 << 29, -0.0)):
        whole = value == int(value) and not str(value).startswith("-0")
        if dtype.is_bool and value not in (0, 1):
            continue
        if dtype.is_int and not (whole and dtype.least <= value <= dtype.greatest):
            continue
        made = bool(value) if dtype.is_bool else int(value) if dtype.is_int else float(value)
        x = g.full(made, (2, 3, 5), dtype)
        nodes = [moved(rng, x) for _ in range(6)]
        nodes += [g.pad(x, ((0, 0), (1, 0), (0, 2)))]
        ops = (Op.MAX, Op.MIN) if dtype.is_bool else (Op.ADD, Op.MAX, Op.MIN)
        nodes += [g.reduce(op, x, axes) for op in ops for axes in ((0,), (0, 2), (0, 1, 2))]
        for node in nodes:
            found = fold_constants((node,))[0]
            if node.op is GraphOp.REDUCE and dtype.is_float and found.op is GraphOp.FULL:
                op, axes = cast("tuple[Op, tuple[int, ...]]", node.arg)
                terms = prod(x.shape[a] for a in axes) if op is Op.ADD else 1
                sums = np.float64(np.float32(made)) * np.arange(1, terms + 1)
                assert (sums.astype(np.float32) == sums).all(), f"folding: sums of {value} round"
            kept("folding", node, found, {})


def folding_of_parts(rng: random.Random) -> None:
    """A graph with constant parts is itself when they are computed before."""
    for seed in range(60):
        drawn = random.Random(rng.random())
        outputs = random_graph(drawn, 10, (I32, F32))
        inputs = random_inputs(seed, outputs)
        names = [n for n in inputs if drawn.random() < 0.7]
        made = _with_constants(outputs, {n: inputs[n] for n in names})
        for a, b in zip(outputs, fold_constants(made), strict=True):
            (want,), (found,) = evaluate((a,), inputs), evaluate((b,), inputs)
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.is_float:
                np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
            else:
                assert same(found, want) or _rounds(a), f"folding: {a}"


def _with_constants(outputs: tuple[Node, ...], known: dict[str, Array]) -> tuple[Node, ...]:
    new: dict[Node, Node] = {}
    for n in topological(outputs):
        if n.op is GraphOp.INPUT and n.arg in known:
            new[n] = g.const(np.ascontiguousarray(known[n.arg]), n.dtype, str(n.arg))
        else:
            new[n] = Node(n.op, tuple(new[s] for s in n.srcs), n.arg, n.shape, n.dtype)
    return tuple(new[o] for o in outputs)


def _rounds(output: Node) -> bool:
    """Whether sums of floats, which depend on their order, decide on integers or conditions."""
    return any(n.op is GraphOp.REDUCE and n.dtype.is_float for n in topological((output,)))


def repeated(rng: random.Random) -> None:
    """Along a dimension that a node repeats, all of its elements are equal; a sum of one copy,
    spread out, is the sum.
    """
    for seed in range(220):
        drawn = random.Random(rng.random())
        outputs = random_graph(drawn, 9, (I32,))
        x = outputs[0]
        if drawn.random() < 0.7 and x.shape:
            shape = (*x.shape, drawn.choice((2, 3)))
            x = g.expand(g.reshape(x, (*x.shape, 1)), shape)
            for _ in range(drawn.randrange(5)):
                x = moved(drawn, x)
            if x.size and drawn.random() < 0.3:
                at, dim = (drawn.randrange(len(x.shape)) for _ in range(2))
                x = g.gather(x, g.iota(x.shape, at), dim)
        order = topological((x,))
        inputs = random_inputs(seed, (x,))
        repeats = Repeats()
        for n in order:
            dims = repeats.of(n)
            if not dims or not n.size:
                continue
            (values,) = evaluate((n,), inputs)
            for d in dims:
                first = np.take(values, [0], axis=d)
                assert same(np.broadcast_to(first, values.shape), values), f"{n} along {d}"
        if not x.shape or not x.size or x.dtype.is_bool:
            continue
        axes = tuple(d for d in range(len(x.shape)) if drawn.random() < 0.5) or (0,)
        total = g.reduce(drawn.choice((Op.ADD, Op.MAX)), x, axes)
        repeats.of(total)
        made = repeats.reduced_once(total)
        if not x.dtype.is_float:
            kept("reduced once", total, made, inputs)


def _base(rng: random.Random, name: str, shape: tuple[int, ...], dtype: DType) -> Node:
    if name == "b" and rng.random() < 0.5:
        return g.const(small(rng, shape, dtype), dtype, name)
    return g.graph_input(name, shape, dtype)


def small(rng: random.Random, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small integers, which every type holds, and whose products and sums are exact."""
    numbers = np.random.default_rng(rng.randrange(1 << 30)).integers(-9, 10, shape)
    if dtype in (I32, F32):
        numbers *= 31  # of more digits than a bf16 has
    if dtype == U8:
        return np.asarray(abs(numbers).astype(np.uint8))
    return bf16_bits(numbers.astype(np.float32)) if dtype == BF16 else numbers.astype(dtype.numpy)


def _padded(rng: random.Random, x: Node) -> Node:
    at = rng.randrange(len(x.shape))
    return g.pad(
        x, tuple((rng.choice((0, 1)), 1) if d == at else (0, 0) for d in range(len(x.shape)))
    )


def _split(rng: random.Random, x: Node) -> Node:
    """One dimension as two."""
    ways = [(d, k) for d, s in enumerate(x.shape) for k in range(2, s) if s % k == 0]
    if not ways:
        return x
    d, k = rng.choice(ways)
    return g.reshape(x, (*x.shape[:d], x.shape[d] // k, k, *x.shape[d + 1 :]))


def _zero_point(rng: random.Random, x: Node, dtype: DType, wide: DType) -> Node:
    if wide.is_int:
        return g.full(rng.choice((3, -5, 200)), x.shape, wide)
    byte = g.const(np.array(rng.choice((3, 100)), dtype.numpy), dtype)
    return g.expand(g.reshape(g.cast(byte, wide), (1,) * len(x.shape)), x.shape)


def _scales(rng: random.Random, shape: tuple[int, ...]) -> Node:
    """Scales that are exact in every product, the same along all dimensions but at most one."""
    own = rng.randrange(-1, len(shape))
    extents = tuple(s if d == own else 1 for d, s in enumerate(shape))
    values = np.ldexp(np.float32(1), [rng.randint(-3, 3) for _ in range(prod(extents))])
    return g.expand(g.const(values.astype(np.float32).reshape(extents), F32), shape)


def product_of(
    rng: random.Random,
    kinds: tuple[DType, DType],
    wide: DType,
    zero: bool = False,
    scaled: bool = False,
) -> tuple[Node, dict[str, Array]]:
    """A sum of products of two tensors of those types, moved and spread, and their values.

    ``zero``: zero points are taken off. ``scaled``: and powers of two are multiplied by, one in all
    or one for each position of a dimension.
    """
    inputs: dict[str, Array] = {}

    def factor(name: str, shape: tuple[int, ...], dtype: DType) -> Node:
        x = _base(rng, name, shape, dtype)
        if x.op is GraphOp.INPUT:
            inputs[name] = small(rng, shape, dtype)
        moves = rng.choice((0, 0, 1, 2, 3))
        cast_at = rng.randrange(moves + 1)
        for k in range(moves + 1):
            if k == cast_at:
                x = g.cast(x, wide)
                if zero and rng.random() < 0.5:
                    x = g.elementwise(Op.SUB, x, _zero_point(rng, x, dtype, wide))
                if scaled:
                    x = g.elementwise(Op.MUL, x, _scales(rng, x.shape))
            if k < moves:
                x = rng.choice((moved, _padded, _split, _split))(rng, x)
        return x

    extents = (2, 3, 4, 6, 8, 12)
    shape = tuple(rng.choice(extents) for _ in range(rng.randint(1, 3)))
    a = factor("a", shape, kinds[0])
    shape, n = a.shape, rng.choice((2, 3, 8))
    whole = (*shape, n)
    left = g.expand(g.reshape(a, (*shape, 1)), whole)
    shared = [d for d in range(len(shape)) if rng.random() < 0.8] or [len(shape) - 1]
    other = (*(s if d in shared else 1 for d, s in enumerate(shape)), n)
    b = factor("b", other if rng.random() < 0.5 else tuple(s for s in other if s > 1), kinds[1])
    if b.size != prod(other):
        inputs["c"] = small(rng, other, kinds[1])
        b = g.cast(g.graph_input("c", other, kinds[1]), wide)
    right = g.expand(g.reshape(b, other), whole)
    axes = tuple(rng.sample(shared, rng.randint(1, len(shared))))
    total = g.reduce(Op.ADD, g.elementwise(Op.MUL, left, right), tuple(sorted(axes)))
    return total, {k: v for k, v in inputs.items() if k in {n.arg for n in topological((total,))}}


def _products(
    rng: random.Random, rule: str, count: int, draw: Callable[[], tuple[Node, dict[str, Array]]],
    rewrite: Callable[[Node], Node], *, planned: bool = False,
) -> None:  # fmt: skip
    changed, least = 0, count // 50
    for n in range(20 * count):
        if n >= count and changed >= least:
            break
        before, inputs = draw()
        if not before.size or not before.srcs[0].size:
            continue
        after = rewrite(before)
        changed += after is not before
        kept(rule, before, after, inputs, zeros=False)
        if planned and after is not before:
            (want,) = evaluate((before,), inputs)
            plan = Fusion.of((after,)).every_launch()
            for made in (plan, without_copies(plan)):
                (found,) = run_schedule(made, inputs)
                assert (found == want).all(), f"{rule}: {before}"
    assert changed >= least, f"{rule}: {changed} of {20 * count} products are rewritten"


def pairs(rng: random.Random) -> None:
    """A sum of products of bf16 in pairs is the sum, also where its words lie in memory already."""
    _products(
        rng, "pairs", 200, lambda: product_of(rng, (rng.choice((BF16, BF16, F32)), BF16), F32),
        lambda n: pair_dots((n,))[0], planned=True,
    )  # fmt: skip


def quads(rng: random.Random) -> None:
    """A sum of products of bytes in fours, with zero points, is the sum."""
    kinds = ((U8, I8), (I8, I8), (I8, U8), (U8, U8))
    _products(
        rng, "quads", 1300, lambda: product_of(rng, rng.choice(kinds), I32, zero=True),
        lambda n: quad_dots((n,), VNNI)[0],
    )  # fmt: skip


def dequantised(rng: random.Random) -> None:
    """A sum of products of dequantised bytes is that of bytes, times the scales."""
    kinds = ((U8, I8), (I8, I8), (I8, U8), (U8, U8))
    _products(
        rng, "dequantised", 1300,
        lambda: product_of(rng, rng.choice(kinds), F32, zero=True, scaled=True),
        lambda n: quad_dots((n,), VNNI, floats=True)[0],
    )  # fmt: skip


def tf32(rng: random.Random) -> None:
    """A sum of products of numbers that tf32 holds is the sum."""
    _products(
        rng, "tf32", 200, lambda: product_of(rng, (F32, F32), F32),
        lambda n: round_factors((n,))[0],
    )  # fmt: skip


def _bytes_const(value: int, dtype: DType) -> Tensor:
    return Tensor.constant(np.array(value, dtype.numpy)).cast("f32")


def _floats(x: Tensor, zero: int, scale: float) -> Tensor:
    number = x.cast("f32") - _bytes_const(zero, x.dtype)
    return number * Tensor.constant(np.float32(scale))


def _steps(x: Tensor, zero: int, scale: float, dtype: DType, less: int = 0) -> Tensor:
    """Numbers as bytes, the greatest of them ``less`` than the type's."""
    at = (x / Tensor.constant(np.float32(scale))).round() + _bytes_const(zero, dtype)
    return at.clamp(float(dtype.least), float(dtype.greatest - less)).cast(dtype.name)


def steps_of_bytes(rng: random.Random, turn: int) -> tuple[Node, dict[str, Array]]:
    """Bytes that are dequantised, moved, compared and quantised: mostly in the same steps. What is
    done to them takes turns.
    """
    dtype, zero, scale = rng.choice((U8, I8)), rng.choice((0, 3, 100)), rng.choice((0.25, 0.0173))
    shape = 1, 32, 4, 6
    x = _floats(Tensor.input("x", shape, dtype.name), zero, scale)
    y = _floats(Tensor.input("y", shape, dtype.name), rng.choice((zero, zero, 3)), scale)
    padding = ((0, 0), (0, 0), (1, 0), (0, 2))
    every: tuple[Callable[[], Tensor], ...] = (
        lambda: x.max_pool2d(3, stride=rng.choice((1, 2)), padding=1),
        lambda: x.maximum(y),
        lambda: x.maximum(scale * 5),
        lambda: functions.cat([x, y], 1),
        lambda: x.pad(padding),
        lambda: x.permute(0, 2, 1, 3).max(1),
        lambda: y,
    )
    made = every[turn % len(every)]()
    to = rng.choice((dtype, dtype, dtype, U8 if dtype is I8 else I8))
    into = rng.choice((zero, zero, zero, 7)), scale * rng.choice((1.0, 1.0, 1.0, 2.0))
    inputs = {name: small_bytes(rng, shape, dtype) for name in "xy"}
    return _steps(made, *into, to, rng.choice((0, 0, 0, 0, 55))).node, inputs


def layers_in(dtype: str, seed: int) -> Node:
    """Two linear layers of an f16 input in ``dtype``, as f32, with movements between them."""
    drawn = np.random.default_rng(seed)
    a, b, c = (
        Tensor.constant(drawn.normal(0, 1, shape).astype(np.float16)).cast(dtype)
        for shape in ((8, 4), (5, 6), (6,))
    )
    x = Tensor.input("x", (5, 8), "f16").cast(dtype) @ a
    moved_x = (x.permute(1, 0), x.flip(0).permute(1, 0), x[1:].pad(((1, 0), (0, 0))).permute(1, 0),
               x.reshape(4, 5))[seed % 4]  # fmt: skip
    y = (moved_x @ b + c).maximum(0)
    return (y.softmax(1) if seed % 3 else y * 3).cast("f32").node


def halves(rng: random.Random) -> None:
    """Results of products in f16 have the digits of f32; what is compared, no result of a product,
    or too large is rounded as before.
    """
    for seed in rng.sample(range(1 << 20), 60):
        inputs: dict[str, Array] = {
            "x": np.random.default_rng(seed).normal(0, 1, (5, 8)).astype(np.float16)
        }
        before = layers_in("f16", seed)
        (after,) = widened((before,), 1 << 20)
        want, was, found = evaluate((layers_in("f32", seed), before, after), inputs)
        assert np.allclose(want, found, rtol=1e-5, atol=1e-5), f"halves: {before}"
        assert not np.allclose(want, was, rtol=1e-5, atol=1e-5)
        assert widened((before,), 4 * 5 * 4 - 1)[0] is before
        x = Tensor.input("x", (5, 8), "f16")
        columns = np.full((8, 4), 1 / 3, np.float16)
        columns[0] = np.arange(4) * 2.0**-13  # some results are equal only in f16
        wide = (x @ Tensor.constant(columns)).cast("f32")
        ends = wide < wide.flip(1), wide == wide.max(1, keepdim=True), wide.cast("i32")
        factor = (x.cast("f32") / 3).cast("f16") @ Tensor.constant(np.eye(8, dtype=np.float16))
        for end in (*ends, factor.cast("f32")):
            kept("halves", end.node, widened((end.node,), 1 << 20)[0], inputs)


def small_bytes(rng: random.Random, shape: tuple[int, ...], dtype: DType) -> Array:
    drawn = np.random.default_rng(rng.randrange(1 << 30))
    return drawn.integers(dtype.least, dtype.greatest, shape, dtype.numpy, endpoint=True)


def scaled_sums(rng: random.Random, *, whole: bool = False) -> tuple[Node, dict[str, Array]]:
    """A linear layer or a convolution of bytes with a bias, beside another, divided by a scale.

    ``whole``: alone, with a bias of integers, whose scale is the sum's or another one.
    """
    drawn = np.random.default_rng(rng.randrange(1 << 30))
    conv = rng.random() < 0.5
    apart = whole and rng.random() < 0.2  # each is divided by a number of its own
    shape = (1, 4, 5, 6) if conv else (3, 16)

    def layer(name: str) -> Tensor:
        x = _floats(Tensor.input(name, shape, "u8"), rng.choice((0, 7)), 0.02)
        w = Tensor.constant(drawn.integers(-99, 99, (8, 4, 3, 3) if conv else (16, 8), np.int8))
        by = drawn.uniform(0.001, 0.003, (8, 1, 1, 1) if conv else (1, 8)).astype(np.float32)
        weights = w.cast("f32") * Tensor.constant(by)
        made = x.conv2d(weights, padding=1) if conv else x @ weights
        if whole:
            most = rng.choice((1000, 1000, (1 << 31) - 1, 1 << 32))  # of a sum most pass 2^31
            steps = drawn.integers(most - 2000, most, by.reshape(-1).shape)
            steps = steps.astype(np.int64 if most >> 31 else np.int32)
            scale = by.reshape(-1) * np.float32(0.02 * rng.choice((1.0, 1.0, 1.5)))
            added = Tensor.constant(steps).cast("f32") * Tensor.constant(scale)
            if apart:
                made, added = made / 0.25, added / 0.75
            return made + (added.reshape(8, 1, 1) if conv else added)
        bias = drawn.uniform(1, 2, (8, 1, 1) if conv else (8,)).astype(np.float32)
        return made + Tensor.constant(bias) if rng.random() < 0.8 else made

    total = layer("x") + layer("y") if not whole and rng.random() < 0.5 else layer("x")
    if not apart:
        total = total / Tensor.constant(np.float32(rng.choice((0.03, 0.5, 3.0))))
    return total.node, {name: small_bytes(rng, shape, U8) for name in "xy"}


def bounded_sums(rng: random.Random) -> tuple[Node, dict[str, Array]]:
    """A linear layer of bytes, bytes beside it perhaps, between bounds of which some are ends of
    the bytes that it becomes; all scales are powers of two, so that nothing is rounded twice.
    """
    drawn, dtype = np.random.default_rng(rng.randrange(1 << 30)), rng.choice((U8, I8))
    w = Tensor.constant(drawn.integers(-9, 9, (16, 8), np.int8)).cast("f32") * 0.5
    y = _floats(Tensor.input("x", (4, 16), "u8"), 7, 0.25) @ w
    if rng.random() < 0.5:
        y = y + Tensor.constant(drawn.integers(-99, 99, 8).astype(np.float32))
    if rng.random() < 0.5:
        y = y + _floats(Tensor.input("y", (4, 8), "u8"), 3, rng.choice((0.5, 8.0)))
    scale, zero = rng.choice((2.0, 4.0)), rng.choice((dtype.least, dtype.greatest, 9))
    ends = [scale * (end - zero) for end in (dtype.least, dtype.greatest)]
    for bound in rng.sample((0, 1), rng.choice((1, 1, 2))):
        end = ends[rng.choice((bound, bound, bound, 1 - bound))]
        end += rng.choice((0.0, 0.0, 0.0, -scale, 9 * scale))
        y = y.minimum(end) if bound else y.maximum(end)
    y = rng.choice((y, y, y.reshape(-1), y.pad(((1, 0), (0, 2)))))
    return _steps(y, zero, scale, dtype).node, {
        "x": small_bytes(rng, (4, 16), U8), "y": small_bytes(rng, (4, 8), U8),
    }  # fmt: skip


def scales(rng: random.Random) -> None:
    """Bytes in the same steps are those bytes; sums of bytes are scaled once, and what bounds them
    is not asked for where bytes do.
    """
    changed = 0
    for turn in range(280):
        before, inputs = steps_of_bytes(rng, turn)
        (after,) = joined_scales((before,))
        changed += after is not before
        kept("scales", before, after, inputs)
    assert changed >= 20
    changed = 0
    for _ in range(20):
        drawn, inputs = scaled_sums(rng)
        (before,) = quad_dots((drawn,), VNNI, floats=True)
        (after,) = joined_scales((before,))
        changed += after is not before
        kept("scales", before, after, inputs, rounds=True)
    assert changed >= 10
    changed = 0
    for _ in range(40):
        drawn, inputs = bounded_sums(rng)
        (before,) = quad_dots((drawn,), VNNI, floats=True)
        (after,) = joined_scales((before,))
        bounds, left = (
            sum(n.op is GraphOp.MAP and n.arg in (Op.MAX, Op.MIN) for n in topological((x,)))
            for x in (before, after)
        )
        changed += left < bounds
        kept("scales", before, after, inputs)
    assert changed >= 3


def biases(rng: random.Random) -> None:
    """Biases of integers are added to the sums of integers that have their scale."""
    changed = 0
    for _ in range(80):
        drawn, inputs = scaled_sums(rng, whole=True)
        (joint,) = joined_scales(quad_dots((drawn,), VNNI, floats=True))
        (before,) = single_scales((joint,))
        kept("scales as numbers", joint, before, inputs)
        (after,) = whole_biases((before,))
        changed += after is not before
        kept("biases", before, after, inputs, rounds=True)
    assert 0 < changed < 80


def quantised_products(rng: random.Random) -> None:
    """A product of bytes is as near to that of floats as half a step of each factor is wide; all
    that reads the tensor reads the bytes, and products that are kept read the tensor.
    """
    for _ in range(25):
        drawn = np.random.default_rng(rng.randrange(1 << 30))
        low, high = rng.choice(((-1.0, 3.0), (2.0, 3.0), (-5.0, -4.0)))
        x = drawn.uniform(low, high, (6, 16)).astype(np.float32)
        w = drawn.uniform(-1, 1, (16, 8)).astype(np.float32)
        own = drawn.uniform(0.5, 2, 16).astype(np.float32) if rng.random() < 0.5 else None
        a = Tensor.input("x", x.shape)
        outputs = fold_constants(
            ((a @ Tensor.constant(w)).node, (a * 2.0).node, (a @ Tensor.constant(w + 1)).node)
        )
        products = find_products(outputs)
        first, last = (next(p for p in products if p.sum is chain(outputs[i])[0]) for i in (0, 2))
        seen = x if own is None else x / own
        s = Scale.of(
            float(seen.min()), float(seen.max()), () if own is None else tuple(map(float, own))
        )
        of = {first.tensor: s}
        made = quantised(outputs, products, of, kept={last.sum})
        want, found = evaluate(outputs, {"x": x}), evaluate(made, {"x": x})
        near = np.full(16, s.step / 2, np.float32) * (1 if own is None else own) + 1e-6
        scaled = w if own is None else w * own[:, None]
        width = np.abs(scaled).max(0) / 254 / (1 if own is None else own[:, None])
        off = np.abs(x) @ (width + np.zeros_like(w)) + near @ (np.abs(w) + width)
        assert (np.abs(found[0] - want[0]) <= off * 1.001 + 1e-5).all(), "a product of bytes"
        assert (np.abs(found[1] - want[1]) <= 2.002 * near).all(), "bytes that another reads"
        assert (found[1] != want[1]).any(), "what another reads stays in floats"
        assert (found[2] == want[2]).all(), "a product that is kept"
        flags = g.graph_input("flags", (len(products),), BOOL)
        chosen = switched(outputs, products, of, flags)
        none, every = (np.full(len(products), on) for on in (False, True))
        for o, f in zip(want, evaluate(chosen, {"x": x, "flags": none}), strict=True):
            assert (o == f).all(), "switched, with no flag"
        close(evaluate(chosen, {"x": x, "flags": every})[0], found[0])


def slices(rng: random.Random) -> None:
    """A plan that reads slices of an input where they lie, and writes parts of a tensor where these
    lie, computes every bit that the plan of copies does.
    """
    changed = 0
    for _ in range(20):
        row = Tensor.input("row", (120,), "i32")
        made, parts = list[Tensor](), list[Tensor]()
        for _ in range(rng.randint(2, 5)):
            rows, columns = rng.choice((2, 3, 4)), rng.choice((2, 4, 5))
            start = rng.randrange(0, 120 - rows * columns, rng.choice((1, 4)))
            part = row[start : start + rows * columns]
            how = rng.random()
            if how < 0.15:
                part = part.flip(0)
            elif how < 0.3:
                part = part[: rows * columns - 1].pad(((rng.choice((0, 0, 1)), 0),))
                part = part.pad(((0, rows * columns - part.shape[0]),))
            part = part.contiguous([0]).reshape(rows, columns)
            parts.append((part @ Tensor.input(f"w{columns}", (columns, 3), "i32")).reshape(-1))
            made += [part.sum() * 2, part[1] * 3]
            if rng.random() < 0.3:
                parts.append(Tensor.input(f"row{len(parts)}", (4,), "i32"))
        outputs = *(t.node for t in made), (-functions.cat(parts, 0).contiguous()).node
        view_bytes = rng.choice((1, 16))
        plan = schedule(outputs, view_bytes=view_bytes)
        after = sliced(plan, view_bytes)
        for b in after.buffers:
            assert b.role != "view" or b.start % view_bytes == 0, f"slices: {b}"
        inputs = random_inputs(rng.randrange(1 << 30), outputs)
        want = run_schedule(plan, inputs)
        for ran in (after, joined(after, view_bytes)):
            changed += ran is not plan
            for one, other in zip(want, run_schedule(ran, inputs), strict=True):
                assert same(one, other), f"slices: {ran}"
    assert changed >= 20


def chains(rng: random.Random) -> None:
    """A plan whose concatenations are chains of launches, each of which lays its parts over the one
    before, computes every bit without them; one that something else reads stays.
    """
    changed = 0
    for case in range(8):
        w, parts = Tensor.input("w", (2, 2), "i32"), list[Tensor]()
        for i in range(rng.randint(4, 9)):
            parts.append((Tensor.input(f"a{i}", (rng.randint(1, 4), 2), "i32") @ w).reshape(-1))
        first = rng.randint(1, len(parts) - 2)
        whole = functions.cat(parts[:first], 0)
        rest = sum(p.shape[0] for p in parts[first:])
        start, extent = whole.shape[0], whole.shape[0] + rest
        whole = under = whole.pad(((0, rest),)).contiguous()
        kind = case % 4
        for i, part in enumerate(parts[first:]):
            at = start - 2 * (kind == 3 and i == 0)  # over the part before, with a gap behind it
            widths = ((at, extent - at - part.shape[0]),)
            inside = ones(part.shape, dtype="bool").pad(widths)
            whole = functions.where(inside, part.pad(widths), whole)
            start += part.shape[0]
            if i == 0 and rng.random() < 0.5:
                whole = whole.contiguous()
        made = {1: [under], 2: [under * 2]}.get(kind, [])
        outputs = *(t.node for t in made), (-whole.contiguous()).node
        plan = schedule(outputs, view_bytes=1)
        after, inputs = joined(plan, 1), random_inputs(rng.randrange(1 << 30), outputs)
        after.verify()
        changed += len(after.launches) < len(plan.launches)
        for one, other in zip(run_schedule(plan, inputs), run_schedule(after, inputs), strict=True):
            assert same(one, other), f"chains: {after}"
    assert changed >= 2


def _joined(rng: random.Random, x: Node) -> Node:
    """``x`` beside what is computed of it, as ``cat`` joins them."""
    d, op = rng.randrange(len(x.shape)), rng.choice((Op.NEG, Op.ABS))
    extent = x.shape[d]
    y = x if x.dtype.is_bool else g.elementwise(op, x)
    before = tuple((0, extent if i == d else 0) for i in range(len(x.shape)))
    after = tuple((extent if i == d else 0, 0) for i in range(len(x.shape)))
    mask = g.pad(g.full(True, x.shape, BOOL), after)
    return g.elementwise(Op.WHERE, mask, g.pad(y, after), g.pad(x, before))


def _cut(rng: random.Random, x: Node) -> Node:
    """``x`` cut short, beside ``x`` cut shorter and padded: one place under two masks."""
    d = rng.randrange(len(x.shape))
    if x.shape[d] < 3 or x.dtype.is_bool:
        return x
    y = g.elementwise(Op.NEG, x)

    def whole(end: int) -> tuple[tuple[int, int], ...]:
        return tuple((0, end if i == d else s) for i, s in enumerate(x.shape))

    width = tuple((0, 1 if i == d else 0) for i in range(len(x.shape)))
    short = g.pad(g.shrink(y, whole(x.shape[d] - 2)), width)
    return g.elementwise(Op.SUB, short, g.shrink(y, whole(x.shape[d] - 1)))


def _looked_up(rng: random.Random, x: Node) -> Node:
    """Elements of ``x`` at positions that an input of as many dimensions gives."""
    d = rng.randrange(len(x.shape))
    shape = tuple(3 if i == d else s for i, s in enumerate(x.shape))
    return g.gather(x, g.graph_input(f"at{'x'.join(map(str, shape))}", shape, I32), d)


def _placed(rng: random.Random, x: Node) -> Node:
    """Elements of ``x`` at positions: some beyond its extent, some that leave their type."""
    d = rng.randrange(len(x.shape))
    shape = tuple(rng.choice((2, 4, 9)) if i == d else s for i, s in enumerate(x.shape))
    dtype = rng.choice((I8, I32))
    place = g.iota(shape, d, dtype)
    other = g.full(rng.choice((1, 2, 60, 127)), shape, dtype)
    op = rng.choice((Op.ADD, Op.SUB, Op.MUL))
    places = g.elementwise(op, *rng.choice(((place, other), (other, place))))
    return g.gather(x, rng.choice((place, places, places)), d)


def _turned(rng: random.Random, x: Node) -> Node:
    """``x`` under views, in the middle of which it is negated."""
    for k in range(5):
        if k == rng.randrange(1, 4) and not x.dtype.is_bool:
            x = g.elementwise(Op.NEG, x)
        if rng.random() < 0.5:
            x = g.permute(x, tuple(rng.sample(range(len(x.shape)), len(x.shape))))
        else:
            x = g.reshape(x, factorization(rng, x.size))
    return x


def _thirds(x: Node) -> Node:
    """What needs more digits than 16 bits have, rounded to those."""
    third = g.elementwise(Op.MUL, g.cast(x, F32), g.full(1 / 3, x.shape, F32))
    return g.cast(g.cast(third, F16), F32)


def _cut_by_need(root: Node) -> list[Draft]:
    """Kernels of a graph in which a node has memory only where no kernel is legal without."""
    buffers, made, wanted = set[Node](), dict[Node, Draft](), [root]
    while wanted:
        n = wanted.pop()
        if n in made or not n.srcs:
            continue
        try:
            made[n] = draft_kernel(n, buffers)
        except CutError as e:
            again, needed = e.node in buffers, e.node
        else:
            wanted += made[n].reads.values()
            continue
        assert not again, f"{needed} has memory"
        buffers.add(needed)
        wanted.append(n)
    return list(made.values())


def drafted(rng: random.Random) -> None:
    """Each kernel drafted of a graph computes its node."""
    for seed in range(320):
        drawn = random.Random(rng.random())
        outputs = random_graph(drawn, 7, (I32,))
        made = [o for o in outputs if o.shape and 0 < o.size < 200][:1]
        for change in drawn.sample(
            (_joined, _cut, _looked_up, _placed, _turned, _turned, *(moved,) * 4), 3
        ):
            made = [change(drawn, o) for o in made if o.shape and o.size]
        if drawn.random() < 0.2:
            made = [_thirds(o) for o in made]
        targets = tuple(o for o in (outputs[0], *made) if o.size)
        inputs = random_inputs(seed, targets)
        _drafts_agree(targets, inputs)


def _drafts_agree(targets: tuple[Node, ...], inputs: dict[str, Array]) -> None:
    for d in (d for t in targets for d in _cut_by_need(t)):
        read = evaluate((d.node, *d.reads.values()), inputs)
        given = {
            name: np.ascontiguousarray(a).reshape(-1)
            for name, a in zip(d.reads, read[1:], strict=True)
        }
        found = interpret(d.kernel, given)["out"].reshape(d.node.shape)
        if _rounds(d.node):
            close(found, read[0])
        else:
            assert same(found, read[0]), f"draft of {d.node}: {d.kernel}"


def positions(rng: random.Random) -> None:
    """What is read at positions, or at what is computed of them, is what is there."""
    x = g.graph_input("x", (70, 2), I32)
    bytes_of = g.elementwise(Op.ADD, g.iota((9, 2), 0, I8), g.full(127, (9, 2), I8))
    wrapped = g.elementwise(Op.SUB, g.cast(bytes_of, I32), g.full(100, (9, 2), I32))
    values = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    _drafts_agree((g.gather(x, wrapped, 0),), {"x": values})
    for _ in range(250):
        x = g.graph_input("x", (rng.choice((3, 5, 70)), rng.choice((2, 5))), I32)
        values = np.arange(x.size, dtype=np.int32).reshape(x.shape)
        _drafts_agree((_placed(rng, x),), {"x": values})


def turned(rng: random.Random) -> None:
    """What views of views read is what they give."""
    for _ in range(700):
        x = g.graph_input("x", factorization(rng, rng.choice((4, 12, 36))), I32)
        values = np.arange(x.size, dtype=np.int32).reshape(x.shape)
        _drafts_agree((_turned(rng, x),), {"x": values})


def constants(rng: random.Random) -> None:
    """A constant is the one that folding computes, bit by bit: other elements, the other zero, and
    what is one in place of another number are refused. NaN is NaN.
    """
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], np.float32)
    for _ in range(40):
        shape = rng.choice(((7,), (3, 5), (2, 3, 4), (70, 40)))
        draw = np.random.default_rng(rng.randrange(1 << 30))
        a, b = (draw.standard_normal(shape).astype(np.float32) for _ in range(2))
        some = draw.random(shape) < 0.2
        a[some] = draw.choice(special, int(some.sum()))
        row = g.const(draw.standard_normal(shape[-1]).astype(np.float32), F32)
        spread = g.expand(g.reshape(row, (*(1,) * (len(shape) - 1), shape[-1])), shape)
        other = rng.choice((g.const(b, F32), spread, g.full(-0.0, shape, F32)))
        op = rng.choice((Op.ADD, Op.MUL, Op.SUB, Op.MAX))
        made = g.elementwise(op, g.const(a, F32), other)
        (value,) = evaluate((made,))
        assert not check_rewrite((made,), (g.const(value, F32),), ()), made
        nan = np.isnan(value)
        other_nan = np.where(nan, -value, value)
        assert not check_rewrite((made,), (g.const(other_nan, F32),), ()), made
        one = value.copy()
        at = rng.randrange(value.size)
        one.flat[at] = np.nextafter(one.flat[at], 9) if np.isfinite(one.flat[at]) else 3.0
        for array in (one, np.where(value == 0, -value, value), np.where(nan, 0, value)):
            if value.size > 100 or array.tobytes() == value.tobytes():
                continue  # of many elements some are compared
            try:
                check_rewrite((made,), (g.const(array.astype(np.float32), F32),), ())
            except WrongPlan:
                continue
            raise AssertionError(f"constants: {array} is taken for {value}")


def close(found: Array, want: Array) -> None:
    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), 1e-4, 1e-4)


def planned(rng: random.Random) -> None:
    """A plan computes what its graph means; it reads nothing that it has not written."""
    for seed in range(60):
        drawn = random.Random(rng.random())
        outputs = random_graph(drawn, 10, (I32,))
        inputs = random_inputs(seed, outputs)
        plan = schedule(outputs)
        plan.verify()
        want, found = evaluate(outputs, inputs), run_schedule(plan, inputs)
        for o, a, b in zip(outputs, want, found, strict=True):
            if o.dtype.is_float or _rounds(o):
                close(b, a)
            else:
                assert same(a, b), f"plan of {o}"


def _in_turns(rng: random.Random) -> tuple[Node, ...]:
    """Two tensors that read one input; the second also reads what is computed of the first."""
    x = g.graph_input("x", (rng.randint(2, 5), rng.randint(2, 7)), I32)
    first = g.elementwise(Op.ADD, x, g.full(rng.randint(1, 9), x.shape, I32))
    between = g.elementwise(Op.NEG, g.flip(first, (rng.randrange(2),)))
    second = g.elementwise(Op.MUL, x, between)
    return first, between, second


def _reshaped_twin(rng: random.Random) -> tuple[Node, ...]:
    """Two tensors that read one input, in other shapes."""
    x = g.graph_input("x", (rng.randint(2, 5), rng.randint(2, 7)), I32)
    row = g.reshape(x, (x.size,))
    return g.elementwise(Op.ABS, x), g.elementwise(Op.NEG, row)


def siblings(rng: random.Random) -> None:
    """A plan whose kernels store several tensors computes every bit that their parts do."""
    drawn = random.Random(rng.random())
    graphs = [sibling_graph(drawn, (F32, I32, U8, BOOL)) for _ in range(30)]
    graphs += [row_graph(drawn, (F32, I32, U8)) for _ in range(10)]
    graphs += [_in_turns(drawn), _reshaped_twin(drawn)]
    several = 0
    for seed, outputs in enumerate(graphs):
        inputs = random_inputs(seed, outputs)
        fusion = Fusion.of(outputs)
        apart = replace(fusion, apart=frozenset(fusion.drafts.order))
        plan = fusion.schedule()
        plan.verify()
        several += any(len(x.kernel.outputs) > 1 for x in plan.launches)
        want, found = run_schedule(apart.schedule(), inputs), run_schedule(plan, inputs)
        for o, a, b in zip(outputs, want, found, strict=True):
            assert same(a, b), f"siblings: {o} of {plan}"
    assert several > 5


def groups(rng: random.Random) -> None:
    """Dimensions of two shapes of one size come in groups of equal products, none of which comes
    apart.
    """
    for _ in range(400):
        size = rng.choice((1, 6, 12, 24, 36, 60, 0))
        a, b = _shape(rng, size), _shape(rng, size)
        found = reshape_groups(a, b)
        for x, y in found:
            assert prod(a[d] for d in x) == prod(b[d] for d in y)
        if not size:
            continue
        assert [d for x, _ in found for d in x] == [d for d, s in enumerate(a) if s != 1]
        assert [d for _, y in found for d in y] == [d for d, s in enumerate(b) if s != 1]
        for x, y in found:
            inner = {prod(a[d] for d in x[:k]) for k in range(1, len(x))}
            assert inner.isdisjoint(prod(b[d] for d in y[:k]) for k in range(1, len(y)))


def _shape(rng: random.Random, size: int) -> tuple[int, ...]:
    dims: list[int] = []
    if not size:
        return (*(rng.choice((1, 2, 3)) for _ in range(rng.randrange(3))), 0)
    while size > 1:
        d = rng.choice([d for d in range(2, size + 1) if size % d == 0])
        dims.append(d)
        size //= d
    dims += [1] * rng.randrange(2)
    rng.shuffle(dims)
    return tuple(dims)


GRAPH_LAWS: dict[str, Law] = {
    "folding of maps": folding_of_maps, "folding of shapes": folding_of_shapes,
    "folding of parts": folding_of_parts, "repeated": repeated, "pairs": pairs, "quads": quads,
    "dequantised": dequantised, "tf32": tf32, "drafted": drafted, "positions": positions,
    "turned": turned, "planned": planned, "siblings": siblings, "groups": groups,
    "scales": scales, "biases": biases, "quantised products": quantised_products,
    "halves": halves, "slices": slices, "chains": chains, "constants": constants,
}  # fmt: skip
