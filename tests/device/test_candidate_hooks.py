"""What the workers do with a candidate: lowering, inputs, references."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tunegrad.compiling import Payload, candidate
from tunegrad.compiling.candidate import inputs, lower, reference, sample_points
from tunegrad.devices import host_device
from tunegrad.errors import CompileFailure, OutOfResources
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32, I32
from tunegrad.ir.expr import Apply, Load, Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Axis, Kernel, Param, Store
from tunegrad.ir.layout import Layout, Part
from tunegrad.opts import Space
from tunegrad.tuning.workload import workload_of_function

HOST = host_device(1)
ONES = {
    shape: np.ones(shape, np.float32)
    for shape in ((6, 5), (5, 7), (1, 3, 9, 8), (4, 3, 3, 3), (4, 12))
}


def kernel_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Kernel:
    (use,) = workload_of_function(function, tuple(ONES[s] for s in shapes)).kernels
    return use.kernel


def matmul() -> Kernel:
    return kernel_of(lambda a, b: (a @ b).relu(), (6, 5), (5, 7))


def conv() -> Kernel:
    return kernel_of(lambda x, w: x.conv2d(w, padding=1, stride=2), (1, 3, 9, 8), (4, 3, 3, 3))


def softmax() -> Kernel:
    return kernel_of(lambda x: x.softmax(-1), (4, 12))


def drawn(kernel: Kernel, seed: int = 0) -> tuple[Payload, dict[str, np.ndarray[Any, Any]]]:
    payload = Payload(kernel, "", HOST)
    return payload, inputs(payload, lower(payload).io, seed)


def blocked() -> Kernel:
    """y = x + x over 10 elements, both stored in blocks of 4: two elements of padding."""
    layout = Layout((10,), (Part(0, 4, 3), Part(0, 1, 4)))
    params = (Param("y", F32, (10,), "out", layout), Param("x", F32, (10,), "in", layout))
    a = Axis("a", 10)
    x = Load("x", (a.index,), F32)
    return Kernel(params, (a,), (Store("y", (a.index,), Apply(Op.ADD, (x, x), F32)),))


def divided() -> Kernel:
    params = tuple(Param.dense(n, I32, (64,), "out" if n == "y" else "in") for n in ("y", "a", "b"))
    i = Axis("i", 64)
    a, b = (Load(n, (i.index,), I32) for n in ("a", "b"))
    return Kernel(params, (i,), (Store("y", (i.index,), Apply(Op.FLOORDIV, (a, b), I32)),))


def test_lowering_is_the_same_after_a_pickle():
    payload = Payload(matmul(), Space(matmul(), HOST.target).defaults()[0].text, HOST)
    assert lower(pickle.loads(pickle.dumps(payload))) == lower(payload)


def test_illegal_action_is_a_compile_failure_that_says_so():
    with pytest.raises(CompileFailure, match=r"^illegal: tile.*no loop 'nothing'"):
        lower(Payload(matmul(), "tile(axis=nothing, size=2)", HOST))


def test_text_that_is_no_action_is_a_compile_failure():
    with pytest.raises(CompileFailure, match=r"^illegal: "):
        lower(Payload(matmul(), "import os", HOST))


def test_enormous_program_is_out_of_resources(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tunegrad.opts.passes.MAX_INSTRUCTIONS", 10)
    with pytest.raises(OutOfResources, match="instructions: at most 10"):
        lower(Payload(matmul(), "", HOST))


@pytest.mark.parametrize("interpreted", [0, 1 << 40])
@pytest.mark.parametrize("make", [matmul, conv, softmax], ids=["matmul", "conv", "softmax"])
def test_compiled_reference_is_the_interpreters(
    make: Callable[[], Kernel], interpreted, monkeypatch
):
    monkeypatch.setattr(candidate, "INTERPRETED_STEPS", interpreted)
    payload, arrays = drawn(make())
    expected = interpret(payload.kernel, arrays, as_float64=True)
    found = reference(payload, arrays)
    assert found.keys() == expected.keys()
    for name, r in found.items():
        assert r.values.dtype == np.float64
        assert not r.fault
        np.testing.assert_allclose(r.values, expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [matmul, conv, softmax], ids=["matmul", "conv", "softmax"])
def test_sampled_reference_is_a_part_of_the_full_one(
    make: Callable[[], Kernel], monkeypatch: pytest.MonkeyPatch
):
    payload, arrays = drawn(make())
    full = reference(payload, arrays)
    monkeypatch.setattr(candidate, "INTERPRETED_STEPS", 0)
    monkeypatch.setattr(candidate, "SAMPLED_WORK", 0)
    for name, r in reference(payload, arrays).items():
        assert r.indices is not None
        np.testing.assert_allclose(r.values, full[name].values[r.indices], rtol=1e-12, atol=1e-12)


def test_a_compiled_reference_has_every_integer_of_the_interpreters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of candidates may tip over behind a sum; in f64 none does."""
    x = Tensor.input("x", (2000, 50), "f32")
    (launch,) = schedule(((x.sum(1) * 3.0).round().cast("i32").node,)).launches
    payload, arrays = drawn(launch.kernel)
    compiled = candidate._compiled

    def one_off(kernel: Kernel, arrays: Any) -> dict[str, Any]:
        found = compiled(kernel, arrays)
        found["p0"][-1] += 1
        return found

    monkeypatch.setattr(candidate, "INTERPRETED_STEPS", 0)
    (right,) = reference(payload, arrays).values()
    monkeypatch.setattr(candidate, "_compiled", one_off)
    (wrong,) = reference(payload, arrays).values()
    assert not right.fault
    assert "element 1999" in wrong.fault


def test_terms_count_every_reduction_that_rounds():
    """Of a softmax: its sum, and not its maximum."""
    payload, arrays = drawn(softmax())
    assert {r.terms for r in reference(payload, arrays).values()} == {12}


def test_padding_is_poison_and_is_not_compared():
    payload, arrays = drawn(blocked())
    assert np.isnan(arrays["x"]).tolist() == [False] * 10 + [True] * 2
    found = reference(payload, arrays)["y"]
    assert found.indices is not None
    assert found.indices.tolist() == list(range(10))
    np.testing.assert_array_equal(found.values, 2.0 * arrays["x"][:10].astype(np.float64))


def test_integers_are_compared_as_integers_and_never_divide_by_zero():
    payload, arrays = drawn(divided())
    assert 0 not in arrays["b"]
    found = reference(payload, arrays)["y"]
    assert found.values.dtype == np.int64
    np.testing.assert_array_equal(found.values, arrays["a"] // arrays["b"])


@pytest.mark.parametrize("count", [64, 1 << 21])
def test_reference_is_undecided_where_single_precision_overflows_on_the_way(count):
    """Of a few elements among many, interpreted and compiled."""
    ones = np.ones(count, np.float32)
    (use,) = workload_of_function(lambda a: a * 4.0 - a * 3.5, (ones,)).kernels
    payload = Payload(use.kernel, "", HOST)
    (name,) = (p.name for p in use.kernel.params if p.role == "in")
    values = np.ones(count, np.float32)
    values[[3, count - 2]] = 1e38, -2e37
    (found,) = reference(payload, {name: values}).values()
    assert found.values[3] == pytest.approx(5e37)
    assert np.flatnonzero(np.isinf(found.bounds)).tolist() == [3]


def test_inputs_of_two_seeds_differ_and_constants_stay():
    weights = np.ones((5, 7), np.float32)
    kernel = kernel_of(lambda a: a @ Tensor(weights), (6, 5))
    (_, first), (_, second), (_, again) = drawn(kernel, 0), drawn(kernel, 1), drawn(kernel, 0)
    by_role = {p.role: p.name for p in kernel.params}
    np.testing.assert_array_equal(first[by_role["in"]], again[by_role["in"]])
    assert not np.array_equal(first[by_role["in"]], second[by_role["in"]])
    np.testing.assert_array_equal(first[by_role["const"]], second[by_role["const"]])


def test_sample_holds_corners_and_every_coordinate():
    kernel = conv()
    points = sample_points(kernel)
    assert {a.name for a in kernel.axes} == points.keys()
    for a in kernel.axes:
        assert set(points[a.name].tolist()) == set(range(a.extent))
    rows = set(zip(*(points[a.name].tolist() for a in kernel.axes), strict=True))
    assert tuple(0 for _ in kernel.axes) in rows
    assert tuple(a.extent - 1 for a in kernel.axes) in rows
