"""Fit the polynomials of tunegrad/ir/math_coefficients.py, and write that file.

    python -m tools.fit_math            print it
    python -m tools.fit_math --write    write it

Each fit is a minimax polynomial on a dense grid, in float64, as a linear program. f32 coefficients
are then rounded one after the other, lowest power first, and the rest fitted again around what
rounding did, so that the rounded set stays near minimax. Needs no more than numpy and scipy.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import erf, log_ndtr

Array = NDArray[np.float64]
TARGET = Path(__file__).parent.parent / "tunegrad" / "ir" / "math_coefficients.py"
ERF_SPLIT = 1.0
TANH_SPLIT = 1.0


@dataclass(frozen=True)
class Fit:
    """``f(t)`` as a polynomial of ``count`` terms.

    ``weight(t)`` turns the polynomial's error into the relative error of the whole function.
    ``single``: the coefficients are f32 numbers.
    """

    name: str
    meaning: str
    f: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    interval: tuple[float, float]
    count: int
    single: bool = True


def minimax(f: Array, weight: Array, t: Array, powers: range) -> Array:
    """Coefficients of ``powers`` with the least ``max |weight * (f - p)|`` over the grid.

    Least squares comes first; the linear program then works on what is left, in an orthogonal basis
    and scaled to about 1, which keeps the solver's absolute tolerance of 1e-7 far below the errors
    that matter.
    """
    q, r = np.linalg.qr(weight[:, None] * t[:, None] ** np.array(powers)[None, :])
    q, r = q * np.sqrt(len(t)), r / np.sqrt(len(t))
    start = q.T @ (weight * f) / len(t)
    left = weight * f - q @ start
    scale = float(np.abs(left).max()) or 1.0
    ones = np.ones((len(t), 1))
    bound = np.concatenate([left, -left]) / scale
    result = linprog(
        np.append(np.zeros(len(powers)), 1.0),
        A_ub=np.block([[-q, -ones], [q, -ones]]), b_ub=-bound, bounds=(None, None), method="highs",
    )  # fmt: skip
    if result.x is None:
        raise ArithmeticError(f"powers {powers}: {result.message}")
    return np.linalg.solve(r, start + scale * result.x[:-1])


def grid(fit: Fit, count: int = 400) -> Array:
    """Chebyshev points of the fit's interval."""
    lo, hi = fit.interval
    return (lo + hi) / 2 - (hi - lo) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def error_of(fit: Fit, coefficients: Sequence[float]) -> float:
    """The largest weighted error that the coefficients leave."""
    t = grid(fit, 1000)
    polynomial = np.polynomial.Polynomial(np.array(coefficients))
    return float(np.abs(fit.weight(t) * (polynomial(t) - fit.f(t))).max())


def solve(fit: Fit) -> list[float]:
    """The coefficients, lowest power first."""
    t = grid(fit)
    f, weight = fit.f(t), fit.weight(t)
    if not fit.single:
        return [float(c) for c in minimax(f, weight, t, range(fit.count))]
    fixed: list[float] = []
    left = f
    for power in range(fit.count):
        c = minimax(left, weight, t, range(power, fit.count))
        fixed.append(float(np.float32(c[0])))
        left = left - fixed[-1] * t**power
    return fixed


def _log2_erfc(x: Array) -> Array:
    """log2(erfc(x)) without the underflow of erfc; erfc(x) = 2 * ndtr(-x * sqrt(2))."""
    return np.asarray(1 + log_ndtr(-x * np.sqrt(2)) / np.log(2))


def _sqrt(t: Array) -> Array:
    return np.sqrt(np.maximum(t, 1e-300))


def _exp_tail(r: Array) -> Array:
    """(exp(r) - 1 - r) / r^2, by its series: the closed form cancels."""
    return sum((r**k / np.prod(np.arange(1.0, k + 3)) for k in range(14)), np.zeros_like(r))


def _exp2_tail(r: Array) -> Array:
    """(2^r - 1) / r, by its series."""
    x = r * np.log(2)
    return np.asarray(
        np.log(2)
        * sum((x**k / np.prod(np.arange(1.0, k + 2)) for k in range(14)), np.zeros_like(r))
    )


def _log1p_tail(z: Array) -> Array:
    """(log1p(z) - z + z^2 / 2) / z^3, by its series, which falls by 3 a term over |z| <= 1/3."""
    return sum(((-z) ** k / (k + 3) for k in range(60)), np.zeros_like(z))


def _log1p_ratio(z: Array) -> Array:
    return sum(((-z) ** k / (k + 1) for k in range(60)), np.zeros_like(z))


def _tanh_tail(t: Array) -> Array:
    """(tanh(x) / x - 1) / x^2 of t = x^2, by the continued fraction x / (1 + x^2 / (3 + x^2 / (5 +
    ...))).
    """
    tail = np.full_like(t, 41.0)
    for k in range(39, 3, -2):
        tail = k + t / tail
    # tanh(x) / x = 1 / (1 + t / d) with d = 3 + t / (5 + ...): minus 1 and over t is -1 / (d + t).
    d = 3 + t / tail
    return -1 / (d + t)


def _sin_tail(t: Array) -> Array:
    """(sin(x) / x - 1) / x^2 of t = x^2, by its series."""
    return sum(
        ((-1.0) ** (k + 1) * t**k / np.prod(np.arange(1.0, 2 * k + 4)) for k in range(12)),
        np.zeros_like(t),
    )


def _atan_tail(t: Array) -> Array:
    """(atan(x) / x - 1) / x^2 of t = x^2; by its series near zero, where that form cancels."""
    x = np.sqrt(np.maximum(t, 1e-3))
    series = sum(((-1.0) ** (k + 1) * t**k / (2 * k + 3) for k in range(6)), np.zeros_like(t))
    return np.where(t < 1e-3, series, (np.arctan(x) / x - 1) / (x * x))


def _erf_ratio(t: Array) -> Array:
    """erf(x) / x - 1 of t = x^2."""
    return np.asarray(erf(_sqrt(t)) / _sqrt(t) - 1)


def _relative(
    whole: Callable[[Array], Array], factor: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    return lambda t: np.abs(factor(t) / whole(t))


_HALF_LN2 = float(np.log(2)) / 2 * 1.0001
_THIRD = 1 / 3 * 1.0001

FITS = (
    Fit(
        "EXP", "exp(r) = 1 + r + r^2 * p(r), |r| <= ln(2) / 2",
        _exp_tail, _relative(np.exp, np.square), (-_HALF_LN2, _HALF_LN2), 5,
    ),
    Fit(
        "EXP2", "2^r = 1 + r * p(r), |r| <= 1/2",
        _exp2_tail, _relative(np.exp2, np.abs), (-0.5, 0.5), 6,
    ),
    Fit(
        "LOG", "log(1 + z) = z - z^2 / 2 + z^3 * p(z), |z| <= 1/3",
        _log1p_tail, lambda z: np.abs(z**2 / _log1p_ratio(z)), (-_THIRD, _THIRD), 8,
    ),
    Fit(
        "TANH", f"tanh(x) = x + x^3 * p(x^2), |x| <= {TANH_SPLIT}",
        _tanh_tail, lambda t: t / (1 + t * _tanh_tail(t)), (0.0, TANH_SPLIT**2), 7,
    ),
    Fit(
        "ERF_SMALL", f"erf(x) = x + x * p(x^2), |x| <= {ERF_SPLIT}",
        _erf_ratio, lambda t: 1 / (1 + _erf_ratio(t)), (1e-9, ERF_SPLIT**2), 7,
    ),
    Fit(
        "ERF_LARGE", f"erf(x) = 1 - 2^p(x), {ERF_SPLIT} <= x <= 4",
        _log2_erfc, lambda x: np.log(2) * np.exp2(_log2_erfc(x)) / erf(x), (ERF_SPLIT, 4.0), 6,
    ),
    Fit(
        "SIN", "sin(r) = r + r^3 * p(r^2), |r| <= pi / 2",
        _sin_tail, lambda t: t / (1 + t * _sin_tail(t)), (0.0, (np.pi / 2) ** 2 * 1.0001), 5,
    ),
    Fit(
        "ATAN", "atan(x) = x + x^3 * p(x^2), |x| <= 1",
        _atan_tail, lambda t: t / (1 + t * _atan_tail(t)), (0.0, 1.0), 10,
    ),
    Fit(
        "POW_LOG2", "log2(1 + z) = z * p(z), |z| <= 1/3, in f64",
        lambda z: _log1p_ratio(z) / np.log(2), lambda z: np.log(2) / _log1p_ratio(z),
        (-_THIRD, _THIRD), 14, False,
    ),
    Fit(
        "POW_EXP2", "2^r = p(r), |r| <= 1/2, in f64",
        np.exp2, lambda r: 1 / np.exp2(r), (-0.5, 0.5), 8, False,
    ),
)  # fmt: skip


def _erf_place(k: int) -> float:
    """Of the f32 numbers within 2^-9 of k/8, the nearest whose erf is within 2^-6 spacings of an
    f32 number; else the one whose erf is nearest.
    """
    if k < 2:
        return 0.0
    step = float(np.spacing(np.float32(k / 8)))
    away = np.arange(2**14)
    away = np.where(away % 2, -(away // 2) - 1, away // 2)
    places = np.asarray(k / 8 + away[np.abs(away) * step < 2.0**-9] * step)
    exact = erf(places)
    rounded = exact.astype(np.float32)
    off = np.abs(exact - rounded) / np.spacing(rounded)
    good = np.flatnonzero(off < 2.0**-6)
    return float(places[good[0] if good.size else off.argmin()])


ERF_PLACES = tuple(_erf_place(k) for k in range(32))


def _erf_at(k: int) -> Fit:
    """erf(P[k] + r) for |P[k] + r - k/8| <= 1/16; below 3/16, where erf must keep its relative
    error, erf(x) / x - 1 of x^2.
    """
    if k < 2:
        return Fit(f"ERF_TABLE {k}", "", _erf_ratio, lambda t: 1 / (1 + _erf_ratio(t)),
                   (1e-9, 9 / 256), 4)  # fmt: skip
    place = ERF_PLACES[k]
    off = k / 8 - place
    f = lambda r: np.asarray(erf(place + r))  # noqa: E731
    ends = (off - 1 / 16, off + 1 / 16)
    return Fit(f"ERF_TABLE {k}", "", f, lambda r: 1 / erf(place + r), ends, 5)


ERF_FITS = tuple(_erf_at(k) for k in range(32))


def erf_table() -> list[tuple[float, ...]]:
    """For each power of r, the coefficients of the intervals."""
    zero, one, *others = (solve(fit) for fit in ERF_FITS)
    return list(zip([0.0, *zero], [0.0, *one], *others, strict=True))


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 97)]


def _filled(text: str) -> list[str]:
    """Indented lines of the text, as much as fits on each."""
    return textwrap.wrap(text, 99, initial_indent="    ", subsequent_indent="    ")


def _tuple(name: str, rows: Sequence[Sequence[float]]) -> list[str]:
    """An assignment of numbers, as many as fit to a line; several rows are a tuple each."""
    lines = []
    for row in rows:
        opens, closes = ("", "") if len(rows) == 1 else ("(", "),")
        lines += _filled(f"{opens}{', '.join(map(repr, row))},{closes}")
    return [f"{name} = (", *lines, ")  # fmt: skip"]


def source() -> str:
    """The text of math_coefficients.py."""
    names = sorted(
        [*(fit.name for fit in FITS), "ERF_PLACES", "ERF_SPLIT", "ERF_TABLE", "TANH_SPLIT"]
    )
    lines = [
        '"""Polynomials, lowest power first; written by ``python -m tools.fit_math --write``."""',
        "",
        "from __future__ import annotations",
        "",
        "__all__ = [",
        *_filled(", ".join(f'"{name}"' for name in names) + ","),
        "]  # fmt: skip",
        "",
        f"ERF_SPLIT = {ERF_SPLIT!r}",
        f"TANH_SPLIT = {TANH_SPLIT!r}",
    ]
    for fit in FITS:
        values = solve(fit)
        kind = "f32" if fit.single else "f64"
        lines += ["", *_comment(
            f"{fit.meaning}. Relative error left by the {kind} coefficients: "
            f"2^{np.log2(error_of(fit, values)):.1f}."
        )]  # fmt: skip
        lines += _tuple(fit.name, [values])
    table = erf_table()
    polynomials = [table[i][k] for k in range(32) for i in range(5)]
    left = max(
        error_of(f, polynomials[5 * k + (k < 2) : 5 * k + 5]) for k, f in enumerate(ERF_FITS)
    )
    lines += [
        "",
        *_comment(
            "erf(P[k] + r) = sum of TABLE[i][k] * r^i; below 3/16 erf(x) = x + x * sum of "
            f"TABLE[i + 1][0] * x^(2 i). Relative error left: 2^{np.log2(left):.1f}."
        ),
        *_tuple("ERF_PLACES", [ERF_PLACES]),
        *_tuple("ERF_TABLE", table),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = source()
    if "--write" in sys.argv[1:]:
        TARGET.write_text(text)
    else:
        sys.stdout.write(text)
