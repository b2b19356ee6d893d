"""Factors of matrices beside numpy's, and their gradients beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import linalg
from tunegrad.errors import ConfigError, DTypeError, ShapeError

DTYPES = ["float32", "float64"]
SHAPES = [(4, 4), (2, 5, 3), (3, 5), (1, 1), (2, 1, 3), (2, 1, 1)]


def drawn(shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape).astype(dtype)


def close(found: Any, wanted: Any, dtype: str, by: float = 16.0) -> None:
    """Within some units of the largest number."""
    off = by * np.finfo(dtype).eps * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=off)


def as_svd(a: Any, dtype: str, full: bool = True) -> Any:
    """Its factors, which are held to what they must be."""
    k = min(a.shape[-2:])
    u, s, vh = (x.numpy() for x in linalg.svd(a, full))
    assert {x.dtype.name for x in (u, s, vh)} == {dtype}
    close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, dtype, 64)
    for rows in (np.swapaxes(u, -1, -2), vh):
        close(rows @ np.swapaxes(rows, -1, -2) - np.eye(rows.shape[-2]), np.zeros(()), dtype, 32)
    close(s, np.linalg.svd(a.astype(np.float64), compute_uv=False), dtype, 32)
    assert (np.diff(s) <= 0).all()
    return u, s, vh


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_is_numpys(shape: tuple[int, ...], dtype: str, mode: Any) -> None:
    a = drawn(shape, dtype)
    for found, wanted in zip(linalg.qr(a, mode), np.linalg.qr(a, mode), strict=True):
        assert (found.dtype.name, found.shape) == (dtype.replace("loat", ""), wanted.shape)
        close(found.numpy(), wanted, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr_of_columns_that_depend_on_each_other_is_a_factor_still(dtype: str) -> None:
    a = np.array([[1, 2, 0], [2, 4, 0], [-1, -2, 0]], dtype)
    for matrix in (a, 0 * a, 1e30 * a, 1e-30 * a):
        q, r = (x.numpy() for x in linalg.qr(matrix))
        close(q.T @ q, np.eye(3), dtype)
        np.testing.assert_allclose(q @ r, matrix, rtol=1e-5, atol=1e-6 * np.abs(matrix).max())
        assert (np.tril(r, -1) == 0).all()


def test_qr_has_the_signs_of_lapack_where_a_column_begins_with_zero() -> None:
    a = np.array([[0, 1], [2, 3], [0, -5]], np.float32)
    close(linalg.qr(a).R.numpy(), np.linalg.qr(a).R, "float32")


@pytest.mark.parametrize(("dtype", "tiny"), [("float32", 1e-22), ("float64", 1e-161)])
def test_columns_whose_squares_are_no_normal_numbers_have_orthonormal_factors(
    dtype: str, tiny: float
) -> None:
    a = np.array([[1, 0, 0], [0, tiny, 0], [0, 1.3 * tiny, 1]], dtype)
    q = linalg.qr(a).Q.numpy()
    close(q.T @ q, np.eye(3), dtype)
    as_svd(a, dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "full"),
    [
        ((4, 4), "float32", True), ((2, 5, 3), "float32", True), ((2, 5, 3), "float64", False),
        ((3, 5), "float64", True), ((1, 1), "float32", True),
    ],
)  # fmt: skip
def test_svd_is_numpys(shape: tuple[int, ...], dtype: str, full: bool) -> None:
    a = drawn(shape, dtype)
    u, _, vh = as_svd(a, dtype, full)
    wanted = np.linalg.svd(a, full)
    assert (u.shape, vh.shape) == (wanted[0].shape, wanted[2].shape)


def test_svd_of_few_independent_columns_has_orthonormal_ones() -> None:
    """A batch: of rank one, zeros, with equal singular values, and of rank two."""
    third = np.outer([1, 2, 3], [1, 0, 1]) + np.outer([1, 1, -1], [0, 1, 0])
    a = np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.diag([1, 1, 1e-3]), third])
    as_svd(a.astype(np.float32), "float32")


def test_svd_that_does_not_converge_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linalg._SWEEPS, "f32", 1)
    assert np.isnan(linalg.svdvals(drawn((6, 6), "float32")).numpy()).all()


def gradients(name: str, shape: tuple[int, ...], dtype: str, full: bool) -> tuple[Any, Any]:
    """Ours and PyTorch's, of a loss that signs of columns do not change."""
    torch = pytest.importorskip("torch")
    a, k = drawn(shape, dtype), min(shape[-2:])
    left, right = drawn((*shape[:-1], k), dtype), drawn((*shape[:-2], k, shape[-1]), dtype)

    def loss(home: Any, a: Any, left: Any, right: Any) -> Any:
        if name == "qr":
            q, r = home.qr(a)
            return (q * left).sum() + (r * right).sum()
        u, s, vh = home.svd(a, full)
        u, vh = u[..., :k], vh[..., :k, :]
        both = (u @ vh) * (left @ right)
        return (u * u * left).sum() + (vh * vh * right).sum() + (s * s).sum() + both.sum()

    ours = tg.grad(lambda a: loss(linalg, a, tg.Tensor(left), tg.Tensor(right)))(a)
    x = torch.tensor(a, requires_grad=True)
    loss(torch.linalg, x, torch.tensor(left), torch.tensor(right)).backward()
    return ours.numpy(), x.grad.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "shape"), [("qr", (2, 4, 3)), ("qr", (2, 3)), ("svd", (4, 3))])
def test_gradients_of_factors_are_pytorchs(name: str, shape: tuple[int, ...], dtype: str) -> None:
    for full in (False, True) if name == "svd" and dtype == "float32" else (False,):
        found, wanted = gradients(name, shape, dtype, full)
        close(found, wanted, dtype, 1024)


def test_gradient_of_singular_values_alone_exists_where_they_are_equal() -> None:
    found = tg.grad(lambda a: linalg.svdvals(a).sum())(np.eye(3, dtype=np.float32))
    close(found.numpy(), np.eye(3), "float32")


def test_factors_of_what_is_no_matrix_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"linalg\.qr: shape \(3,\) is no batch of matrices"):
        linalg.qr(np.ones(3, np.float32))
    with pytest.raises(ShapeError, match=r"shape \(0, 2\)"):
        linalg.svd(np.ones((0, 2), np.float32))
    with pytest.raises(DTypeError, match="i64 matrices; they must be f32 or f64"):
        linalg.svd(np.ones((2, 2), np.int64))
    with pytest.raises(ConfigError, match="mode 'full' is not one of reduced, complete, r"):
        linalg.qr(np.ones((2, 2), np.float32), "full")  # type: ignore[arg-type]
