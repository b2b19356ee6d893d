"""The graph's verifier accepts what the constructors build and refuses what they would not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.graph_builders import encoder_layer, resnet18, tensor
from tests.graph_fuzzer import random_graph
from tests.verifiers.graph import verify_graph
from tunegrad.errors import VerifyError
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, F64, I32, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import ConstData, GraphOp, Node

X = tensor("x", 2, 3)
B = g.graph_input("b", (2, 3), BOOL)
I = g.graph_input("i", (2, 3), I32)  # noqa: E741


def node(
    op: GraphOp, srcs: tuple[Node, ...], arg: object, shape: tuple[int, ...], dtype: DType = F32
) -> Node:
    return Node(op, srcs, arg, shape, dtype)


BROKEN = {
    "map of another shape": node(GraphOp.MAP, (X, X), Op.ADD, (3, 2)),
    "map of another dtype": node(GraphOp.MAP, (X, X), Op.ADD, (2, 3), F64),
    "map of unequal sources": node(GraphOp.MAP, (X, tensor("y", 3, 2)), Op.ADD, (2, 3)),
    "map of too few sources": node(GraphOp.MAP, (X,), Op.ADD, (2, 3)),
    "sum of bools": node(GraphOp.MAP, (B, B), Op.ADD, (2, 3), BOOL),
    "exp of ints": node(GraphOp.MAP, (I,), Op.EXP, (2, 3), I32),
    "comparison that is no bool": node(GraphOp.MAP, (X, X), Op.LT, (2, 3)),
    "cast to another dtype": node(GraphOp.CAST, (X,), I32, (2, 3), F64),
    "reduction that drops an axis": node(GraphOp.REDUCE, (X,), (Op.ADD, (1,)), (2,)),
    "reduction of no axes": node(GraphOp.REDUCE, (X,), (Op.ADD, ()), (2, 3)),
    "reduction of unsorted axes": node(GraphOp.REDUCE, (X,), (Op.ADD, (1, 0)), (1, 1)),
    "reduction by sub": node(GraphOp.REDUCE, (X,), (Op.SUB, (1,)), (2, 1)),
    "sum of bools over an axis": node(GraphOp.REDUCE, (B,), (Op.ADD, (1,)), (2, 1), BOOL),
    "reshape to another size": node(GraphOp.RESHAPE, (X,), None, (7,)),
    "expand of a wide dimension": node(GraphOp.EXPAND, (X,), None, (4, 3)),
    "permute by no permutation": node(GraphOp.PERMUTE, (X,), (0, 0), (2, 3)),
    "permute of another shape": node(GraphOp.PERMUTE, (X,), (1, 0), (2, 3)),
    "pad of another shape": node(GraphOp.PAD, (X,), ((1, 1), (0, 0)), (3, 3)),
    "shrink past the end": node(GraphOp.SHRINK, (X,), ((0, 2), (0, 4)), (2, 4)),
    "flip of a dimension that is not there": node(GraphOp.FLIP, (X,), (2,), (2, 3)),
    "window of another count": node(GraphOp.WINDOW, (X,), (1, 2, 1, 1), (2, 3, 2)),
    "fence that changes shape": node(GraphOp.CONTIGUOUS, (X,), None, (3, 2)),
    "two sources for one": node(GraphOp.FLIP, (X, X), (0,), (2, 3)),
    "input with sources": node(GraphOp.INPUT, (X,), "z", (2, 3)),
    "input without a name": node(GraphOp.INPUT, (), "", (2, 3)),
    "constant of another shape": node(
        GraphOp.CONST, (), ConstData.of(np.zeros(3, np.float32)), (2, 3)
    ),
    "constant of another dtype": node(GraphOp.CONST, (), ConstData.of(np.zeros((2, 3))), (2, 3)),
    "full of another type": node(GraphOp.FULL, (), ("int", "1", 1), (2, 3)),
    "iota of a dimension that is not there": node(GraphOp.IOTA, (), 2, (2, 3), I32),
    "negative extent": node(GraphOp.INPUT, (), "z", (-1,)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_graph_verifier_refuses(broken: Node) -> None:
    with pytest.raises(VerifyError, match="graph: "):
        verify_graph((broken,))


def test_graph_verifier_refuses_two_inputs_of_one_name() -> None:
    with pytest.raises(VerifyError, match="both the input 'x'"):
        verify_graph((X, tensor("x", 4)))


def test_graph_verifier_finds_a_node_deep_below() -> None:
    x = BROKEN["map of another dtype"]
    for _ in range(2_000):
        x = g.flip(g.permute(x, (1, 0)), (0,))
    with pytest.raises(VerifyError, match="should be f32"):
        verify_graph((x,))


def test_graph_verifier_accepts_models() -> None:
    verify_graph(
        (resnet18(tensor("x", 1, 3, 32, 32), 8, 10), encoder_layer(tensor("y", 8, 24), 3, 32))
    )


def test_graph_verifier_accepts_what_constructors_build() -> None:
    for seed in range(200):
        verify_graph(random_graph(random.Random(seed), 12, (F32, I32, BOOL)))
