"""Tolerance of a result against its float64 reference, derived from dtype and reduction length."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.job import Reference
from tunegrad.ir.dtypes import BF16, DType, buffer_dtype

_UNIT = {
    "bf16": 2.0**-8, "f16": 2.0**-11, "tf32": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53,
}  # fmt: skip
_SMALLEST = {"bf16": 2.0**-133, "f16": 2.0**-24, "f32": 2.0**-149, "f64": 2.0**-1074}
_KEPT = {"bf16": 2.0**-126}
"""Bound below which a value may be stored as 0, as processors that convert to it do."""

_LARGEST = {
    "bf16": 2.0**128 * (1 - 2.0**-9),
    "f16": 65520.0,
    "f32": 2.0**128 * (1 - 2.0**-25),
    "f64": math.inf,
}
"""From where on numbers are rounded to an infinity."""

_STEP, _FUNCTIONS, _APART = 16.0, 64.0, 4.0
"""Units of roundoff for each step of a walk, for functions and epilogues, and for values that round
to either of two numbers: ``tolerance`` has the reasons.
"""

_TIPPED = 1e-3
"""The part of the integers behind a sum of floats that may be one off, as of whole models: of a
quantised ResNet-18 on AVX2 two of 802,816 were, and of Winograd's sums one of 100,352.
"""

_SAFE = 2.0
"""Times the bounds of a running error analysis: room for what it leaves out."""


def rounding(dtype: DType) -> float:
    """The relative error of one rounding in the type that computes (f32 for f16 and bf16)."""
    return _UNIT[dtype.compute.name]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The verdict on one output. ``first`` is the first bad element's index, -1 when all are good.

    ``fault``: why nothing could be compared, in words.
    """

    first: int
    got: float
    expected: float
    allowed: float
    max_error: float
    bad: int = 0
    fault: str = ""


def tolerance(
    dtype: DType,
    terms: int,
    expected: npt.NDArray[Any],
    roundings: int | None = None,
    within: str = "",
) -> npt.NDArray[np.float64]:
    """Absolute error allowed per element of ``expected`` (float64), for a result of ``dtype``
    summed from ``terms``.

    With u the unit roundoff of the type that computes (f32 for f16 and bf16), a sum of n rounded
    terms does n roundings of partial sums. Worst case the error is n*u*sum|t| (Higham, Accuracy and
    Stability of Numerical Algorithms, 4.2); roundings are independent to a good approximation, so
    it grows like a random walk, and for the inputs that are drawn here (zero-mean or one-signed) it
    is about u*sqrt(n) times the size of the result (Higham and Mary 2019). So

        allowed = u * (16*sqrt(n) + 64) * (|expected| + rms(expected))
                + u_store * |expected| + smallest

    rms(expected) stands for the terms that cancelled in an element that came out small; 16 is about
    six standard deviations of the walk with room for products and a second reduction; 64 roundings
    pay for epilogues and for polynomial exp, tanh and erf of a few units in the last place; u_store
    is the final rounding to a 16-bit type, which ``expected`` has not been through. A lost or
    doubled term is an error of 1/sqrt(n) or more of the result: for f32, above ``allowed`` to n ~
    10^6.

    Where the result is a known number of ``roundings`` of exact numbers (``ir.rounding``: sums of
    small integers, their multiples), no terms cancel and no walk is walked:

        allowed = u * roundings * |expected| + u_store * |expected|
                + (smallest, where anything is rounded)

    which is nothing at all where nothing is rounded. Integers and bools are exact; of integers
    behind a sum that rounds, ``Bar`` lets a few tip over.

    ``within`` names a 16-bit type, or tf32, that values are rounded to on the way. One that lies
    next to the middle of two numbers may become either, which are 2 u_within apart, relatively; a
    sum takes the root mean square of such changes, what follows may double them:

        allowed += 4 * u_within * (|expected| + rms(expected))
    """
    if not dtype.is_float:
        return np.zeros(expected.shape)
    finite = np.isfinite(expected)
    size = np.abs(expected) if finite.all() else np.where(finite, np.abs(expected), 0.0)
    unit = rounding(dtype)
    stored = _UNIT[dtype.name] if dtype.compute != dtype else 0.0
    if roundings is not None:
        least = _SMALLEST[dtype.name] if roundings or stored else 0.0
        exact: npt.NDArray[np.float64] = (unit * roundings + stored) * size + least
        return exact
    some = size if finite.all() else size[finite]
    with np.errstate(over="ignore"):
        rms = math.sqrt(float(np.mean(np.square(some)))) if some.size else 0.0
    steps = _STEP * math.sqrt(max(1, terms)) + _FUNCTIONS
    allowed: npt.NDArray[np.float64] = size + rms
    allowed *= unit * steps
    if stored:
        allowed += stored * size
    allowed += _SMALLEST[dtype.name]
    return allowed + _APART * _UNIT[within] * (size + rms) if within else allowed


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar for an output of one dtype, worked out once for all candidates that must meet it.

    ``expected`` is the reference of every compared element, ``allowed`` how far from it a result
    may be. ``special`` is where NaN or an infinity is expected, None where it is nowhere.
    ``indices``: the elements that are compared. ``tipped``: of integers, how many may be one off.
    ``finite``: expected and allowed where nothing is
    special; None where nothing is anyway. ``fault``: why nothing is right, see ``Reference``.
    ``zeros``: places at which a zero has the sign of the expected one.
    """

    dtype: DType
    expected: npt.NDArray[Any]
    allowed: npt.NDArray[np.float64]
    special: npt.NDArray[np.bool_] | None
    indices: npt.NDArray[np.int64] | None
    fault: str = ""
    tipped: int = 0
    finite: tuple[npt.NDArray[Any], npt.NDArray[np.float64]] | None = None
    zeros: npt.NDArray[np.intp] = field(default_factory=lambda: np.arange(0))

    @staticmethod
    def of(dtype: str, reference: Reference) -> Bar:
        """The bar that a reference sets."""
        kind = buffer_dtype(dtype)
        expected = np.ascontiguousarray(
            reference.values.reshape(-1), np.float64 if kind.is_float else None
        )
        if kind.is_pair:
            expected = _halves(expected)
        number, indices = BF16 if kind.is_pair else kind, reference.indices
        allowed = tolerance(
            number, reference.terms, expected, reference.roundings, reference.within
        )
        allowed += reference.slack
        if reference.bounds is not None and number.is_float and not kind.is_pair:
            allowed = _within_bounds(number, allowed, expected, reference)
        zeros = _signed_zeros(kind, expected, reference)
        if kind.is_pair:  # the reference is rounded as well
            allowed += _UNIT["bf16"] * np.abs(expected)
        elif number.is_half or reference.bounds is not None:
            kept = np.ones(expected.shape, np.bool_)
            if number.is_float:
                kept = ~_undecided(expected, allowed, number)
            if reference.bounds is not None:
                kept &= ~np.isinf(reference.bounds)
            if not kept.all():
                indices = np.flatnonzero(kept) if indices is None else indices[kept]
                expected, allowed = expected[kept], allowed[kept]
                zeros = zeros[kept]
        if number.is_float:
            expected = _overflowed(expected, number)
        special, at = ~np.isfinite(expected), np.flatnonzero(zeros)
        if not special.any():
            behind = kind.is_int and reference.roundings is None and reference.terms > 1
            tipped = int(_TIPPED * _not_known(reference)) if behind else 0
            return Bar(kind, expected, allowed, None, indices, reference.fault, tipped, zeros=at)
        finite = expected[~special], allowed[~special]
        return Bar(
            kind, expected, allowed, special, indices, reference.fault, finite=finite, zeros=at
        )

    @property
    def nbytes(self) -> int:
        """Bytes beyond those of the reference."""
        special = 0 if self.special is None else self.special.nbytes
        special += self.zeros.nbytes
        return self.allowed.nbytes + special + sum(a.nbytes for a in self.finite or ())

    def judge(self, got: npt.NDArray[Any]) -> Mismatch:
        """Compare an output (flat, as stored); NaN and infinities must be in the same places."""
        if self.fault:
            return Mismatch(0, math.nan, math.nan, 0.0, 0.0, self.expected.size, self.fault)
        values = self.numbers(got)
        if values.shape != self.expected.shape:
            return Mismatch(0, float(values.size), float(self.expected.size), 0.0, math.inf, 1)
        with np.errstate(invalid="ignore"):
            error = self._error(values)
            good = error <= self.allowed
        if self.tipped and error.max() <= 1.0 and np.count_nonzero(~good) <= self.tipped:
            good = error <= 1.0
        good[self.turned(values)] = False
        if self.special is None and good.all():
            return Mismatch(-1, 0.0, 0.0, 0.0, float(error.max()) if error.size else 0.0)
        return self._in_detail(values, error, good)

    def numbers(self, got: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The elements of an output buffer that are compared; of pairs both numbers."""
        picked = got if self.indices is None else got[self.indices]
        return _halves(picked) if self.dtype.is_pair else _widen(picked, self.dtype)

    def turned(self, values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Places of zeros of the wrong sign in numbers that are compared."""
        here, wanted = values[self.zeros], self.expected[self.zeros]
        wrong = (here == 0) & (np.signbit(here) != np.signbit(wanted))
        return np.asarray(self.zeros[wrong])

    def _error(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Absolute; of integers in f64, where it is 0 for equal ones only."""
        if self.dtype.is_float or self.dtype.is_pair:
            return np.asarray(np.abs(values - self.expected))
        apart = np.abs(values.astype(np.float64) - self.expected.astype(np.float64))
        return np.where(values == self.expected, 0.0, np.maximum(apart, 1.0))

    def _in_detail(
        self, values: npt.NDArray[Any], error: npt.NDArray[Any], good: npt.NDArray[np.bool_]
    ) -> Mismatch:
        expected, finite = self.expected, np.isfinite(error)
        if self.special is not None:
            same = (values == expected) | (np.isnan(values) & np.isnan(expected))
            good = np.where(self.special, same, good)
            finite &= ~self.special
        max_error = float(error[finite].max()) if finite.any() else 0.0
        if good.all():
            return Mismatch(-1, 0.0, 0.0, 0.0, max_error)
        at = int(np.argmin(good))
        place = at // 2 if self.dtype.is_pair else at
        index = place if self.indices is None else int(self.indices[place])
        limit = float(self.allowed[at])
        return Mismatch(
            index, float(values[at]), float(expected[at]), limit, max_error, int((~good).sum())
        )


def _within_bounds(
    dtype: DType,
    allowed: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    reference: Reference,
) -> npt.NDArray[np.float64]:
    """``_SAFE`` times the bounds of a running error analysis, where these are known; where a sum
    rounds, no more than is allowed anyway.

    What is allowed for a walk of roundings grows with the size of the other results, which hides
    what is wrong with small ones, and one term of many. ``ir.rounding`` follows each element by
    itself. Elements of infinite bounds are undecided, and are not compared.
    """
    assert reference.bounds is not None
    stored = _UNIT[dtype.name] if dtype.compute != dtype else 0.0
    with np.errstate(invalid="ignore"):
        own = _SAFE * reference.bounds.astype(np.float64) + stored * np.abs(expected)
    own += np.where(own > 0, _KEPT.get(dtype.name, _SMALLEST[dtype.name]), 0.0)
    if reference.terms > 1:
        own = np.fmin(own, allowed)
    found: npt.NDArray[np.float64] = np.where(np.isnan(own), allowed, own)
    return found


def _signed_zeros(
    dtype: DType, expected: npt.NDArray[Any], reference: Reference
) -> npt.NDArray[np.bool_]:
    """Mask of expected zeros that are exact, where such have one sign."""
    if not (reference.signed and dtype.is_float):
        return np.zeros(expected.shape, np.bool_)
    exact = reference.roundings == 0 or reference.bounds == 0
    return np.asarray((expected == 0) & exact)


def _not_known(reference: Reference) -> int:
    """Compared elements that no bound decides: those of bounds are certain, or left out."""
    bounds = reference.bounds
    return reference.values.size if bounds is None else int(np.isnan(bounds).sum())


def _undecided(
    expected: npt.NDArray[np.float64], allowed: npt.NDArray[np.float64], dtype: DType
) -> npt.NDArray[np.bool_]:
    """Mask of elements that may be infinite or the largest number: those are not compared."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(np.abs(expected) - _LARGEST[dtype.name]) <= allowed)


def _overflowed(expected: npt.NDArray[np.float64], dtype: DType) -> npt.NDArray[np.float64]:
    """Expected values with infinities where ``dtype`` rounds what float64 holds to one."""
    beyond = np.abs(expected) >= _LARGEST[dtype.name]
    if not beyond.any():
        return expected
    return np.where(beyond, np.copysign(np.inf, expected), expected)


def compare(got: npt.NDArray[Any], dtype: str, reference: Reference) -> Mismatch:
    """Compare an output (flat, as stored) with its reference; NaN and infinities included."""
    return Bar.of(dtype, reference).judge(got)


def _widen(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    if dtype.name == "bf16":
        widened: npt.NDArray[Any] = (array.astype(np.uint32) << 16).view(np.float32)
        return widened.astype(np.float64)
    if dtype.is_bool:
        return array.view(np.uint8).astype(np.int64)
    return array.astype(np.float64) if dtype.is_float else array


def _halves(pairs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The bf16 values of words, both of one side by side; references hold words as integers."""
    words = np.ascontiguousarray(pairs.astype(np.uint32))
    return _widen(np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(-1), BF16)
