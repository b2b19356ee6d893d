"""Gradients of graph nodes, against central differences in f64."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.gradients import checked
from tunegrad.errors import ConfigError, DTypeError, ModelError, ShapeError
from tunegrad.frontend.nodes.tracing import without_identities
from tunegrad.ir import graph
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp

F = tg.nn.functional
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise": (lambda a, b: (a * b - a / (b.abs() + 1)).tanh() * a.exp(), ((3, 4), (4,))),
    "functions": (lambda a: (a.sin() * a.cos()).erf() + (a.abs() + 1).log().sqrt(), ((7,),)),
    "log2, reciprocal, power": (lambda a: (a.abs() + 2).log2().reciprocal() ** 2.5, ((5,),)),
    "base and exponent": (lambda a, b: (a.abs() + 0.5) ** b, ((2, 3), (3,))),
    "remainder": (lambda a: a % 0.7, ((9,),)),
    "where": (lambda a, b: tg.where(a > 0, a * b, b), ((3, 4), (3, 1))),
    "folds": (lambda a: a.sum(0) * a.amax(0) - a.amin((0, 1)) + a.prod(1).sum(), ((3, 4),)),
    "movement": (lambda a: a.permute(1, 0).reshape(2, 6)[:, 1:5].flip(1) * 2, ((3, 4),)),
    "pad and cut": (lambda a: F.pad(a, (1, 2, 0, 1)) ** 2, ((3, 4),)),
    "product": (lambda a, b: a @ b, ((2, 3, 4), (4, 5))),
    "own product": (lambda a: a @ a.mT, ((4, 3),)),
    "gathered rows": (lambda a: a[np.array([0, 2, 2, -1])] * 2, ((4, 3),)),
    "gathered": (lambda a: a.gather(1, np.array([[0, 1, 1], [3, 3, 3]])), ((2, 4),)),
    "one place": (lambda a: a.gather(1, np.array([[2], [-1]])), ((2, 4),)),
    "no elements": (lambda a: a.sum(1) * a.sum(), ((3, 0),)),
    "scalar": (lambda a: a * a.exp(), ((),)),
}
WINDOWS = {
    "overlapping": (5, 3, 1, 1), "strided": (9, 3, 2, 1), "dilated": (9, 3, 1, 2),
    "strided and dilated": (14, 3, 2, 2), "beside each other": (7, 2, 2, 1), "apart": (9, 2, 4, 1),
    "apart and dilated": (12, 2, 5, 2), "one": (5, 4, 1, 1), "single taps": (7, 1, 3, 1),
    "coprime": (17, 3, 3, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_central_differences(name: str) -> None:
    function, shapes = CASES[name]
    checked(function, shapes, second=True)


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_of_windows_are_central_differences(name: str) -> None:
    extent, size, stride, dilation = WINDOWS[name]
    checked(lambda a: a.window(1, size, stride, dilation) ** 2, ((2, extent, 2),), second=True)
    weight = np.arange(1.0, size + 1)
    checked(lambda a: (a.window(1, size, stride, dilation) * weight).sum(-1), ((2, extent, 2),))
    checked(lambda a, w: (a.window(0, size, stride, dilation) * w).sum(-1), ((extent,), (size,)))


@pytest.mark.parametrize(
    "how",
    [
        {}, {"stride": 2}, {"padding": 1}, {"stride": 2, "padding": 1, "dilation": 2},
        {"groups": 2, "padding": 1}, {"stride": 3}, {"groups": 4, "stride": 2},
    ],
    ids=str,
)  # fmt: skip
def test_gradients_of_convolutions_are_central_differences(how: dict[str, int]) -> None:
    weight = (4, 4 // how.get("groups", 1), 3, 2)
    checked(lambda a, w: tg.conv2d(a, w, None, **how), ((2, 4, 6, 7), weight))
    turned = (4, 2 // how.get("groups", 1) or 1, 3, 2)
    checked(lambda a, w: tg.conv_transpose2d(a, w, None, **how), ((1, 4, 3, 4), turned))


def _kernels(*tensors: tg.Tensor) -> int:
    return len(_stored(*tensors))


def _stored(*tensors: tg.Tensor) -> list[int]:
    """Elements of what each kernel writes."""
    launches = schedule(fold_constants(tuple(t.node for t in tensors))).launches
    return [x.kernel.outputs[0].size for x in launches]


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_convolution_are_one_product_each(stride: int) -> None:
    """Behind a stride, weights are stored tap by tap first."""
    x, w = tg.Tensor.input("x", (2, 4, 8, 8)), tg.Tensor.input("w", (6, 4, 3, 3))
    c = tg.Tensor.input("c", (2, 6, 8 // stride, 8 // stride))
    loss = lambda x, w: (tg.conv2d(x, w, stride=stride, padding=1) * c).sum()  # noqa: E731
    dx, dw = tg.grad(loss, (0, 1))(x, w)
    assert (_kernels(dx), _kernels(dw)) == (stride, 1)
    folds = [n for n in graph.topological((dx.node,)) if n.op is GraphOp.REDUCE]
    assert len(folds) == 1  # over channels and taps at once


def test_gradients_of_pooling_store_one_place_for_each_window() -> None:
    x, c = tg.Tensor.input("x", (2, 4, 8, 8)), tg.Tensor.input("c", (2, 4, 4, 4))
    slope = tg.grad(lambda x: (F.max_pool2d(x, 3, 2, 1) * c).sum())(x)
    assert _stored(slope) == [2 * 4 * 4 * 4, 2 * 4 * 8 * 8]


def test_gradients_of_a_product_are_products() -> None:
    a, w, c = (tg.Tensor.input(n, s) for n, s in (("a", (8, 6)), ("w", (5, 6)), ("c", (8, 5))))
    da, dw = tg.grad(lambda a, w: (F.linear(a, w) * c).sum(), (0, 1))(a, w)
    assert (_kernels(da), _kernels(dw)) == (1, 1)


def test_gradients_of_the_same_tensor_twice_are_partial() -> None:
    x = tg.Tensor(np.array([2.0, 3.0], np.float32))
    first, second = tg.grad(lambda a, b: (a * a * b).sum(), (0, 1))(x, x)
    assert first.tolist() == [8, 18]
    assert second.tolist() == [4, 9]


def test_gradients_leave_an_equal_graph_of_a_closure_alone() -> None:
    a = tg.Tensor(np.array([2.0, 3.0], np.float32))
    found = tg.grad(lambda y: (y * (a * a)).sum())(a * a)
    assert found.tolist() == [4, 9]


def test_gradients_have_the_structure_of_their_arguments() -> None:
    params = {"w": np.ones((2, 3), np.float32), "b": [np.zeros(3, np.float32)]}
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    value, found = tg.value_and_grad(lambda p, x: (x @ p["w"] + p["b"][0]).sum())(params, x)
    assert value.item() == 18
    assert found["w"].tolist() == [[2, 2, 2], [4, 4, 4]]
    assert found["b"][0].tolist() == [2, 2, 2]


def test_arrays_beside_the_argument_are_tensors_in_the_function() -> None:
    x, w = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)

    def loss(w: tg.Tensor, batch: dict[str, Any]) -> tg.Tensor:
        return tg.nn.functional.linear(batch["x"], w).sum()

    np.testing.assert_array_equal(tg.grad(loss)(w, {"x": x}).numpy(), np.full((4, 3), 2.0))
    np.testing.assert_array_equal(tg.grad(loss)(w, batch={"x": x}).numpy(), np.full((4, 3), 2.0))
    whole = tg.grad(lambda p: p["x"].relu().sum() * p["w"].sum(), wrt="w")({"x": x, "w": w})
    np.testing.assert_array_equal(whole["w"].numpy(), np.full((4, 3), 6.0))


def test_a_process_may_begin_with_a_gradient() -> None:
    code = "import numpy, tunegrad; print(tunegrad.grad(lambda x: (x * x).sum())(numpy.ones(2)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Tensor" in done.stdout, done.stderr


def test_what_holds_no_arrays_beside_the_argument_is_handed_on_as_it_is() -> None:
    """Masks, too: what a tensor of truths chooses has no shape that is known."""
    w, seen = np.arange(4, dtype=np.float32), list[str]()

    def loss(w: tg.Tensor, mask: Any, seen: list[str]) -> tg.Tensor:
        seen.append("here")
        return (w[mask] ** 2).sum()

    mask = np.array([True, False, True, False])
    np.testing.assert_array_equal(tg.grad(loss)(w, mask, seen).numpy(), [0.0, 0.0, 4.0, 0.0])
    assert seen == ["here"]


def test_gradients_come_beside_what_else_a_function_gives() -> None:
    x = np.array([1.0, 2.0], np.float32)
    found, double = tg.grad(lambda x: ((x * x).sum(), x * 2), has_aux=True)(x)
    assert (found.tolist(), double.tolist()) == ([2, 4], [2, 4])


def test_gradients_stop_at_what_is_detached_and_what_is_made_without() -> None:
    def loss(x: tg.Tensor) -> tg.Tensor:
        with tg.no_grad():
            scale = x * 3
        return (x * x.detach() + x * scale).sum()

    assert tg.grad(loss)(np.array([1.0, 2.0], np.float32)).tolist() == [4, 8]


def test_gradients_stop_at_integers() -> None:
    x = np.array([1.5, 2.5], np.float32)
    assert tg.grad(lambda x: (x * x.cast("i32").cast("f32")).sum())(x).tolist() == [1, 2]


def test_gradients_of_unused_arguments_are_zero_or_none() -> None:
    x = np.array([1.5, 2.5], np.float32)
    assert tg.grad(lambda a, b: b.sum(), 0)(x, tg.Tensor(x)).tolist() == [0, 0]
    unused, level, used = tg.grad(
        lambda a, b, c: (a.detach() + (b.floor() + b.sign()) * 2 + c).sum(),
        (0, 1, 2),
        allow_unused=True,
    )(x, x, x)
    assert unused is None
    assert (level.tolist(), used.tolist()) == ([0, 0], [1, 1])


def test_gradients_are_compiled_with_their_function() -> None:
    x, w = np.ones((2, 3), np.float32), np.full((3,), 2, np.float32)
    step = tg.compile(
        lambda x, w: (w - 0.5 * tg.grad(lambda w: ((x * w).sum(1) ** 2).mean())(w),), x, w
    )
    assert np.asarray(step(x, w)).tolist() == [-4, -4, -4]


def test_gradients_are_of_the_parameters_that_are_named() -> None:
    x = np.array([1.0, 2.0], np.float32)
    parameters = {"head.w": x, "body.w": 3 * x, "count": np.ones(1, np.int64)}

    def loss(p: dict[str, tg.Tensor]) -> tg.Tensor:
        return (tg.Tensor(p["head.w"]) * tg.Tensor(p["body.w"])).sum()

    for wrt in (["body.w"], lambda name: name.startswith("body.")):
        value, found = tg.value_and_grad(loss, wrt=wrt)(parameters)
        assert (float(value), {n: g.tolist() for n, g in found.items()}) == (15, {"body.w": [1, 2]})
    with pytest.raises(ConfigError, match=r"wrt names 'tail'; argument 0 has head\.w, body"):
        tg.grad(loss, wrt=["tail"])(parameters)
    with pytest.raises(ConfigError, match="argument 0 is ndarray"):
        tg.grad(lambda x: x.sum(), wrt=["x"])(x)


def test_gradients_take_a_rule_of_the_users_own_and_no_equal_graph_does() -> None:
    def rule(cotangent: tg.Tensor, result: tg.Tensor, x: tg.Tensor, by: float) -> tg.Tensor:
        assert result.shape == x.shape
        return cotangent * by * 10

    @tg.custom_vjp(rule)
    def scaled(x: tg.Tensor, by: float) -> tg.Tensor:
        return x * by

    x = np.array([1.0, 2.0], np.float32)
    assert tg.grad(lambda x: (scaled(x, 3.0) + x * 3.0).sum())(x).tolist() == [33, 33]
    assert scaled(tg.Tensor(x), 3.0).tolist() == [3, 6]


def test_gradients_leave_no_mark_in_a_graph() -> None:
    x = tg.Tensor(np.ones(3, np.float32))
    value, found = tg.value_and_grad(lambda x: (x.detach() * x).sum())(x)
    nodes = graph.topological((value.node, found.node))
    assert all(n.op is not GraphOp.IDENTITY for n in nodes)
    assert value.node is (x * x).sum().node
    assert without_identities((value.node,)) == (value.node,)


def test_gradients_refuse_what_has_none() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(DTypeError, match="argument 0 is i64"):
        tg.grad(lambda x: x.sum())(np.ones(3, np.int64))
    with pytest.raises(ShapeError, match="must give a float of shape"):
        tg.grad(lambda x: x * 2)(x)
    with pytest.raises(ShapeError, match="argnums 1 of 1"):
        tg.grad(lambda x: x.sum(), 1)(x)
    with pytest.raises(ShapeError, match=r"argnums \(0, -2\) name an argument twice"):
        tg.grad(lambda x, y: (x * y).sum(), (0, -2))(x, x)
    with pytest.raises(ModelError, match=r"use detach"):
        tg.grad(lambda x: (x * x.numpy()).sum())(x)


def test_gradients_let_a_function_look_at_numbers() -> None:
    x = np.array([1.0, 2.0], np.float32)
    found = tg.grad(lambda x: (x * 2).sum() if x.sum().item() > 2 else x.sum())(x)
    assert found.tolist() == [2, 2]
    assert tg.grad(lambda x: (x * 2).sum() if x.sum() > 2 else x.sum())(x).tolist() == [2, 2]
    assert tg.grad(lambda x: x[int(x.argmax())])(x).tolist() == [0, 1]
    assert tg.grad(lambda x: (x * (x > 1).numpy()).sum())(x).tolist() == [0, 1]


def test_gradients_of_a_gradient_made_without_are_constants() -> None:
    def loss(x: tg.Tensor) -> tg.Tensor:
        with tg.no_grad():
            (value, aux), slope = tg.value_and_grad(lambda y: ((y**3).sum(), y), has_aux=True)(x)
        return value * x.sum() + (aux * x).sum() + (slope * x).sum()

    x = np.array([1.0, 2.0])  # value 9, slope 3 x^2
    assert tg.grad(loss)(x).tolist() == [9 + 1 + 3, 9 + 2 + 12]


def test_rules_of_the_users_own_refuse_tensors_whose_gradient_would_be_lost() -> None:
    def rule(cotangent: tg.Tensor, *_: Any) -> tg.Tensor:
        return cotangent

    @tg.custom_vjp(rule)
    def first(xs: list[tg.Tensor]) -> tg.Tensor:
        return xs[0] * 2

    @tg.custom_vjp(rule)
    def pair(x: tg.Tensor) -> Any:
        return x, x

    def closure(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
        @tg.custom_vjp(rule)
        def scaled(x: tg.Tensor) -> tg.Tensor:
            return x * w

        return scaled(x).sum()

    x = np.ones(3)
    with pytest.raises(ModelError, match="custom_vjp: first reads a tensor that is differentiated"):
        tg.grad(lambda x: first([x]).sum())(x)
    with pytest.raises(ModelError, match="custom_vjp: scaled reads"):
        tg.grad(closure, (0, 1))(x, x)
    with pytest.raises(ShapeError, match="custom_vjp: pair gives tuple"):
        tg.grad(lambda x: pair(x)[0].sum())(x)
    assert tg.grad(closure)(x, tg.Tensor(x)).tolist() == [1, 1, 1]
    assert tg.grad(lambda x: closure(x, x.detach()))(x).tolist() == [1, 1, 1]


def test_rules_of_functions_hold_for_arguments_whose_last_movement_joins_another() -> None:
    x = np.array([[1.0], [2.0]])
    assert tg.grad(lambda x: x.reshape(2).cumsum(0)[1])(x).tolist() == [[1], [1]]
    assert tg.grad(lambda x: x.sum().reshape(()).logcumsumexp(-1))(x).tolist() == [[1], [1]]
    assert tg.grad(lambda x: x.flip(0).flip(0).relu().sum())(x).tolist() == [[1], [1]]


def test_windows_of_windows_of_padded_images_have_gradients() -> None:
    """The padding that a rule asks for has no place for an axis that a window inside made."""

    def f(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
        y = tg.nn.functional.pad(x, (1, 0)).unfold(0, 2, 1)
        return tg.nn.functional.conv1d(y, w, dilation=2, groups=10).sum()

    x, w = np.ones((3, 9)), np.ones((20, 1, 1))
    dx, dw = tg.grad(f, (0, 1))(x, w)
    assert dx.tolist() == [[2.0] * 9, [4.0] * 9, [2.0] * 9]
    assert dw.shape == (20, 1, 1)
