"""A plan that does not compute its graph is refused when it is validated, whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import WrongPlan
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F16, F32, I64, DType
from tunegrad.ir.expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, rebuild
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Buffer, Combined, LaunchPlan, schedule
from tunegrad.ir.graph import const
from tunegrad.ir.index import ALWAYS, Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Reduce, Stage, Store
from tunegrad.ir.layout import Layout
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.target import Target
from tunegrad.ir.validate import graphs, validated, validation
from tunegrad.ir.validate import rewrites as known
from tunegrad.ir.variants import rewrite, variants_of

WIDENS = Target("cpu", "cpu", "znver3", ("+avx2", "+fma"), vector_bytes=32, registers=16)


def _x(*shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _w(*shape: int) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor.constant(rng.standard_normal(shape).astype(np.float32))


def _plan(y: Tensor, variant: str = "") -> LaunchPlan:
    plan = schedule(fold_constants((y.node,)))
    picks = {key: variant for key, (k, _) in plan.kernels().items() if variant in variants_of(k)}
    assert picks or not variant, "no kernel has the variant"
    return rewrite(plan, picks)


def _conv(variant: str = "") -> LaunchPlan:
    return _plan((_x(1, 4, 6, 6).conv2d(_w(5, 4, 3, 3), _w(5), padding=1) * 1.5).relu(), variant)


def _bytes() -> LaunchPlan:
    """A convolution of bytes, exactly by Winograd's tiles in 16 bits."""
    w = np.random.default_rng(3).integers(-128, 128, (5, 8, 3, 3)).astype(np.int8)
    x = _x(1, 8, 6, 6, dtype="u8").cast("i32")
    made = quad_dots((x.conv2d(Tensor.constant(w).cast("i32"), padding=1).node,), WIDENS)
    plan = schedule(fold_constants(made))
    (key,) = (key for key, (k, _) in plan.kernels().items() if "dot4(" in k.text)
    return rewrite(plan, {key: "exact_winograd4"})


def _norm() -> LaunchPlan:
    return _plan(_x(4, 33).layer_norm(_w(33), _w(33)))


def _kernels(plan: LaunchPlan, f: Callable[[Kernel], Kernel]) -> LaunchPlan:
    launches = tuple(replace(x, kernel=f(x.kernel)) for x in plan.launches)
    return replace(plan, launches=launches)


def _stages(plan: LaunchPlan, f: Callable[[Stage], Stage]) -> LaunchPlan:
    return _kernels(plan, lambda k: replace(k, stages=tuple(map(f, k.stages))))


def _leaves(plan: LaunchPlan, f: Callable[[Expr], Expr]) -> LaunchPlan:
    return _stages(plan, lambda s: replace(s, expr=rebuild(s.expr, f)))


def _loads(plan: LaunchPlan, f: Callable[[Load], Expr]) -> LaunchPlan:
    return _leaves(plan, lambda x: f(x) if isinstance(x, Load) else x)


def _applied(plan: LaunchPlan, op: Op, f: Callable[[Apply], Expr]) -> LaunchPlan:
    def changed(x: Expr) -> Expr:
        if not isinstance(x, Apply):
            return x
        y = Apply(x.op, tuple(map(changed, x.args)), x.dtype)
        return f(y) if y.op is op else y

    return _stages(plan, lambda s: replace(s, expr=changed(s.expr)))


def _narrowed(v: Valid) -> Valid:
    """A condition whose first range ends one earlier."""
    return Valid(Range(r.index, r.lo, r.hi - (i == 0)) for i, r in enumerate(v.ranges))


def _shorter(s: Stage) -> Stage:
    """A reduction without its last term."""
    if not isinstance(s, Reduce):
        return s
    last = s.axes[-1]
    env = {last.name: Axis(last.name, last.extent - 1).index}

    def leaf(x: Expr) -> Expr:
        if not isinstance(x, Load):
            return x
        at = tuple(i.substitute(env) for i in x.index)
        return Load(x.param, at, x.dtype, x.valid.substitute(env))

    axes = (*s.axes[:-1], Axis(last.name, last.extent - 1))
    return replace(s, axes=axes, expr=rebuild(s.expr, leaf))


def _shifted(x: Load) -> Load:
    """A load that reads the neighbour along its last dimension, the last one none."""
    end = x.index[-1].hi
    at = (*x.index[:-1], x.index[-1] + 1)
    return Load(x.param, at, x.dtype, x.valid & Valid((Range(at[-1], 0, end + 1),)))


def _relaid(plan: LaunchPlan) -> LaunchPlan:
    """A temporary whose dimensions lie the other way around than its kernels have them."""

    def other(layout: Layout) -> Layout:
        return Layout.permuted(layout.shape, tuple(reversed(range(len(layout.shape)))))

    first = next(b for b in plan.buffers if b.role == "temp")
    changed = replace(first, layout=other(first.layout))
    return replace(plan, buffers=tuple(changed if b is first else b for b in plan.buffers))


def _exchanged(plan: LaunchPlan) -> LaunchPlan:
    launch = plan.launches[-1]
    out, a, b = launch.args
    return replace(plan, launches=(*plan.launches[:-1], replace(launch, args=(out, b, a))))


def _viewed(plan: LaunchPlan) -> LaunchPlan:
    assert any(b.base is not None for b in plan.buffers)
    return replace(
        plan,
        buffers=tuple(b if b.base is None else replace(b, start=b.start + 4) for b in plan.buffers),
    )


def _combined(plan: LaunchPlan) -> LaunchPlan:
    """Winograd's weights with another element of a matrix."""

    def changed(b: Buffer) -> Buffer:
        made = b.node
        if not isinstance(made, Combined):
            return b
        rows = [list(row) for row in made.matrix]
        rows[-1][-1] += 1 if made.pairs else 0.25
        return replace(b, node=replace(made, matrix=tuple(map(tuple, rows))))

    return replace(plan, buffers=tuple(map(changed, plan.buffers)))


def _one_store_less(k: Kernel) -> Kernel:
    return replace(k, stages=k.stages[:-1]) if len(k.stores) > 1 and not k.reduces else k


def _epsilon(x: Expr) -> Expr:
    small = isinstance(x, Const) and isinstance(x.value, float) and 0 < x.value < 1e-3
    return Const(x.value * 2, x.dtype) if small and isinstance(x, Const) else x


def _next_float(x: Expr) -> Expr:
    if not isinstance(x, Const) or x.value != 1.5:
        return x
    return Const(float(np.nextafter(np.float32(1.5), np.float32(2))), F32)


def _moved_store(s: Stage) -> Stage:
    if not isinstance(s, Store):
        return s
    return replace(s, index=tuple(reversed(s.index)))


def _product(variant: str = "") -> LaunchPlan:
    return _plan((_x(8, 1024) @ _x(1024, 8, name="y")), variant)


def _positions(op: Op, value: float) -> LaunchPlan:
    """A function of one position, as a float, where a kernel works out others that a mask
    discards.
    """
    position = g.cast(g.shrink(g.iota((8,), 0, I64), ((3, 4),)), F32)
    made = g.elementwise(op, position, g.full(value, (1,), F32))
    made = g.cast(made, F32) if op is Op.LT else g.elementwise(Op.EXP, made)
    padded = g.pad(made, ((2, 2),))
    x = g.graph_input("x", padded.shape, F32)
    return schedule((g.elementwise(Op.ADD, padded, x),))


def _literals() -> LaunchPlan:
    """A clamp of a part of numbers that are literals at every other place."""
    x = _x(64)
    w = x.clone()
    w[::2] = 1.0
    w[9:40].clamp_(0.0, 2.0)
    return _plan(w * 1.5)


def _further(x: Expr) -> Expr:
    return IndexValue(x.index + 1, x.dtype) if isinstance(x, IndexValue) else x


def _is(x: Expr, value: float) -> bool:
    return isinstance(x, Const) and x.value == value


def _longest() -> LaunchPlan:
    return _plan(_x(5 << 20).exp().sum())


def _uncast(x: Expr) -> Expr:
    """Without casts between floats that lose digits."""
    if isinstance(x, Apply):
        return Apply(x.op, tuple(map(_uncast, x.args)), x.dtype)
    if not isinstance(x, Cast):
        return x
    inner = _uncast(x.x)
    loses = x.dtype.is_float and x.dtype.bits < inner.dtype.bits
    return inner if loses or inner.dtype == x.dtype else Cast(inner, x.dtype)


def _through(dtype: DType) -> Callable[[Apply], Expr]:
    """A product that is kept in a narrower type in between."""
    return lambda x: Cast(Cast(x, dtype), x.dtype)


def _as_factor(x: Apply) -> Expr:
    """where(c, a, 0) as c * a, which is NaN where a is."""
    return Apply(Op.MUL, (Cast(x.args[0], x.dtype), x.args[1]), x.dtype)


def _heavy() -> LaunchPlan:
    return _plan(_x(1, 512, 7, 7).conv2d(_w(64, 512, 3, 3), padding=1))


def _nothing_at(dim: int, place: int) -> Callable[[LaunchPlan], LaunchPlan]:
    """Stores that write 0 at one place along a dimension."""

    def stored(s: Stage) -> Stage:
        if not isinstance(s, Store):
            return s
        here = Inside(Valid((Range(s.index[dim], place, place + 1),)))
        return replace(s, expr=Apply(Op.WHERE, (here, Const(0.0, F32), s.expr), F32))

    return lambda plan: _stages(plan, stored)


def _some_rows() -> LaunchPlan:
    return _plan(_x(35).where(_x(35) < _x(35, name="y"), 0.0) + 1.0)


FAULTS: dict[str, tuple[Callable[[], LaunchPlan], Callable[[LaunchPlan], LaunchPlan]]] = {
    "a mask is gone": (_conv, lambda p: _loads(p, lambda x: replace(x, valid=ALWAYS))),
    "a mask ends early": (
        _conv,
        lambda p: _loads(p, lambda x: replace(x, valid=_narrowed(x.valid))),
    ),
    "an element further": (_conv, lambda p: _loads(p, _shifted)),
    "the last term is gone": (_conv, lambda p: _stages(p, _shorter)),
    "the last term of a long sum is gone": (_product, lambda p: _stages(p, _shorter)),
    "the last term of a norm is gone": (_norm, lambda p: _stages(p, _shorter)),
    "another epsilon": (_norm, lambda p: _leaves(p, _epsilon)),
    "the next float": (_conv, lambda p: _leaves(p, _next_float)),
    "no bias": (_conv, lambda p: _applied(p, Op.ADD, lambda x: x.args[0])),
    "minus for plus": (
        _conv,
        lambda p: _applied(p, Op.ADD, lambda x: Apply(Op.SUB, x.args, x.dtype)),
    ),
    "the other extremum": (
        _conv,
        lambda p: _applied(p, Op.MAX, lambda x: Apply(Op.MIN, x.args, x.dtype)),
    ),
    "no relu": (_conv, lambda p: _applied(p, Op.MAX, lambda x: x.args[0])),
    "the square root of something else": (
        _norm,
        lambda p: _applied(p, Op.SQRT, lambda x: Apply(Op.TANH, x.args, x.dtype)),
    ),
    "factors exchanged": (lambda: _plan(_x(8, 8) @ _x(8, 8, name="y")), _exchanged),
    "another layout": (
        lambda: _plan(_x(1, 4, 6, 6).conv2d(_w(4, 4, 3, 3)).relu().softmax(1)),
        _relaid,
    ),
    "a store transposed": (
        lambda: _plan(_x(8, 8) @ _x(8, 8, name="y")),
        lambda p: _stages(p, _moved_store),
    ),
    "a view begins late": (lambda: _plan(_x(3, 64)[1] * 2.0), _viewed),
    "Winograd's weights": (lambda: _conv("winograd2"), _combined),
    "a tile's corner is not written": (
        lambda: _conv("winograd2"),
        lambda p: _kernels(p, _one_store_less),
    ),
    "Winograd's tile is another": (
        lambda: _conv("winograd4"),
        lambda p: _applied(p, Op.SUB, lambda x: Apply(Op.ADD, x.args, x.dtype)),
    ),
    "Winograd's weights in 16 bits": (_bytes, _combined),
    "Winograd's bytes are exchanged": (
        _bytes,
        lambda p: _applied(p, Op.EVEN, lambda x: Apply(Op.ODD, x.args, x.dtype)),
    ),
    "Winograd's sums are of products of whole words": (
        _bytes,
        lambda p: _applied(p, Op.DOT2I, lambda x: Apply(Op.MUL, x.args, x.dtype)),
    ),
    "a part of a split sum is short": (
        lambda: _product("split_k2"),
        lambda p: _stages(p, _shorter),
    ),
    "a part of a cat is gone": (
        lambda: _plan(tg.cat([_x(2, 3), _x(2, 4, name="y")], 1) * 2.0),
        lambda p: _applied(p, Op.WHERE, lambda x: x.args[2]),
    ),
    "a comparison the other way": (
        lambda: _plan(_x(35).where(_x(35) < _x(35, name="y"), 0.0)),
        lambda p: _applied(p, Op.LT, lambda x: Apply(Op.LT, x.args[::-1], x.dtype)),
    ),
    "a position further": (
        lambda: _positions(Op.MUL, 0.37),
        lambda p: _leaves(p, _further),
    ),
    "a position compared with another number": (
        lambda: _positions(Op.LT, 70.5),
        lambda p: _leaves(p, lambda x: Const(2.5, x.dtype) if _is(x, 70.5) else x),
    ),
    "the other extremum of a position": (
        lambda: _positions(Op.MAX, 70.5),
        lambda p: _applied(p, Op.MAX, lambda x: Apply(Op.MIN, x.args, x.dtype)),
    ),
    "a position without its mask": (
        lambda: _positions(Op.DIV, 2.5),
        lambda p: _applied(p, Op.WHERE, lambda x: x.args[1]),
    ),
    "the other extremum of a literal that a position chooses": (
        _literals,
        lambda p: _applied(p, Op.MAX, lambda x: Apply(Op.MIN, x.args, x.dtype)),
    ),
    "a literal that a position chooses is another": (
        _literals,
        lambda p: _leaves(p, lambda x: Const(1.25, x.dtype) if _is(x, 1.0) else x),
    ),
    "no clamp of literals": (_literals, lambda p: _applied(p, Op.MAX, lambda x: x.args[0])),
    "a literal of a clamp is another": (
        _literals,
        lambda p: _leaves(p, lambda x: Const(0.5, x.dtype) if _is(x, 2.0) else x),
    ),
    "a rounding is gone": (
        lambda: _plan(_x(3, 64).cast("f16").cast("f32") * 1.5),
        lambda p: _stages(p, lambda s: replace(s, expr=_uncast(s.expr))),
    ),
    "a rounding to bf16 is gone": (
        lambda: _plan((_x(3, 64).cast("bf16").cast("f32") * 1.5).sum(1)),
        lambda p: _stages(p, lambda s: replace(s, expr=_uncast(s.expr))),
    ),
    "a rounding to f32 is gone": (
        lambda: _plan(_x(3, 64, dtype="f64").cast("f32") * 1.5),
        lambda p: _stages(p, lambda s: replace(s, expr=_uncast(s.expr))),
    ),
    "a product is kept in f16": (
        lambda: _plan((_x(3, 64) * _x(3, 64, name="y")).sum(1)),
        lambda p: _applied(p, Op.MUL, _through(F16)),
    ),
    "a product of f64 is kept in f32": (
        lambda: _plan(_x(3, 64, dtype="f64") * _x(3, 64, dtype="f64", name="y") + 1.0),
        lambda p: _applied(p, Op.MUL, _through(F32)),
    ),
    "a choice is a product": (_some_rows, lambda p: _applied(p, Op.WHERE, _as_factor)),
    "nothing times zero is zero": (
        lambda: _plan(_x(35) * 0.0 + _x(35, name="y")),
        lambda p: _applied(p, Op.MUL, lambda x: Const(0.0, F32)),
    ),
    "a difference with itself is zero": (
        lambda: _plan(_x(35) - _x(35) + _x(35, name="y")),
        lambda p: _applied(p, Op.SUB, lambda x: Const(0.0, F32)),
    ),
    "a row of a heavy convolution is gone": (_heavy, _nothing_at(1, 4)),
    "a column of a heavy convolution is gone": (_heavy, _nothing_at(2, 1)),
    "a channel of a heavy convolution is gone": (_heavy, _nothing_at(0, 32)),
    "the last term of millions is gone": (_longest, lambda p: _stages(p, _shorter)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_plan_is_refused(fault: str) -> None:
    make, break_ = FAULTS[fault]
    plan = validated(make())
    broken = break_(plan)
    assert str(broken) != str(plan) or broken.buffers != plan.buffers or "weights" in fault
    with pytest.raises(WrongPlan):
        validated(broken)


@pytest.mark.parametrize("value", [0.37, 2.5, 70.5])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.LT, Op.MUL, Op.DIV])
def test_positions_that_a_mask_discards_are_no_difference(op: Op, value: float) -> None:
    assert not validation(_positions(op, value)).left_out


def test_literals_that_a_position_chooses_have_one_order() -> None:
    assert not validation(_literals()).left_out


def test_a_literal_written_in_a_part_and_a_relu_of_one_are_compiled() -> None:
    def f(v: Tensor) -> Tensor:
        w = v * 1
        w[::2] = 1
        w[2].relu_()
        return w * 1

    x = np.array([-5, -6, -7], np.float32)
    found = tg.compile(f, x, store=False)(x)
    assert np.array_equal(found, np.array([1, -6, 1], np.float32))


def test_a_sum_of_millions_of_terms_is_validated() -> None:
    assert not validation(_longest()).left_out


def test_the_message_names_the_launch_the_element_and_both_sides() -> None:
    plan = _stages(_conv(), _shorter)
    with pytest.raises(WrongPlan, match=r"launch conv3x3.*element \[0, \d, \d, \d\]") as caught:
        validated(plan)
    text = str(caught.value)
    assert "kernel: max(" in text
    assert "graph, its last nodes:" in text
    assert "v0 = add over" in text


def test_an_output_of_another_tensor_is_refused() -> None:
    x = _x(4)
    plan = schedule(((x + 1.0).node,))
    with pytest.raises(WrongPlan, match="output"):
        validated(plan, ((x + 2.0).node,))


def test_a_constant_of_other_values_is_refused() -> None:
    plan = _conv()
    swapped = tuple(
        replace(b, node=const(np.ones(b.shape, np.float32), F32)) if b.role == "const" else b
        for b in plan.buffers
    )
    with pytest.raises(WrongPlan, match="another tensor"):
        validated(replace(plan, buffers=swapped))


def test_a_plan_that_met_a_deep_stack_once_is_validated_the_next_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = _plan(_x(3, 5, name="deep") * 1.25)
    with monkeypatch.context() as patch:
        patch.setattr(known.plans, "validate_group", deep)
        ((_, why),) = validation(plan).left_out
    assert "deeper than Python's stack" in why
    assert not validation(plan).left_out


def test_a_term_of_more_than_two_to_the_24_is_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    n = (1 << 24) + 4096
    plan = _plan(_x(n).sum())
    assert not validation(plan).left_out

    def less(x: Load) -> Load:
        return replace(x, valid=Valid((Range(x.index[0], 0, n - 1),)))

    with pytest.raises(WrongPlan):
        validation(_loads(plan, less))


LONG = {
    "sum": lambda n: _x(n).sum(),
    "product": lambda n: _x(3, n) @ _x(n, 2, name="w"),
    "convolution": lambda n: _x(1, n >> 4, 4, 4).conv2d(_x(3, n >> 4, 4, 4, name="w")),
    "channels last": lambda n: (
        _x(1, 4, 4, n >> 4).permute(0, 3, 1, 2).conv2d(_x(3, n >> 4, 4, 4, name="w"))
    ),
    "greatest": lambda n: _x(2, n).max(1),
    "moved": lambda n: (_x(4, n >> 4, 4) * 2.0).permute(1, 2, 0).sum(),
}


@pytest.mark.parametrize("name", LONG)
def test_a_sum_of_any_size_is_validated_by_some_of_its_terms(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of 2^32 terms, or 2^28 where each is looked at; a lost end or a place that is off shows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not validation(_plan(LONG[name](1 << 32))).left_out
    monkeypatch.setattr(graphs, "_MOST_PARTS", 1)
    plan = _plan(LONG[name](1 << 19))

    def less(x: Load) -> Load:
        last = next(i for i in x.index if i.terms)
        return replace(x, valid=Valid((Range(last, 0, last.hi),)))

    def off(x: Load) -> Load:
        at = next(d for d, i in enumerate(x.index) if i.hi > 1)
        moved = x.index[at] - 1
        index = (*x.index[:at], moved, *x.index[at + 1 :])
        return replace(x, index=index, valid=Valid((Range(moved, 0, moved.hi + 2),)))

    for change in (less, off) if name != "greatest" else ():  # the last is seldom that
        with pytest.raises(WrongPlan):
            validation(_loads(plan, change))
