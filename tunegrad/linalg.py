"""``torch.linalg`` by its names: factors of matrices, composed of other operations.

    qr     a reflection for each column (Householder), in turn
    svd    the triangle's columns are turned in pairs until all are at right angles (one-sided
           Jacobi: Demmel and Veselic 1992), all pairs of a round at once; their lengths are the
           singular values

Each takes launches by the number of columns (svd: by its square), few of them kernels of their own,
since what differs between columns is in constants. They are for matrices of tens of columns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from tunegrad.errors import ConfigError, DTypeError, ShapeError
from tunegrad.frontend import Tensor, cat, custom_vjp
from tunegrad.frontend.functions import where
from tunegrad.frontend.handle import TensorLike
from tunegrad.frontend.tensor import lift

__all__ = ["QR", "SVD", "qr", "svd", "svdvals"]

_SWEEPS, _UNITS = {"f32": 10, "f64": 15}, {"f32": 2.0**-23, "f64": 2.0**-52}
"""Sweeps over all pairs of columns, and the distance from 1 to the next number.

Measured up to 64 columns, from the triangle of columns in order of their lengths: random, graded,
clustered, of low rank, Hilbert's and Kahan's matrices take at most 9 and 15.
"""


class QR(NamedTuple):
    """``Q @ R``: orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """``U @ diag(S) @ Vh``: S is not negative, the largest first."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def qr(A: TensorLike, mode: Literal["reduced", "complete", "r"] = "reduced") -> QR:
    """Matrices (..., m, n) of f32 or f64 as products of Q and R, with LAPACK's signs.

    Q is (..., m, k) and R (..., k, n), k the smaller of m and n, or m with ``mode="complete"``;
    ``mode="r"`` gives an empty Q. Gradients are those of PyTorch where the first k columns are
    independent. Raises ShapeError, DTypeError and ConfigError.
    """
    if mode not in get_args(Literal["reduced", "complete", "r"]):
        raise ConfigError(f"linalg.qr: mode {mode!r} is not one of reduced, complete, r")
    a = _matrices(A, "linalg.qr")
    m, n = a.shape[-2:]
    wide = m if mode == "complete" else min(m, n)
    reflections, r = _reflected(a)
    if mode == "r":
        return QR(a[..., :0, :0].reshape(0), r[..., :wide, :])
    unit = _eye(m, wide, a).expand(*a.shape[:-2], m, wide)
    return QR(_product(reflections, unit), r[..., :wide, :])


def svd(A: TensorLike, full_matrices: bool = True) -> SVD:
    """Matrices (..., m, n) of f32 or f64 as products of U, a diagonal S, and Vh.

    U is (..., m, m) and Vh (..., n, n), or (..., m, k) and (..., k, n) without ``full_matrices``; k
    is the smaller of m and n. Signs of columns are not those of LAPACK. Gradients are those of
    PyTorch: they exist where singular values differ, and for S alone in any case. Matrices that do
    not converge give NaN. Raises ShapeError and DTypeError.
    """
    a = _matrices(A, "linalg.svd")
    m, n = a.shape[-2:]
    if m < n:
        u, s, vh = svd(a.mT, full_matrices)
        return SVD(vh.mT, s, u.mT)
    packed = _packed(a)
    u, s, v = packed[..., :m, :], packed[..., m, :], packed[..., m + 1 :, :]
    if full_matrices and m > n:
        rest = qr(u.detach(), "complete").Q[..., n:]
        u = cat([u, rest], -1)
    return SVD(u, s, v.mT)


def svdvals(A: TensorLike) -> Tensor:
    """Singular values of matrices, the largest first."""
    return svd(A, full_matrices=False).S


def _matrices(value: TensorLike, op: str) -> Tensor:
    a = lift(value, op)
    if a.dtype.name not in _SWEEPS:
        raise DTypeError(f"{op}: {a.dtype} matrices; they must be f32 or f64")
    if a.ndim < 2 or not all(a.shape[-2:]):
        raise ShapeError(f"{op}: shape {a.shape} is no batch of matrices with elements")
    return a


def _constant(value: object, like: Tensor) -> Tensor:
    return Tensor(np.asarray(value, np.float64)).cast(like.dtype)


def _eye(rows: int, columns: int, like: Tensor) -> Tensor:
    return _constant(np.eye(rows, columns), like)


def _scale(a: Tensor) -> Tensor:
    """The largest magnitude of each matrix, 1 for zeros: squares of a matrix over it are finite."""
    most = a.detach().abs().amax((-2, -1), True)
    return where(most > 0, most, 1.0)


def _reflected(a: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Reflections (v, tau), I - tau v v^T each, that make ``a`` an upper triangle, and that."""
    m, n = a.shape[-2:]
    scale = _scale(a)
    a, rows, found = a / scale, np.arange(m)[:, None], list[tuple[Tensor, Tensor]]()
    for j in range(min(m - 1, n)):
        at, below = _constant(rows == j, a), _constant(rows > j, a)
        x = (a * _constant(np.arange(n) == j, a)).sum(-1, True)
        x = x / _scale(x * (at + below))  # squares of small numbers have few bits, or are zero
        first, tail = (x * at).sum(-2, True), x * below
        square = (tail * tail).sum(-2, True)
        turns = square > 0
        length = where(turns, first * first + square, 1.0).sqrt()
        end = where(first >= 0, -length, length)
        v = where(turns, tail / where(turns, first - end, 1.0), 0.0) + at
        tau = where(turns, (end - first) / end, 0.0)
        found.append((v, tau))
        a = (a - v * (tau * (v * a).sum(-2, True))).contiguous()
    upper = _constant(rows <= np.arange(n), a)
    return found, where(upper > 0, a * scale, 0.0)


def _product(reflections: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """The product of reflections, from the first to the last, and ``x``."""
    for v, tau in reversed(reflections):
        x = (x - v * (tau * (v * x).sum(-2, True))).contiguous()
    return x


def _ordered(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices with their longest columns first, the lengths of these, and the permutation."""
    squares, order = (a * a).sum(-2).sort(-1, descending=True)
    places = Tensor(np.arange(a.shape[-1])).unsqueeze(-1)
    permutation = (places == order.unsqueeze(-2)).cast(a.dtype).contiguous()
    return (a @ permutation).contiguous(), squares.sqrt(), permutation


def _rounds(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each round of a tournament, the permutation that exchanges columns with their partners,
    without those that have none, and 1 for the first of a pair, -1 for the second.
    """
    places, found = [*range(n + n % 2)], []
    for _ in range(len(places) - 1):
        swap, side = np.zeros((n, n)), np.ones(n)
        for i, j in zip(places, reversed(places[len(places) // 2 :]), strict=False):
            if max(i, j) < n:
                swap[i, j] = swap[j, i] = 1
                side[max(i, j)] = -1
        found.append((swap, side))
        places = [places[0], places[-1], *places[1:-1]]
    return found


def _packed_rule(cotangent: Tensor, result: Tensor, a: Tensor) -> Tensor:
    """The gradient of ``_packed`` (Townsend 2016, "Differentiating the Singular Value
    Decomposition").
    """
    m, n = a.shape[-2:]
    u, s, v = (result[..., :m, :], result[..., m, :], result[..., m + 1 :, :])
    gu, gs, gv = (cotangent[..., :m, :], cotangent[..., m, :], cotangent[..., m + 1 :, :])
    row, column = s.unsqueeze(-2), s.unsqueeze(-1)
    apart = (row - column) * (row + column)
    some = where(row > 0, row, 1.0)

    def turned(x: Tensor, gx: Tensor) -> Tensor:
        inner = x.mT @ gx
        skew = inner - inner.mT
        return where(skew == 0, 0.0, skew / where(skew == 0, 1.0, apart))

    middle = turned(u, gu) * row + column * turned(v, gv) + _eye(n, n, a) * gs.unsqueeze(-1)
    found = u @ middle @ v.mT
    if m > n:
        found = found + ((gu - u @ (u.mT @ gu)) / some) @ v.mT
    return found


@custom_vjp(_packed_rule)
def _packed(a: Tensor) -> Tensor:
    """U, S and V of matrices with m >= n, below each other: (..., m + 1 + n, n)."""
    m, n = a.shape[-2:]
    scale = _scale(a)
    longest, _, before = _ordered(a / scale)
    reflections, r = _reflected(longest)
    x = cat([r[..., :n, :].mT, _eye(n, n, a).expand(*a.shape[:-2], n, n)], -2).contiguous()
    for swap, side in _rounds(n) * _SWEEPS[a.dtype.name]:
        x = _round(x, _constant(swap, a), _constant(side, a))
    # r^T turned = x, so the left vectors of r are ``turned`` and its right ones lie along x
    turned = x[..., n:, :]
    x, s, after = _ordered(x[..., :n, :])
    turned = turned @ after
    right, triangle = _reflected(x)
    signs = where(triangle.diagonal(0, -2, -1) < 0, -1.0, 1.0).cast(a.dtype)
    v = _product(right, _eye(n, n, a)) * signs.unsqueeze(-2)
    wrong = where(_eye(n, n, a) > 0, 0.0, triangle.abs()).amax((-2, -1), True)
    within = wrong <= 32 * n * _UNITS[a.dtype.name] * s.amax(-1).reshape(wrong.shape)
    down = cat([turned, _constant(np.zeros((m - n, n)), a).expand(*a.shape[:-2], m - n, n)], -2)
    found = [_product(reflections, down), (s * scale.squeeze(-1)).unsqueeze(-2),
             before @ v]  # fmt: skip
    return where(within, cat(found, -2), float("nan")).contiguous()


def _round(x: Tensor, swap: Tensor, side: Tensor) -> Tensor:
    """Columns turned so that each is at a right angle to its partner, by their upper halves."""
    other = (x @ swap).contiguous()
    upper = x[..., : x.shape[-1], :]
    square = (upper * upper).sum(-2, True)
    product = (upper * other[..., : x.shape[-1], :]).sum(-2, True)
    meets = product != 0
    slope = (square @ swap - square) / where(meets, 2 * product, 1.0)
    sign = where(slope == 0, side, slope.sign())
    tangent = where(meets, sign / (slope.abs() + (1 + slope * slope).sqrt()), 0.0).contiguous()
    cosine = 1 / (1 + tangent * tangent).sqrt()
    return (cosine * x - cosine * tangent * other).contiguous()
