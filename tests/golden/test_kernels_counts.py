"""How many kernels a model becomes, and which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.graph_builders import (
    add,
    along,
    calls_of,
    conv,
    conv_bn,
    encoder_layer,
    gelu,
    layer_norm,
    linear,
    matmul,
    max_pool,
    relu,
    residual_block,
    resnet18,
    run_schedule,
    scale,
    softmax,
    tensor,
    weight,
)
from tunegrad.ir import graph as g
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LAST, ROWS, LaunchPlan, blocked, schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.models import resnet50


def bottleneck() -> Node:
    x = tensor("x", 1, 16, 9, 9)
    y = relu(conv_bn(relu(conv_bn(x, "a", 4, 1)), "b", 4))
    return relu(add(conv_bn(y, "c", 16, 1), x))


def group_norm() -> Node:
    x = tensor("x", 2, 8, 5, 5)
    y = layer_norm(g.reshape(x, (2, 4, 50)), "gn")
    y = g.reshape(y, x.shape)
    return add(y, along(weight("b", 8), x.shape, 1))


def mlp() -> Node:
    return linear(relu(linear(tensor("x", 4, 16), "a", 32)), "b", 10)


def classifier() -> Node:
    x = relu(conv_bn(tensor("x", 1, 3, 8, 8), "w", 6))
    return softmax(linear(g.reshape(g.reduce(Op.ADD, x, (2, 3)), (1, 6)), "fc", 5))


def squeeze_excite() -> Node:
    x = tensor("x", 1, 8, 6, 6)
    s = relu(linear(g.reshape(scale(g.reduce(Op.ADD, x, (2, 3)), 1 / 36), (1, 8)), "down", 4))
    s = g.elementwise(Op.TANH, linear(s, "up", 8))
    return g.elementwise(Op.MUL, x, g.expand(g.reshape(s, (1, 8, 1, 1)), x.shape))


def residual_norm() -> Node:
    return layer_norm(add(tensor("x", 6, 16), tensor("y", 6, 16)))


def normalized_gelu() -> Node:
    return layer_norm(gelu(tensor("x", 6, 16)))


TABLE: list[tuple[str, Callable[[], Node], int, str]] = [
    (
        "conv, folded bn, residual add, relu",
        lambda: residual_block(tensor("x", 1, 8, 14, 14)),
        1,
        "one reduction and its epilogue",
    ),
    (
        "grouped conv",
        lambda: relu(conv(tensor("x", 1, 8, 6, 6), weight("w", 4, 2, 3, 3), 1, 1, 4)),
        1,
        "one reduction",
    ),
    ("bottleneck", bottleneck, 3, "three convolutions"),
    (
        "matmul, bias, gelu",
        lambda: gelu(linear(tensor("x", 8, 16), "w", 12)),
        1,
        "one reduction and its epilogue",
    ),
    (
        "two matmuls",
        lambda: matmul(matmul(tensor("a", 4, 6), tensor("b", 6, 8)), tensor("c", 8, 3)),
        2,
        "nested",
    ),
    ("mlp", mlp, 2, "two matmuls"),
    ("softmax", lambda: softmax(tensor("x", 8, 16)), 1, "max, sum, store"),
    (
        "softmax of scaled scores",
        lambda: softmax(scale(tensor("x", 2, 8, 16), 0.125)),
        1,
        "cheap input is recomputed",
    ),
    (
        "softmax of a matmul",
        lambda: softmax(matmul(tensor("a", 4, 6), tensor("b", 6, 8))),
        2,
        "nested reductions",
    ),
    ("layer norm", lambda: layer_norm(tensor("x", 8, 16)), 1, "mean, variance, store"),
    ("layer norm of a residual add", residual_norm, 1, "cheap input is recomputed"),
    ("layer norm of gelu", normalized_gelu, 2, "dear input is stored"),
    ("group norm", group_norm, 1, "rows behind a reshape"),
    (
        "conv of gelu",
        lambda: relu(conv_bn(gelu(tensor("x", 1, 4, 8, 8)), "w", 4)),
        2,
        "gelu is stored, no windows",
    ),
    ("max pool", lambda: max_pool(tensor("x", 1, 4, 9, 9)), 1, "one reduction"),
    ("squeeze and excite", squeeze_excite, 3, "mean, matmul, matmul whose epilogue scales"),
    ("classifier", classifier, 4, "conv, mean, matmul, softmax"),
    (
        "encoder layer",
        lambda: encoder_layer(tensor("x", 8, 24), 3, 32),
        11,
        "6 + 2 matmuls, softmax, 2 layer norms",
    ),
    (
        "resnet18",
        lambda: resnet18(tensor("x", 1, 3, 64, 64), 8, 10),
        23,
        "20 convolutions, 2 pools, 1 matmul",
    ),
]


@pytest.mark.parametrize(
    ("build", "count"), [row[1:3] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_kernels_of_a_model_are_as_many_as_the_table_says(
    build: Callable[[], Node], count: int
) -> None:
    plan = schedule((build(),))
    assert len(plan.launches) == count, str(plan)


@pytest.mark.parametrize("build", [row[1] for row in TABLE], ids=[row[0] for row in TABLE])
def test_kernels_of_a_model_compute_the_model(build: Callable[[], Node]) -> None:
    out = build()
    rng = np.random.default_rng(3)
    nodes = g.topological((out,))
    inputs = {
        str(n.arg): rng.standard_normal(n.shape).astype(np.float32)
        for n in nodes
        if n.op is g.GraphOp.INPUT
    }
    (want,) = evaluate((out,), inputs)
    for images in (LAST, ROWS, blocked(4)):
        (got,) = run_schedule(schedule((out,), images=images), inputs)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))


def names(plan: LaunchPlan) -> list[str]:
    return [launch.name for launch in plan.launches]


def test_kernels_of_resnet18_have_readable_names() -> None:
    plan = schedule((resnet18(tensor("x", 1, 3, 224, 224)),))
    found = names(plan)
    assert found[:2] == ["conv7x7s2 3->64 112x112 +relu", "maxpool 3x3s2 56x56"]
    assert found[3] == "conv3x3 64->64 56x56 +add +relu"
    assert found[-2:] == ["sum 512x7x7->512", "matmul 1000x512"]
    assert len(plan.kernels()) == 18


def test_kernels_of_resnet50_that_compute_the_same_have_one_key() -> None:
    model = resnet50(image=64)
    outputs = model.build(model.weights())
    plan = schedule(fold_constants(tuple(t.node for t in outputs)))
    keys: dict[str, set[str]] = {}
    for launch in plan.launches:
        keys.setdefault(launch.name, set()).add(launch.kernel.key)
    assert (len(plan.launches), len(keys)) == (56, 30)
    assert all(len(found) == 1 for found in keys.values())
    assert len({key for found in keys.values() for key in found}) == 30
    assert sum(name.startswith("conv1x1") for name in names(plan)) == 36


def test_kernels_of_an_encoder_layer_have_readable_names() -> None:
    assert names(schedule((encoder_layer(tensor("x", 128, 768), 12, 3072),))) == [
        "matmul 128x768x768",
        "matmul 128x768x768",
        "matmul 12x128x128x64",
        "softmax 12x128x128",
        "matmul 128x768x768",
        "matmul 128x12x64x128",
        "matmul 128x768x768 +add",
        "layernorm 128x768",
        "matmul 128x3072x768 +gelu",
        "matmul 128x768x3072 +add",
        "layernorm 128x768",
    ]


def test_kernels_keep_only_images_channels_last() -> None:
    plan = schedule((resnet18(tensor("x", 1, 3, 64, 64), 8, 10),))
    temps = [b for b in plan.buffers if b.role == "temp" and len(b.shape) == 4]
    assert len(temps) == 21
    # all but the global mean, which no window touches
    assert [str(b.layout) for b in temps].count("0 2 3 1") >= 20
    assert all(b.layout.is_row_major for b in plan.buffers if b.role != "temp")
    attention = schedule((encoder_layer(tensor("x", 8, 24), 3, 32),))
    assert all(b.layout.is_row_major for b in attention.buffers)


def blocks(count: int, salt: float) -> Node:
    """So many blocks of attention, about a hundred nodes each, no node another chain's."""
    x = tensor("x", 8, 16)
    for i in range(count):
        x = encoder_layer(scale(x, salt + i / 1024), 2, 32)
    return x


def test_kernels_of_ten_thousand_nodes_of_attention_take_ten_times_the_work_of_a_thousand() -> None:
    schedule((blocks(2, 9.0),))
    short, long = blocks(10, 1.0), blocks(100, 3.0)
    assert len(g.topological((long,))) > 10_000
    few, many = (calls_of(partial(schedule, (y,))) for y in (short, long))
    assert few > 100_000
    assert many < 10.5 * few
    assert many < 370 * len(g.topological((long,)))  # some 0.7 s for ten thousand on one core
