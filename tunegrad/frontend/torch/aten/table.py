"""Notation of the tables of operators; complex numbers as pairs of tensors, for embeddings."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ModelError
from tunegrad.ir.dtypes import F64, DType

from ...creation import zeros_like
from ...functions import cat, stack, where
from ...tensor import Tensor

Operator = Callable[..., Any]


def entries(operator: Operator, *names: str) -> dict[str, Operator]:
    """Several overloads of one meaning: ``"add.Tensor"``, ``"add.Scalar"``."""
    return dict.fromkeys(names, operator)


def overloads(kinds: str, *operators: Operator) -> dict[str, Operator]:
    """Operations that have ATen's name and arguments, under these kinds of overload."""
    return {f"{o.__name__}.{kind}": o for o in operators for kind in kinds.split()}


def unsupported(operator: str, why: str) -> ModelError:
    """An operator that is known, with arguments that are not."""
    return ModelError(f"aten.{operator}: {why} is not supported")


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers, by its real and its imaginary parts."""

    real: Tensor
    imag: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.real.shape

    @property
    def ndim(self) -> int:
        return self.real.ndim

    def pairs(self) -> Tensor:
        """The parts side by side, along a last dimension of two."""
        return stack([self.real, self.imag], -1)

    @staticmethod
    def of_pairs(pairs: Tensor) -> Complex:
        """The inverse of ``pairs``."""
        return Complex(pairs.select(-1, 0), pairs.select(-1, 1))


def as_complex(x: Any, part: DType) -> Complex:
    """A tensor as complex numbers whose parts have a dtype."""
    if isinstance(x, Complex):
        return Complex(x.real.cast(part), x.imag.cast(part))
    return Complex(x.cast(part), zeros_like(x).cast(part))


def lifted(operator: Operator | None, name: str) -> Operator:
    """An operator that moves elements, of complex numbers: of the real and of the imaginary parts.

    With a dtype, which is none of complex numbers, it is of the real parts alone.

    Raises:
        ModelError: another operator; truths of complex numbers.
    """
    if operator is None or name.partition(".")[0] not in _MOVES:
        raise ModelError(f"aten.{name}: complex numbers are not supported")

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype: DType | None = kwargs.get("dtype")
        if dtype is not None and dtype.is_bool:
            raise unsupported(name, "truths of complex numbers")
        real = operator(*(_part(a, "real") for a in args), **kwargs)
        if dtype is not None:
            return real
        imag = operator(*(_part(a, "imag") for a in args), **kwargs)
        if isinstance(real, tuple):
            return tuple(Complex(r, i) for r, i in zip(real, imag, strict=True))
        return Complex(real, imag)

    return run


_NAMES = (
    "_neg_view _reshape_alias _to_copy _unsafe_view alias cat clone constant_pad_nd "
    "contiguous copy detach expand flatten flip gather index index_select lift_fresh_copy "
    "mean narrow neg new_zeros permute repeat reshape roll select select_scatter slice "
    "slice_scatter split split_with_sizes squeeze stack sum t transpose unbind unflatten "
    "unsqueeze view view_copy zeros_like"
)

_MOVES = frozenset(_NAMES.split())


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Complex):
        return getattr(value, name)
    if isinstance(value, list | tuple):  # of tensors to join, some may be real
        return [
            zeros_like(v) if name == "imag" and isinstance(v, Tensor) else _part(v, name)
            for v in value
        ]
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Complex | complex):
        return value.real, value.imag
    return value, 0


def _mul(a: Any, b: Any) -> Complex:
    (ar, ai), (br, bi) = _pair(a), _pair(b)
    if not isinstance(b, Complex | complex):
        return Complex(ar * br, ai * br)
    if not isinstance(a, Complex | complex):
        return Complex(ar * br, ar * bi)
    return Complex(ar * br - ai * bi, ar * bi + ai * br)


def _div(a: Any, b: Any) -> Complex:
    if not isinstance(b, Complex | complex):
        return Complex(a.real / b, a.imag / b)
    (ar, ai), (br, bi) = _pair(a), _pair(b)
    size = br * br + bi * bi
    return Complex((ar * br + ai * bi) / size, (ai * br - ar * bi) / size)


def _summed(sign: int) -> Operator:
    def add(a: Any, b: Any, *, alpha: Any = 1) -> Complex:
        (ar, ai), (br, bi) = _pair(a), _pair(b)
        by = sign * alpha
        return Complex(_full(ar + br * by, ar, br), _full(ai + bi * by, ar, br))

    return add


def _full(value: Any, *like: Any) -> Tensor:
    """A part that broadcasts as the other one does."""
    zeros = [t * 0 for t in like if isinstance(t, Tensor)]
    for z in zeros:
        value = value + z
    return value  # type: ignore[no-any-return]


def _polar(size: Tensor, angle: Tensor) -> Complex:
    return Complex(size * angle.cos(), size * angle.sin())


def _real(x: Any) -> Any:
    return x.real if isinstance(x, Complex) else x


def _imag(x: Any) -> Any:
    if not isinstance(x, Complex):
        raise unsupported("imag", "a tensor of real numbers")
    return x.imag


def _conj(x: Any) -> Any:
    return Complex(x.real, -x.imag) if isinstance(x, Complex) else x


def _abs(x: Complex) -> Tensor:
    return x.real.hypot(x.imag)


def _angle(x: Any) -> Tensor:
    if not isinstance(x, Complex):
        raise unsupported("angle", "a tensor of real numbers")
    return x.imag.atan2(x.real)


def _sgn(x: Complex) -> Complex:
    """Of size one; 0 where it is 0."""
    size = _abs(x)
    size = where(size == 0, 1.0, size)
    return Complex(x.real / size, x.imag / size)


def _exp(x: Complex) -> Complex:
    return _polar(x.real.exp(), x.imag)


_WHOLE = 64
"""Elements up to which a Fourier transform is a product with its matrix."""


def _turns(turns: NDArray[Any], dtype: DType) -> tuple[Tensor, Tensor]:
    """Cosines and sines of parts of a circle."""
    angles = 2 * math.pi * (turns % 1)
    return tuple(Tensor.constant(f(angles).astype(dtype.numpy)) for f in (np.cos, np.sin))  # type: ignore[return-value]


def _rotated(re: Tensor, im: Tensor | None, by: Operator, turns: NDArray[Any]) -> Any:
    """Real and imaginary parts, multiplied by complex numbers of size one."""
    cos, sin = _turns(turns, re.dtype)
    if im is None:
        return by(re, cos), by(re, sin)
    return by(re, cos) - by(im, sin), by(re, sin) + by(im, cos)


def _transformed(re: Tensor, im: Tensor | None, sign: int) -> tuple[Tensor, Tensor]:
    """The discrete Fourier transform along the last dimension: of ``a * b`` elements as transforms
    of ``a`` and of ``b`` (Cooley and Tukey). Sums of a large prime are added up in f64.
    """
    n = re.shape[-1]
    a = max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)
    if n <= _WHOLE or a == 1:
        places = np.arange(n)
        matrix = np.outer(places, places) % n * sign / n
        by = Tensor.matmul if n <= _WHOLE else partial(Tensor.matmul, accumulate=F64)
        return _rotated(re, im, by, matrix)  # type: ignore[no-any-return]
    lead, b = re.shape[:-1], n // a

    def split(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.reshape(*lead, a, b).transpose(-1, -2)

    parts = _transformed(split(re), split(im), sign)  # type: ignore[arg-type]
    parts = _rotated(*parts, operator.mul, np.outer(np.arange(b), np.arange(a)) * sign / n)
    parts = _transformed(parts[0].transpose(-1, -2), parts[1].transpose(-1, -2), sign)
    return tuple(x.transpose(-1, -2).reshape(*lead, n) for x in parts)  # type: ignore[return-value]


def _along(x: Any, dims: Sequence[int], sign: int) -> Any:
    for dim in dims:
        re, im = (x.real, x.imag.transpose(dim, -1)) if isinstance(x, Complex) else (x, None)
        re, im = _transformed(re.transpose(dim, -1), im, sign)
        x = Complex(re.transpose(dim, -1), im.transpose(dim, -1))
    return x


def _scaled(x: Any, dims: Sequence[int], normalization: int, shape: Sequence[int]) -> Any:
    """``normalization``: 0 as it is, 1 divided by the root of the elements, 2 by their number."""
    return (
        x
        if not normalization
        else _mul(x, math.prod(shape[d] for d in dims) ** (-normalization / 2))
    )


def _fft(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    return _scaled(_along(x, dim, -1 if forward else 1), dim, normalization, x.shape)


def _fft_of_reals(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    made, last = _along(x, dim[-1:], -1), dim[-1]
    if onesided:
        half = x.shape[last] // 2 + 1
        made = Complex(made.real.narrow(last, 0, half), made.imag.narrow(last, 0, half))
    return _scaled(_along(made, dim[:-1], -1), dim, normalization, x.shape)


def _fft_to_reals(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """The other half of the elements are the conjugates of the first ones, from the end on."""
    made, last = _along(x, dim[:-1], 1), dim[-1]
    half = last_dim_size // 2 + 1
    re, im = (p.narrow(last, 0, half) for p in (made.real, made.imag))
    more = last_dim_size - half
    every = Complex(
        cat([re, re.narrow(last, 1, more).flip(last)], last),
        cat([im, -im.narrow(last, 1, more).flip(last)], last),
    )
    return _scaled(_along(every, (last,), 1), dim, normalization, every.shape).real  # type: ignore[no-any-return]


def _made(function: Operator, *names: str) -> dict[str, Operator]:
    return dict.fromkeys(names, function)


COMPLEX_NUMBERS: dict[str, Operator] = {
    **_made(Complex.of_pairs, "view_as_complex.default"),
    **_made(Complex.pairs, "view_as_real.default"),
    **_made(_polar, "polar.default"),
    **_made(Complex, "complex.default"),
    **_made(_real, "real.default"),
    **_made(_imag, "imag.default"),
    **_made(_conj, "_conj.default", "_conj_physical.default", "conj_physical.default"),
    **_made(lambda x: x, "resolve_conj.default"),
    **_made(_angle, "angle.default"),
    **_made(_fft, "_fft_c2c.default"),
    **_made(_fft_of_reals, "_fft_r2c.default"),
    **_made(_fft_to_reals, "_fft_c2r.default"),
}

COMPLEX: dict[str, Operator] = {
    **COMPLEX_NUMBERS,
    **_made(_mul, "mul.Tensor", "mul.Scalar"),
    **_made(_div, "div.Tensor", "div.Scalar"),
    **_made(_summed(1), "add.Tensor", "add.Scalar"),
    **_made(_summed(-1), "sub.Tensor", "sub.Scalar"),
    **_made(_abs, "abs.default"),
    **_made(_exp, "exp.default"),
    **_made(_sgn, "sgn.default"),
}
"""Operators of which an argument is complex; others are ``lifted``."""
