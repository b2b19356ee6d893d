"""A model in 16 bits: what is rounded, what stays, and that the kernels are the same ones."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import pytest
from pair_builders import DOT

from tests.cover import each_once
from tests.verifiers.graph import verify_graph
from tunegrad.devices.cuda.architectures import typical
from tunegrad.errors import WeightsError
from tunegrad.frontend import Model, Tensor
from tunegrad.ir.dtypes import BF16, F16, F32, DType
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.ir.rewrites import narrowed
from tunegrad.ir.rounding import rounded_within
from tunegrad.models.encoder import encoder_layer
from tunegrad.models.mlp import mlp
from tunegrad.models.resnet import resnet18, resnet50
from tunegrad.planning import prepared

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 32), dtype=np.float32)
V = RNG.standard_normal((32, 16), dtype=np.float32)
X = Tensor.input("x", (8, 64))
Narrow = Literal["f16", "bf16"]
NARROW = pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
MODELS = {
    "mlp": mlp(batch=4, sizes=(64, 64, 48)),
    "encoder": encoder_layer(sequence=16, hidden=64, heads=4, ffn=128),
    "resnet18": resnet18(image=64),
    "resnet50": resnet50(image=64),
}


def narrow(*outputs: Tensor, dtype: DType = BF16) -> tuple[Node, ...]:
    made = narrowed(fold_constants(tuple(t.node for t in outputs)), dtype)
    verify_graph(made)
    return made


def plan(*outputs: Tensor, dtype: DType = BF16) -> LaunchPlan:
    return schedule(fold_constants(narrow(*outputs, dtype=dtype)))


def nodes_of(model: Model) -> tuple[Node, ...]:
    return tuple(t.node for t in model.build(model.weights(None, 0)))


def two_layers() -> Tensor:
    hidden = (X @ Tensor.constant(W, name="w")).relu()
    return (hidden @ Tensor.constant(V, name="v")) + Tensor.constant(np.ones(16, np.float32))


FIRST = """kernel
  param p0 bf16[8,32] out row
  param p1 f32[8,64] in row
  param p2 bf16[64,32] const row
  axis a:8 b:32
  v0 = add over ra:64 in f32: mul(p1[a, ra], f32(p2[ra, b]))
  store p0[a, b] = bf16(max(v0, 0.0:f32))"""
SECOND = """kernel
  param p0 f32[8,16] out row
  param p1 bf16[8,32] in row
  param p2 bf16[32,16] const row
  param p3 f32[16] const row
  axis a:8 b:16
  v0 = add over ra:32 in f32: mul(f32(p1[a, ra]), f32(p2[ra, b]))
  store p0[a, b] = add(v0, p3[b])"""


def test_weights_and_activations_are_narrow_and_sums_inputs_outputs_and_biases_f32() -> None:
    assert [x.kernel.text for x in plan(two_layers()).launches] == [FIRST, SECOND]


def with_factors(*outputs: Tensor) -> LaunchPlan:
    nodes = fold_constants(tuple(t.node for t in outputs))
    made = narrowed(nodes, F16, factors=True)
    verify_graph(made)
    return schedule(fold_constants(made))


def params(plan: LaunchPlan) -> list[list[str]]:
    return [[str(p.dtype) for p in x.kernel.params] for x in plan.launches]


def test_factors_of_a_matrix_unit_are_stored_narrow_where_it_multiplies_and_else_f32() -> None:
    found = with_factors(X @ Tensor.constant(W), X + 1.0)
    assert params(found) == [["f16", "f32"], ["f32", "f16", "f16"], ["f32", "f32"]]


def test_what_is_computed_as_a_factor_is_stored_narrow_for_it() -> None:
    means = X.reshape((8, 64, 1)).expand((8, 64, 9)).sum(2) / 9.0
    assert params(with_factors(means @ Tensor.constant(W)))[-1] == ["f32", "f16", "f16"]


@pytest.mark.parametrize(
    "product",
    [X[:1] @ Tensor.constant(W), X[:, :30] @ Tensor.constant(W[:30])],
    ids=["one row", "no whole step"],
)
def test_factors_that_no_unit_takes_stay_f32(product: Tensor) -> None:
    assert params(with_factors(product)) == [["f32", "f32", "f16"]]


@pytest.mark.parametrize(("numerics", "kernels"), [("contract", 12), ("strict", 11)])
def test_factors_are_stored_narrow_on_a_target_with_a_unit_unless_strict(
    numerics: Literal["contract", "strict"], kernels: int
) -> None:
    nodes = prepared(nodes_of(MODELS["encoder"]), numerics, typical("sm_80"), "f16")
    assert len(schedule(nodes).launches) == kernels


@cache
def plans(name: str, dtype: DType) -> tuple[LaunchPlan, LaunchPlan]:
    """A model's plan as it is, and narrow; made once for the tests below."""
    nodes = fold_constants(nodes_of(MODELS[name]))
    return schedule(nodes), schedule(fold_constants(narrowed(nodes, dtype)))


@pytest.mark.parametrize(("name", "dtype"), each_once([*MODELS], [F16, BF16]))
def test_the_kernels_of_a_model_are_the_same_ones(name: str, dtype: DType) -> None:
    before, after = plans(name, dtype)
    assert [x.kernel.name for x in after.launches] == [x.kernel.name for x in before.launches]
    shapes = [[p.shape for p in x.kernel.params] for x in before.launches]
    assert [[p.shape for p in x.kernel.params] for x in after.launches] == shapes


@pytest.mark.parametrize(("name", "dtype"), each_once([*MODELS], [F16, BF16]))
def test_every_intermediate_but_statistics_is_narrow(name: str, dtype: DType) -> None:
    _, plan = plans(name, dtype)
    wide = [b for b in plan.buffers if b.role == "temp" and b.dtype == F32]
    pooled = 2048 if name == "resnet50" else 512
    assert [b.layout.size for b in wide] == ([pooled] if name.startswith("resnet") else [])
    matrices = [b for b in plan.buffers if b.role == "const" and sum(e > 1 for e in b.shape) > 1]
    assert matrices
    assert {b.dtype for b in matrices} == {dtype}


@pytest.mark.parametrize(
    ("name", "dtype", "numerics"),
    each_once([*MODELS], [F16, BF16], ["contract", "bf16-dot", "bf16-dot", "contract"]),
)
def test_what_is_computed_is_rounded_where_it_is_stored_only(
    name: str, dtype: DType, numerics: Literal["contract", "bf16-dot"]
) -> None:
    narrow_name: Narrow = "f16" if dtype == F16 else "bf16"
    nodes = prepared(nodes_of(MODELS[name]), numerics, DOT, narrow_name)
    assert {rounded_within(x.kernel) for x in schedule(nodes).launches} == {""}


@pytest.mark.parametrize(("name", "dtype"), each_once([*MODELS], [F16, BF16]))
def test_weights_take_half(name: str, dtype: DType) -> None:
    whole, narrow = (
        sum(b.nbytes for b in made.buffers if b.role == "const") for made in plans(name, dtype)
    )
    assert 0.5 <= narrow / whole < 0.52


@NARROW
def test_values_are_those_of_stored_tensors_rounded_once(dtype: DType) -> None:
    def rounded(x: np.ndarray) -> np.ndarray:
        return to_compute(to_memory(x, dtype), dtype)

    x = RNG.standard_normal((8, 64), dtype=np.float32)
    hidden = rounded(np.maximum(x @ rounded(W), 0))
    (got,) = evaluate(narrow(two_layers(), dtype=dtype), {"x": x})
    assert np.allclose(got, hidden @ rounded(V) + 1, rtol=0, atol=1e-4)
    assert not np.allclose(got, np.maximum(x @ W, 0) @ V + 1, rtol=0, atol=1e-4)


def test_a_product_of_constants_is_rounded_once() -> None:
    scale = RNG.standard_normal((64, 1), dtype=np.float32)
    product = X @ (Tensor.constant(W, name="w") * Tensor.constant(scale))
    (weights,) = [b for b in plan(product).buffers if b.role == "const"]
    assert weights.data is not None
    assert np.array_equal(weights.data.array, to_memory(W * scale, BF16))


def test_statistics_of_rows_that_are_stored_stay_f32() -> None:
    rows = Tensor.input("x", (4, 1 << 17))  # too long for one kernel of four rows
    stored = [x.kernel.params[0] for x in plan(rows.softmax() + 1.0).launches]
    assert [(p.shape, p.dtype) for p in stored] == [
        ((4,), F32),  # the maximum
        ((4, 1 << 17), BF16),  # exp(x - maximum)
        ((4,), F32),  # 1 / sum
        ((4, 1 << 17), F32),  # the output
    ]


def test_a_global_average_stays_f32_and_pools_with_windows_do_not() -> None:
    image = Tensor.input("x", (1, 16, 8, 8))
    weights = Tensor.constant(RNG.standard_normal((16, 16, 3, 3), dtype=np.float32))
    y = image.conv2d(weights, padding=1).relu().max_pool2d(2).conv2d(weights, padding=1)
    dtypes = [x.kernel.params[0].dtype for x in plan(y.mean((2, 3)).exp()).launches]
    assert dtypes[:3] == [BF16] * 3
    assert set(dtypes[3:]) <= {F32}


def test_integers_truths_f64_and_narrow_tensors_stay() -> None:
    i = Tensor.input("i", (4, 8), "i32")
    b = Tensor.input("b", (4, 8), "bf16")
    d = Tensor.input("d", (4, 8), "f64")
    outputs = [i.cast("i64").sum(1), (d @ d.transpose()), b.relu(), i.eq(3)]
    nodes = fold_constants(tuple(t.node for t in outputs))
    assert narrowed(nodes, F16) == nodes


def test_a_model_of_one_kernel_and_no_weights_keeps_its_nodes() -> None:
    nodes = fold_constants((X.softmax().node,))
    assert narrowed(nodes, BF16) == nodes


def test_a_tensor_that_is_also_an_output_is_not_rounded() -> None:
    hidden = (X @ Tensor.constant(W, name="w")).relu()
    last = hidden @ Tensor.constant(V, name="v")
    found = plan(hidden, last)
    assert [x.kernel.params[0].dtype for x in found.launches] == [F32, F32]


def test_a_fence_is_narrow_and_one_with_a_schedule_is_left_alone() -> None:
    hidden = (X @ Tensor.constant(W, name="w")).relu()
    for fence, dtype in (
        (hidden.contiguous(), BF16),
        (hidden.contiguous((1, 0)), BF16),
        (hidden.contiguous(schedule="vectorize(axis=b)"), F32),
    ):
        launches = plan(fence @ Tensor.constant(V)).launches
        assert [x.kernel.params[0].dtype for x in launches] == [dtype, F32]


def test_a_weight_that_overflows_f16_is_one_line_that_names_it() -> None:
    big = W.copy()
    big[3, 5] = -70000.0
    big[4, 6] = 1e30
    with pytest.raises(WeightsError) as caught:
        plan(X @ Tensor.constant(big, name="layers.0.weight"), dtype=F16)
    assert str(caught.value) == (
        "weight layers.0.weight of shape (64, 32) does not fit f16: element (3, 5) is -70000, and "
        "the largest number of f16 is 65504 (2 such of 2048); use bf16, which has the range of "
        "f32, or f32"
    )
    plan(X @ Tensor.constant(big), dtype=BF16)


def test_a_weight_that_rounds_up_to_infinity_in_bf16_is_refused_too() -> None:
    big = np.full((64, 32), np.finfo(np.float32).max)
    with pytest.raises(WeightsError, match=r"does not fit bf16: .* 3.38953e\+38 .*; use f32$"):
        plan(X @ Tensor.constant(big))


def test_weights_that_are_not_finite_stay_so() -> None:
    odd = W.copy()
    odd[0, :3] = np.inf, -np.inf, np.nan
    (weights,) = [b for b in plan(X @ Tensor.constant(odd), dtype=F16).buffers if b.data]
    assert weights.data is not None
    assert np.array_equal(weights.data.array[0, :3], np.float16([np.inf, -np.inf, np.nan]), True)


def test_no_constant_is_widened() -> None:
    for name, model in MODELS.items():
        found = fold_constants(narrowed(fold_constants(nodes_of(model)), BF16))
        wide = [n for n in topological(found) if n.op is GraphOp.CONST and n.dtype == F32]
        assert all(sum(e > 1 for e in n.shape) <= 1 for n in wide), name


@NARROW
def test_what_is_widened_is_stored_narrow_whoever_cast_it(dtype: DType) -> None:
    """The graph is the user's own; its rounding is read by two products."""
    hidden = (X @ Tensor.constant(W)).cast(dtype).cast("f32")
    found = schedule(fold_constants(((hidden @ Tensor.constant(V)).node, (hidden.exp()).node)))
    assert [x.kernel.params[0].dtype for x in found.launches] == [dtype, F32, F32]


def test_bf16_is_multiplied_in_pairs_unless_numerics_are_strict() -> None:
    nodes = tuple(t.node for t in [two_layers()])
    strict, default, asked = (
        [x.kernel.name for x in schedule(prepared(nodes, n, DOT, "bf16")).launches]
        for n in ("strict", "contract", "bf16-dot")
    )
    assert strict == ["matmul 8x32x64 +relu", "matmul 8x16x32"]
    assert default == asked
    assert [name for name in default if "pair" not in name] == [
        "matmul 8x32x64 bf16-dot +relu",
        "matmul 8x16x32 bf16-dot",
    ]


def test_f16_is_widened_whatever_the_numerics_allow() -> None:
    nodes = tuple(t.node for t in [two_layers()])
    f16 = [x.kernel for x in schedule(prepared(nodes, "bf16-dot", DOT, "f16")).launches]
    assert [k.name for k in f16] == ["matmul 8x32x64 +relu", "matmul 8x16x32"]
