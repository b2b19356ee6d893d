"""The laws of rewrites of kernels: axes, parameters, layouts and variants, on drawn kernels of
integers, which the interpreter runs before and after.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.compiled_graphs import TARGET, CompiledKernels
from tests.graph_builders import run_schedule
from tests.rewrite_graph_laws import VNNI, small_bytes
from tests.rewrite_laws import same
from tests.stored_decisions import decided
from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint
from tunegrad.frontend import Tensor, grad
from tunegrad.ir.dtypes import F32, F64, I8, I32, U8, DType
from tunegrad.ir.expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.fusion.axes import merge_axes, normalized, split_axes, viewed
from tunegrad.ir.graph import reduce
from tunegrad.ir.index import ALWAYS, Index, Range, Valid, as_index
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store, on_both
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.target import Target
from tunegrad.ir.validate import groups_of, validate_group
from tunegrad.ir.validate.plans import _digits
from tunegrad.ir.variants import (
    Split,
    match_conv3x3,
    parts_of,
    rewrite,
    split,
    split_k,
    splits_of_k,
    variants_of,
)
from tunegrad.ir.variants import (
    in_halves as in_16_bits,
)
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import allowed
from tunegrad.planning.expected import picked

__all__ = ["KERNEL_LAWS", "ROUNDS_AT_ONCE"]

ROUNDS_AT_ONCE = "+avx2" in TARGET.features
"""False: this machine has no vectors of floats that one instruction rounds to integers."""

WIDENS = Target("cpu", "cpu", "znver3", ("+avx2", "+fma"), vector_bytes=32, registers=16)

Array = NDArray[Any]
Law = Callable[[random.Random], None]

EXTENTS = (2, 3, 4, 5, 6)


def _numbers(size: int) -> Array:
    return (np.arange(size, dtype=np.int64) * 37 % 61 - 30).astype(np.int32)


def _indexed(rng: random.Random, axes: list[Axis]) -> tuple[tuple[Index, ...], tuple[int, ...]]:
    """An index of a parameter over some axes, and the shape that it stays inside of."""
    index: list[Index] = []
    left = rng.sample(axes, len(axes)) if rng.random() < 0.3 else list(axes)
    while left:
        a = left.pop(0)
        pick = rng.random()
        if pick < 0.4 or not left:
            index.append(a.index)
        elif pick < 0.6:
            b = left.pop(0)
            index.append(a.index * b.extent + b.index)
        elif pick < 0.75:
            b, by = left.pop(0), rng.choice((2, 3))
            flat = a.index * b.extent + b.index
            index += [flat // by, flat % by]
        elif pick < 0.9:
            d = rng.choice((2, 3))
            index += [a.index // d, a.index % d]
        else:
            index.append(a.index * rng.choice((1, 2)) + rng.choice((0, 1, 3)))
    if rng.random() < 0.3:
        index.insert(rng.randrange(len(index) + 1), as_index(rng.choice((0, 2))))
    more = [rng.choice((0, 0, 0, 1, 2)) for _ in index]
    return tuple(index), tuple(i.hi + 1 + m for i, m in zip(index, more, strict=True))


def _mask(rng: random.Random, axes: list[Axis]) -> Valid:
    if rng.random() < 0.7:
        return ALWAYS
    a, b = rng.choice(axes), rng.choice(axes)
    index = a.index if rng.random() < 0.5 or a is b else a.index * b.extent + b.index
    lo = rng.randrange(index.hi + 1)
    return Valid((Range(index, lo, lo + rng.randint(1, index.hi + 1)),))


def drawn_kernel(rng: random.Random) -> tuple[Kernel, dict[str, Array]]:
    """A kernel of integers: loads at drawn indices under masks, sums, a store of every point."""
    axes = [Axis(n, rng.choice(EXTENTS)) for n in "abc"[: rng.randint(1, 3)]]
    own = [Axis(f"r{i}", rng.choice((*EXTENTS, 7, 9))) for i in range(rng.choice((0, 1, 2)))]
    params: list[Param] = []
    at = {}

    def load(over: list[Axis]) -> Expr:
        used = rng.sample(over, rng.randint(1, len(over)))
        used.sort(key=over.index)
        known = [n for n, (names, _) in at.items() if names == used]
        if known and rng.random() < 0.6:
            name = known[0]
            index = at[name][1]
        else:
            index, shape = _indexed(rng, used)
            name = f"p{len(params)}"
            params.append(Param.dense(name, I32, shape, "in"))
            at[name] = (used, index)
        return Load(name, index, I32, _mask(rng, used))

    def expr(over: list[Axis]) -> Expr:
        x = load(over)
        for _ in range(rng.randrange(3)):
            pick = rng.random()
            if pick < 0.4:
                x = Apply(rng.choice((Op.ADD, Op.MUL, Op.SUB)), (x, load(over)), I32)
            elif pick < 0.6:
                x = Apply(Op.WHERE, (Inside(_mask(rng, over)), x, load(over)), I32)
            elif pick < 0.9:
                x = Apply(Op.ADD, (x, IndexValue(rng.choice(over).index, I32)), I32)
            else:
                x = Apply(Op.MUL, (x, Const(3, I32)), I32)
        return x

    stages: list[Reduce | Store] = []
    body = expr(axes)
    if own:
        stages.append(Reduce("v0", rng.choice((Op.ADD, Op.MAX)), tuple(own), expr(axes + own), I32))
        body = Apply(Op.ADD, (Value("v0", I32), body), I32)
    index: tuple[Index, ...] = tuple(a.index for a in axes)
    shape = tuple(a.extent for a in axes)
    if len(axes) > 1 and rng.random() < 0.3:
        index = (axes[0].index * shape[1] + axes[1].index, *index[2:])
        shape = (shape[0] * shape[1], *shape[2:])
    valid = ALWAYS
    if rng.random() < 0.3 and shape[0] > 2:
        shape = (shape[0] - 1, *shape[1:])
        valid = Valid((Range(index[0], 0, shape[0]),))
    stages.append(Store("out", index, body, (), valid))
    kernel = Kernel((Param.dense("out", I32, shape, "out"), *params), tuple(axes), tuple(stages))
    return kernel, {p.name: _numbers(p.size) for p in params}


def neighbours(rng: random.Random) -> tuple[Kernel, dict[str, Array]]:
    """A kernel whose loads read two axes side by side, or nearly so."""
    a, b = Axis("a", rng.choice(EXTENTS)), Axis("b", rng.choice(EXTENTS))
    params, terms = [Param.dense("out", I32, (a.extent, b.extent), "out")], list[Expr]()
    for n in range(rng.randint(1, 2)):
        apart = rng.choice((0, 0, 0, 1))
        c, wide = rng.choice((1, 1, 2)), b.extent + apart
        index = rng.choice(((a.index, b.index), ((a.index * wide + b.index) * c,), (b.index,)))
        shape = (a.extent, wide) if len(index) == 2 else (index[0].hi + 1,)
        valid = ALWAYS
        if rng.random() < 0.2:
            valid = Valid((Range(rng.choice((a, b)).index, 0, 1),))
        params.append(Param.dense(f"p{n}", I32, shape, "in"))
        terms.append(Load(f"p{n}", index, I32, valid))
    total = terms[0] if len(terms) == 1 else Apply(Op.ADD, (terms[0], terms[1]), I32)
    kernel = Kernel(tuple(params), (a, b), (Store("out", (a.index, b.index), total),))
    return kernel, {p.name: _numbers(p.size) for p in params[1:]}


def _plain(kernel: Kernel, memory: dict[str, Array]) -> Array:
    (found,) = interpret(kernel, memory).values()
    return found


def _rewritten(rng: random.Random, rule: str, rewrite: Callable[[Kernel], Kernel]) -> None:
    changed = 0
    for case in range(1600):  # few kernels have what one condition of a rule is about
        kernel, memory = drawn_kernel(rng) if case % 2 else neighbours(rng)
        made = rewrite(kernel)
        if made == kernel:
            continue
        verify_kernel(made)
        changed += 1
        found = _plain(made, {p.name: memory[p.name] for p in made.params if p.role != "out"})
        assert (found == _plain(kernel, memory)).all(), f"{rule}: {kernel}\nis not {made}"
    assert changed > 60, f"{rule} changed {changed} kernels, a hundred or more are usual"


def merged(rng: random.Random) -> None:
    """Neighbouring axes as one: every element stays the same."""
    _rewritten(rng, "merge_axes", merge_axes)


def divided(rng: random.Random) -> None:
    """An axis that is read by its digits as two: every element stays the same, no digit is left."""
    _rewritten(rng, "split_axes", split_axes)


def parts(rng: random.Random) -> None:
    """A part of a parameter from some byte on, read at what is left of the index."""
    changed = 0
    for _ in range(400):
        kernel, memory = drawn_kernel(rng)
        step = rng.choice((4, 16, 64))
        made, starts = viewed(kernel, step)
        verify_kernel(made)
        changed += bool(starts)
        given = {}
        for p in made.params:
            if p.role != "out":
                start = starts.get(p.name, 0)
                assert start % step == 0, f"view of {p.name} from byte {start} on"
                given[p.name] = memory[p.name][start // 4 :][: p.size]
        assert (_plain(made, given) == _plain(kernel, memory)).all(), f"{kernel}\nis not {made}"
    assert changed > 20


def _layout(rng: random.Random, shape: tuple[int, ...]) -> Layout:
    parts: list[Part] = []
    for d, extent in enumerate(shape):
        low = rng.choice([k for k in (1, 1, 2, 3) if extent % k == 0])
        if low == 1:
            parts.append(Part(d, 1, extent + rng.choice((0, 0, 0, 0, 0, 1))))
        else:
            parts += [Part(d, low, extent // low), Part(d, 1, low)]
    rng.shuffle(parts)
    return Layout(shape, tuple(parts))


def canonical(rng: random.Random) -> None:
    """The canonical kernel over memory in its layouts: every element stays at its place."""
    for _ in range(150):
        kernel, memory = drawn_kernel(rng)
        shapes = {p.name: p.shape for p in kernel.params}
        at = {n: _layout(rng, shape) for n, shape in shapes.items() if rng.random() < 0.5}
        step = rng.choice((4, 64))
        made, places = normalized(kernel, at, step)
        verify_kernel(made)
        packed = {n: at[n].pack(a.reshape(shapes[n])) if n in at else a for n, a in memory.items()}
        given = {}
        for p, (name, start) in zip(made.params, places, strict=True):
            assert start % step == 0
            if p.role != "out":
                given[p.name] = packed[name][start // 4 :][: p.size]
        want = _plain(kernel, memory)
        if "out" in at:
            want = at["out"].pack(want.reshape(shapes["out"]))
        assert (_plain(made, given) == want).all(), f"{kernel}\nis not {made}"


def _whole(rng: random.Random, shape: tuple[int, ...], step: int = 1) -> Array:
    numbers = np.random.default_rng(rng.randrange(1 << 30)).integers(-3, 4, shape)
    return (numbers * step).astype(np.float32)


def convolutions(rng: random.Random) -> None:
    """Every variant of a convolution of small integers gives the same integers: Winograd's with
    weights of which all transforms are whole.
    """
    found: set[str] = set()
    for case in range(48):
        channels, outputs = rng.choice((2, 3, 8, 9)), rng.choice((2, 5, 16))
        size, batch = (rng.randint(3, 9), rng.randint(3, 9)), rng.randint(1, 2)
        taps, stride = rng.choice((((3, 3), 1), ((3, 3), 1), ((3, 3), 2), ((1, 3), 1), ((2, 2), 1)))
        padding = rng.randrange(3)
        if case % 2 == 0:  # windows of images are gathered, and their masks matter
            channels, padding = 3, max(1, padding)
        image, weights = _whole(rng, (batch, channels, *size)), _whole(
            rng, (outputs, channels, *taps), 576
        )  # fmt: skip
        inputs: dict[str, Array] = {"x": image}
        last = rng.random() < 0.3
        x = Tensor.input("x", image.shape)
        if last:
            inputs["x"] = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
            x = Tensor.input("x", inputs["x"].shape).permute(0, 3, 1, 2)
        y = x.conv2d(Tensor.constant(weights), stride=stride, padding=padding)
        if rng.random() < 0.5:
            y = (y + Tensor.constant(_whole(rng, (outputs, 1, 1), 576))).relu()
        if rng.random() < 0.3:
            inputs["r"] = _whole(rng, y.shape, 576)
            y = y + Tensor.input("r", y.shape)
        if last:
            y = y.permute(0, 2, 3, 1)
        plan = schedule(fold_constants((y.node,)))
        if len(plan.launches) != 1:
            continue
        (want,) = run_schedule(plan, inputs)
        kernel = plan.launches[0].kernel
        for variant in variants_of(kernel)[1:]:
            made = rewrite(plan, {kernel.key: variant})
            made.verify()
            for launch in made.launches:
                verify_kernel(launch.kernel)
            (got,) = run_schedule(made, inputs)
            # All results are whole; thirds of the larger Winograd tile are rounded in float64.
            off = 1e-6 if "winograd4" in variant else 0.0
            assert (np.abs(got - want) <= off).all(), f"{variant} of {kernel}"
            found.add(variant)
    assert {"winograd2", "winograd4", "channels_last"} <= found, found


def on_floats(rng: random.Random) -> None:
    """A product of bytes on floats is the same one, where its sums are below 2^24; Winograd's is as
    near as roundings are. A sum that is read as an integer, too, has no such variant.
    """
    found: set[str] = set()
    drawn = np.random.default_rng(rng.randrange(1 << 30))
    for case in range(12):
        kind, zero = rng.choice(("u8", "i8")), rng.choice((0, 3))
        if case % 4 == 0:  # its image has a mask; others are stored padded
            kind, zero = "u8", 0
        taps = 1 if case % 4 == 2 else 3
        channels, outputs = rng.choice((8, 12)), rng.choice((5, 8))
        shape = rng.randint(1, 2), channels, rng.randint(4, 7), rng.randint(4, 7)
        w = drawn.integers(-128, 128, (outputs, channels, taps, taps)).astype(np.int8)
        last = rng.random() < 0.5
        given = tuple(shape[d] for d in (0, 2, 3, 1)) if last else shape
        x = Tensor.input("x", given, kind)
        image = (x.cast("f32") - Tensor.constant(np.array(zero, x.dtype.numpy)).cast("f32")) * 0.5
        image = image.permute(0, 3, 1, 2) if last else image
        weights = Tensor.constant(w).cast("f32")
        if case % 3 == 2:
            weights = weights - Tensor.constant(np.int8(-5)).cast("f32")
        weights = weights * 0.25
        stride = rng.choice((1, 1, 2))
        padding = 1 if case % 4 == 0 else rng.randrange(taps)
        y = image.conv2d(weights, stride=stride, padding=padding)
        plan = schedule(fold_constants(quad_dots((y.node,), VNNI, floats=True)))
        (kernel,) = (k for k, _ in plan.kernels().values() if "dot4(" in k.text)
        inputs = {"x": small_bytes(rng, given, x.dtype)}
        (want,) = run_schedule(plan, inputs)
        for variant in (v for v in variants_of(kernel) if v.startswith("floats")):
            (got,) = run_schedule(_verified(plan, kernel, variant), inputs)
            off = 0.0 if variant == "floats" else 1e-5 * np.ptp(want)
            assert (np.abs(got - want) <= off).all(), f"{variant} of {kernel}"
            found.add(variant)
        (store,) = kernel.stores
        total = Value(kernel.reduces[0].name, I32)
        both = Apply(Op.ADD, (store.expr, Cast(Apply(Op.MAX, (total, total), I32), F32)), F32)
        kept = replace(kernel, stages=(*kernel.reduces, replace(store, expr=both)))
        assert not [v for v in variants_of(kept) if v.startswith("floats")]
    assert found == {"floats", "floats_winograd2", "floats_winograd4"}, found


def _verified(plan: LaunchPlan, kernel: Kernel, variant: str) -> LaunchPlan:
    """The plan with a variant of a kernel; it is verified, and each group of launches validated."""
    made = rewrite(plan, {kernel.key: variant})
    made.verify()
    for group in groups_of(made):
        validate_group(group, group.cone())
    for launch in made.launches:
        verify_kernel(launch.kernel)
    return made


def in_halves(rng: random.Random) -> None:
    """Sums of bytes in 16 bits are the same ones to the last bit, also at the ends of bytes. Where
    they might be 2^29 Winograd's are no variant, nor with weights without a sign.
    """
    drawn = np.random.default_rng(rng.randrange(1 << 30))

    def numbers(shape: tuple[int, ...], dtype: DType) -> Array:
        ends = drawn.choice(np.array([dtype.least, dtype.greatest], dtype.numpy), shape)
        some = drawn.integers(dtype.least, dtype.greatest, shape, dtype.numpy, endpoint=True)
        return np.where(drawn.random(shape) < rng.choice((0.0, 0.9, 1.0)), ends, some)

    found: list[str] = []
    for case in range(16):
        kind, weighs = rng.choice((U8, I8)), U8 if case % 8 == 7 else I8
        channels, outputs = 3 if case % 5 == 4 else rng.choice((8, 12)), rng.choice((5, 8))
        if case == 0:
            channels, outputs = 2048, 2
        size = (3, 3) if case == 0 else (rng.randint(4, 9), rng.randint(4, 9))
        shape = rng.randint(1, 2), channels, *size
        w = numbers((outputs, channels, 3, 3), weighs)
        if case == 0:
            w[:] = weighs.least
        x = Tensor.input("x", shape, str(kind)).cast("i32")
        if case % 2:
            x = x - Tensor.constant(np.array(3, kind.numpy)).cast("i32")
        padding, stride = rng.randrange(2) or int(case == 0), rng.choice((1, 2)) if case > 9 else 1
        y = x.conv2d(Tensor.constant(w).cast("i32"), padding=padding, stride=stride)
        plan = schedule(fold_constants(quad_dots((y.node,), WIDENS)))
        (kernel,) = (k for k, _ in plan.kernels().values() if "dot4(" in k.text)
        inputs = {"x": np.full(shape, 255, np.uint8) if case == 0 else numbers(shape, kind)}
        if case == 0:
            inputs["x"] = inputs["x"].astype(kind.numpy)
        names = [v for v in variants_of(kernel) if in_16_bits(v)]
        tiles = channels < 1828 and weighs == I8 and stride == 1 and channels > 4
        wanted = {"halves", *(["exact_winograd4"] if tiles else [])}
        assert {v.removeprefix("channels_last_") for v in names} == wanted, f"{names} of {kernel}"
        (want,) = run_schedule(plan, inputs)
        for variant in names:
            (got,) = run_schedule(_verified(plan, kernel, variant), inputs)
            assert (got == want).all(), f"{variant} of {kernel}"
            found.append(variant.removeprefix("channels_last_"))
    assert min(found.count("halves"), found.count("exact_winograd4")) > 3, found


def in_rows(rng: random.Random) -> None:
    """What windows of bytes read, laid in rows, has the same sums with the weights: of any window,
    channels, padding and stride; of columns alone where they fill tiles. Two words of channels of
    neighbours are always among them.
    """
    drawn, found = np.random.default_rng(rng.randrange(1 << 30)), list[int]()
    for case in range(18):
        channels, outputs = (4, 8, 12, 64, 4, 8, 12, 64, 8)[case // 2], rng.choice((3, 8))
        fills = case >= 8  # tiles, by a row of the result
        windows = ((3, 3), (1, 4), (5, 2), (7, 7), (7, 7))
        window = (3, 3) if fills and channels == 12 else rng.choice(windows[2 * fills :])
        images, high = rng.randint(1, 2), rng.randint(7, 9)
        stride = 1 + case % 2 if fills else rng.choice((1, 2))
        padding = rng.randrange(min(window))
        if case > 15:  # a row's pixels are copied side by side
            images, high, window, stride, padding = 2, 9, (7, 7), 2, 2
        wide = 15 * stride + window[1] - 2 * padding if fills else rng.randint(7, 9)
        shape = images, high, wide, channels
        w = drawn.integers(-128, 128, (outputs, channels, *window), np.int8)
        x = Tensor.input("x", shape, "u8").permute(0, 3, 1, 2).cast("i32")
        if case % 2:
            x = x - Tensor.constant(np.array(3, np.uint8)).cast("i32")
        y = x.conv2d(Tensor.constant(w).cast("i32"), padding=padding, stride=stride)
        plan = schedule(fold_constants(quad_dots((y.permute(0, 2, 3, 1).node,), VNNI)))
        inputs = {"x": drawn.integers(0, 256, shape, np.uint8)}
        (want,) = run_schedule(plan, inputs)
        for kernel in [k for k, _ in plan.kernels().values() if "windows" in variants_of(k)]:
            (got,) = run_schedule(_verified(plan, kernel, "windows"), inputs)
            assert (got == want).all(), f"windows of {kernel}"
            found.append(len(parts_of(kernel, "windows")[1].reduces[0].axes))
    assert min(map(found.count, (1, 2))) > 2, found


def digits(rng: random.Random) -> None:
    """Integers of a sum of bytes have the digits that validation draws them with, and no fewer."""
    for _ in range(200):
        dtype, terms = rng.choice((U8, I8)), rng.choice((1, 2, 3, 4, 8, 16))
        x = Tensor.input("x", (terms,), str(dtype)).cast("i32")
        total = reduce(Op.ADD, rng.choice((x, 5 - x, x - rng.choice((0, 100, 128)))).node, (0,))
        ends = [np.full(terms, end, dtype.numpy) for end in (dtype.least, dtype.greatest)]
        found = [abs(evaluate((total,), {"x": end})[0].item()) for end in ends]
        most = 1 << _digits(total)
        assert most > max(found) >= most >> 1, f"{found} have digits up to {most}: {total}"


def _ran(made: Split, memory: list[Array]) -> Array:
    reads = {p.name: memory[i] for p, i in zip(made.partial.params[1:], made.reads, strict=True)}
    (t,) = interpret(made.partial, reads).values()
    given = {
        p.name: t if i is None else memory[i]
        for p, i in zip(made.finish.params, made.finish_args, strict=True)
        if p.role != "out"
    }
    return _plain(made.finish, given)


def splits(rng: random.Random) -> None:
    """Both halves of a split reduction fold what the whole one does."""
    halves = 0
    for _ in range(250):
        kernel, memory = drawn_kernel(rng)
        if not kernel.reduces:
            continue
        made = split(kernel, rng.randint(1, 5), rng.choice((1, 1, 2, 3)))
        assert made is not None
        verify_kernel(made.partial)
        verify_kernel(made.finish)
        listed = [memory.get(p.name, np.zeros(0, np.int32)) for p in kernel.params]
        assert (_ran(made, listed) == _plain(kernel, memory)).all(), f"split of {kernel}"
        halves += 1
    assert halves > 30
    for parts in (2, 4):
        m, n, k = rng.choice((2, 3)), rng.choice((2, 5)), 1024
        a, b = _whole(rng, (m, k)), _whole(rng, (k, n))
        y = Tensor.input("a", a.shape) @ Tensor.input("b", b.shape) + 1
        plan = schedule((y.node,))
        kernel = plan.launches[0].kernel
        assert parts in splits_of_k(kernel)
        by_shape: dict[tuple[int, ...], Array] = {(m, k): a, (k, n): b}
        listed = [
            np.zeros(0) if p.role == "out" else by_shape[p.shape].reshape(-1) for p in kernel.params
        ]
        found = _ran(split_k(kernel, parts), listed)
        assert (found.reshape(m, n) == a @ b + 1).all(), f"split_k of {kernel}"


def _convolution(rng: random.Random, x: Tensor, w: Tensor, padding: int) -> Tensor:
    y = x.conv2d(w, padding=padding)
    return rng.choice((y, y.relu(), y + 1))


def tiles_of_steps(rng: random.Random) -> None:
    """Convolutions of a training step take Winograd's small tiles alone, whatever a store has
    decided; those of constant weights take both.
    """
    for _ in range(2):
        channels, outputs, padding = rng.choice((4, 8)), rng.choice((4, 20)), rng.randrange(2)
        image = (rng.randint(1, 2), channels, rng.randint(4, 9), rng.randint(4, 9))
        x, w = Tensor.input("x", image), Tensor.input("w", (outputs, channels, 3, 3))
        if rng.random() < 0.5:
            n, c, *size = image
            x = Tensor.input("x", (n, *size, c)).permute(0, 3, 1, 2)
        fixed = Tensor.constant(np.ones(w.shape, np.float32))
        slopes = Tensor.input("g", (image[0], outputs, *(s + 2 * padding - 2 for s in image[2:])))
        back = grad(lambda x: (x.conv2d(w, padding=padding) * slopes).sum())(x)  # noqa: B023
        for y, large in (
            (_convolution(rng, x, w, padding), False),
            (_convolution(rng, x, fixed, padding), True),
            (back, False),
        ):
            plan = schedule(fold_constants((y.permute(0, 2, 3, 1).node,)))
            (kernel,) = [k for k, _ in plan.kernels().values() if match_conv3x3(k) is not None]
            tiles = [v for v in variants_of(kernel) if "winograd" in v]
            wanted = {v for v in tiles if large or v.endswith("winograd2")}
            assert {v for v in allowed(kernel, "contract") if "winograd" in v} == wanted, kernel
            stored = rng.choice([v for v in tiles if v.endswith("winograd4")])
            here = fingerprint(VNNI)
            with open_store(":memory:", "write") as store, store.session("tune", 0, {}, "0", "s"):
                store.record_decision(decided("variant", kernel.text, stored, here))
                picks = picked(plan, VNNI, here, store, "contract")
            assert (picks.get(kernel.key) == stored) == large, f"{picks} of {kernel}"


def steps(rng: random.Random) -> None:
    """Compiled for vectors of any width, floats that are rounded to bytes are numpy's bytes,
    whatever they are, and so are products, and what is computed of bytes less a byte.
    """
    for kind, twin in ((U8, I8), (I8, U8)):
        _steps_of(rng, kind, twin)


def _steps_of(rng: random.Random, kind: DType, twin: DType) -> None:
    one, two = rng.sample(range(1, kind.greatest + 1), 2)
    z, other = (  # below 0, what is below all integers would wrap around
        Tensor.constant(np.array(byte, kind.numpy)).cast("f32")
        for byte in (-one if kind.signed else one, two)
    )
    length = rng.choice((61, 64, 100))
    x, q = Tensor.input("x", (length,)), Tensor.input("q", (length,), kind.name)
    rounded, product = x.round(), (x * 0.5).round()  # a product that rounds once by itself
    made, both, alone, moved, plain = (
        y.clamp(float(kind.least), float(kind.greatest)).cast(kind.name)
        for y in (rounded + z, rounded + z + other, rounded, product + z, product)
    )
    outputs = [
        made, both, alone.cast("f32") - z, made.cast("f32") - z, made.cast("f32") - other,
        moved, plain, moved.cast("f32") - z, q.cast("f32") - z,
        made.cast(twin.name).cast("f32") - z,
    ]  # fmt: skip
    drawn = np.random.default_rng(rng.randrange(1 << 30))
    floats = drawn.uniform(-600, 600, length).astype(np.float32)
    floats[:13] = [
        np.nan, np.inf, -np.inf, 3e9, -3e9, -3e7, 1e38, 0.5, 1.5, -0.5, 255.5, -7.5, 2.0**31,
    ]  # fmt: skip
    inputs: dict[str, Array] = {
        "x": floats, "q": drawn.integers(kind.least, kind.greatest + 1, length, kind.numpy),
    }  # fmt: skip
    plans = [schedule(fold_constants((y.node,))) for y in outputs]
    for lanes in (n for n in (4, 8, 16) if 4 * n <= TARGET.vector_bytes):
        code = CompiledKernels(1, f"tile(axis=a, size={lanes}) vectorize(axis=a1)")
        code.add([k for plan in plans for k, _ in plan.kernels().values()])
        for y, plan in zip(outputs, plans, strict=True):
            (got,), (want,) = code.run(plan, inputs), evaluate((y.node,), inputs)
            assert same(got, want), f"steps of {lanes} lanes: {plan}"


def _factor(rng: random.Random, name: str, masks: list[Valid]) -> Expr:
    """A load under some of the masks, in its own condition or in a choice beside 0 or 1."""
    n, m = Axis("a", 5), Axis("r", 6)
    own, around = (rng.choice((ALWAYS, *masks)) for _ in range(2))
    x: Expr = Load(name, (n.index * 6 + m.index,), F32, own)
    if rng.random() < 0.3:
        x = Cast(Cast(x, F64), F32)
    if not around.always:
        x = Apply(Op.WHERE, (Inside(around), x, Const(rng.choice((0.0, 1.0)), F32)), F32)
    return x


def terms(rng: random.Random) -> None:
    """Without a condition of both factors a term adds nothing, whatever the others are."""
    axis, over = Axis("a", 5), Axis("r", 6)
    memory: dict[str, Array] = {}
    found = 0
    for name in "xy":
        memory[name] = np.asarray(_numbers(30), np.float32)
        memory[name][rng.sample(range(30), 6)] = np.inf
    for _ in range(600):
        masks = [_mask(rng, [axis, over]) for _ in range(2)]
        product = Apply(Op.MUL, (_factor(rng, "x", masks), _factor(rng, "y", masks)), F32)
        reduce = Reduce("v0", Op.ADD, (over,), product, F32)
        params = [Param.dense(n, F32, (30,), "in") for n in "xy"]
        kernel = Kernel(
            (Param.dense("out", F32, (5,), "out"), *params), (axis,),
            (reduce, Store("out", (axis.index,), Value("v0", F32))),
        )  # fmt: skip
        conditions = on_both(kernel)
        found += bool(conditions)
        some: Expr = product
        if conditions:
            some = Apply(Op.WHERE, (Inside(Valid(conditions)), product, Const(0.0, F32)), F32)
        made = replace(kernel, stages=(replace(reduce, expr=some), kernel.stages[1]))
        with np.errstate(invalid="ignore"):
            want, got = _plain(kernel, memory), _plain(made, memory)
        np.testing.assert_array_equal(got, want, f"terms of {kernel}")
    assert found > 10


KERNEL_LAWS: dict[str, Law] = {
    "merged": merged, "divided": divided, "parts": parts, "canonical": canonical,
    "convolutions": convolutions, "splits": splits, "terms": terms,
    "on floats": on_floats, "in halves": in_halves, "windows in rows": in_rows,
    "digits": digits, "tiles of steps": tiles_of_steps, "steps": steps,
}  # fmt: skip
