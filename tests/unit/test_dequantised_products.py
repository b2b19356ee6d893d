"""Products of dequantised bytes run on bytes, unless numerics are strict, and plans of ONNX files
in QDQ form hold no float tensor that a product reads.
"""

from __future__ import annotations

import numpy as np
import pytest
from quad_builders import VNNI, drawn
from variant_builders import kernel_of, ran

from tunegrad.devices.host.facts import declared
from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LAST, schedule
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import bytes_refused, quad_dots
from tunegrad.ir.target import Target
from tunegrad.ir.variants import variants_of
from tunegrad.planning import allowed, expected, planned_as
from tunegrad.planning.plan import prepared

WIDENS = Target("cpu", "cpu", "znver3", ("+avx2", "+fma"), vector_bytes=32, registers=16)
"""One that multiplies them in 16 bits."""

PLAIN = Target("cpu", "cpu", "x86-64-v2", ("+sse4.2",), vector_bytes=16, registers=16)

ROWS = Tensor.input("x", (8, 64), "u8")
WEIGHTS = Tensor.constant(drawn((64, 32), "i8"))
SCALES = Tensor.constant(np.linspace(0.001, 0.002, 32, dtype=np.float32))


def byte(value: int, dtype: str = "uint8") -> Tensor:
    return Tensor.constant(np.array(value, dtype)).cast("f32")


def dequantised(x: Tensor, zero: int | None, scale: float = 0.02) -> Tensor:
    y = x.cast("f32")
    return (y if zero is None else y - byte(zero, x.dtype.numpy.name)) * scale


def dots(t: Tensor, numerics: str = "contract", target=VNNI) -> int:
    found = topological(prepared((t.node,), numerics, target))
    return sum(n.op is GraphOp.MAP and n.arg is Op.DOT4 for n in found)


def test_the_product_reads_bytes_and_its_scales_are_in_the_epilogue() -> None:
    product = dequantised(ROWS, 120) @ (WEIGHTS.cast("f32") * SCALES)
    (kernel,) = (
        launch.kernel for launch in schedule(prepared((product.node,), "contract", VNNI)).launches
    )
    assert "in i32: dot4(p1[a, ra], p2[ra, b])" in kernel.text
    assert [p.dtype.name for p in kernel.params[1:3]] == ["u8x4", "i8x4"]


@pytest.mark.parametrize("step", [0.05, 2.0, 3.0, 100.0, 2000.0])
@pytest.mark.parametrize("target", [VNNI, WIDENS])
def test_scales_and_a_step_that_are_literals_are_one_scale(target: Target, step: float) -> None:
    """The quotient of literals is a number of the field, as that of constants; it was rounded, and
    the rewrite refused.
    """
    product = (ROWS.cast("f32") * 0.25) @ (WEIGHTS.cast("f32") * 0.5)
    made = ((product / step).round() + 10.0).clamp(0.0, 255.0).cast("u8")
    (node,) = prepared((made.node,), "contract", target)
    assert any(n.arg is Op.DOT4 for n in topological((node,)))
    x = {"x": drawn((8, 64), "u8", 5)}
    (found,), (wanted,) = (evaluate((n,), x) for n in (node, made.node))
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1  # half a step, rounded


@pytest.mark.parametrize("zero", [None, 0, 120])
@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_it_is_the_sum_of_the_floats(kind: str, zero: int | None) -> None:
    x = drawn((8, 64), kind, 3)
    product = dequantised(Tensor.input("x", (8, 64), kind), zero) @ (WEIGHTS.cast("f32") * SCALES)
    after = quad_dots((product.node,), VNNI, floats=True)
    assert after != (product.node,)
    (want,), (got,) = evaluate((product.node,), {"x": x}), evaluate(after, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_image_is_padded_with_its_zero_point() -> None:
    x = drawn((1, 8, 6, 6), "u8", 4)
    weights = Tensor.constant(drawn((4, 8, 3, 3), "i8")).cast("f32")
    scales = Tensor.constant(np.array([1, 2, 4, 8], np.float32).reshape(4, 1, 1, 1))
    image = dequantised(Tensor.input("x", x.shape, "u8"), 101, 0.25)
    product = image.conv2d(weights * scales, padding=1)
    assert dots(product) == 1
    (want,), (got,) = (
        evaluate(nodes, {"x": x})
        for nodes in ((product.node,), quad_dots((product.node,), VNNI, floats=True))
    )
    np.testing.assert_array_equal(got, want)  # powers of two: nothing is rounded


LONG = Tensor.constant(np.ones((1 << 17, 4), np.int8)).cast("f32") * 0.5
FLOATS = "one factor is of bytes, the other one of floats"
KEPT = {
    "strict": (
        dequantised(ROWS, 120) @ (WEIGHTS.cast("f32") * SCALES),
        "strict", "strict numerics keep the sum of floats",
    ),
    "a scale of each term": (
        dequantised(ROWS, 120)
        @ (WEIGHTS.cast("f32") * Tensor.constant(np.linspace(1, 2, 64, dtype=np.float32)[:, None])),
        "contract", "a scale changes along the sum",
    ),
    "a sum that 31 bits may not hold": (
        dequantised(Tensor.input("l", (4, 1 << 17), "u8"), None) @ LONG,
        "contract", "a sum of 131072 products may pass 2^31",
    ),
    "one that a zero point of another type takes there": (
        ((Tensor.input("l", (4, 45_000), "u8").cast("f32") - byte(-100, "int8")) * 0.5)
        @ (Tensor.constant(np.ones((45_000, 4), np.int8)).cast("f32") * 0.5),
        "contract", "a sum of 45000 products may pass 2^31",
    ),
    "a zero point that is no byte": (
        (ROWS.cast("f32") - 3.5) * 0.02 @ (WEIGHTS.cast("f32") * SCALES), "contract", FLOATS,
    ),
    "one factor of floats": (
        Tensor.input("f", (8, 64)) @ (WEIGHTS.cast("f32") * 0.5), "contract", FLOATS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_others_are_sums_of_floats_and_a_rule_says_why(name: str) -> None:
    product, numerics, rule = KEPT[name]
    assert dots(product, numerics) == 0
    refused = bytes_refused((product.node,), VNNI, floats=numerics != "strict")
    assert [why for _, why in refused] == [rule]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_floats_are_variants_of_bytes(kind: str, size: int) -> None:
    """Plans are validated as they are made, and sums below 2^24 are the same ones."""
    x = drawn((2, 32, 7, 6), kind, 7)
    weights = Tensor.constant(drawn((8, 32, size, size), "i8", 8)).cast("f32") * 0.5
    image = dequantised(Tensor.input("x", x.shape, kind), 3, 0.25)
    product = image.conv2d(weights, padding=size // 2).permute(0, 2, 3, 1)
    outputs = prepared((product.node,), "contract", VNNI)
    plan = planned_as(outputs, frozenset(), {}, LAST, VNNI)
    (kernel,) = (k for k, _ in plan.kernels().values() if k.reduces)
    names = [v for v in variants_of(kernel) if v.startswith("floats")]
    assert names == ["floats", *(f"floats_winograd{m}" for m in (2, 4) if size == 3)]
    assert not set(names) & set(allowed(kernel, "strict"))
    exact = ["exact_winograd4", "windows"] if size == 3 else []
    assert allowed(kernel, "strict") == ("direct", *exact, "halves")
    want = ran(plan, {"x": x})
    for name in (*exact, "halves"):
        made = planned_as(outputs, frozenset(), {kernel.key: name}, LAST, VNNI)
        np.testing.assert_array_equal(ran(made, {"x": x}), want)
    for name in names:
        made = planned_as(outputs, frozenset(), {kernel.key: name}, LAST, VNNI)
        np.testing.assert_allclose(ran(made, {"x": x}), want, atol=1e-5 * np.ptp(want))
    made = planned_as(outputs, frozenset(), {kernel.key: "floats"}, LAST, VNNI)
    np.testing.assert_array_equal(ran(made, {"x": x}), want)


@pytest.mark.parametrize(
    "variant", ["exact_winograd4", "halves", "floats", "floats_winograd2", "floats_winograd4"]
)
def test_floats_of_an_image_with_channels_last_are_validated(variant: str) -> None:
    """Its kernel walks columns first: the window of the weights is the other way round."""
    x = drawn((1, 6, 7, 32), "u8", 7)
    weights = Tensor.constant(drawn((8, 32, 3, 3), "i8", 8)).cast("f32") * 0.5
    image = dequantised(Tensor.input("x", x.shape, "u8"), None, 0.25)
    product = image.permute(0, 3, 1, 2).conv2d(weights)
    outputs = prepared((product.node,), "contract", VNNI)
    plan = planned_as(outputs, frozenset(), {}, LAST, VNNI)
    (kernel,) = (k for k, _ in plan.kernels().values() if k.reduces)
    assert variant in variants_of(kernel)
    want = ran(plan, {"x": x})
    made = planned_as(outputs, frozenset(), {kernel.key: variant}, LAST, VNNI)
    np.testing.assert_allclose(ran(made, {"x": x}), want, atol=1e-5 * np.ptp(want))


def test_an_integer_sum_has_no_floats() -> None:
    product = ROWS.cast("i32") @ WEIGHTS.cast("i32")
    kernel = kernel_of(schedule(prepared((product.node,), "contract", VNNI)))
    assert "dot4" in kernel.text
    assert "floats" not in variants_of(kernel)


@pytest.mark.parametrize(("terms", "has"), [(1 << 16, True), ((1 << 16) + 4, False)])
def test_integers_that_may_wrap_around_have_no_floats(terms: int, has: bool) -> None:
    """Of a sum that is cast to a float: beyond 2^31 integers wrap around, and floats do not."""
    x, weights = Tensor.input("x", (4, terms), "u8"), drawn((terms, 8), "i8")
    product = x.cast("i32") @ Tensor.constant(weights).cast("i32")
    kernel = kernel_of(schedule(prepared((product.cast("f32").node,), "contract", VNNI)))
    assert ("floats" in variants_of(kernel)) == has


@pytest.mark.parametrize("zero", [5, -77])
@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_floats_are_variants_of_bytes_whose_weights_have_a_zero_point(kind: str, zero: int) -> None:
    """Sums of the image are subtracted, in integers on both sides. Drawn as any integers they
    wrapped around on one side, and the steps of such layers were refused as wrong plans.
    """
    x = drawn((2, 8, 6, 8), kind, 5)
    weights = dequantised(Tensor.constant(drawn((3, 8, 3, 3), "i8", 2)), zero, 0.25)
    product = dequantised(Tensor.input("x", x.shape, kind), 3, 0.25).conv2d(weights, padding=1)
    steps = ((product / 2.0).round() + 10.0).clamp(0.0, 255.0).cast("u8")
    for made, apart in ((product, 0), (steps, 1)):
        outputs = prepared((made.node,), "contract", VNNI)
        plan = planned_as(outputs, frozenset(), {}, LAST, VNNI)
        (kernel,) = (k for k, _ in plan.kernels().values() if "i8x4[3," in k.text)
        names = [v for v in variants_of(kernel) if v.startswith("floats")]
        assert {"floats", "floats_winograd2", "floats_winograd4"} == set(names)
        want = ran(plan, {"x": x}).astype(np.float64)
        for name in names:
            got = ran(planned_as(outputs, frozenset(), {kernel.key: name}, LAST, VNNI), {"x": x})
            np.testing.assert_allclose(got, want, atol=apart or 1e-5 * np.ptp(want))


@pytest.mark.parametrize(("terms", "has"), [(1 << 14, True), ((1 << 14) + 4, False)])
def test_long_sums_less_sums_of_the_image_have_no_floats(terms: int, has: bool) -> None:
    """Four numbers of up to 255 x 128 a term are below 2^31 together."""
    x = Tensor.input("x", (4, terms), "u8").cast("i32")
    weights = Tensor.constant(drawn((terms, 8), "i8")).cast("i32")
    product = x @ (weights - Tensor.constant(np.array(3, "int8")).cast("i32"))
    plan = schedule(prepared((product.cast("f32").node,), "contract", VNNI))
    (kernel,) = (k for k, _ in plan.kernels().values() if "dot4" in k.text)
    assert ("floats" in variants_of(kernel)) == has


def test_winograd_in_16_bits_is_expected_where_it_multiplies_less() -> None:
    """Beside direct products of bytes four times fewer, at twice their rate without VNNI."""
    weights = Tensor.constant(drawn((64, 64, 3, 3), "i8")).cast("f32") * 0.5
    image = dequantised(Tensor.input("x", (1, 64, 56, 56), "u8"), 3, 0.25)
    product = image.conv2d(weights, padding=1)
    for target, wanted in (
        (VNNI, "exact_winograd4"),
        (WIDENS, "exact_winograd4"),
        (PLAIN, "direct"),
    ):
        plan = schedule(prepared((product.node,), "contract", VNNI))
        (kernel,) = (k for k, _ in plan.kernels().values() if k.reduces)
        assert expected(kernel, declared(target)).removeprefix("channels_last_") == wanted


@pytest.mark.parametrize("scale", [2.0**97, np.inf, -np.inf, np.nan])
def test_a_scale_that_takes_a_sum_to_infinity_multiplies_each_term(scale: float) -> None:
    """The sum of integers times that scale is infinite, where each term is finite or NaN."""
    weights = WEIGHTS.cast("f32") * 1e-30
    assert dots(dequantised(ROWS, 120, 2.0**95) @ weights) == 1
    assert dots(dequantised(ROWS, 120, scale) @ weights) == 0


def test_a_layer_between_bytes_leaves_no_float_in_memory() -> None:
    """Requantised in the epilogue: rounded to even, saturated."""
    hidden = (dequantised(ROWS, 120) @ (WEIGHTS.cast("f32") * SCALES)).relu()
    steps = ((hidden / 0.05).round() + 10.0).clamp(0.0, 255.0).cast("u8")
    last = Tensor.constant(drawn((32, 16), "i8")).cast("f32") * 0.01
    product = dequantised(steps, 10, 0.05) @ last
    plan = schedule(prepared((product.node,), "contract", VNNI))
    read = [
        p.dtype.name for launch in plan.launches for p in launch.kernel.params if p.role == "in"
    ]
    assert set(read) <= {"u8", "u8x4"}
    assert dots(product) == 2


def test_a_convolution_of_a_quantised_file_multiplies_its_bytes() -> None:
    """Weights of the file stay bytes until they are multiplied, with a scale a channel."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from tunegrad.frontend.onnx.importer import model_of_proto

    given = {
        "w": drawn((8, 16, 3, 3), "i8", 5), "ws": np.linspace(0.01, 0.02, 8, dtype=np.float32),
        "wz": np.zeros(8, np.int8), "xs": np.float32(0.05), "xz": np.uint8(7),
        "b": drawn((8,), "i8", 6).astype(np.int32), "bs": np.full(8, 0.0005, np.float32),
        "bz": np.zeros(8, np.int32),
    }  # fmt: skip
    node = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
            node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
            node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
            node("Conv", ["xf", "wf", "bf"], ["yf"], pads=[1, 1, 1, 1]),
            node("QuantizeLinear", ["yf", "xs", "xz"], ["y"]),
        ],
        "quantised",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, (1, 16, 6, 6))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, (1, 8, 6, 6))],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in given.items()],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model = model_of_proto(proto, "quantised")
    (built,) = model.build(model.weights())
    assert dots(built) == 1
    x = drawn((1, 16, 6, 6), "u8", 7)
    (got,) = evaluate(prepared((built.node,), "contract", VNNI), {"x": x})
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)
