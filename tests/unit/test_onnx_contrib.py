"""Operators of com.microsoft: what ONNX Runtime's optimiser writes, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnx import helper, numpy_helper, parser  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.errors import ModelError  # noqa: E402
from tunegrad.frontend.onnx import OPERATORS  # noqa: E402
from tunegrad.frontend.onnx.building import operator_of  # noqa: E402
from tunegrad.frontend.onnx.importer import model_of_proto  # noqa: E402

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def one(value: float, kind: Any = np.float32) -> Array:
    return np.asarray(value, kind)


def run(proto: Any, given: Mapping[str, Array]) -> list[Array]:
    loaded = tg.load(model_of_proto(proto, "m"), store=False, threads=1)
    made = loaded(*(given[i.name] for i in loaded.inputs))
    return list(made) if isinstance(made, tuple) else [made]


def by_runtime(proto: Any, given: Mapping[str, Array]) -> list[Array]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(given)))


def agree(proto: Any, given: Mapping[str, Array], steps: int = 0) -> None:
    """Equal within rounding, or within so many steps of a quantised result."""
    for a, b in zip(run(proto, given), by_runtime(proto, given), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind in "iu":
            assert np.abs(a.astype(int) - b.astype(int)).max() <= steps
        else:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def node(op: str, inputs: Mapping[str, Array], outputs: int, **attributes: Any) -> Any:
    """A model of one node; what begins with ``w`` is constant, with ``_`` left out."""
    names = ["" if n.startswith("_") else n for n in inputs]
    held = {n: a for n, a in inputs.items() if not n.startswith("_")}
    made = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="it",
                            domain="com.microsoft", **attributes)  # fmt: skip
    graph = helper.make_graph(
        [made], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in held.items() if not n.startswith("w")],
        [helper.make_empty_tensor_value_info(o) for o in made.output],
        [numpy_helper.from_array(a, n) for n, a in held.items() if n.startswith("w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture(autouse=True)
def _drawn_anew() -> None:
    """A test draws the same numbers, whatever runs before it."""
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


X = {"x": floats(2, 4, 8)}
QUANTISED = {"x": u8(2, 3, 6, 6), "ws": one(0.1), "wz": one(120, np.uint8)}
OUT = {"wt": one(0.05), "wu": one(3, np.uint8)}
PAIR = {"x": u8(3, 4), "ws": one(0.1), "wz": one(100, np.uint8), "b": u8(4), "wt": one(0.2),
        "wu": one(7, np.uint8), "wr": one(0.25), "wv": one(128, np.uint8)}  # fmt: skip
HEADS = {"x": floats(2, 5, 8), "w": floats(8, 24), "wb": floats(24)}
CASES: dict[str, tuple[str, dict[str, Array], int, dict[str, Any]]] = {
    "FusedConv": ("FusedConv", {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 3, 3), "wb": floats(4),
                  "z": floats(1, 4, 6, 6)}, 1, {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "FusedConv, leaky": ("FusedConv", {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 1, 1)}, 1,
                         {"activation": "LeakyRelu", "activation_params": [0.3]}),
    "FusedConv, clip": ("FusedConv", {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 1, 1)}, 1,
                        {"activation": "Clip", "activation_params": [-0.5, 0.7]}),
    "FusedConv, hard": ("FusedConv", {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 1, 1)}, 1,
                        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    "FusedGemm": ("FusedGemm", {"x": floats(3, 4), "w": floats(5, 4), "wc": floats(5)}, 1,
                  {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.2}),
    "FusedMatMul": ("FusedMatMul", {"x": floats(2, 4, 3), "b": floats(2, 5, 4)}, 1,
                    {"transA": 1, "transB": 1, "alpha": 0.3}),
    "FusedMatMul, batch": ("FusedMatMul", {"x": floats(4, 2, 3), "b": floats(2, 3, 5)}, 1,
                           {"transBatchA": 1}),
    **{  # what the quantiser writes of 16 bits, before opset 21
        f"QuantizeLinear, {kind.__name__}": ("QuantizeLinear", {"x": floats(3, 4), "ws": one(0.01),
                                             "wz": one(9, kind)}, 1, {})
        for kind in (np.int16, np.uint16, np.uint8)
    },
    "DequantizeLinear": ("DequantizeLinear", {"x": u8(3, 4).astype(np.uint16), "ws": floats(4),
                         "wz": np.arange(4, dtype=np.uint16)}, 1, {"axis": 1}),
    "Gelu": ("Gelu", X, 1, {}),
    "BiasGelu": ("BiasGelu", {**X, "b": floats(8)}, 1, {}),
    "FastGelu": ("FastGelu", {**X, "b": floats(8)}, 1, {}),
    "QuickGelu": ("QuickGelu", X, 1, {"alpha": 1.702}),
    "SkipLayerNormalization": ("SkipLayerNormalization",
                               {**X, "s": floats(2, 4, 8), "wg": floats(8), "wb": floats(8),
                                "wc": floats(8)}, 1, {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization",
                                         {**X, "s": floats(2, 4, 8), "wg": floats(8)}, 1,
                                         {"epsilon": 1e-5}),
    "EmbedLayerNormalization": ("EmbedLayerNormalization",
                                {"ids": RNG.integers(0, 9, (2, 5)).astype(np.int32),
                                 "seg": RNG.integers(0, 2, (2, 5)).astype(np.int32),
                                 "w": floats(9, 8), "wp": floats(7, 8), "ws": floats(2, 8),
                                 "wg": floats(8), "wb": floats(8),
                                 "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)},
                                2, {"epsilon": 1e-5}),
    "Attention": ("Attention", HEADS, 1, {"num_heads": 2}),
    "Attention, causal": ("Attention", HEADS, 1, {"num_heads": 2, "unidirectional": 1}),
    "Attention, mask": ("Attention", {**HEADS, "m": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)},
                        1, {"num_heads": 2}),
    "Attention, lengths": ("Attention", {**HEADS, "m": np.array([3, 5], np.int32)}, 1,
                           {"num_heads": 4, "scale": 0.25}),
    "Attention, sizes": ("Attention", {"x": floats(2, 5, 8), "w": floats(8, 20), "wb": floats(20)},
                         1, {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}),
    "MultiHeadAttention": ("MultiHeadAttention",
                           {"q": floats(2, 3, 8), "k": floats(2, 5, 8), "v": floats(2, 5, 8),
                            "wb": floats(24)}, 1, {"num_heads": 2}),
    "QLinearAdd": ("QLinearAdd", PAIR, 1, {}),
    "QLinearMul": ("QLinearMul", PAIR, 1, {}),
    "QLinearSigmoid": ("QLinearSigmoid", {**QUANTISED, **OUT}, 1, {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", {**QUANTISED, **OUT}, 1, {"alpha": 0.2}),
    "QLinearAveragePool": ("QLinearAveragePool", {**QUANTISED, **OUT}, 1,
                           {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}),
    "QLinearAveragePool, last": ("QLinearAveragePool", {**QUANTISED, **OUT}, 1,
                                 {"kernel_shape": [2, 2], "channels_last": 1}),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", {**QUANTISED, **OUT}, 1, {}),
    "QLinearSoftmax": ("QLinearSoftmax", {**QUANTISED, "wt": one(1 / 256),
                                          "wu": one(0, np.uint8)}, 1, {"axis": -1, "opset": 13}),
    "QLinearConcat": ("QLinearConcat", {"wt": one(0.2), "wu": one(3, np.uint8), "x": u8(2, 3),
                                        "ws": one(0.1), "wz": one(9, np.uint8), "b": u8(2, 4),
                                        "wr": one(0.3), "wv": one(99, np.uint8)}, 1, {"axis": 1}),
    "QLinearWhere": ("QLinearWhere", {"c": RNG.integers(0, 2, (3, 4)).astype(bool), **PAIR}, 1, {}),
    "QLinearConv": ("QLinearConv", {"x": u8(1, 5, 5, 4), "ws": one(0.02), "wz": one(99, np.uint8),
                                    "w": i8(6, 4, 3, 3), "wt": np.full(6, 0.01, np.float32),
                                    "wu": np.zeros(6, np.int8), "wr": one(0.5),
                                    "wv": one(120, np.uint8)}, 1, {"channels_last": 1}),
    "NhwcMaxPool": ("NhwcMaxPool", {"x": u8(1, 6, 6, 4)}, 1,
                    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "QGemm": ("QGemm", {"x": u8(3, 8), "ws": one(0.02), "wz": one(99, np.uint8), "w": i8(4, 8),
                        "wt": np.full(4, 0.03, np.float32), "wu": np.zeros(4, np.int8),
                        "wc": RNG.integers(-99, 99, 4).astype(np.int32), "wr": one(0.2),
                        "wv": one(128, np.uint8)}, 1, {"transB": 1}),
    "MatMulIntegerToFloat": ("MatMulIntegerToFloat",
                             {"x": u8(3, 8), "w": i8(8, 4), "ws": one(0.1),
                              "wt": np.full(4, 0.02, np.float32), "wz": one(100, np.uint8),
                              "wu": np.full(4, 3, np.int8), "wb": floats(4)}, 1, {}),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul",
                              {"x": floats(3, 8), "w": i8(8, 4), "wt": np.full(4, 0.02, "f4"),
                               "wu": np.zeros(4, np.int8), "wb": floats(4)}, 1, {}),
    "DynamicQuantizeLSTM": ("DynamicQuantizeLSTM",
                            {"x": floats(4, 1, 3), "w": i8(1, 3, 20), "wr": i8(1, 5, 20),
                             "wb": floats(1, 40), "_l": one(0), "_h": one(0), "_c": one(0),
                             "_p": one(0), "ws": np.full(1, 0.01, "f4"),
                             "wz": np.zeros(1, np.int8), "wt": np.full(1, 0.02, "f4"),
                             "wu": np.zeros(1, np.int8)}, 3, {"hidden_size": 5}),
    "QAttention": ("QAttention", {"x": u8(2, 5, 8), "w": i8(8, 24), "wb": floats(24),
                                  "ws": one(0.02), "wt": one(0.01), "m": np.array([3, 5], "i4"),
                                  "wz": one(128, np.uint8), "wu": one(0, np.int8)}, 1,
                   {"num_heads": 2}),
    "MatMulNBits": ("MatMulNBits", {"x": floats(3, 40), "w": u8(6, 3, 8), "ws": floats(18)}, 1,
                    {"bits": 4, "block_size": 16, "K": 40, "N": 6}),
    "MatMulNBits, zero points": ("MatMulNBits",
                                 {"x": floats(3, 32), "w": u8(6, 2, 8), "ws": floats(12),
                                  "wz": u8(6)}, 1, {"bits": 4, "block_size": 16, "K": 32, "N": 6}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_operator_gives_what_onnx_runtime_gives(case: str) -> None:
    op, inputs, outputs, attributes = CASES[case]
    proto = node(op, inputs, outputs, **attributes)
    given = {n: a for n, a in inputs.items() if n[0] not in "w_"}
    agree(proto, given, steps=1 if op.startswith(("Q", "Nhwc")) else 0)


def test_every_operator_of_the_domain_has_a_case() -> None:
    there = {op.removeprefix("com.microsoft.") for op in OPERATORS if "." in op}
    # on a CPU it has no kernel of theirs, or only another name of it
    assert there - {op for op, *_ in CASES.values()} == {
        "BiasSoftmax",
        "NhwcFusedConv",
        "TransposeMatMul",
    }


# ---- files that the optimiser wrote

NORM_OPERANDS = "<float[8] g, float[8] b, float two = {2.0}, float e = {0.00001}>"
NORM = """m = ReduceMean <axes = [-1]> ({x})
        d = Sub ({x}, m)
        q = Pow (d, two)
        v = ReduceMean <axes = [-1]> (q)
        w = Add (v, e)
        s = Sqrt (w)
        n = Div (d, s)
        k = Mul (n, g)
        y = Add (k, b)"""
GRAPHS = {
    "FusedConv": """agraph (float[1,3,8,8] x) => (float[1,4,8,8] y)
        <float[4,3,3,3] w, float[4] b> {
        c = Conv <pads = [1,1,1,1]> (x, w, b)
        y = Relu (c)
    }""",
    "FusedMatMul": """agraph (float[2,4,3] x, float[2,4,5] z) => (float[2,3,5] y)
        <float s = {0.5}> {
        t = Transpose <perm = [0,2,1]> (x)
        m = MatMul (t, z)
        y = Mul (m, s)
    }""",
    "FusedGemm": """agraph (float[3,4] x) => (float[3,5] y) <float[4,5] w, float[5] b> {
        g = Gemm (x, w, b)
        y = Relu (g)
    }""",
    "BiasGelu": """agraph (float[2,8] x) => (float[2,8] y)
        <float[8] b, float r = {1.4142135}, float one = {1.0}, float h = {0.5}> {
        a = Add (x, b)
        d = Div (a, r)
        e = Erf (d)
        p = Add (e, one)
        m = Mul (a, p)
        y = Mul (m, h)
    }""",
    "SkipLayerNormalization": f"""agraph (float[2,4,8] x, float[2,4,8] z) => (float[2,4,8] y)
        {NORM_OPERANDS} {{
        a = Add (x, z)
        {NORM.format(x="a")}
    }}""",
    "LayerNormalization": f"""agraph (float[2,4,8] x) => (float[2,4,8] y)
        {NORM_OPERANDS} {{
        {NORM.format(x="x")}
    }}""",
    "SimplifiedLayerNormalization": """agraph (float[2,4,8] x) => (float[2,4,8] y)
        <float[8] g, float two = {2.0}, float e = {0.00001}> {
        q = Pow (x, two)
        v = ReduceMean <axes = [-1]> (q)
        w = Add (v, e)
        s = Sqrt (w)
        n = Div (x, s)
        y = Mul (n, g)
    }""",
    "QuickGelu": """agraph (float[2,8] x) => (float[2,8] y) <float a = {1.702}> {
        m = Mul (x, a)
        s = Sigmoid (m)
        y = Mul (x, s)
    }""",
    "DynamicQuantizeMatMul": """agraph (float[2,8] x) => (float[2,4] y)
        <int8[8,4] w, float s = {0.02}, int8 z = {0}> {
        q, d, p = DynamicQuantizeLinear (x)
        m = MatMulInteger (q, w, p, z)
        f = Cast <to = 1> (m)
        k = Mul (d, s)
        y = Mul (f, k)
    }""",
    "QLinearConv and QLinearAdd": """agraph (float[1,3,8,8] x) => (float[1,3,8,8] y)
        <int8[3,3,3,3] w, float s = {0.02}, uint8 z = {120}, int8 o = {0}> {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        k = DequantizeLinear (w, s, o)
        c = Conv <pads = [1,1,1,1]> (d, k)
        r = QuantizeLinear (c, s, z)
        e = DequantizeLinear (r, s, z)
        a = Add (e, d)
        t = QuantizeLinear (a, s, z)
        y = DequantizeLinear (t, s, z)
    }""",
}


def optimised(proto: Any, path: Path, level: str = "ORT_ENABLE_EXTENDED") -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


def graph(text: str, opset: int = 13) -> Any:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    made = {o for n in proto.graph.node for o in n.output}
    for said in [v for v in proto.graph.value_info if v.name not in made]:
        kind = said.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        drawn = floats(*shape) if kind.elem_type == onnx.TensorProto.FLOAT else i8(*shape)
        proto.graph.initializer.append(numpy_helper.from_array(drawn, said.name))
        proto.graph.value_info.remove(said)
    return proto


@pytest.mark.parametrize("case", GRAPHS)
def test_a_file_that_the_optimiser_wrote_is_the_graph_that_it_was(
    case: str, tmp_path: Path
) -> None:
    proto = graph(GRAPHS[case])
    made = optimised(proto, tmp_path / "m.onnx")
    written = {operator_of(n).removeprefix("com.microsoft.") for n in made.graph.node}
    assert set(case.split(" and ")) <= written
    given = {
        i.name: floats(*(d.dim_value for d in i.type.tensor_type.shape.dim))
        for i in proto.graph.input
    }
    for a, b in zip(run(made, given), by_runtime(proto, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=0.021 if "QLinear" in case else 2e-5)


def exported(path: Path) -> tuple[Any, Array]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    torch.manual_seed(0)

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
            self.first, self.last = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
            self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                p.reshape(*x.shape[:2], 2, 8).transpose(1, 2) for p in self.mix(x).chunk(3, -1)
            )
            y = ((q @ k.transpose(-1, -2)) / 8**0.5).softmax(-1) @ v
            x = self.first(x + self.out(y.transpose(1, 2).reshape(x.shape)))
            return self.last(x + self.down(torch.nn.functional.gelu(self.up(x))))

    x = torch.randn(2, 6, 16)
    torch.onnx.export(Block().eval(), (x,), str(path), dynamo=True, verbose=False)
    return onnx.load(path), x.numpy()


def test_a_block_of_torch_that_the_optimiser_wrote_gives_what_it_gave(tmp_path: Path) -> None:
    proto, x = exported(tmp_path / "block.onnx")
    made = optimised(proto, tmp_path / "m.onnx")
    assert any(n.domain == "com.microsoft" for n in made.graph.node)
    given = {proto.graph.input[0].name: x}
    for a, b in zip(run(made, given), by_runtime(proto, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_another_domain_is_refused_by_its_name() -> None:
    proto = graph(GRAPHS["FusedConv"])
    proto.graph.node[0].domain = "com.microsoft.nchwc"
    proto.opset_import.add(domain="com.microsoft.nchwc", version=1)
    with pytest.raises(ModelError, match=r"operators are not supported: com.microsoft.nchwc.Conv"):
        model_of_proto(proto, "m")


def test_an_activation_that_is_not_there_is_refused_by_its_name() -> None:
    inputs: Mapping[str, Array] = {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 1, 1)}
    proto = node("FusedConv", inputs, 1, activation="Cosine")
    with pytest.raises(ModelError, match=r"FusedConv\): activation Cosine is not supported"):
        tg.load(model_of_proto(proto, "m"), store=False)


def test_a_cache_of_keys_and_values_of_two_widths_is_refused() -> None:
    inputs: Mapping[str, Array] = {"x": floats(2, 5, 8), "w": floats(8, 20), "wb": floats(20)}
    proto = node("Attention", inputs, 2, num_heads=2, qkv_hidden_sizes=[8, 8, 4])
    with pytest.raises(ModelError, match=r"node it \(Attention\): a cache .* of two widths"):
        tg.load(model_of_proto(proto, "m"), store=False)
