"""Measure the f32 functions and reductions of the Tensor API against f64, beside PyTorch and numpy.

    python -m tools.measure_functions           the table
    python -m tools.measure_functions --write   the same, into docs/NUMERICS.md

Arguments of a function are stratified: as many of each exponent and sign as of any other, where the
function is defined, and numbers around its branch points. Those of a reduction are rows of 1,000
numbers, and of 100,000, and columns; those of a product are normal, or uniform between 0 and 1. An
error is in units in the last place (ulp), the spacing of f32 at the reference; of a sum whose terms
cancel, at the sum of their sizes. Where the reference
rounds to infinity or is below the normal numbers of f32, nothing is compared. The reference is
numpy's or scipy's in f64. PyTorch computes large contiguous tensors by vectorised functions, and
may have others for strided ones: both are measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tools.numerics_page import error_cell, put_out, table_of
from tunegrad import compile as compiled
from tunegrad.frontend import Tensor, functional

Array = NDArray[Any]
SEED = 4


@dataclass(frozen=True)
class Case:
    """A function by its name in the Tensor API, its meaning in f64, and its arguments.

    ``domain``: the least and largest exponent of two, and the signs. ``around``: branch points and
    zeros, near which numbers are drawn, too. ``floor``: results below it, which cancel, have its
    spacing.
    """

    name: str
    meaning: Callable[..., Array]
    domain: tuple[float, float, str] = (-126, 127, "+-")
    around: tuple[float, ...] = ()
    numpy: Callable[..., Array] | None = None
    torch: str = ""
    floor: float = 0.0

    def arguments(self, count: int) -> Array:
        """Drawn by exponents, signs and branch points."""
        rng = np.random.default_rng([SEED, len(self.name), sum(map(ord, self.name))])
        low, high, signs = self.domain
        size = np.exp2(rng.uniform(low, high, count))
        sign = np.where(rng.random(count) < 0.5, 1, -1) if signs == "+-" else 1
        sets = [size * sign]
        for point in self.around:
            way = np.where(rng.random(count // 8) < 0.5, 1, -1)
            near = np.exp2(rng.uniform(-20, 0, count // 8)) * way
            sets.append(point + near * max(abs(point), 1e-3))
        x = np.concatenate(sets).astype(np.float32)
        x = x if "-" in signs else np.abs(x)
        inside = np.abs(x) <= np.exp2(float(high))
        return x[inside & ((np.abs(x) >= 1) | (low != 0))]


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


UNIT = (-40, 0, "+-")
_F = "nn.functional."
FUNCTIONS = (
    Case("exp", np.exp, (-30, 6.48, "+-"), (0.0, 88.0, -87.0), np.exp),
    Case("exp2", np.exp2, (-30, 6.99, "+-"), (0.0,), np.exp2),
    Case("expm1", np.expm1, (-30, 6.45, "+-"), (0.0, 0.5, -0.5), np.expm1),
    Case("log", np.log, (-126, 127, "+"), (1.0,), np.log),
    Case("log2", np.log2, (-126, 127, "+"), (1.0,), np.log2),
    Case("log10", np.log10, (-126, 127, "+"), (1.0,), np.log10),
    Case("log1p", np.log1p, (-40, 127, "+-"), (1e-4, 0.5, -0.5, -1.0), np.log1p),
    Case("sqrt", np.sqrt, (-126, 127, "+"), (), np.sqrt),
    Case("rsqrt", lambda x: 1 / np.sqrt(x), (-126, 127, "+")),
    Case("reciprocal", lambda x: 1 / x, (-120, 120, "+-"), (), np.reciprocal),
    Case("square", np.square, (-60, 60, "+-"), (), np.square),
    Case("sin", np.sin, (-126, 127, "+-"), (3.14159265, 1.5707963), np.sin),
    Case("cos", np.cos, (-126, 127, "+-"), (3.14159265, 1.5707963), np.cos),
    Case("tan", np.tan, (-126, 127, "+-"), (3.14159265, 1.5707963), np.tan),
    Case("asin", np.arcsin, UNIT, (1.0, -1.0, 0.5), np.arcsin),
    Case("acos", np.arccos, UNIT, (1.0, -1.0, 0.5), np.arccos),
    Case("atan", np.arctan, (-126, 127, "+-"), (0.66, 2.41, 1.0), np.arctan),
    Case("sinh", np.sinh, (-40, 6.47, "+-"), (1.0,), np.sinh),
    Case("cosh", np.cosh, (-40, 6.47, "+-"), (1.0,), np.cosh),
    Case("tanh", np.tanh, (-126, 127, "+-"), (0.625, 9.0), np.tanh),
    Case("asinh", np.arcsinh, (-126, 127, "+-"), (1.0, 1e9), np.arcsinh),
    Case("acosh", np.arccosh, (0, 127, "+"), (1.0, 2.0, 1e9), np.arccosh),
    Case("atanh", np.arctanh, (-40, -0.001, "+-"), (0.5, 0.99), np.arctanh),
    Case("erf", special.erf, (-126, 10, "+-"), (1.0, 3.9)),
    Case("erfc", special.erfc, (-40, 3.2, "+-"), (0.5, 1.0, 2.0, 4.0)),
    Case("erfinv", special.erfinv, (-40, -0.0001, "+-"), (0.9, 0.99)),
    Case("sinc", np.sinc, (-40, 10, "+-"), (0.5,), np.sinc, floor=1.0),
    Case("sigmoid", special.expit, (-40, 6.4, "+-"), (0.0,)),
    Case("logsigmoid", lambda x: -_softplus(-x), (-40, 6.4, "+-"), (0.0,), None, _F + "logsigmoid"),
    Case("softplus", _softplus, (-40, 6.4, "+-"), (0.0,), None, _F + "softplus"),
    Case("silu", lambda x: x * special.expit(x), (-40, 6.3, "+-"), (0.0,), None, _F + "silu"),
    Case("gelu", lambda x: x * special.ndtr(x), (-40, 3.2, "+-"), (0.5, -1.0, -4.0), None,
         _F + "gelu", 1.0),
    Case("mish", lambda x: x * np.tanh(_softplus(x)), (-40, 6.3, "+-"), (0.0,), None, _F + "mish"),
    Case("elu", _elu, (-40, 6.4, "+-"), (0.0,), None, _F + "elu"),
    Case("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * _elu(x)),
         (-40, 6.4, "+-"), (0.0,), None, _F + "selu"),
    Case("softsign", lambda x: x / (1 + np.abs(x)), (-126, 120, "+-"), (1.0,), None,
         _F + "softsign"),
    Case("logit", special.logit, (-40, -0.001, "+"), (0.5, 0.99), floor=1.0),
    Case("deg2rad", np.deg2rad, (-100, 127, "+-"), (), np.deg2rad),
    Case("rad2deg", np.rad2deg, (-120, 100, "+-"), (), np.rad2deg),
)  # fmt: skip
PAIRS: tuple[tuple[str, Callable[..., Array], Callable[..., Array] | None], ...] = (
    ("hypot", np.hypot, np.hypot), ("atan2", np.arctan2, np.arctan2),
    ("logaddexp", np.logaddexp, np.logaddexp), ("logaddexp2", np.logaddexp2, np.logaddexp2),
    ("div", np.divide, np.divide), ("remainder", np.mod, np.mod), ("fmod", np.fmod, np.fmod),
    ("pow", np.power, np.power), ("xlogy", special.xlogy, None),
)  # fmt: skip
"""Of two arguments: the meaning in f64, and numpy's."""


def _centred(x: Array) -> Array:
    around = x - x.mean(1, keepdims=True)
    return around / np.sqrt((around * around).mean(1, keepdims=True) + x.dtype.type(1e-5))


def _layer_norm(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.layer_norm()
    return torch_of(_F + "layer_norm")(x, x.shape[1:])


def _group_norm(x: Any) -> Any:
    """Each row is a group of an image of two channels a group."""
    image = x.reshape(1, 16, -1)
    if isinstance(x, Tensor):
        return image.group_norm(8).reshape(8, -1)
    return torch_of(_F + "group_norm")(image, 8).reshape(8, -1)


def _instance_norm(x: Any) -> Any:
    image = x.unsqueeze(0)
    if isinstance(x, Tensor):
        return image.instance_norm()[0]
    return torch_of(_F + "instance_norm")(image)[0]


def _rms_norm(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.rms_norm(eps=1e-5)
    return torch_of(_F + "rms_norm")(x, x.shape[1:], eps=1e-5)


def _batch_norm(x: Any) -> Any:
    """Of known statistics: a row is a channel, its mean about that of all and its variance 1."""
    kind = np.float64 if str(x.dtype).endswith("64") else np.float32
    mean = np.full(8, np.round(float(x[0, 0].item())), kind)
    image, ones = x.unsqueeze(0), np.ones(8, kind)
    if isinstance(x, Tensor):
        return image.batch_norm(None, None, Tensor(mean), Tensor(ones))[0]
    import torch

    given = torch.from_numpy(mean), torch.from_numpy(ones)
    return torch_of(_F + "batch_norm")(image, *given)[0]


def _trained(x: Any) -> Any:
    """By the statistics of the batch: a row is a channel."""
    image = x.unsqueeze(0)
    if isinstance(x, Tensor):
        return functional.batch_norm(image, None, None, training=True)[0]
    return torch_of(_F + "batch_norm")(image, None, None, training=True)[0]


def _batch_normed(x: Array) -> Array:
    return np.asarray((x - np.round(x[0, 0])) / np.sqrt(1 + 1e-5))


TRAINED = "batch_norm of a batch"
NORMS = ("layer_norm", "group_norm", "instance_norm", "rms_norm", "batch_norm", TRAINED)
ROWS: tuple[tuple[str, Callable[[Any], Any], Callable[[Array], Array]], ...] = (
    ("sum", lambda x: x.sum(1), lambda x: x.sum(1)),
    ("mean", lambda x: x.mean(1), lambda x: x.mean(1)),
    ("var", lambda x: x.var(1), lambda x: x.var(1, ddof=1)),
    ("std", lambda x: x.std(1), lambda x: x.std(1, ddof=1)),
    ("norm", lambda x: x.norm(2, 1), lambda x: np.sqrt((x * x).sum(1))),
    ("logsumexp", lambda x: x.logsumexp(1), lambda x: special.logsumexp(x, 1)),
    ("softmax", lambda x: x.softmax(1), lambda x: special.softmax(x, 1)),
    ("log_softmax", lambda x: x.log_softmax(1), lambda x: special.log_softmax(x, 1)),
    ("cumsum", lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    ("cumprod", lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    ("logcumsumexp", lambda x: x.logcumsumexp(1), lambda x: np.logaddexp.accumulate(x, 1)),
    ("layer_norm", _layer_norm, _centred), ("group_norm", _group_norm, _centred),
    ("instance_norm", _instance_norm, _centred),
    ("rms_norm", _rms_norm, lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)),
    ("batch_norm", _batch_norm, _batch_normed), (TRAINED, _trained, _centred),
)  # fmt: skip
"""Of rows: the calls, which tunegrad and PyTorch share, and the meaning in f64."""
SETS = ((1000, 0.0, 8), (1000, 1e5, 8), (1000, 1e7, 8), (100_000, 0.0, 8), (1 << 20, 1.0, 8),
        (1 << 24, 1.0, 1))  # fmt: skip
"""Of rows: their length, the number around which theirs lie, and how many there are."""
COLUMNS = (
    *[r for r in ROWS if r[0] in ("sum", "mean", "var", "norm", "logsumexp")],
    ("prod", lambda x: x.prod(1), lambda x: x.prod(1)),
    ("sum of products", lambda x: (x * x.flip(1)).sum(1), lambda x: (x * x[:, ::-1]).sum(1)),
    (TRAINED, _trained, _centred),
)
COLUMN_SETS = ((64, 1.0), (1000, 0.0), (1000, 1.0), (65_537, 1.0))
"""Of 256 columns: what is measured, their lengths, and the numbers around which they lie."""


def _conv3x3(x: Any, w: Any) -> Any:
    """Padded by 1: of tensors by a call, of arrays a product for each tap."""
    if isinstance(x, Tensor):
        return x.conv2d(w, padding=1)
    if not isinstance(x, np.ndarray):
        return torch_of(_F + "conv2d")(x, w, padding=1)
    high, wide = x.shape[2:]
    around = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    taps = [
        w[:, :, i, j] @ around[:, i : i + high, j : j + wide].reshape(x.shape[1], -1)
        for i in range(3)
        for j in range(3)
    ]
    return np.add.reduce(taps).reshape(1, -1, high, wide)


Product = tuple[str, Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...]]
_LENGTHS = (64, 256, 512, 1024, 4096, 16_384)
PRODUCTS: tuple[Product, ...] = (
    *((f"matmul of {k:,}", lambda x, w: x @ w, (128, k), (k, 256)) for k in _LENGTHS),
    *((f"vector times matrix, {k:,}", lambda x, w: x @ w, (1, k), (k, 256)) for k in (512, 4096)),
    *(
        (f"conv2d 3x3, {c} channels", _conv3x3, (1, c, high, high), (c, c, 3, 3))
        for c, high in ((64, 28), (512, 7))
    ),
)
"""The calls, which all share, and the shapes of their factors."""


def spacing(x: Array) -> Array:
    """The spacing of f32 at numbers."""
    return np.spacing(np.maximum(np.abs(x), 2.0**-126).astype(np.float32)).astype(np.float64)


def worst(found: Array, want: Array, scale: Array | None = None) -> float:
    """The largest error in ulps, where the reference is a normal number of f32."""
    with np.errstate(all="ignore"):
        normal = (np.abs(want) >= 2.0**-126) & (np.abs(want) < 3.4e38)
        error = np.abs(found.astype(np.float64) - want) / spacing(want if scale is None else scale)
    error = np.where(np.isnan(error), np.inf, error)
    return float(error[normal].max(initial=0))


def torch_of(name: str) -> Any:
    """A function of PyTorch by its dotted name."""
    import torch

    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _forms(x: Any) -> tuple[Any, Any]:
    """A tensor of PyTorch, and one of the same numbers with one element between any two."""
    spaced = x.repeat_interleave(2, -1)[..., ::2]
    assert not spaced.is_contiguous() or spaced.numel() < 2
    return x, spaced


def function_row(case: Case, count: int, beside: bool = True) -> tuple[str, list[float]]:
    """The largest errors of tunegrad, and of PyTorch, contiguous and strided, and numpy (NaN where
    they have none).
    """
    x = case.arguments(count)
    with np.errstate(all="ignore"):
        want = case.meaning(x.astype(np.float64))
        scale = np.maximum(np.abs(want), case.floor)
        found = [worst(getattr(Tensor(x), case.name)().numpy(), want, scale)]
        if beside:
            import torch

            peer = torch_of(case.torch or case.name)
            found += [worst(peer(t).numpy(), want, scale) for t in _forms(torch.from_numpy(x))]
            found.append(worst(case.numpy(x), want, scale) if case.numpy else np.nan)
    return case.name, found


def pairs(name: str, count: int) -> tuple[Array, Array]:
    """The arguments of a function of two."""
    rng = np.random.default_rng([SEED, len(name)])
    sizes = (np.exp2(rng.uniform(-10, 10, count)) for _ in range(2))
    x, y = ((v * np.where(rng.random(count) < 0.5, 1, -1)).astype(np.float32) for v in sizes)
    if name == "pow":
        x = np.abs(x)
        y = (rng.uniform(-100, 100, count) / np.maximum(1e-3, np.abs(np.log2(x)))).astype("f4")
    return x, np.abs(y) if name == "xlogy" else y


def scale_of(name: str, x: Array, want: Array) -> Array:
    """The sizes at whose spacing the errors of a reduction of rows are measured."""
    scale = np.abs(want)
    if name in ("sum", "mean"):
        return np.maximum(scale, np.abs(x).sum(1) / (x.shape[1] if name == "mean" else 1))
    if name == "sum of products":
        return np.asarray(np.abs(x * x[:, ::-1]).sum(1))
    if name == "cumsum":
        return np.maximum(scale, np.abs(x).cumsum(1))
    if name in ("log_softmax", "logsumexp", "logcumsumexp", *NORMS):
        return np.maximum(scale, 1)
    return scale


def pair_row(
    name: str, meaning: Callable[..., Array], peer: Callable[..., Array] | None, count: int,
    beside: bool = True,
) -> tuple[str, list[float]]:  # fmt: skip
    """As ``function_row``, of two arguments of up to 2^10 and down to 2^-10."""
    x, y = pairs(name, count)
    with np.errstate(all="ignore"):
        want = meaning(x.astype(np.float64), y.astype(np.float64))
        scale = np.maximum(np.abs(want), 1.0 if name.startswith("logadd") else 0.0)
        found = [worst(getattr(Tensor(x), name)(Tensor(y)).numpy(), want, scale)]
        if beside:
            import torch

            forms = zip(*map(_forms, (torch.from_numpy(x), torch.from_numpy(y))), strict=True)
            found += [worst(torch_of(name)(*given).numpy(), want, scale) for given in forms]
            found.append(worst(peer(x, y), want, scale) if peer else np.nan)
    return name, found


def reduction_row(
    name: str, call: Callable[[Any], Any], meaning: Callable[[Array], Array], length: int,
    offset: float, beside: bool = True, count: int = 8, columns: bool = False,
) -> tuple[str, list[float]]:  # fmt: skip
    """As ``function_row``, of ``count`` rows, or columns, of so many numbers around ``offset``."""
    rng = np.random.default_rng([SEED, length, int(offset)])
    x = (rng.standard_normal((count, length)) + offset).astype(np.float32)
    if name in ("prod", "cumprod"):  # else it overflows
        x = ((x - np.float32(offset)) * np.float32(0.01) + 1).astype(np.float32)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        want = meaning(wide)
    scale = scale_of(name, wide, want)
    given = np.ascontiguousarray(x.T) if columns else x
    own = Tensor(given)
    found = [worst(call(own.transpose(0, 1) if columns else own).numpy(), want, scale)]
    if beside:
        import torch

        forms = _forms(torch.from_numpy(given))
        found += [worst(call(t.t() if columns else t).numpy(), want, scale) for t in forms]
        with np.errstate(all="ignore"):
            found.append(worst(np.asarray(meaning(x), np.float32), want, scale))
    return f"{name}, {'columns of ' * columns}{length:,} around {offset:g}", found


def product_row(
    name: str, call: Callable[[Any, Any], Any], left: tuple[int, ...], right: tuple[int, ...],
    positive: bool, beside: bool = True,
) -> tuple[str, list[float]]:  # fmt: skip
    """As ``function_row``, of two factors, without Winograd's products; images of PyTorch are
    strided as channels-last.
    """
    rng = np.random.default_rng([SEED, len(name), *left])
    draw = rng.random if positive else rng.standard_normal
    given = [draw(shape, np.float32) for shape in (left, right)]
    x, w = (g.astype(np.float64) for g in given)
    want, scale = call(x, w), call(np.abs(x), np.abs(w))
    own = compiled(call, *given, numerics="strict", store=False)
    found = [worst(np.asarray(own(*given)), want, scale)]
    if beside:
        import torch

        tensors = [torch.from_numpy(g) for g in given]
        last = {"memory_format": torch.channels_last}
        others = [t.to(**last) if t.ndim == 4 else _forms(t)[1] for t in tensors]
        found += [worst(call(*t).numpy(), want, scale) for t in (tensors, others)]
        found.append(worst(call(*given), want, scale))
    return f"{name}, {'of one sign' if positive else 'around 0'}", found


def rows(count: int, beside: bool = True) -> list[tuple[str, list[float]]]:
    """The table's rows."""
    found = [function_row(c, count, beside) for c in FUNCTIONS]
    found += [pair_row(*p, count, beside) for p in PAIRS]
    for length, offset, several in SETS:
        for r in ROWS:
            if _is_measured(r[0], length, offset):
                found.append(reduction_row(*r, length, offset, beside, several))
    for length, offset in COLUMN_SETS:
        found += [reduction_row(*r, length, offset, beside, 256, True) for r in COLUMNS]
    found += [product_row(*p, positive, beside) for positive in (False, True) for p in PRODUCTS]
    return found


def _is_measured(name: str, length: int, offset: float) -> bool:
    """Sums of all lengths, scans and norms of the shortest; those whose result would be that of
    the rows' first digits alone are left out.
    """
    if length > 100_000:
        return name in ("sum", "mean")
    if length > 1000 or offset == 1e7:
        return "cum" not in name and (name not in NORMS) == (
            offset != 1e7 or name in ("var", "std")
        )
    return not offset or name not in ("cumprod", "logcumsumexp")


def table(count: int) -> str:
    """Markdown: the largest error in ulps; bold where it is over 1 and over twice PyTorch's of
    contiguous tensors, on the processors of either maker.

    PyTorch takes other functions on Intel's processors: the columns of the maker that this one is
    not of stay as the page has them.
    """
    before = page_rows()
    intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    lines = [
        "| f32 | tunegrad | PyTorch, AMD | strided | PyTorch, Intel | strided | numpy |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (own, torch, strided, numpy) in rows(count):
        peers = before.get(name, [math.nan] * 5)[:4]
        peers[2 * intel : 2 * intel + 2] = torch, strided
        least = min(p for p in peers[::2] if not math.isnan(p))
        cells = [error_cell(own, least), *map(error_cell, (*peers, numpy))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_rows() -> dict[str, list[float]]:
    """Of each row of the page: PyTorch's errors on AMD, contiguous and strided, and on Intel, and
    numpy's; NaN where it has none.
    """
    cells = [line.strip("|").split("|") for line in table_of("measure_functions").splitlines()[2:]]
    return {name.strip(): [float(e.strip() or "nan") for e in errors] for name, _, *errors in cells}


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="errors of functions beside PyTorch and numpy")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--count", type=int, default=200_000)
    options = parser.parse_args(arguments)
    text = table(options.count)
    put_out("measure_functions", text, options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
