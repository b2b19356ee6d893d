"""What a model's plan costs: kernels, bytes moved and operations, each at most what is recorded
here.

A change that makes a plan dearer fails, and the message says what it costs now; one that makes it
cheaper should lower the figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.graph_builders import (
    add,
    attention,
    encoder_layer,
    gelu,
    layer_norm,
    linear,
    max_pool,
    relu,
    residual_block,
    scale,
    softmax,
    tensor,
)
from tunegrad.frontend import Model
from tunegrad.ir import graph as g
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.graph import Node
from tunegrad.models import encoder_layer as encoder_model
from tunegrad.models import mlp, resnet18, resnet50

SLACK = 1.001


@dataclass(frozen=True)
class Cost:
    """Launches, bytes of all their parameters, floating-point operations."""

    kernels: int
    nbytes: int
    flops: int

    @staticmethod
    def of(plan: LaunchPlan) -> Cost:
        kernels = [x.kernel for x in plan.launches]
        return Cost(
            len(kernels), sum(k.unique_bytes for k in kernels), sum(k.flops for k in kernels)
        )


def of_model(model: Model) -> tuple[Node, ...]:
    return tuple(t.node for t in model.build(model.weights(seed=0)))


def chain() -> Node:
    x, y = tensor("x", 1024, 256), tensor("y", 1024, 256)
    return gelu(relu(add(scale(x, 0.5), y)))


def moved() -> Node:
    x = tensor("x", 128, 256)
    return add(g.permute(x, (1, 0)), g.flip(g.permute(tensor("y", 128, 256), (1, 0)), (0,)))


def reductions() -> Node:
    x = tensor("x", 512, 512)
    rows, columns = g.reduce(Op.ADD, x, (1,)), g.reduce(Op.MAX, x, (0,))
    return add(g.reshape(rows, (512,)), g.reshape(columns, (512,)))


MODELS: dict[str, tuple[Callable[[], tuple[Node, ...]], Cost]] = {
    "resnet18": (lambda: of_model(resnet18()), Cost(23, 72_537_408, 3_637_330_408)),
    "resnet50": (lambda: of_model(resnet50()), Cost(56, 215_740_736, 8_208_326_632)),
    "encoder": (lambda: of_model(encoder_model()), Cost(11, 42_507_264, 1_872_592_896)),
    "mlp": (lambda: of_model(mlp()), Cost(3, 2_690_192, 1_339_402)),
    "encoder layer of nodes": (
        lambda: (encoder_layer(tensor("x", 128, 256), 4, 512),),
        Cost(11, 6_302_720, 153_059_328),
    ),
    "softmax": (lambda: (softmax(tensor("x", 1024, 1024)),), Cost(1, 8_388_608, 7_340_032)),
    "layer norm": (lambda: (layer_norm(tensor("x", 1024, 768)),), Cost(1, 6_297_600, 11_010_048)),
    "attention": (lambda: (attention(12, 128, 64),), Cost(3, 4_718_592, 51_904_512)),
    "conv, bn, residual add, relu": (
        lambda: (residual_block(tensor("x", 1, 64, 56, 56)),),
        Cost(1, 1_753_344, 231_813_120),
    ),
    "pooling": (
        lambda: (max_pool(relu(tensor("x", 1, 64, 112, 112))),),
        Cost(1, 4_014_080, 5_419_008),
    ),
    "linear, gelu": (
        lambda: (gelu(linear(tensor("x", 64, 256), "w", 128)),),
        Cost(1, 229_888, 4_243_456),
    ),
    "elementwise chain": (lambda: (chain(),), Cost(1, 3_145_728, 2_097_152)),
    "transposes": (lambda: (moved(),), Cost(1, 393_216, 32_768)),
    "reductions": (lambda: (reductions(),), Cost(1, 1_050_624, 524_800)),
}


@pytest.mark.parametrize("name", MODELS)
def test_budgets_of_models_are_not_exceeded(name: str) -> None:
    build, budget = MODELS[name]
    cost = Cost.of(schedule(fold_constants(build())))
    assert cost.kernels <= budget.kernels, cost
    assert cost.nbytes <= SLACK * budget.nbytes, cost
    assert cost.flops <= SLACK * budget.flops, cost


def test_budgets_are_exceeded_by_a_plan_with_one_more_buffer() -> None:
    x = tensor("x", 1024, 256)
    free, fenced = relu(scale(x, 2.0)), relu(g.contiguous(scale(x, 2.0)))
    budget, cost = Cost.of(schedule((free,))), Cost.of(schedule((fenced,)))
    assert cost.kernels == budget.kernels + 1
    assert cost.nbytes == 2 * budget.nbytes
    assert cost.flops == budget.flops
