"""Between bytes, constant scales are one and no float tensor is stored: quotients are gone, pools
compare bytes, and steps of the same scale are the bytes themselves.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quad_builders import VNNI, drawn

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.index import Range, Valid, as_index
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Axis
from tunegrad.ir.rewrites import joined_scales, quad_dots
from tunegrad.ir.target import Target
from tunegrad.ir.variants import variants_of
from tunegrad.planning import prepared

IMAGE = Tensor.input("x", (1, 8, 10, 10), "u8")


def byte(value: int, kind: str = "u8") -> Tensor:
    return Tensor.constant(np.array(value, {"u8": np.uint8, "i8": np.int8}[kind])).cast("f32")


def floats(x: Tensor, zero: int, scale: float) -> Tensor:
    return (x.cast("f32") - byte(zero, x.dtype.name)) * Tensor.constant(np.float32(scale))


def steps(x: Tensor, zero: int, scale: float, kind: str = "u8") -> Tensor:
    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)
    made = (x / Tensor.constant(np.float32(scale))).round() + byte(zero, kind)
    return made.clamp(low, high).cast(kind)


def weights(filters: int, channels: int, size: int) -> Tensor:
    scales = np.linspace(0.001, 0.003, filters, dtype=np.float32).reshape(-1, 1, 1, 1)
    values = Tensor.constant(drawn((filters, channels, size, size), "i8", size))
    return values.cast("f32") * Tensor.constant(scales)


def bias(count: int) -> Tensor:
    return Tensor.constant(np.linspace(-1, 1, count, dtype=np.float32).reshape(-1, 1, 1))


def network() -> Tensor:
    """A convolution, one of each channel, one of single pixels beside a sum, and a pool."""
    first = steps(floats(IMAGE, 7, 0.02).conv2d(weights(16, 8, 3), padding=1) + bias(16), 5, 0.03)
    each = floats(first, 5, 0.03).conv2d(weights(16, 1, 3), padding=1, groups=16) + bias(16)
    second = steps(each, 9, 0.05)
    third = steps(floats(second, 9, 0.05).conv2d(weights(16, 16, 1)) + bias(16), 3, 0.04)
    total = steps(floats(third, 3, 0.04) + floats(first, 5, 0.03), 11, 0.06)
    return steps(floats(total, 11, 0.06).max_pool2d(3, stride=2, padding=1), 11, 0.06)


def maps(outputs: tuple[Node, ...], op: Op) -> int:
    return sum(n.op is GraphOp.MAP and n.arg is op for n in topological(outputs))


def test_a_network_of_bytes_stores_no_float_and_divides_no_sum() -> None:
    outputs = prepared((network().node,), "contract", VNNI)
    plan = schedule(outputs)
    stored = [b.dtype.name for b in plan.buffers if b.role == "temp"]
    assert set(stored) <= {"u8", "u8x4", "i8"}
    assert maps(outputs, Op.DIV) == 1  # of two bytes, whose halves of steps are those of the file
    products = [x.kernel for x in plan.launches if x.kernel.reduces]
    assert len(products) == 4  # three convolutions, one with the sum in its epilogue, and the pool
    assert len(plan.launches) <= 5  # the input is packed
    assert "max over" in products[-1].text
    assert "in u8" in products[-1].text


def test_products_of_floats_read_floats_where_nothing_multiplies_bytes() -> None:
    """Each would be dequantised for every row and column of its tile."""
    first = steps(floats(IMAGE, 7, 0.02).conv2d(weights(16, 8, 3), padding=1) + bias(16), 5, 0.03)
    second = floats(first, 5, 0.03).conv2d(weights(16, 16, 3), padding=1)
    outputs = prepared((second.node,), "contract", replace(VNNI, features=()))
    last = schedule(outputs).launches[-1].kernel
    assert [p.dtype.name for p in last.params] == ["f32"] * 3
    assert "f32(" not in last.text


def test_strict_numerics_keep_every_quotient() -> None:
    outputs = prepared((network().node,), "strict", VNNI)
    assert maps(outputs, Op.DIV) == 5


def test_its_results_are_those_of_its_floats_within_one_step() -> None:
    x = drawn(IMAGE.shape, "u8", 5)
    (want,) = evaluate((network().node,), {"x": x})
    (made,) = evaluate(prepared((network().node,), "contract", VNNI), {"x": x})
    got = tg.compile(lambda given: _of(network(), given), Tensor(x), store=False)(x)
    for found in (made, got):
        apart = np.abs(found.astype(int) - want)
        assert apart.max() <= 1
        assert (apart == 0).mean() >= 0.99


def _of(t: Tensor, given: Tensor) -> Tensor:
    from tunegrad.frontend import substitute

    (root,) = substitute((t.node,), {IMAGE.node: given.node})
    return Tensor.of(root)


def test_a_bias_of_each_column_is_divided_below_a_step_of_another_rank() -> None:
    """Heads of a layer, which were an error of shapes."""
    rows = Tensor.input("r", (5, 8), "u8")
    right = Tensor.constant(drawn((8, 16), "i8", 3)).cast("f32") * Tensor.constant(np.float32(0.01))
    y = floats(rows, 3, 0.02) @ right + Tensor.constant(np.linspace(-1, 1, 16, dtype=np.float32))
    made = steps(y.reshape(1, 5, 4, 4), 5, 0.03)
    outputs, x = prepared((made.node,), "contract", VNNI), {"r": drawn((5, 8), "u8", 4)}
    assert maps(outputs, Op.DIV) == 0
    (got,), (want,) = evaluate(outputs, x), evaluate((made.node,), x)
    assert np.abs(got.astype(int) - want).max() <= 1


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_quantising_what_was_dequantised_is_the_byte(kind: str) -> None:
    every = np.arange(256, dtype=np.uint8).view({"u8": np.uint8, "i8": np.int8}[kind])
    x = Tensor.input("x", (256,), kind)
    same = steps(floats(x, 3, 0.0173), 3, 0.0173, kind)
    (made,) = joined_scales((same.node,))
    assert made is x.node
    np.testing.assert_array_equal(evaluate((same.node,), {"x": every})[0], every)
    for other in (steps(floats(x, 3, 0.0173), 4, 0.0173, kind),
                  steps(floats(x, 3, 0.0173), 3, 0.0174, kind)):  # fmt: skip
        assert joined_scales((other.node,))[0] is not x.node


def test_a_pool_pads_with_the_least_byte() -> None:
    x = drawn(IMAGE.shape, "u8", 8)
    pool = steps(floats(IMAGE, 200, 0.1).max_pool2d(3, stride=1, padding=1), 200, 0.1)
    after = joined_scales((pool.node,))
    assert maps(after, Op.ROUND) == 0
    np.testing.assert_array_equal(evaluate(after, {"x": x})[0], evaluate((pool.node,), {"x": x})[0])


@pytest.mark.parametrize(
    ("kind", "zero"), [("u8", 0), ("u8", 7), ("u8", 255), ("i8", 0), ("i8", -128), ("i8", 127)]
)
@pytest.mark.parametrize("length", [64, 61])
def test_compiled_steps_saturate_and_round_to_even(kind: str, zero: int, length: int) -> None:
    """Vectors round to integers by one instruction, which has one value for all that is beyond, and
    take the zero point off before they are floats again.
    """
    given = np.linspace(-300, 300, length, dtype=np.float32)
    given[:12] = [np.nan, np.inf, -np.inf, 3e9, -3e9, 1e38, 0.5, 1.5, -0.5, 255.5, -7.5, 2.0**31]

    def made(x: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        bytes_of = steps(x, zero, 1.0, kind)
        left = floats(bytes_of, zero, 0.5) + floats(q, zero, 0.25)
        return bytes_of, left, x.round().clamp(low, high).cast(kind)

    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)
    q = drawn((length,), kind, 3)
    got = tg.compile(made, Tensor(given), Tensor(q), store=False)(given, q)
    want = np.nan_to_num(np.clip(np.rint(given) + zero, low, high)).astype(q.dtype)
    np.testing.assert_array_equal(got[0], want)
    apart = (want - np.float32(zero)) * np.float32(0.5)
    np.testing.assert_array_equal(got[1], apart + (q - np.float32(zero)) * np.float32(0.25))
    np.testing.assert_array_equal(got[2], np.nan_to_num(np.clip(np.rint(given), low, high)))


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_a_scaled_integer_is_rounded_to_a_byte_once(kind: str) -> None:
    """In f32 some products are halves of steps, which those of the same numbers are not."""
    whole, scale = np.arange(-(1 << 20), 1 << 20, dtype=np.int32), np.float32(1.23e-4)

    def made(x: Tensor) -> Tensor:
        product = x.cast("f32") * Tensor.constant(scale)
        return (product.round() + byte(3, kind)).clamp(low, high).cast(kind)

    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)
    got = tg.compile(made, Tensor(whole), store=False)(whole)
    want = np.clip(np.rint(whole * np.float64(scale)) + 3, low, high)
    twice = np.clip(np.rint(whole.astype(np.float32) * scale) + 3, low, high)
    assert (want != twice).any()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize(("channels", "groups"), [(16, 1), (32, 32)])
def test_a_file_in_either_form_is_the_integers_of_its_reference(
    channels: int, groups: int, kind: str, tmp_path: Path
) -> None:
    """QDQ around a convolution with a bias of integers, and QLinearConv: all elements, in the sums
    of integers and the product in f64 of onnx's reference.
    """
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    rng = np.random.default_rng(channels)
    by = rng.uniform(0.001, 0.003, 32).astype(np.float32)
    dtype, less, name = (np.uint8, 0, "uint8") if kind == "u8" else (np.int8, 128, "int8")
    given = {
        "xs": np.float32(0.02), "xz": dtype(7 - less), "ws": by, "wz": np.zeros(32, np.int8),
        "ys": np.float32(0.013), "yz": dtype(100 - less), "bs": by * np.float32(0.02),
        "w": rng.integers(-127, 128, (32, channels // groups, 3, 3), np.int8),
        "b": rng.integers(-9000, 9000, 32, np.int32),
    }  # fmt: skip
    # strided: where bytes are widened, a stride of 1 is Winograd's tiles of floats, which round
    attributes = f"pads = [1, 1, 1, 1], strides = [2, 2], group = {groups}"
    head = f"agraph ({name}[1,{channels},24,24] x) => ({name}[1,32,12,12] y)"
    bodies = (
        f"{{ y = QLinearConv <{attributes}> (x, xs, xz, w, ws, wz, ys, yz, b) }}",
        f"""{{ fx = DequantizeLinear (x, xs, xz) fw = DequantizeLinear <axis = 0> (w, ws, wz)
        fb = DequantizeLinear <axis = 0> (b, bs) fy = Conv <{attributes}> (fx, fw, fb)
        y = QuantizeLinear (fy, ys, yz) }}""",
    )
    x = rng.integers(-less, 256 - less, (1, channels, 24, 24), dtype)
    want = None
    for i, body in enumerate(bodies):
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {head} {body}')
        held = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()]
        model.graph.initializer.extend(v for v in held if v.name != "bs" or i)
        if want is None:
            (want,) = reference.ReferenceEvaluator(model).run(None, {"x": x})
        path = tmp_path / f"{i}.onnx"
        onnx.save(model, path)
        np.testing.assert_array_equal(tg.load(str(path), store=False)(x), want)


@pytest.mark.parametrize("scale", [0.0, 1e-38, 2.0**40, np.inf, np.nan, -0.5])
def test_a_scale_that_is_no_step_stays_a_divisor(scale: float) -> None:
    rows = Tensor.input("r", (4, 8), "u8")
    product = (rows.cast("f32") * 0.5) / Tensor.constant(np.float32(scale))
    assert joined_scales((product.node,)) == (product.node,)


def test_sums_of_each_channel_are_whole_numbers_with_one_scale_behind() -> None:
    x = drawn(IMAGE.shape, "u8", 9)
    each = floats(IMAGE, 100, 0.5).conv2d(weights(8, 1, 3), padding=1, groups=8)
    after = quad_dots((each.node,), VNNI, floats=True)
    assert after != (each.node,)
    assert maps(after, Op.DOT4) == 0
    (want,), (got,) = evaluate((each.node,), {"x": x}), evaluate(after, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_halves_behind_each_other_are_told_apart_by_blocks() -> None:
    """A condition of whole vectors, and not of their lanes."""
    halves = [Tensor.input(name, (1, 32, 4, 4), "u8") for name in ("a", "b")]
    joined = tg.cat([floats(x, 3, s) for x, s in zip(halves, (0.02, 0.03), strict=True)], 1)
    both = steps(joined, 3, 0.03)
    values = {name: drawn((1, 32, 4, 4), "u8", i) for i, name in enumerate("ab")}
    outputs = prepared((both.node,), "contract", VNNI)
    (launch,) = schedule(outputs).launches
    assert "1<=a<2" in launch.kernel.text
    assert "32*a" not in launch.kernel.text.replace("p0[32*a", "")
    (want,), (got,) = evaluate((both.node,), values), evaluate(outputs, values)
    np.testing.assert_array_equal(got, want)


def test_conditions_of_blocks_hold_where_those_of_elements_do() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        block, high = int(rng.choice([2, 3, 16])), int(rng.integers(1, 5))
        first, last = sorted(block * rng.integers(-1, high + 2, 2))
        a, b = Axis("a", high).index, Axis("b", int(rng.integers(1, block + 2))).index
        valid = Valid((Range(block * a + b, int(first), int(last)),))
        made = valid.of_blocks()
        for i in range(high):
            for j in range(b.hi + 1):
                point = {"a": as_index(i), "b": as_index(j)}
                assert made.substitute(point).always == valid.substitute(point).always


AVX2 = replace(VNNI, features=("+avx2", "+fma"), vector_bytes=32, registers=16)


@pytest.mark.parametrize(
    ("channels", "size", "stride"), [(32, 3, 1), (32, 1, 1), (3, 7, 2), (8, 3, 1)]
)
def test_convolutions_multiply_bytes_in_16_bits(channels: int, size: int, stride: int) -> None:
    """Of few channels, too: halves of words that are partly empty are a variant of bytes."""
    image = Tensor.input("x", (1, channels, 12, 12), "u8")
    conv = floats(image, 7, 0.5).conv2d(weights(16, channels, size), stride=stride, padding=1)
    for target in (AVX2, VNNI):
        outputs = prepared((conv.node,), "contract", target)
        assert maps(outputs, Op.DOT4) == 1
        (kernel,) = (k for k, _ in schedule(outputs).kernels().values() if "dot4(" in k.text)
        assert "halves" in variants_of(kernel)


SPECIAL = np.array([np.nan, np.inf, -np.inf, -1.0, 254.5, 255.5, 300.0, 1e20, -129.0], np.float32)


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_clamped_casts_saturate_in_one_cast(kind: str) -> None:
    values = np.concatenate([SPECIAL, np.linspace(-200, 300, 55, dtype=np.float32)])
    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)

    def clamped(x: Tensor) -> Tensor:
        return x.clamp(low, high).cast("i32").cast(kind)

    x = Tensor.input("x", values.shape)
    (want,) = evaluate((clamped(x).node,), {"x": values})
    (made,) = prepared((clamped(x).node,), "strict", VNNI)
    assert [n.op for n in topological((made,))] == [GraphOp.INPUT, GraphOp.CAST]
    np.testing.assert_array_equal(evaluate((made,), {"x": values})[0], want)
    np.testing.assert_array_equal(tg.compile(clamped, Tensor(values), store=False)(values), want)


def test_zeros_that_are_no_bytes_are_added_as_floats():
    """Beside 1e8 a float has steps of 8."""
    x = Tensor.input("x", (48,), "u8")
    far = Tensor.constant(np.float32(1e8))
    scale = Tensor.constant(np.float32(0.1))
    number = (x.cast("f32") - far) * scale
    made = ((number / scale).round() + far).clamp(0.0, 255.0).cast("u8")
    assert joined_scales((made.node,)) == (made.node,)


def test_quotients_of_known_positions_keep_their_roundings():
    """(2 i + 1) / n, as grids have it, is no sum of bytes."""
    made = (tg.arange(6).cast("f32") * 2.0 + 1.0) / 6.0
    assert joined_scales((made.node,)) == (made.node,)


@pytest.mark.parametrize("target", [VNNI, AVX2, replace(VNNI, features=())])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(0, 8, 4), (3, 0, 4), (3, 8, 0)])
def test_products_of_no_bytes_are_prepared(
    target: Target, rows: int, inner: int, columns: int
) -> None:
    """An empty batch of a quantised model; a sum of no terms is its bias."""
    x = Tensor.input("x", (rows, inner), "u8")
    w = Tensor.constant(np.ones((inner, columns), np.int8)).cast("f32")
    scales = Tensor.constant(np.full((1, columns), 0.01, np.float32))
    bias = Tensor.constant(np.arange(columns, dtype=np.float32))
    made = steps(floats(x, 7, 0.02) @ (w * scales) + bias, 5, 0.5).node
    values = {"x": np.full((rows, inner), 9, np.uint8)}
    want, got = (evaluate(of, values)[0] for of in ((made,), prepared((made,), "contract", target)))
    np.testing.assert_array_equal(got, want)
