"""Gradients of every differentiable operation of the Tensor API: against central differences in
f64, and against PyTorch in f32 and f64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests import gradients
from tests.gradient_cases import CASES, STEPS, TIES, Shapes
from tests.gradients import checked, drawn, values, weighted

ROUNDED = {
    "F.celu(a, 1.3)", "F.hardsigmoid(a * 3)", "F.affine_grid(a, (2, 1, 3, 4), align_corners=False)",
}  # fmt: skip
"""Of doubles, PyTorch 2.13 has constants that are rounded to f32."""
INDEX = np.array([0, 2, 1, 5, 3, 4])
EVERY = CASES + [(line, ((2, 3, 4),)) for line in STEPS]
KINDS = [(*c, "f8") for c in EVERY] + [(*c, "f4") for c in EVERY[::3]]


def _function(line: str, torch_like: Any, functional: Any) -> Callable[..., Any]:
    """A line of the table as a function of its arguments."""
    index = torch_like.tensor(INDEX) if torch_like is not tg else tg.Tensor(INDEX)

    def function(*args: Any) -> Any:
        names = dict(zip("abc", args, strict=False))
        return eval(line, {"T": torch_like, "F": functional, "i": index, **names})  # noqa: S307

    return function


def _ours(line: str) -> Callable[..., Any]:
    return _function(line, tg, tg.nn.functional)


def _theirs(line: str, args: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """PyTorch's gradients of the weighted results; zeros where it has none."""
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in args]
    y = _function(line, torch, torch.nn.functional)(*leaves)
    weights = torch.tensor(gradients.weights(tuple(y.shape)))
    total = (y * weights.to(y.dtype)).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [np.zeros_like(a) if g is None else g.numpy() for g, a in zip(found, args, strict=True)]


def _found(line: str, args: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    every = tuple(range(len(args)))
    return values(tg.grad(weighted(_ours(line)), every)(*map(tg.Tensor, args)))


@pytest.mark.parametrize(("line", "shapes"), CASES, ids=[line for line, _ in CASES])
def test_gradients_of_operations_are_central_differences(line: str, shapes: Shapes) -> None:
    checked(_ours(line), shapes, near=1e-6)


@pytest.mark.parametrize(("line", "shapes", "dtype"), KINDS, ids=[f"{k[0]} {k[2]}" for k in KINDS])
def test_gradients_of_operations_are_pytorchs(line: str, shapes: Shapes, dtype: str) -> None:
    args = [a.astype(dtype) for a in drawn(shapes)]
    near = 1e-9 if dtype == "f8" and line not in ROUNDED else 3e-5
    for ours, theirs in zip(_found(line, args), _theirs(line, args), strict=True):
        assert ours.dtype == np.dtype(dtype)
        size = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near * size)


@pytest.mark.parametrize("line", TIES)
def test_gradients_at_ties_zeros_and_bounds_are_pytorchs(line: str) -> None:
    rng = np.random.default_rng(7)
    args = [rng.integers(-1, 2, (4, 4)).astype("f8") for _ in range(2)]
    args[0][0], args[0][1] = 0, 1
    args = args if re.search(r"\bb\b", line) else args[:1]
    for ours, theirs in zip(_found(line, args), _theirs(line, args), strict=True):
        near = 1e-7 if line in ROUNDED else 1e-12
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)


@pytest.mark.parametrize(
    "line",
    ["a.norm()", "a.norm(dim=1)", "F.normalize(a)", "F.cosine_similarity(a, b)", "T.cdist(a, b)",
     "F.smooth_l1_loss(a, b)", "F.huber_loss(a, b, delta=0.5)"],
)  # fmt: skip
def test_second_derivatives_of_sums_of_squares_are_central_differences_at_zeros(line: str) -> None:
    a, b = np.array([[0.0, 0.4, -1.7]]), np.array([[0.0, -0.8, 0.3]])
    checked(_ours(line), ((1, 3), (1, 3)), second=True, args=[a, b] if "b" in line else [a])


def test_derivatives_of_a_whole_power_at_zero_are_zero_beyond_it() -> None:
    slope, found = (lambda x: x**3.0), []
    for _ in range(6):
        slope = tg.grad(slope)
        found.append(float(values([slope(tg.Tensor(0.0))])[0]))
    assert found == [0, 0, 6, 0, 0, 0]


def test_gradients_of_logsumexp_at_infinities_are_pytorchs_or_zero() -> None:
    inf = np.inf
    x = np.array([[0.0, 1.0, inf], [-inf, 2.0, 2.0], [-inf, -inf, -inf]])
    (found,) = values([tg.grad(lambda x: x.logsumexp(1).sum())(tg.Tensor(x))])
    np.testing.assert_allclose(found, [[0, 0, np.nan], [0, 0.5, 0.5], [0, 0, 0]])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_gradients_of_logaddexp_do_not_lose_the_gap_of_large_numbers(name: str) -> None:
    a = tg.Tensor(np.array([1e15, 1e4, -1e4, 3.0], np.float32))
    b = tg.Tensor(np.array([1e15, 1e4, -1e4, 200.0], np.float32))
    found = values(tg.grad(lambda a, b: getattr(tg, name)(a, b).sum(), (0, 1))(a, b))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0.5, 0], [0.5, 0.5, 0.5, 1]], atol=1e-12)


def test_gradients_of_hypot_hold_below_the_smallest_normal_number() -> None:
    x = tg.Tensor(np.array([6e-8, 3.0], np.float16))
    y = tg.Tensor(np.array([0.0, 4.0], np.float16))
    found = values([tg.grad(lambda x: tg.hypot(x, y).sum())(x)])
    np.testing.assert_allclose(found, [[1, 0.6]], rtol=1e-3)


_SMOOTH = [(n, s) for n, s in CASES if not re.search(r"floor|conv3d|bicubic|quantile", n)][::3]


@pytest.mark.parametrize(("line", "shapes"), _SMOOTH, ids=[line for line, _ in _SMOOTH])
def test_second_derivatives_of_operations_are_central_differences(
    line: str, shapes: Shapes
) -> None:
    checked(_ours(line), shapes, second=True, near=1e-6)


def test_gradients_of_bicubic_scales_are_central_differences() -> None:
    """PyTorch 2.13's are not, by its own ``gradcheck``: a fuzzer's find."""
    how = "scale_factor=(1.3, 1.5), mode='bicubic'"
    checked(_ours(f"F.interpolate(a, {how})"), ((1, 3, 3, 1),), near=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_second_derivatives_of_a_norm_at_a_zero_leave_other_elements_theirs() -> None:
    """That of the zero is infinite for an order between one and two."""

    def second(x: list[float]) -> Any:
        slope = tg.grad(lambda a: a.norm(1.5).sum())
        weight = tg.Tensor(np.array(x) + 2)
        return values([tg.grad(lambda a: (slope(a) * weight).sum())(tg.Tensor(np.array(x)))])[0]

    np.testing.assert_allclose(second([-1.0, 0.0, 2.0])[[0, 2]], second([-1.0, 2.0]), rtol=1e-12)
