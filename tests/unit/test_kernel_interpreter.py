"""The kernel interpreter, its sampled form, and the float64 reference."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.graph_builders import Array, conv, layer_norm, matmul, relu, softmax, tensor, weight
from tunegrad.errors import InternalError
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, F16, F32, F64
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret import kernel as interpret_kernel
from tunegrad.ir.interpret.evaluate import in_float64
from tunegrad.ir.interpret.kernel import interpret, interpret_at
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.verify.kernel import verify_kernel


def only(out: Node) -> Kernel:
    (launch,) = schedule((out,)).launches
    return launch.kernel


def arrays(k: Kernel, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        p.name: rng.standard_normal(p.size).astype(p.dtype.numpy)
        for p in k.params
        if p.role != "out"
    }


KERNELS = {
    "matmul": matmul(tensor("a", 9, 33), tensor("b", 33, 7)),
    "conv": relu(conv(tensor("x", 1, 3, 8, 8), weight("w", 4, 3, 3, 3), 1, 1)),
    "softmax": softmax(tensor("x", 5, 40)),
    "layer norm": layer_norm(tensor("x", 5, 40)),
}


@pytest.mark.parametrize("out", KERNELS.values(), ids=list(KERNELS))
def test_kernel_interpreted_at_some_points_agrees_with_all_of_them(out: Node) -> None:
    k = only(out)
    ins = arrays(k)
    rng = np.random.default_rng(1)
    points = {a.name: rng.integers(0, a.extent, 11) for a in k.axes}
    full = interpret(k, ins)
    for name, (offsets, values) in interpret_at(k, ins, points).items():
        np.testing.assert_allclose(values, full[name][offsets], rtol=1e-5, atol=1e-6)
        own = sum(s.param == name for s in k.stores)
        assert own == 1
        assert len(offsets) % 11 == 0


@pytest.mark.parametrize("out", KERNELS.values(), ids=list(KERNELS))
def test_kernel_does_not_depend_on_chunks(out: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    k = only(out)
    ins = arrays(k)
    whole = interpret(k, ins)
    monkeypatch.setattr(interpret_kernel, "CHUNK", 10)
    for name, flat in interpret(k, ins).items():
        np.testing.assert_allclose(flat, whole[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("out", KERNELS.values(), ids=list(KERNELS))
def test_kernel_in_float64_is_a_kernel_and_means_the_same(out: Node) -> None:
    k = only(out)
    wide = in_float64(k)
    verify_kernel(wide)
    assert wide.outputs[0].dtype == F64
    assert wide.key != k.key
    ins = arrays(k)
    compiled_way, interpreted_way = interpret(wide, ins), interpret(k, ins, as_float64=True)
    for name, flat in compiled_way.items():
        assert flat.dtype == interpreted_way[name].dtype == np.float64
        np.testing.assert_allclose(flat, interpreted_way[name], rtol=1e-12)
        np.testing.assert_allclose(interpret(k, ins)[name], flat, rtol=1e-3, atol=1e-4)


def test_kernel_in_float64_sees_what_f32_loses() -> None:
    x = np.array([1e8, 1.0, -1e8], np.float32)
    k = only(g.reduce(Op.ADD, tensor("x", 3), (0,)))
    assert interpret(k, {"p1": x})["p0"].tolist() == [0.0]
    assert interpret(k, {"p1": x}, as_float64=True)["p0"].tolist() == [1.0]
    assert interpret(in_float64(k), {"p1": x})["p0"].tolist() == [1.0]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_kernel_in_float64_keeps_roundings_that_the_model_asks_for(dtype: g.DType) -> None:
    x = tensor("x", 1)
    third = np.array([1 / 3], np.float32)
    k = only(g.elementwise(Op.MUL, g.cast(g.cast(x, dtype), F32), g.full(3, (1,), F32)))
    verify_kernel(in_float64(k))
    (got,) = interpret(in_float64(k), {"p1": third})["p0"]
    assert 1e-6 < abs(float(got) - 1.0) < 1e-2


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_kernel_copies_half_floats_unconverted(dtype: g.DType) -> None:
    k = only(g.permute(g.graph_input("x", (2, 3), dtype), (1, 0)))
    assert "f32" not in k.text
    x = np.arange(6).astype(dtype.numpy)
    assert interpret(k, {"p1": x})["p0"].tolist() == x.reshape(2, 3).T.reshape(-1).tolist()


def test_kernel_with_a_wrong_array_is_refused() -> None:
    k = only(relu(tensor("x", 3)))
    with pytest.raises(InternalError, match=r"p1 is float64\(3,\), not flat f32\[3\]"):
        interpret(k, {"p1": np.zeros(3)})


def test_kernel_points_must_name_its_axes() -> None:
    k = only(relu(tensor("x", 3)))
    with pytest.raises(InternalError, match=r"points need one array per axis \['a'\], got \['b'\]"):
        interpret_at(k, arrays(k), {"b": np.zeros(1, np.int64)})


def test_kernel_survives_pickling() -> None:
    for out in KERNELS.values():
        plan = schedule((out,))
        again = pickle.loads(pickle.dumps(plan))
        assert str(again) == str(plan)
        assert again.launches[0].kernel.key == plan.launches[0].kernel.key
        again.verify()


def test_kernel_names_do_not_run_out() -> None:
    x = tensor("x", *(2 for _ in range(19)))
    k = only(g.permute(x, tuple(reversed(range(19)))))
    verify_kernel(k)
    assert len(k.axes) == len({a.name for a in k.axes}) == 19


def test_an_infinity_meets_each_term_before_they_are_added_up():
    """A sum of what it does not depend on is an infinity, times each sign it is NaN."""
    x, w = tensor("x", 8, 4), tensor("w", 4)
    spread = g.expand(g.reshape(w, (1, 4)), (8, 4))
    k = only(g.reduce(Op.ADD, g.elementwise(Op.MUL, x, spread), (0,)))
    given = {p.name: np.ones(p.size, np.float32) for p in k.params if p.role != "out"}
    (two,) = (n for n, a in given.items() if a.size == 32)
    (one,) = (n for n, a in given.items() if a.size == 4)
    given[two][4:12] = -2.0
    given[one][:] = [np.inf, 1.0, -np.inf, 2.0]
    given[two].reshape(8, 4)[:, 2] = 0.5
    (out,) = (p.name for p in k.params if p.role == "out")
    with np.errstate(invalid="ignore"):
        narrow, wide = interpret(k, given)[out], interpret(k, given, as_float64=True)[out]
    np.testing.assert_array_equal(wide.reshape(-1), [np.nan, 2.0, -np.inf, 4.0])
    np.testing.assert_array_equal(narrow.reshape(-1), wide.reshape(-1))
