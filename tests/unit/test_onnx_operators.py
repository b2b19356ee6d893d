"""Operators of ONNX models on random operands, against onnx.reference and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.errors import ModelError  # noqa: E402
from tunegrad.frontend.onnx.importer import model_of_proto  # noqa: E402
from tunegrad.frontend.onnx.node import KINDS, codes_of  # noqa: E402
from tunegrad.ir.folding import fold_constants  # noqa: E402
from tunegrad.ir.fusion import Fusion  # noqa: E402

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def array(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


def proto(
    op: str, inputs: Mapping[str, Array], known: Sequence[str] = (), outputs: int = 1,
    opset: int = 24, **attributes: Any,
) -> Any:  # fmt: skip
    """A model of one node; a name that starts with ``_`` is an operand that is left out."""
    names = ["" if name.startswith("_") else name for name in inputs]
    made = [f"y{i}" for i in range(outputs)]
    values = {name: a for name, a in inputs.items() if not name.startswith("_")}
    graph = helper.make_graph(
        [helper.make_node(op, names, made, name="it", **attributes)],
        "test",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in values.items()
            if n not in known
        ],
        [helper.make_empty_tensor_value_info(o) for o in made],
        [numpy_helper.from_array(values[n], n) for n in known],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def found(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    loaded = tg.load(model_of_proto(model, "case"), store=False, threads=1)
    made = loaded(*(codes_of(inputs[i.name]) for i in model.graph.input))
    return list(made) if isinstance(made, tuple) else [made]


def by_reference(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    given = {i.name: inputs[i.name] for i in model.graph.input}
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, given)]


def by_runtime(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {i.name: inputs[i.name] for i in model.graph.input}
    return [np.asarray(y) for y in session.run(None, given)]


def agree(model: Any, inputs: Mapping[str, Array], runtime: bool = False) -> None:
    expected = (by_runtime if runtime else by_reference)(model, inputs)
    for a, b in zip(found(model, inputs), expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == codes_of(b).dtype
        np.testing.assert_allclose(a, codes_of(b), rtol=2e-4, atol=2e-5)


# ---- types below a byte

FLOATS = [k for k in KINDS.values() if not k.is_int]
INTEGERS = [k for k in KINDS.values() if k.is_int]


def edges(kind: Any) -> Array:
    """Every number of a type, what lies half-way, a little beside it, and what is beyond all."""
    codes = np.arange(1 << kind.bits, dtype=np.uint8).view(getattr(ml_dtypes, kind.array))
    numbers = codes.astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    with np.errstate(over="ignore"):
        half = numbers[:-1] * np.float32(0.5) + numbers[1:] * np.float32(0.5)
        beside = np.nextafter(half, np.float32(np.inf)), np.nextafter(half, np.float32(-np.inf))
        last = numbers[-1] * np.asarray([1.01, 1.1, 1.5, 2.0, 1e9], np.float32)
    odd = np.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30], np.float32)
    return np.concatenate([numbers, half, *beside, last, -last, odd])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", FLOATS, ids=[k.name for k in FLOATS])
def test_casts_to_small_floats_are_those_of_ml_dtypes(kind: Any, saturate: int) -> None:
    x = edges(kind)
    x = np.abs(x) if kind.mantissa == 0 else x
    to = getattr(TensorProto, kind.name)
    model = proto("Cast", {"x": x}, to=to, saturate=saturate)
    (codes,), (expected,) = found(model, {"x": x}), by_reference(model, {"x": x})
    values = codes.view(expected.dtype).astype(np.float32)
    np.testing.assert_array_equal(values, expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected.astype(np.float32)))


@pytest.mark.parametrize("kind", FLOATS, ids=[k.name for k in FLOATS])
def test_every_small_float_has_its_value(kind: Any) -> None:
    x = np.arange(1 << kind.bits, dtype=np.uint8).view(getattr(ml_dtypes, kind.array))
    (y,) = found(proto("Cast", {"x": x}, to=TensorProto.FLOAT), {"x": x})
    np.testing.assert_array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize("kind", INTEGERS, ids=[k.name for k in INTEGERS])
def test_small_integers_are_cast_by_their_low_bits_and_back(kind: Any) -> None:
    x = np.arange(-9, 17).astype(np.float32)
    to = getattr(TensorProto, kind.name)
    agree(proto("Cast", {"x": x}, to=to), {"x": x})
    small = np.arange(*kind.range).astype(getattr(ml_dtypes, kind.array))
    agree(proto("Cast", {"x": small}, to=TensorProto.FLOAT16), {"x": small})


@pytest.mark.parametrize("name", ["UINT8", "INT16", "INT4", "UINT2", "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_blocks_have_their_own_scales(name: str) -> None:
    x, scale = array(3, 10, 4, high=30), array(3, 3, 4, low=0.5, high=4)
    to = getattr(TensorProto, name)
    inputs = {"x": x, "scale": scale}
    attributes: dict[str, Any] = {"axis": 1, "block_size": 4}
    model = proto("QuantizeLinear", inputs, output_dtype=to, **attributes)
    agree(model, inputs)
    (small,) = by_reference(model, inputs)
    inputs = {"x": small, "scale": scale}
    agree(proto("DequantizeLinear", inputs, **attributes), inputs)


@pytest.mark.parametrize("opset", [13, 22])
def test_selu_of_halves_near_zero_is_near_zero(opset: int) -> None:
    """alpha * exp(0) was rounded to halves before alpha was taken off."""
    inputs = {"x": np.array([0.0, -0.0, -1e-4, 1e-4, -2.0], np.float16)}
    (made,) = found(proto("Selu", inputs, opset=opset), inputs)
    x = inputs["x"].astype(np.float64)
    want = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    np.testing.assert_allclose(made, want, rtol=2e-3, atol=0)


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_power_of_a_half_is_no_root(power: float) -> None:
    """Of -inf and -0 a root is NaN and -0."""
    inputs = {"a": np.float32([-np.inf, -0.0, 4, np.inf, -4]), "b": np.array(power, np.float32)}
    (made,) = found(proto("Pow", inputs, known=["b"]), inputs)
    wanted = {0.5: [np.inf, 0, 2, np.inf, np.nan], -0.5: [0, np.inf, 0.5, 0, np.nan]}[power]
    np.testing.assert_array_equal(made, np.float32(wanted))
    assert not np.signbit(made[1])


BEYOND: dict[str, list[float]] = {
    "ThresholdedRelu": [0, 0, np.inf, 3e38, 0], "Shrink": [0, -np.inf, np.inf, 3e38, 0],
    "HardSwish": [np.nan, np.nan, np.inf, 3e38, -0.0],
}  # fmt: skip


@pytest.mark.parametrize("op", BEYOND)
def test_nan_and_the_largest_have_the_values_that_onnx_defines(op: str) -> None:
    inputs = {"x": np.float32([np.nan, -np.inf, np.inf, 3e38, -0.0])}
    (made,) = found(proto(op, inputs), inputs)
    np.testing.assert_allclose(made, np.float32(BEYOND[op]), rtol=1e-6)


def test_codes_are_moved_and_nothing_else() -> None:
    x = np.arange(12).reshape(3, 4).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    agree(proto("Transpose", {"x": x}), {"x": x})
    shape = np.asarray([2, 6])
    agree(proto("Reshape", {"x": x, "s": shape}, ["s"]), {"x": x, "s": shape})
    with pytest.raises(ModelError, match=r"node it \(Add\): operand 0 is FLOAT8E4M3FN"):
        found(proto("Add", {"x": x, "z": x}), {"x": x, "z": x})


def test_weights_of_four_bits_are_decoded() -> None:
    w = RNG.integers(-8, 8, (6, 8)).astype(ml_dtypes.int4)
    inputs = {"w": w, "scale": array(6, 2, low=0.1)}
    model = proto("DequantizeLinear", inputs, ["w"], axis=1, block_size=4)
    (y,) = found(model, inputs)
    expected = w.astype(np.float32) * np.repeat(inputs["scale"], 4, 1)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "name", "operands"),
    [
        ("LeakyRelu", "alpha", ()), ("HardSigmoid", "alpha", ()), ("LRN", "alpha", ()),
        ("InstanceNormalization", "epsilon", ("s", "b")),
        ("BatchNormalization", "epsilon", ("s", "b", "m", "v")),
        ("LayerNormalization", "epsilon", ("w",)),
    ],
)  # fmt: skip
def test_defaults_have_32_bits_as_attributes_of_files(
    op: str, name: str, operands: tuple[str, ...]
) -> None:
    """An onnx.FLOAT of 0.01 is 0.0099999998 in a graph of f64."""
    x = {"x": array(3, 3, 4, 5).astype(np.float64)}
    each = {k: array(3, low=0.1).astype(np.float64) for k in "sbmv"} | {"w": array(5) * 1.0}
    inputs = x | {k: each[k].astype(np.float64) for k in operands}
    size = {"size": 3} if op == "LRN" else {}
    (default,) = found(proto(op, inputs, **size), inputs)
    given = float(onnx.defs.get_schema(op).attributes[name].default_value.f)
    (said,) = found(proto(op, inputs, **size, **{name: given}), inputs)
    np.testing.assert_array_equal(default, said)
    (expected,) = by_reference(proto(op, inputs, **size), inputs)
    np.testing.assert_allclose(default, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_bits_of_floats_are_integers_and_back(name: str) -> None:
    word = np.dtype(f"i{np.dtype(name).itemsize}")
    odd = np.asarray([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan], name)
    ends = np.finfo(name)
    few = np.asarray([ends.max, ends.min, ends.tiny, ends.smallest_subnormal], name)
    drawn = RNG.integers(np.iinfo(word).min, np.iinfo(word).max, 2000, word, endpoint=True)
    drawn = drawn[~np.isnan(drawn.view(name))]
    x = np.concatenate([odd, few, -few, drawn.view(name)])
    to = helper.np_dtype_to_tensor_dtype(word)
    (codes,) = found(proto("BitCast", {"x": x}, to=to, opset=26), {"x": x})
    np.testing.assert_array_equal(codes, x.view(word))
    back = helper.np_dtype_to_tensor_dtype(np.dtype(name))
    (y,) = found(proto("BitCast", {"x": x.view(word)}, to=back, opset=26), {"x": x.view(word)})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


# ---- writing and order


@pytest.mark.parametrize("how", ["none", "add", "mul", "max", "min"])
def test_scatter_nd_folds_what_is_written(how: str) -> None:
    index = np.asarray([[[0, 1], [2, -1]], [[1, 0], [2, 3 if how == "none" else 2]]])
    index = index if how != "none" else index[:, :1]
    inputs = {"x": array(3, 4, 5), "i": index, "s": array(*index.shape[:-1], 5)}
    agree(proto("ScatterND", inputs, reduction=how), inputs)


def test_sequences_are_reversed_by_their_lengths() -> None:
    for time, batch in ((0, 1), (1, 0)):
        inputs = {"x": array(4, 4, 2), "n": np.asarray([1, 3, 4, 2])}
        agree(proto("ReverseSequence", inputs, time_axis=time, batch_axis=batch), inputs)


def test_center_crop_pad_keeps_the_middle() -> None:
    for shape in ([3, 9], [8, 4], [5, 6]):
        inputs = {"x": array(5, 6, 2), "s": np.asarray(shape)}
        agree(proto("CenterCropPad", inputs, ["s"], axes=[0, -2]), inputs)


def test_a_batch_gathers_from_its_own() -> None:
    inputs = {"x": array(2, 3, 4, 5), "i": RNG.integers(0, 4, (2, 3, 6, 1))}
    agree(proto("GatherND", inputs, batch_dims=2), inputs)


def test_unpooled_elements_go_back_to_their_places() -> None:
    x = array(2, 3, 6, 8)
    model = proto("MaxPool", {"x": x}, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    y, at = by_reference(model, {"x": x})
    inputs = {"x": y, "i": at}
    agree(proto("MaxUnpool", inputs, kernel_shape=[2, 2], strides=[2, 2]), inputs)


# ---- products, transforms


@pytest.mark.parametrize("size", [1, 2, 5])
def test_determinants_are_numpys(size: int) -> None:
    x = array(3, size, size)
    x[0] = 0
    if size > 1:
        x[1, 0, 0] = 0  # needs another pivot
    (y,) = found(proto("Det", {"x": x}), {"x": x})
    np.testing.assert_allclose(y, np.linalg.det(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 6, 7, 8, 11, 45])
@pytest.mark.parametrize(
    ("parts", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1)]
)
def test_transforms_are_numpys(length: int, parts: int, inverse: int, onesided: int) -> None:
    inputs = {"x": array(2, 8, 3, parts), "n": np.asarray(length), "a": np.asarray(1)}
    agree(proto("DFT", inputs, ["n", "a"], inverse=inverse, onesided=onesided), inputs)


def test_a_transform_has_the_roundings_of_its_results_alone() -> None:
    """Sums are in f64, and rounded once."""
    x = np.arange(100, dtype=np.float32).reshape(1, 10, 10, 1)
    (y,) = found(proto("DFT", {"x": x}, opset=19, inverse=1, axis=1), {"x": x})
    exact = np.fft.ifft(x[..., 0].astype(np.float64), axis=1)
    assert np.abs(y[0, 5, :, 1]).max() < 1e-13  # it cancels
    np.testing.assert_allclose(y, np.stack([exact.real, exact.imag], -1), atol=1e-14, rtol=6e-8)


def test_frames_are_transformed() -> None:
    inputs = {"x": array(2, 40, 1), "step": np.asarray(6), "w": array(10)}
    agree(proto("STFT", inputs, ["step"], onesided=1), inputs)


def test_quantised_products_are_those_of_the_runtime() -> None:
    u8 = RNG.integers(0, 255, (2, 3, 7, 7)).astype(np.uint8)
    w = RNG.integers(-128, 127, (4, 3, 3, 3)).astype(np.int8)
    inputs: dict[str, Array] = {
        "x": u8, "xs": np.asarray(0.03, np.float32), "xz": np.asarray(120, np.uint8),
        "w": w, "ws": array(4, low=0.01, high=0.05), "wz": np.zeros(4, np.int8),
        "ys": np.asarray(0.5, np.float32), "yz": np.asarray(100, np.uint8),
        "b": RNG.integers(-500, 500, 4).astype(np.int32),
    }  # fmt: skip
    model = proto("QLinearConv", inputs, opset=21, pads=[1, 1, 1, 1], strides=[2, 1])
    expected, made = by_runtime(model, inputs)[0], found(model, inputs)[0]
    assert np.abs(made.astype(int) - expected.astype(int)).max() <= 1  # a tie may fall elsewhere
    assert np.mean(made != expected) < 0.01


@pytest.mark.parametrize("name", ["float32", "int32", "bool"])
def test_the_least_and_the_greatest_of_nothing_are_the_ends_of_the_type(name: str) -> None:
    inputs = {"x": np.zeros((2, 0, 4), name), "a": np.asarray([1])}
    least, most = {
        "float32": (-np.inf, np.inf), "int32": (-(2**31), 2**31 - 1), "bool": (False, True)
    }[name]  # fmt: skip
    for op, end in (("ReduceMax", least), ("ReduceMin", most)):
        (y,) = found(proto(op, inputs, ["a"], opset=20), inputs)
        np.testing.assert_array_equal(y, np.full((2, 1, 4), end, name))


# ---- images

_RESIZES: list[dict[str, Any]] = [
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "align_corners"},
    {"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"},
    {"mode": "linear", "keep_aspect_ratio_policy": "not_smaller"},
]


@pytest.mark.parametrize("attributes", _RESIZES, ids=str)
@pytest.mark.parametrize("sizes", [[3, 5], [11, 6]])
def test_images_are_resized(attributes: dict[str, Any], sizes: list[int]) -> None:
    inputs = {"x": array(1, 2, 7, 9), "_r": array(0), "_s": array(0), "n": np.asarray(sizes)}
    agree(proto("Resize", inputs, ["n"], axes=[2, 3], **attributes), inputs)


def test_the_element_that_is_taken_lies_where_f32_says() -> None:
    """0.5 / 0.4 - 0.5 + 0.25 is 1, and less where 0.4 has the digits of f64."""
    inputs = {"x": array(1, 2, 6, 3), "r": np.zeros(0, "f4"), "s": np.asarray([0.5, 0.4], "f4")}
    how: dict[str, Any] = {
        "coordinate_transformation_mode": "half_pixel_symmetric",
        "nearest_mode": "floor",
    }
    model = proto("Resize", inputs, ["s"], axes=[2, 3], mode="nearest", **how)
    agree(model, inputs, runtime=True)


def test_a_part_of_an_image_is_resized() -> None:
    region = np.asarray([0.2, -0.1, 0.7, 1.2], np.float32)
    inputs = {"x": array(1, 2, 7, 9), "r": region, "_s": array(0), "n": np.asarray([4, 5])}
    how: dict[str, Any] = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 9.0,
    }
    agree(proto("Resize", inputs, ["r", "n"], axes=[2, 3], mode="linear", **how), inputs)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    ("mode", "padding"),
    [
        ("nearest", "zeros"), ("linear", "zeros"), ("cubic", "zeros"),
        ("nearest", "border"), ("cubic", "border"), ("linear", "reflection"),
    ],
)  # fmt: skip
def test_grids_are_read_as_by_the_runtime(mode: str, padding: str, corners: int) -> None:
    inputs = {"x": array(2, 3, 5, 6), "g": array(2, 4, 7, 2, low=-1.6, high=1.6)}
    attributes: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    agree(proto("GridSample", inputs, opset=20, **attributes), inputs, runtime=True)


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "i8"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grids_of_integers_are_rounded_and_stay_within_their_type(mode: str, kind: str) -> None:
    ends = np.iinfo(kind)
    x = np.random.default_rng(0).choice(np.array([ends.min, ends.max, 3, 5], kind), (1, 2, 5, 6))
    inputs = {"x": x // 2 if kind == "i8" else x, "g": array(1, 4, 7, 2, low=-1.2, high=1.2)}
    floats = {"x": inputs["x"].astype(np.float64), "g": inputs["g"]}
    attributes: dict[str, Any] = {"mode": mode, "padding_mode": "border"}
    (wanted,) = found(proto("GridSample", floats, opset=20, **attributes), floats)
    (made,) = found(proto("GridSample", inputs, opset=20, **attributes), inputs)
    assert made.dtype == np.dtype(kind)
    held = np.clip(np.round(wanted), float(ends.min), float(ends.max))
    far = np.abs(made.astype(np.float64) - held)
    assert far.max() <= max(1.0, 1e-6 * float(ends.max))
    assert mode != "nearest" or np.isin(made, inputs["x"]).all()


def test_grids_of_volumes_are_read() -> None:
    inputs = {"x": array(1, 2, 3, 4, 5), "g": array(1, 2, 3, 2, 3, low=-1.2, high=1.2)}
    agree(proto("GridSample", inputs, mode="linear", opset=20), inputs)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [[2, 1, 3, 4], [1, 1, 2, 3, 4]], ids=str)
def test_affine_grids_are_those_of_the_reference(corners: int, size: list[int]) -> None:
    rank = len(size) - 2
    inputs = {"t": array(size[0], rank, rank + 1), "n": np.asarray(size)}
    agree(proto("AffineGrid", inputs, ["n"], align_corners=corners), inputs)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
def test_regions_are_aligned(ratio: int, mode: str, how: str) -> None:
    regions = np.asarray([[0, 1, 9, 7], [-3, 2, 4, 30], [5, 5, 5.5, 5.2]], np.float32)
    inputs = {"x": array(2, 3, 8, 9), "r": regions, "b": np.asarray([1, 0, 1])}
    attributes: dict[str, Any] = {
        "output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.7,
        "mode": mode, "coordinate_transformation_mode": how,
    }  # fmt: skip
    agree(proto("RoiAlign", inputs, ["r"], opset=22, **attributes), inputs)


def test_windows_bend() -> None:
    inputs = {
        "x": array(2, 4, 6, 7), "w": array(6, 2, 3, 2), "o": array(2, 24, 3, 3), "b": array(6),
        "m": array(2, 12, 3, 3),
    }  # fmt: skip
    attributes: dict[str, Any] = {
        "group": 2, "offset_group": 2, "strides": [2, 3], "pads": [1, 1, 0, 2],
        "dilations": [1, 2], "kernel_shape": [3, 2],
    }  # fmt: skip
    agree(proto("DeformConv", inputs, opset=22, **attributes), inputs)


@pytest.mark.parametrize("rank", [1, 2])
def test_columns_are_added_up_to_images(rank: int) -> None:
    block, image = [3, 2][:rank], [8, 7][:rank]
    strides, spread, pads = [2, 1][:rank], [1, 2][:rank], [1, 0, 0, 2] if rank == 2 else [1, 0]
    places = [
        (image[d] + pads[d] + pads[rank + d] - spread[d] * (block[d] - 1) - 1) // strides[d] + 1
        for d in range(rank)
    ]
    inputs = {
        "x": array(2, 3 * int(np.prod(block)), int(np.prod(places))), "i": np.asarray(image),
        "b": np.asarray(block),
    }  # fmt: skip
    attributes: dict[str, Any] = {"strides": strides, "dilations": spread, "pads": pads}
    agree(proto("Col2Im", inputs, ["i", "b"], opset=18, **attributes), inputs)
    inputs["x"] = inputs["x"] > 1  # any of the truths
    agree(proto("Col2Im", inputs, ["i", "b"], opset=18, **attributes), inputs)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_of_odd_windows_are_those_of_the_runtime(op: str, ceil: int) -> None:
    inputs = {"x": array(2, 3, 9, 10)}
    attributes: dict[str, Any] = {
        "kernel_shape": [3, 2], "strides": [2, 3], "dilations": [2, 1], "pads": [1, 0, 2, 1],
        "ceil_mode": ceil,
    }  # fmt: skip
    model = proto(op, inputs, opset=22, **attributes)
    agree(model, inputs, runtime=True)


def test_places_of_maxima_by_columns() -> None:
    inputs = {"x": array(2, 2, 6, 7)}
    model = proto(
        "MaxPool", inputs, outputs=2, opset=22, kernel_shape=[2, 3], strides=[2, 2],
        storage_order=1, pads=[0, 1, 0, 1],
    )  # fmt: skip
    agree(model, inputs, runtime=True)


# ---- attention and recurrence

_LOOKS: list[dict[str, Any]] = [
    {"softcap": 2.0},
    {"is_causal": 1, "qk_matmul_output_mode": 2},
    {"qk_matmul_output_mode": 3, "softcap": 1.5},
    {"qk_matmul_output_mode": 1, "softcap": 1.5, "scale": 0.3},
    {"is_causal": 1},
]


@pytest.mark.parametrize("attributes", _LOOKS, ids=str)
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("past", [0, 3])
def test_attention_is_that_of_the_reference(
    attributes: dict[str, Any], mask: str, past: int
) -> None:
    inputs: dict[str, Array] = {
        "q": array(2, 4, 5, 8), "k": array(2, 2, 5, 8), "v": array(2, 2, 5, 6)
    }  # fmt: skip
    if mask != "none":
        given = RNG.uniform(0, 1, (5, 5 + past)) < 0.6
        given[1] = False  # this one looks at nothing
        inputs["m"] = given if mask == "bool" else np.where(given, array(5, 5 + past), -np.inf)
        inputs["m"] = inputs["m"] if mask == "bool" else inputs["m"].astype(np.float32)
    else:
        inputs["_m"] = array(0)
    if past:
        inputs |= {"pk": array(2, 2, past, 8), "pv": array(2, 2, past, 6)}
    if set(attributes) != {"softcap"}:  # the reference gives capped scores in mode 0
        agree(proto("Attention", inputs, outputs=4, **attributes), inputs)
    if "qk_matmul_output_mode" not in attributes:
        agree(proto("Attention", inputs, outputs=1, **attributes), inputs)


def test_affine_grid_of_one_pixel_with_corners_is_pytorchs() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theta, size = np.arange(6, dtype=np.float32).reshape(1, 2, 3), (1, 3, 1, 4)
    inputs = {"theta": theta, "size": np.asarray(size)}
    model = proto("AffineGrid", inputs, ["size"], opset=20, align_corners=1)
    expected = torch.nn.functional.affine_grid(torch.tensor(theta), size, align_corners=True)
    (made,) = found(model, inputs)
    np.testing.assert_allclose(made, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "bool"])
def test_attention_with_a_mask_is_drafted_as_one_kernel(kind: str) -> None:
    inputs = dict.fromkeys("qkv", np.ones((1, 2, 8, 4), np.float32)) | {"m": np.eye(8, dtype=kind)}
    model = model_of_proto(proto("Attention", inputs, opset=23), "case")
    outputs = model.build(model.weights())
    fusion = Fusion.of(fold_constants(tuple(t.node for t in outputs)))
    assert len(fusion.drafts.attentions()) == 1
    names = [launch.name for launch in fusion.schedule().launches]
    assert sum(name.startswith("softmax") for name in names) == 1
    assert len(names) == 4  # with that of rows that look at nothing


def test_attention_over_a_cache_that_is_not_full() -> None:
    inputs = {
        "q": array(2, 2, 3, 4), "k": array(2, 2, 7, 4), "v": array(2, 2, 7, 4), "_m": array(0),
        "_pk": array(0), "_pv": array(0), "n": np.asarray([4, 7]),
    }  # fmt: skip
    agree(proto("Attention", inputs, is_causal=1), inputs)


def test_a_cache_is_written_from_a_place_on() -> None:
    for mode in ("linear", "circular"):
        inputs = {"c": array(2, 3, 6, 4), "u": array(2, 3, 2, 4), "w": np.asarray([1, 4])}
        agree(proto("TensorScatter", inputs, mode=mode), inputs)
    inputs["w"] = np.asarray([5, 0])
    agree(proto("TensorScatter", inputs, mode="circular"), inputs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_those_of_the_runtime(op: str, direction: str) -> None:
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    inputs = {
        "x": array(4, 3, 5), "w": array(ways, gates * 2, 5, low=-1, high=1),
        "r": array(ways, gates * 2, 2, low=-1, high=1), "b": array(ways, gates * 4),
        "n": np.asarray([2, 4, 3], np.int32), "h": array(ways, 3, 2),
    }  # fmt: skip
    if op == "LSTM":
        inputs |= {"c": array(ways, 3, 2), "p": array(ways, 6)}
    names = {
        "LSTM": ["Sigmoid", "Softsign", "Tanh"],
        "GRU": ["HardSigmoid", "Tanh"],
        "RNN": ["Relu"],
    }
    attributes: dict[str, Any] = {
        "hidden_size": 2,
        "direction": direction,
        "activations": names[op] * ways,
    }
    model = proto(op, inputs, outputs=2, opset=14, **attributes)
    agree(model, inputs, runtime=True)


def test_linear_attention_is_that_of_the_reference() -> None:
    inputs = {
        "q": array(2, 3, 16, low=-1, high=1), "k": array(2, 3, 8, low=-1, high=1),
        "v": array(2, 3, 6), "s": array(2, 2, 4, 3), "d": array(2, 3, 2, high=0),
        "b": array(2, 3, 2, low=0, high=1),
    }  # fmt: skip
    if not onnx.defs.has("LinearAttention"):
        pytest.skip("this onnx has no LinearAttention")
    version = onnx.defs.get_schema("LinearAttention").since_version
    attributes: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "gated_delta"}
    agree(proto("LinearAttention", inputs, outputs=2, opset=version, **attributes), inputs)


def test_training_norms_give_running_statistics() -> None:
    inputs = {
        "x": array(4, 3, 5), "s": array(3), "b": array(3), "m": array(3),
        "v": array(3, low=0.5),
    }  # fmt: skip
    model = proto("BatchNormalization", inputs, outputs=3, opset=15, training_mode=1, momentum=0.7)
    agree(model, inputs)


def test_sequences_of_a_pool_are_counted() -> None:
    inputs = {"x": RNG.integers(0, 4, (3, 9)).astype(np.int32)}
    attributes: dict[str, Any] = {
        "mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 2,
        "ngram_counts": [0, 3], "ngram_indexes": [0, 2, 1, 4, 3],
        "pool_int64s": [0, 1, 3, 1, 2, 3, 0], "weights": [1.0, 2.0, 3.0, 4.0, 5.0],
    }  # fmt: skip
    agree(proto("TfIdfVectorizer", inputs, opset=9, **attributes), inputs)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_whole_images_are_those_of_the_runtime(p: int) -> None:
    inputs = {"x": array(2, 3, 4, 5)}
    agree(proto("GlobalLpPool", inputs, opset=13, p=p), inputs, runtime=True)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (3, 2)])
def test_an_exclusive_sum_begins_with_zero_whatever_comes_first(
    shape: tuple[int, ...], reverse: int
) -> None:
    """Also where the first number is infinite, and where there are none."""
    x = array(*shape)
    x[:1] = np.inf
    inputs = {"x": x, "axis": np.array(0, np.int32)}
    model = proto("CumSum", inputs, known=("axis",), exclusive=1, reverse=reverse)
    (made,), (want,) = found(model, inputs), by_reference(model, inputs)
    np.testing.assert_allclose(made, want, rtol=1e-6)


# ---- every type of a schema, and modes that few files have


def test_a_layer_norm_of_halves_gives_its_statistics_in_f32() -> None:
    """And its result as rounded once: a mean in f16 is off by as much as what is left of 300."""
    x = (300 + array(2, 3, 64)).astype(np.float16)
    inputs = {"x": x, "w": array(64).astype(np.float16), "b": array(64).astype(np.float16)}
    model = proto("LayerNormalization", inputs, outputs=3, opset=17)
    (made, *stats), (want, *known) = found(model, inputs), by_runtime(model, inputs)
    np.testing.assert_allclose(made.astype("f4"), want.astype("f4"), atol=5e-3)
    for a, b in zip(stats, known, strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_norm_of_images_has_statistics_of_another_type() -> None:
    inputs = {n: array(3, low=1) for n in ("scale", "bias", "mean", "var")}
    x = {"x": array(2, 3, 4).astype(np.float64)}
    agree(proto("BatchNormalization", x | inputs), x | inputs)
    half = {"x": x["x"].astype(np.float16)}
    agree(proto("BatchNormalization", half | inputs), half | inputs)


def test_a_norm_of_images_may_have_a_mean_for_each_place() -> None:
    inputs = {"x": array(2, 3, 4), **{n: array(3, 4, low=1) for n in ("w", "b", "mean", "var")}}
    model = proto("BatchNormalization", inputs, opset=8, spatial=0)
    agree(model, inputs, runtime=True)


def test_products_of_integers_with_factors_are_integers() -> None:
    inputs = {n: RNG.integers(-5, 5, s, np.int32) for n, s in {"a": (3, 4), "b": (4, 5)}.items()}
    inputs["c"] = RNG.integers(-5, 5, 5, np.int32)
    agree(proto("Gemm", inputs, alpha=0.5, beta=2.0), inputs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_of_integers_are_rounded_once_for_all_axes(mode: str) -> None:
    inputs = {"x": RNG.integers(0, 255, (1, 2, 5, 6), np.uint8), "_": np.zeros(0, "f4")}
    inputs["scales"] = np.asarray([1, 1, 1.7, 0.6], "f4")
    agree(proto("Resize", inputs, known=("scales",), mode=mode), inputs)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_local_norms_take_one_channel_more_behind(size: int) -> None:
    x = array(1, 5, 3, 3)
    low, high = (size - 1) // 2, size // 2
    model = proto("LRN", {"x": x}, size=size, alpha=1.0, beta=0.75, bias=1.0)
    for c, made in enumerate(found(model, {"x": x})[0][0]):
        near = np.square(x[0, max(0, c - low) : c + high + 1]).sum(0)
        np.testing.assert_allclose(made, x[0, c] / (1 + near / size) ** 0.75, rtol=1e-5)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_windows_have_the_extents_of_the_weights(op: str) -> None:
    inputs = {"x": array(1, 2, 5, 5), "w": array(2, 2, 3, 3)}
    with pytest.raises(ModelError, match=r"kernel_shape \[5, 5\], and weights of shape \(2, 2, 3"):
        found(proto(op, inputs, kernel_shape=[5, 5]), inputs)


# ---- random numbers

X = np.full((40, 50), 0.25, np.float32)
RANDOM: dict[str, tuple[dict[str, Array], dict[str, Any], float, float]] = {
    "Bernoulli": ({"x": X}, {}, 0.25, 0.433),
    "Multinomial": ({"x": np.log(np.asarray([[1, 2, 1]] * 40, "f4"))}, {"sample_size": 50}, 1, 0.7),
    "RandomNormal": ({}, {"shape": [40, 50], "mean": 2.0, "scale": 3.0}, 2, 3),
    "RandomNormalLike": ({"x": X}, {"mean": -1.0, "scale": 0.5}, -1, 0.5),
    "RandomUniform": ({}, {"shape": [40, 50], "low": 1.0, "high": 3.0}, 2, 0.577),
    "RandomUniformLike": ({"x": X}, {"dtype": TensorProto.DOUBLE}, 0.5, 0.289),
}
"""Operands, attributes, and the mean and deviation of what is drawn."""


def drawn(model: Any, *given: Any, **values: Any) -> tuple[list[str], Array]:
    """Names of the inputs, and what a loaded model draws; twice the same of the same inputs."""
    loaded = tg.load(model_of_proto(model, "case", values), store=False, threads=1)
    y = np.asarray(loaded(*given))
    np.testing.assert_array_equal(y, loaded(*given))
    return [i.name for i in loaded.inputs], y


@pytest.mark.parametrize("op", RANDOM)
def test_a_node_with_a_seed_draws_the_same_numbers_in_each_call(op: str) -> None:
    inputs, attributes, mean, deviation = RANDOM[op]
    names, y = drawn(proto(op, inputs, opset=22, seed=3.0, **attributes), *inputs.values())
    assert names == [*inputs]
    assert abs(y.mean() - mean) < 0.15 * deviation
    assert abs(y.std() / deviation - 1) < 0.1
    assert (
        drawn(proto(op, inputs, opset=22, seed=4.0, **attributes), *inputs.values())[1] != y
    ).any()


@pytest.mark.parametrize("op", RANDOM)
def test_a_node_without_a_seed_draws_from_an_input(op: str) -> None:
    inputs, attributes, mean, deviation = RANDOM[op]
    model = proto(op, inputs, opset=22, **attributes)
    names, y = drawn(model, *inputs.values(), np.uint64(1))
    assert names == [*inputs, "draws"]
    assert abs(y.mean() - mean) < 0.15 * deviation
    assert (drawn(model, *inputs.values(), np.uint64(2))[1] != y).any()
    names, fixed = drawn(model, *inputs.values(), draws=7)
    assert names == [*inputs]
    assert (fixed != y).any()


def test_nodes_without_a_seed_draw_other_numbers_each() -> None:
    two = [helper.make_node("RandomNormal", [], [n], shape=[1000]) for n in "ab"]
    nodes = [*two, helper.make_node("Sub", ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    _, y = drawn(model, np.uint64(5))
    assert 1.25 < y.std() < 1.6


@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_dropout_of_training_keeps_a_share_and_its_sum(kind: str) -> None:
    inputs = {"x": np.ones((40, 50), kind), "r": np.asarray(0.25, kind), "t": np.asarray(True)}
    model = proto("Dropout", inputs, ["r", "t"], 2, opset=22, seed=1)
    y, mask = found(model, inputs)
    assert y.dtype == kind
    assert abs(mask.mean() - 0.75) < 0.05
    np.testing.assert_array_equal(y, np.where(mask, np.asarray(1 / 0.75, kind), 0))
    by_input = proto("Dropout", inputs, ["t"], 2, opset=22, seed=1)
    np.testing.assert_array_equal(found(by_input, inputs)[1], mask)
    inputs["t"] = np.asarray(False)
    model = proto("Dropout", inputs, ["r", "t"], 2, opset=22)
    np.testing.assert_array_equal(found(model, inputs)[0], inputs["x"])
