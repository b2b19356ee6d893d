"""Constant folding, rule by rule."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph_builders import add, along, scale, tensor, weight
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, I32, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate


def folded(x: Node) -> Node:
    return fold_constants((x,))[0]


def ops(x: Node) -> list[str]:
    return [str(n.op) for n in g.topological((x,))]


def test_graph_folding_computes_a_constant_part_once() -> None:
    w = add(scale(weight("w", 3), 2.0), weight("b", 3))
    out = folded(add(tensor("x", 3), w))
    assert ops(out) == ["input", "const", "map"]
    np.testing.assert_array_equal(evaluate((out.srcs[1],))[0], evaluate((w,))[0])
    assert folded(add(tensor("x", 3), w)) is out


def test_graph_folding_tells_what_it_folded_apart_by_how_it_is_made() -> None:
    def digest(node: Node) -> str:
        data = folded(add(tensor("x", 3), node)).srcs[1].arg
        assert isinstance(data, g.ConstData)
        return data.digest

    w, b = weight("w", 3), weight("b", 3)
    made = [
        scale(w, 2.0), scale(w, 3.0), scale(b, 2.0), add(w, b), add(b, w),
        add(scale(w, 2.0), b), scale(add(w, b), 2.0),
    ]  # fmt: skip
    assert len({*map(digest, made), digest(w)}) == len(made) + 1
    assert digest(made[0]) == digest(scale(weight("w", 3), 2.0))


def test_graph_folding_names_what_it_folded() -> None:
    out = folded(add(tensor("x", 3), scale(weight("fc.bias", 3), 2.0)))
    data = out.srcs[1].arg
    assert isinstance(data, g.ConstData)
    assert data.name == "fc.bias (folded)"


def test_graph_folding_leaves_movement_of_a_constant_to_the_kernel() -> None:
    out = add(tensor("x", 2, 3), along(weight("w", 3), (2, 3), 1))
    assert folded(out) is out


def test_graph_folding_stores_no_broadcast() -> None:
    a, b = along(weight("a", 3), (500, 3), 1), along(weight("b", 3), (500, 3), 1)
    out = folded(add(tensor("x", 500, 3), add(a, scale(b, 2.0))))
    constants = [n for n in g.topological((out,)) if n.op is GraphOp.CONST]
    assert [n.size for n in constants] == [3]


def narrow_weight(dtype: DType) -> Node:
    return g.const(np.ones((19, 24), dtype.numpy), dtype, "w")


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_graph_folding_keeps_narrow_weights_of_a_linear_layer_narrow(dtype: DType) -> None:
    weights = Tensor.constant(np.ones((19, 24), dtype.numpy), dtype.name)
    x = Tensor.input("x", (5, 24), dtype.name)
    out = folded((x @ weights.transpose(0, 1)).node)
    assert [n.dtype for n in g.topological((out,)) if n.op is GraphOp.CONST] == [dtype]
    (launch,) = schedule((out,)).launches
    assert [p.dtype for p in launch.kernel.params if p.role == "const"] == [dtype]


def test_graph_folding_computes_below_a_widening_cast() -> None:
    twice = g.cast(g.elementwise(Op.ADD, *[narrow_weight(F16)] * 2), F32)
    out = folded(add(tensor("x", 19, 24), twice))
    assert ops(out) == ["input", "const", "cast", "map"]
    (constant,) = [n for n in g.topological((out,)) if n.op is GraphOp.CONST]
    np.testing.assert_array_equal(evaluate((constant,))[0], np.full((19, 24), 2.0))


def test_graph_folding_computes_a_widened_constant_that_is_an_output() -> None:
    assert ops(folded(g.cast(narrow_weight(F16), F32))) == ["const"]
    moved = g.reshape(g.cast(narrow_weight(F16), F32), (24, 19))
    assert folded(moved).srcs[0].op is GraphOp.CONST


def test_graph_folding_computes_a_narrowing_cast() -> None:
    out = folded(g.elementwise(Op.ADD, g.graph_input("x", (3,), F16), g.cast(weight("w", 3), F16)))
    assert ops(out) == ["input", "const", "map"]
    assert [n.dtype for n in g.topological((out,)) if n.op is GraphOp.CONST] == [F16]


def test_graph_folding_keeps_a_graph_without_constants() -> None:
    out = add(tensor("x", 3), tensor("y", 3))
    assert folded(out) is out


@pytest.mark.parametrize("op", [Op.MUL, Op.DIV], ids=["mul", "div"])
def test_graph_folding_drops_ones(op: Op) -> None:
    x = tensor("x", 3)
    assert folded(g.elementwise(op, x, g.full(1, (3,), F32))) is x


def test_graph_folding_keeps_adding_zero_to_a_float() -> None:
    # -0.0 + 0.0 is 0.0
    x, i = tensor("x", 3), g.graph_input("i", (3,), I32)
    assert folded(add(x, g.full(0, (3,), F32))) is not x
    assert folded(add(i, g.full(0, (3,), I32))) is i
    assert folded(add(x, g.full(-0.0, (3,), F32))) is x
    assert folded(g.elementwise(Op.SUB, x, g.full(0, (3,), F32))) is x
    assert folded(g.elementwise(Op.SUB, x, g.full(-0.0, (3,), F32))) is not x


def test_graph_folding_decides_a_constant_condition() -> None:
    x, y = tensor("x", 3), tensor("y", 3)
    assert folded(g.elementwise(Op.WHERE, g.full(True, (3,), BOOL), x, y)) is x
    assert folded(g.elementwise(Op.WHERE, g.full(False, (3,), BOOL), x, y)) is y


def test_graph_folding_of_fulls_stays_a_full() -> None:
    two = g.full(2, (2, 3), F32)
    for x in (
        add(two, two),
        g.cast(two, I32),
        g.permute(two, (1, 0)),
        g.pad(g.full(0, (2,), F32), ((1, 1),)),
        g.reduce(Op.MAX, two, (0,)),
        g.reduce(Op.ADD, two, (0, 1)),
    ):
        out = folded(x)
        assert out.op is GraphOp.FULL
        np.testing.assert_array_equal(evaluate((out,))[0], evaluate((x,))[0])


def test_graph_folding_keeps_what_is_not_exact() -> None:
    assert folded(g.pad(g.full(2, (2,), F32), ((1, 1),))).op is GraphOp.PAD
    assert folded(g.reduce(Op.ADD, g.full(0.1, (9,), F32), (0,))).op is GraphOp.REDUCE


@pytest.mark.parametrize("dtype", [I32, F32, BOOL], ids=str)
def test_graph_folding_multiplies_by_zero_where_that_is_exact(dtype: DType) -> None:
    x = g.graph_input("x", (4,), dtype)
    op = Op.AND if dtype.is_bool else Op.MUL
    zero = g.full(False if dtype.is_bool else 0, (4,), dtype)
    for made in (g.elementwise(op, x, zero), g.elementwise(op, zero, x)):
        assert ops(folded(made)) == (ops(made) if dtype.is_float else ["full"])


def test_graph_folding_pads_a_negative_zero_with_a_positive_one() -> None:
    x = g.pad(g.full(-0.0, (2,), F32), ((1, 1),))
    np.testing.assert_array_equal(np.signbit(evaluate((folded(x),))[0]), [0, 1, 1, 0])
