"""The numpy meaning of graph operations, against numpy written by hand."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_builders import add, conv, layer_norm, matmul, max_pool, softmax, tensor, weight
from tunegrad.errors import ShapeError
from tunegrad.frontend.nodes.movement import cat
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate


def value(out: Node, **inputs: np.ndarray) -> np.ndarray:
    return evaluate((out,), inputs)[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_graph_convolution_means_the_loops() -> None:
    x, w = normal(1, 2, 5, 6), normal(3, 2, 3, 3)
    got = value(conv(tensor("x", 1, 2, 5, 6), g.const(w, F32), 2, 1), x=x)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((1, 3, 3, 3), np.float32)
    for o, h, v in np.ndindex(3, 3, 3):
        want[0, o, h, v] = (padded[0, :, 2 * h : 2 * h + 3, 2 * v : 2 * v + 3] * w[o]).sum()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_graph_matmul_means_numpys() -> None:
    a, b = normal(2, 4, 5), normal(2, 5, 3)
    got = value(matmul(tensor("a", 2, 4, 5), tensor("b", 2, 5, 3)), a=a, b=b)
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_graph_softmax_and_layer_norm_mean_their_formulas() -> None:
    x = normal(4, 7)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(
        value(softmax(tensor("x", 4, 7)), x=x), e / e.sum(1, keepdims=True), rtol=1e-5
    )
    got = value(layer_norm(tensor("x", 4, 7)), x=x)
    d = x - x.mean(1, keepdims=True)
    scale, shift = (evaluate((weight(f"ln.{n}", 7),))[0] for n in ("weight", "bias"))
    want = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_graph_max_pool_never_takes_the_padding() -> None:
    x = -np.ones((1, 1, 4, 4), np.float32)
    assert (value(max_pool(tensor("x", 1, 1, 4, 4)), x=x) == -1).all()


def test_graph_dilated_window_reads_spaced_elements() -> None:
    got = value(g.window(g.graph_input("x", (7,), I32), 0, 3, 2, 2), x=np.arange(7, dtype=np.int32))
    assert got.tolist() == [[0, 2, 4], [2, 4, 6]]


@pytest.mark.parametrize(
    ("op", "empty"), [(Op.ADD, 0.0), (Op.MUL, 1.0), (Op.MAX, -np.inf), (Op.MIN, np.inf)], ids=str
)
def test_graph_reduction_over_nothing_is_the_identity(op: Op, empty: float) -> None:
    got = value(g.reduce(op, tensor("x", 2, 0), (1,)), x=np.zeros((2, 0), np.float32))
    assert got.tolist() == [[empty], [empty]]


def test_graph_sum_accumulates_in_the_given_type() -> None:
    x = np.full(3, 1 << 30, np.int32)
    assert value(g.reduce(Op.ADD, g.graph_input("x", (3,), I32), (0,), I64), x=x).tolist() == [
        3 << 30
    ]


def test_graph_bf16_is_computed_in_f32_and_rounded_to_even() -> None:
    one, half_step = 0x3F80, 0x3B80  # 1.0 and 2**-8: half of the last place of 1.0
    x = np.array([one, one + 1], np.uint16)
    y = np.array([half_step, half_step], np.uint16)
    got = value(add(g.graph_input("x", (2,), BF16), g.graph_input("y", (2,), BF16)), x=x, y=y)
    assert got.dtype == np.uint16
    assert got.tolist() == [one, one + 2]


def test_graph_f16_overflow_is_infinite() -> None:
    x = np.array([6e4], np.float16)
    node = g.graph_input("x", (1,), F16)
    assert np.isinf(value(add(node, node), x=x)).all()


def test_graph_casts_truncate_and_test_for_zero() -> None:
    x = np.array([-1.7, 0.0, 2.9], np.float32)
    node = tensor("x", 3)
    assert value(g.cast(node, I32), x=x).tolist() == [-1, 0, 2]
    assert value(g.cast(node, BOOL), x=x).tolist() == [True, False, True]
    assert value(g.cast(node, F64), x=x).dtype == np.float64


def test_graph_integer_division_rounds_down() -> None:
    a, b = g.graph_input("a", (4,), I32), g.graph_input("b", (4,), I32)
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert value(g.elementwise(Op.FLOORDIV, a, b), a=x, b=y).tolist() == [3, -4, -4, 3]
    assert value(g.elementwise(Op.MOD, a, b), a=x, b=y).tolist() == [1, 1, -1, -1]


def test_graph_max_propagates_nan() -> None:
    x = np.array([1.0, np.nan], np.float32)
    assert np.isnan(value(g.reduce(Op.MAX, tensor("x", 2), (0,)), x=x)).all()


def test_graph_missing_input_is_named() -> None:
    with pytest.raises(ShapeError, match="input 'x' is missing; given: y"):
        value(tensor("x", 2), y=np.zeros(2, np.float32))


def test_graph_input_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"input 'x' has shape \(3,\), the graph needs \(2,\)"):
        value(tensor("x", 2), x=np.zeros(3, np.float32))


def laid(part: Node, rest: Node, begin: int) -> Node:
    """A row with another one laid over it, as joining makes it."""
    ends = ((begin, rest.shape[0] - begin - part.shape[0]),)
    inside = g.pad(g.full(True, part.shape, BOOL), ends)
    return g.elementwise(Op.WHERE, inside, g.pad(part, ends), rest)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_graph_parts_laid_over_a_row_change_no_other_value(dtype: DType) -> None:
    """A row that others read as well, also as a part of itself, stays as it is."""
    x = g.cast(tensor("x", 6), dtype)
    first = laid(g.full(-0.0, (2,), dtype), x, 1)
    half = g.shrink(first, ((0, 3),))
    second = laid(half, first, 2)
    third = laid(g.full(np.nan, (1,), dtype), second, 5)
    outputs = tuple(g.cast(n, F32) for n in (first, half, third, g.elementwise(Op.NEG, x)))
    given = np.arange(6, dtype=np.float32)
    got = evaluate(outputs, {"x": given})
    want = ([0, -0.0, -0.0, 3, 4, 5], [0, -0.0, -0.0], [0, -0.0, 0, -0.0, -0.0, np.nan], -given)
    for values, right in zip(got, want, strict=True):
        np.testing.assert_array_equal(values, np.asarray(right, np.float32))
        known = ~np.isnan(right)
        assert (np.signbit(values) == np.signbit(right))[known].all()
    assert given.tolist() == [0, 1, 2, 3, 4, 5]


def test_graph_joining_takes_no_memory_of_the_result_for_each_part() -> None:
    parts, each = 32, 4096
    x = tensor("x", parts, each)
    rows = [g.reshape(g.shrink(x, ((i, i + 1), (0, each))), (each,)) for i in range(parts)]
    made, values = cat([g.elementwise(Op.NEG, row) for row in rows], 0), normal(parts, each)
    tracemalloc.start()
    try:
        (got,) = evaluate((made,), {"x": values})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(got, -values.reshape(-1))
    assert most < 6 * values.nbytes


@pytest.mark.parametrize("batch", [10**16, 10**30])
def test_tensors_beyond_64_bits_are_one_error(batch: int) -> None:
    said = rf"a tensor of shape \({batch}, .*\) has over 2\^60 elements"
    with pytest.raises(ShapeError, match=said):
        g.graph_input("x", (batch, 784), F32)
    with pytest.raises(ShapeError, match=said):
        tg.load(f"mlp[batch={batch}]", store=False, threads=1)
