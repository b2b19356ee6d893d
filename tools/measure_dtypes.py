"""Measure the functions and reductions of the Tensor API in f16, bf16 and f64, beside PyTorch.

    python -m tools.measure_dtypes           the table
    python -m tools.measure_dtypes --write   the same, into docs/NUMERICS.md

Functions, arguments and rows are those of ``measure_functions``, rounded to the dtype; of f64 the
exponents are stretched over its range. An error is in ulps, the spacing of the dtype at the
reference. The reference of 16-bit floats is in f64; that of f64 has 200 bits (mpmath), and for
functions of two arguments and for rows numpy's long double.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools import measure_functions as functions
from tools.numerics_page import error_cell, put_out
from tunegrad.frontend import Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class Kind:
    """A dtype: its name in PyTorch, the bits of its fraction, its exponents, and how many arguments
    are drawn.
    """

    name: str
    torch: str
    bits: int
    least: int
    most: int
    share: int

    @property
    def largest(self) -> float:
        """Its largest number."""
        return float(np.ldexp(2.0 - 2.0**-self.bits, self.most))

    def rounded(self, x: Array) -> Array:
        """The nearest numbers of the dtype, in f64; draws leave out subnormal ones."""
        fraction, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.round(np.ldexp(fraction, self.bits + 1)), exponent - self.bits - 1)

    def tensor(self, x: Array) -> Tensor:
        """Numbers of the dtype as a tensor of it."""
        return Tensor(x) if self.name == "f64" else Tensor(x.astype(np.float32)).cast(self.name)

    def computed(self, call: Callable[..., Tensor], *given: Array) -> Array:
        """The result of tunegrad as numbers of numpy."""
        found = call(*map(self.tensor, given))
        return (found if self.name == "f64" else found.cast("f32")).numpy()

    def peer(self, call: Callable[..., Any], *given: Array) -> Array | None:
        """The result of PyTorch, None where it has none."""
        import torch

        kind = getattr(torch, self.torch)
        try:
            found = call(*(torch.from_numpy(x).to(kind) for x in given))
        except (RuntimeError, TypeError):
            return None
        return np.asarray(found.double().numpy())

    def worst(self, found: Array | None, want: Array, scale: Array) -> float:
        """The largest error in ulps where the reference is a normal number, NaN without a result.

        ``want`` and ``scale`` are f64, long double or mpmath's numbers.
        """
        if found is None:
            return np.nan
        size = np.abs(want).astype(np.float64)
        near = np.maximum(scale.astype(np.float64), 2.0**self.least)
        with np.errstate(all="ignore"):
            ulp = np.exp2(np.floor(np.log2(near)) - self.bits)
            lost = ~np.isfinite(found)
            apart = np.abs(np.where(lost, 0.0, found).astype(want.dtype) - want)
            error = np.where(lost, np.inf, (apart / ulp).astype(np.float64))
        return float(error[(size >= 2.0**self.least) & (size < self.largest)].max(initial=0))


KINDS = (
    Kind("f16", "float16", 10, -14, 15, 1), Kind("bf16", "bfloat16", 7, -126, 127, 1),
    Kind("f64", "float64", 52, -1022, 1023, 8),
)  # fmt: skip
"""``share``: of f64 one argument in so many is drawn, since its reference takes long."""


def _arguments(case: functions.Case, count: int, kind: Kind) -> Array:
    """As ``Case.arguments``, of the dtype's own normal numbers."""
    if kind.name != "f64":
        x = kind.rounded(case.arguments(count))
        return x[(np.abs(x) >= 2.0**kind.least) & (np.abs(x) <= kind.largest)]
    rng = np.random.default_rng([functions.SEED, len(case.name), sum(map(ord, case.name))])
    low, high, signs = case.domain
    low = low * 8 if low < -99 else low
    # e^709 is the last power, erfc and gelu end at 27
    high = high * 8 if high > 99 else high + 3 if 6 < high < 8 else 4.7 if high == 3.2 else high
    count //= kind.share
    way = rng.choice([-1.0, 1.0], count)
    sets = [np.exp2(rng.uniform(low, high, count)) * (way if signs == "+-" else 1)]
    for point in case.around:
        near = np.exp2(rng.uniform(-40, 0, count // 8)) * rng.choice([-1, 1], count // 8)
        sets.append(point + near * max(abs(point), 1e-3))
    x = np.concatenate(sets)
    x = x if "-" in signs else np.abs(x)
    return x[(np.abs(x) <= np.exp2(float(high))) & ((np.abs(x) >= 1) | (low != 0))]


def _precise(case: functions.Case, x: Array) -> Array:
    """A function's value, in 200 bits; NaN where it is not defined."""
    import mpmath as mp

    def softplus(v: Any) -> Any:
        return mp.log1p(mp.exp(-abs(v))) + max(v, 0)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + mp.exp(-v))

    def elu(v: Any) -> Any:
        return v if v > 0 else mp.expm1(v)

    others: dict[str, Callable[[Any], Any]] = {
        "exp2": lambda v: mp.mpf(2) ** v, "log2": lambda v: mp.log(v) / mp.log(2),
        "rsqrt": lambda v: 1 / mp.sqrt(v), "reciprocal": lambda v: 1 / v, "square": lambda v: v * v,
        "sinc": lambda v: mp.sin(mp.pi * v) / (mp.pi * v), "sigmoid": sigmoid,
        "logsigmoid": lambda v: -softplus(-v), "silu": lambda v: v * sigmoid(v),
        # PyTorch's is its argument from 20 on
        "softplus": lambda v: v if v > 20 else softplus(v),
        "gelu": lambda v: v * mp.erfc(-v / mp.sqrt(2)) / 2, "elu": elu,
        "mish": lambda v: v * mp.tanh(softplus(v)), "softsign": lambda v: v / (1 + abs(v)),
        "selu": lambda v: (
            mp.mpf(1.0507009873554805) * (v if v > 0 else mp.mpf(1.6732632423543772) * elu(v))
        ),
        "logit": lambda v: mp.log(v / (1 - v)), "deg2rad": lambda v: v * mp.pi / 180,
        "rad2deg": lambda v: v * 180 / mp.pi,
    }  # fmt: skip
    call = others.get(case.name) or getattr(mp, case.name)
    found = np.empty(x.shape, object)
    with mp.workprec(200):
        for i, v in enumerate(x):
            try:
                found[i] = mp.mpf(call(mp.mpf(float(v))))
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                found[i] = mp.nan
    return found


def function_errors(
    case: functions.Case, kind: Kind, count: int, beside: bool = True
) -> list[float]:
    """The largest errors of tunegrad and, ``beside``, of PyTorch."""
    x = _arguments(case, count, kind)
    with np.errstate(all="ignore"):
        want = _precise(case, x) if kind.name == "f64" else case.meaning(x)
    scale = np.maximum(np.abs(want), case.floor)
    found = [kind.worst(kind.computed(lambda t: getattr(t, case.name)(), x), want, scale)]
    if beside:
        peer = functions.torch_of(case.torch or case.name)
        found.append(kind.worst(kind.peer(peer, x), want, scale))
    return found


def _xlogy(x: Array, y: Array) -> Array:
    return np.asarray(x * np.log(y))


def pair_errors(
    name: str, meaning: Callable[..., Array], kind: Kind, count: int, beside: bool = True
) -> list[float]:
    """As ``function_errors``, of two arguments."""
    x, y = (kind.rounded(v) for v in functions.pairs(name, count // kind.share))
    if name == "pow":
        y = kind.rounded(y / (100 / kind.most))
    wide = (v.astype(np.longdouble) for v in (x, y))
    with np.errstate(all="ignore"):
        want = (_xlogy if name == "xlogy" else meaning)(*wide)
    scale = np.maximum(np.abs(want), 1.0 if name.startswith("logadd") else 0.0)
    found = [kind.worst(kind.computed(lambda a, b: getattr(a, name)(b), x, y), want, scale)]
    if beside:
        found.append(kind.worst(kind.peer(functions.torch_of(name), x, y), want, scale))
    return found


_LOGARITHMS: dict[str, Callable[[Array], Array]] = {
    "logsumexp": lambda x: _logsumexp(x)[:, 0],
    "softmax": lambda x: np.exp(x - _logsumexp(x)),
    "log_softmax": lambda x: x - _logsumexp(x),
    "batch_norm": lambda x: (x - np.round(x[0, 0])) / np.sqrt(1 + np.longdouble(1e-5)),
}
"""Functions that scipy or a constant would round to f64."""


def _logsumexp(x: Array) -> Array:
    top = x.max(1, keepdims=True)
    return np.asarray(top + np.log(np.exp(x - top).sum(1, keepdims=True)))


def reduction_errors(
    name: str, call: Callable[[Any], Any], meaning: Callable[[Array], Array], kind: Kind,
    centre: float, beside: bool = True,
) -> list[float]:  # fmt: skip
    """As ``function_errors``, of 8 rows of 1,000 numbers around ``centre``."""
    rng = np.random.default_rng([functions.SEED, 1000, int(centre)])
    x = rng.standard_normal((8, 1000)) + centre
    x = kind.rounded((x - centre) * 0.01 + 1 if name == "cumprod" else x)
    wide = x.astype(np.longdouble)
    want = _LOGARITHMS.get(name, meaning)(wide)
    scale = functions.scale_of(name, wide, want)
    found = [kind.worst(kind.computed(call, x), want, scale)]
    if beside:
        found.append(kind.worst(kind.peer(call, x), want, scale))
    return found


def rows(count: int) -> Iterator[tuple[str, list[float]]]:
    """The table's rows: a name, and the errors of tunegrad and PyTorch in each dtype."""
    for case in functions.FUNCTIONS:
        yield case.name, [e for k in KINDS for e in function_errors(case, k, count)]
    for name, meaning, _ in functions.PAIRS:
        yield name, [e for k in KINDS for e in pair_errors(name, meaning, k, count)]
    for centre in (0.0, 100.0):
        for row in functions.ROWS:
            if centre == 0 or row[0] != "cumprod":
                errors = [e for k in KINDS for e in reduction_errors(*row, k, centre)]
                yield f"{row[0]}, 1,000 around {centre:g}", errors


def table(count: int) -> str:
    """Markdown: the largest error in ulps; bold where it is over twice PyTorch's, and over 1."""
    head = "".join(f" {k.name} | PyTorch |" for k in KINDS)
    lines = [f"| |{head}", "|---" * (1 + 2 * len(KINDS)) + "|"]
    for name, errors in rows(count):
        both = zip(errors[::2], errors[1::2], strict=True)
        cells = [c for own, peer in both for c in (error_cell(own, peer), error_cell(peer))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="errors of functions in f16, bf16 and f64")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--count", type=int, default=40_000)
    options = parser.parse_args(arguments)
    text = table(options.count)
    put_out("measure_dtypes", text, options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
