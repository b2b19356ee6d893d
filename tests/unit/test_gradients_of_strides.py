"""Gradients through windows a stride apart: each phase has its own taps, and gaps have none."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.compiling import build
from tunegrad.devices import host_device
from tunegrad.frontend import Tensor
from tunegrad.frontend.gradients import cotangent
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.program import Compute, For, If, Instr, Program
from tunegrad.opts import Space

F = tg.nn.functional


def convolved(x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """The convolution (N, C, L) by (O, C, K), as its definition adds it up, in f64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding)))
    count = (x.shape[2] - w.shape[2]) // stride + 1
    cut = [x[:, :, i * stride : i * stride + w.shape[2]] for i in range(count)]
    return np.stack([np.einsum("nck,ock->no", c, w) for c in cut], 2)


@pytest.mark.parametrize("length", [8, 9, 11])
@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(3, 2, 1), (3, 2, 0), (5, 2, 2), (5, 3, 1), (7, 2, 3), (4, 3, 2), (1, 2, 0), (2, 3, 1)],
)
def test_gradient_of_a_strided_convolution_is_its_adjoint(
    length: int, size: int, stride: int, padding: int
) -> None:
    """The gradient of <conv(x), g> by x has the product <conv(e), g> with any image e."""
    rng = np.random.default_rng(length + 16 * size)
    x, w = rng.standard_normal((2, 3, length)), rng.standard_normal((4, 3, size))
    g = rng.standard_normal(convolved(x, w, stride, padding).shape)

    def product(x: Tensor) -> Tensor:
        return (F.conv1d(x, tg.Tensor(w), stride=stride, padding=padding) * tg.Tensor(g)).sum()

    slope = tg.grad(product)(x).numpy()
    for unit in (rng.standard_normal(x.shape) for _ in range(3)):
        wanted = (convolved(unit, w, stride, padding) * g).sum()
        assert abs((slope * unit).sum() - wanted) < 1e-9


def data_gradient(size: int, padding: int, side: int) -> LaunchPlan:
    def product(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
        return (F.conv2d(x, w, stride=2, padding=padding) * g).sum()

    half = (side + 2 * padding - size) // 2 + 1
    shapes = {"x": (4, 8, side, side), "w": (16, 8, size, size), "g": (4, 16, half, half)}
    slope = tg.grad(product)(*(Tensor.input(n, s) for n, s in shapes.items()))
    return schedule((slope.node,))


@pytest.mark.parametrize("side", [8, 16])
def test_phases_of_a_stride_multiply_by_no_zeros_between_places(side: int) -> None:
    """Two of the three taps at most meet a pixel along each side, where four zeros would."""
    *_, last = data_gradient(3, 1, side).launches
    (sums,) = last.kernel.reduces
    assert prod(a.extent for a in sums.axes) == 16 * 2 * 2
    assert "%" not in str(sums)
    assert "//" not in str(sums)


def products(body: Sequence[Instr], at: dict[str, int]) -> int:
    """The multiply-adds that run, of all lanes."""
    count = 0
    for instr in body:
        if isinstance(instr, For):
            stop = min(s.at(at).const for s in instr.stops)
            count += sum(products(instr.body, {**at, instr.var: i}) for i in range(stop))
        elif isinstance(instr, If):
            count += products(instr.body if instr.valid.at(at).always else instr.orelse, at)
        elif isinstance(instr, Compute) and instr.op is Op.FMA:
            count += instr.vtype.lanes
    return count


def test_each_tap_of_a_stride_is_multiplied_in_its_own_phase_alone() -> None:
    """9 products a place of the gradient, not 16: at the images' end there is a zero for some."""
    *_, last = data_gradient(3, 1, 8).launches
    device = host_device(1)
    actions = Space(last.kernel, device.target).defaults()[0]
    made: dict[str, Program] = {}
    build(last.kernel, actions, device, lambda name, _, after: made.setdefault(name, after))
    assert products(made["lower"].body, {}) == 4 * 4 * 4 * 9 * 8 * 16


def test_an_infinite_gradient_reaches_the_pixels_of_its_taps_alone() -> None:
    """A term that is none multiplies no infinity by zero."""
    g = np.ones((1, 1, 4), np.float32)
    g[0, 0, 2] = np.inf

    def product(x: Tensor) -> Tensor:
        y = F.conv1d(x, tg.Tensor(np.ones((1, 1, 3), np.float32)), stride=2, padding=1)
        return (y * tg.Tensor(g)).sum()

    slope = tg.grad(product)(np.zeros((1, 1, 8), np.float32)).numpy()[0, 0]
    np.testing.assert_array_equal(slope, [1, 2, 1, np.inf, np.inf, np.inf, 1, 1])


def test_gaps_between_windows_are_no_sums() -> None:
    product, *rest = data_gradient(1, 0, 16).launches
    assert prod(a.extent for a in product.kernel.axes) == 4 * 8 * 8 * 8
    assert all(not x.kernel.reduces for x in rest)


@pytest.mark.parametrize(
    ("length", "size", "stride", "padding"),
    [(1, 3, 1, 1), (1, 5, 2, 2), (2, 7, 1, 3), (2, 5, 2, 4), (1, 4, 3, 3), (3, 7, 2, 6)],
)
def test_windows_larger_than_an_image_are_convolved_as_defined(
    length: int, size: int, stride: int, padding: int
) -> None:
    rng = np.random.default_rng(size)
    x, w = rng.standard_normal((2, 3, length)), rng.standard_normal((4, 3, size))
    found = F.conv1d(tg.Tensor(x), tg.Tensor(w), stride=stride, padding=padding).numpy()
    assert np.abs(found - convolved(x, w, stride, padding)).max() < 1e-12


def test_taps_that_meet_padding_alone_are_no_terms() -> None:
    x, w = Tensor.input("x", (4, 8, 1, 1)), Tensor.input("w", (16, 8, 3, 3))
    (launch,) = schedule((F.conv2d(x, w, padding=1).node,)).launches
    assert prod(a.extent for a in launch.kernel.reduces[0].axes) == 8


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (1, 0), (2, 1)])
def test_few_places_and_large_weights_are_a_product_of_matrices_first(
    stride: int, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(stride + padding)
    x, w = rng.standard_normal((2, 3, 3, 4)), rng.standard_normal((96, 3, 3, 3))

    def slope(w: tg.Tensor) -> tg.Tensor:
        return tg.grad(lambda x: (F.conv2d(x, w, stride=stride, padding=padding) ** 2).sum())(x)

    product = slope(tg.Tensor(w))
    monkeypatch.setattr(cotangent, "_FEW", np.inf)
    tap_by_tap = slope(tg.Tensor(w))
    assert product.node is not tap_by_tap.node
    np.testing.assert_allclose(product.numpy(), tap_by_tap.numpy(), rtol=1e-10)
