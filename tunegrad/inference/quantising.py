"""A model in bytes: ranges of its tensors on batches that are given, and what that costs.

    batches   -->  the f32 model, with the tensors that products multiply as outputs   -->  ranges
    ranges    -->  scales  -->  the graph with bytes around products (``ir.rewrites.quantise``)
    held out  -->  outputs of that model beside those in f32                           -->  error

A range is all that was seen (``minmax``), all but a share of it at either end (``percentile``), or
the one whose bytes are nearest in the mean square (``mse``); the last two count what was seen in
2,048 bins of the whole range, in a second pass.

Smoothing moves the spread of a tensor's channels into the constants that they meet, as in
SmoothQuant (Xiao et al. 2023): ``factors[j] = max |x_j|^a / max |w_j|^(1 - a)``. Nine
channels of ten count as equal, so that the others are brought down to those.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunegrad import devices
from tunegrad.config import CALIBRATED, ModelDtype, Numerics, check_names
from tunegrad.errors import ConfigError, ModelError
from tunegrad.frontend import (
    Calibration,
    Example,
    InputSpec,
    Model,
    Tensor,
    Weights,
    quantised_model,
    read_calibration,
)
from tunegrad.inference import loading
from tunegrad.inference.batches import Batches
from tunegrad.inference.loaded import LoadedModel
from tunegrad.ir.dtypes import BOOL
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.graph import ConstData, Node, graph_input
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.ir.rewrites import Product, Scale, find_products, switched
from tunegrad.lazy import dataclass
from tunegrad.planning import deviation
from tunegrad.reports import Deviation, Price, QuantizeReport
from tunegrad.runtime import Argument

Array = NDArray[Any]
Method = Literal["minmax", "percentile", "mse"]


_OBSERVED_BYTES = 256 << 20
"""Bytes of tensors that one program gives out, unless a single one has more."""
_BINS = 2048
_SHRINKS = np.linspace(0.25, 1.0, 16)
"""Parts of either end of a whole range, of which the nearest is looked for."""
_USUAL = 0.9
"""Share of the channels of a tensor that smoothing takes for equal."""
_MOST_COMPARED = 4
"""Batches on which layers are compared with f32, one by one."""
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Quantized:
    """A model in bytes, and what that cost.

    ``model`` is a Model like any other: ``tg.load``, ``tg.tune`` and ``tg.explain`` take it.
    """

    model: Model
    report: QuantizeReport
    calibration: Calibration
    _session: _Session | None = field(default=None, repr=False, compare=False)

    def priced(self, store: loading.StorePath = None) -> QuantizeReport:
        """The report with times as a store is now: after a search, say."""
        if self._session is None:
            return self.report
        return replace(self.report, prices=self._session.prices(self.model, store))

    def save(self, path: str | os.PathLike[str], model: str | None = None) -> None:
        """Write the scales to a file ``NAME.int8.json``; no weights.

        The file stands wherever a model does, if it has the name of a model: ``model``, or that by
        which it was quantised. Raises ModelError where it can not be written.
        """
        if not os.fspath(path).endswith(CALIBRATED):
            raise ModelError(f"file {os.fspath(path)}: its name must end with {CALIBRATED}")
        name = self.calibration.model if model is None else model
        msgspec.structs.replace(self.calibration, model=name).write(path)


class QuantizeOptions(TypedDict, total=False):
    """Options of ``quantize`` that are those of ``load``."""

    weights: Weights | str | Path | None
    seed: int
    device: str
    threads: int | None
    store: loading.StorePath
    numerics: Numerics


def quantize(
    model: str | Model | Example,
    batches: str | os.PathLike[str] | Sequence[Any],
    *,
    method: Method = "minmax",
    percentile: float = 99.99,
    smooth: float | None = None,
    max_error: float | None = None,
    keep: Sequence[str] = (),
    **options: Unpack[QuantizeOptions],
) -> Quantized:
    """A model with its convolutions and linear layers of bytes, calibrated on ``batches``.

    ``batches``: a sequence of arrays, of tuples of arrays in the order of the inputs, or of dicts
    by their names; a folder of ``.npz`` and ``.npy`` files, or one such file (several times the
    batch in rows are several batches). Every fourth one is held out, to measure the error. A file
    ``NAME.int8.json`` of ``Quantized.save`` needs no batches.

    ``method``: the range of a tensor is all that was seen, ``"minmax"``; all but (100 - percentile)
    per cent of it, ``"percentile"``; or the one of the least mean squared error, ``"mse"``.
    ``smooth``: the share, 0 to 1, of the spread of a tensor's channels that moves into the
    constants; None for none. ``max_error``: the layers that cost most stay in f32 until the
    relative root mean square of the outputs' error on the batches that calibrate is at most that.
    ``keep``: layers that stay in f32, by what their constants' names begin with. Constants have a
    scale for each output channel, tensors one. All else is as in ``load``.

    Raises UserError in one line: ModelError for batches that do not fit the model, are none, or are
    not finite, or a model without such layers; ConfigError for another option.
    """
    _check(method, percentile, smooth, max_error)
    check_names(options, QuantizeOptions.__optional_keys__)
    seed, store = options.get("seed", 0), options.get("store")
    found, threads, dtype = loading.resolved(model, options.get("threads"), None)
    if dtype != "f32":
        raise ConfigError(f"model {found.name} is in {dtype}; what is quantised is in f32")
    if found.rewrite is not None:
        raise ModelError(f"model {found.name} is in bytes already")
    if found.donated:
        raise ModelError(f"model {found.name} writes to its inputs; what is quantised does not")
    found = replace(found, first_call=None)
    values = found.weights(options.get("weights"), seed)
    found = replace(found, own=values) if values else found
    named = model if isinstance(model, str) else ""

    def load(it: Model, place: loading.StorePath = False, dtype: ModelDtype = "f32") -> LoadedModel:
        how = loading.LoadSettings(
            device=options.get("device", devices.DEFAULT), threads=threads, store=place,
            numerics=options.get("numerics", "contract"), dtype=dtype,
        )  # fmt: skip
        return loading.load_model(it, how, None, seed)

    if isinstance(batches, str | os.PathLike) and os.fspath(batches).endswith(CALIBRATED):
        said = read_calibration(batches)
        made = quantised_model(found, said)
        kept = tuple(p.name for p in said.products if p.tensor < 0)
        report = QuantizeReport(found.name, said.method, 0, 0, len(said.products), kept)
        return Quantized(made, report, said)
    arguments = [Argument(i.name, i.shape, i.dtype) for i in found.inputs]
    given = Batches(batches, arguments)
    session = _Session(found, given, load)
    scales = session.scales(method, percentile, smooth)
    kept_at = session.kept(scales, keep, max_error)
    calibration = Calibration.of(named, method, session.products, scales, sorted(kept_at))
    made = quantised_model(found, calibration)
    listed = session.prices(made, store)
    names = tuple(_name(session.products[i], i) for i in sorted(kept_at))
    report = QuantizeReport(
        found.name, method, given.count(False), given.count(True) if len(given) > 1 else 0,
        len(session.products), names,
        listed[-1].deviation,
        tuple((_name(session.products[i], i), e) for i, e in session.costs.items()), listed,
    )  # fmt: skip
    return Quantized(made, report, calibration, session)


def _check(method: str, percentile: float, smooth: float | None, max_error: float | None) -> None:
    for name, value in (("percentile", percentile), ("smooth", smooth), ("max_error", max_error)):
        if value is not None and not isinstance(value, int | float | np.number):
            raise ConfigError(f"{name} {value!r:.60} is no number")
    if method not in get_args(Method):
        raise ConfigError(f"method {method!r} is unknown; valid: {', '.join(get_args(Method))}")
    if not 50.0 < percentile <= 100.0:
        raise ConfigError(f"percentile {percentile!r} is not above 50, and at most 100")
    if smooth is not None and not 0.0 <= smooth <= 1.0:
        raise ConfigError(f"smooth {smooth!r} is not between 0 and 1")
    if max_error is not None and not 0.0 <= max_error < np.inf:
        raise ConfigError(f"max_error {max_error!r} is not a number of at least 0")


def _name(p: Product, at: int) -> str:
    return p.name or f"product {at}"


def _outputs(program: LoadedModel, batch: Mapping[str, Array]) -> tuple[Array, ...]:
    made = program(**batch)
    return made if isinstance(made, tuple) else (made,)


class _Session:
    """A model, its batches, and the programs that observe it. Mutable: keeps what it measured."""

    def __init__(self, model: Model, batches: Batches, load: Callable[..., LoadedModel]) -> None:
        self._model, self._batches, self._load = model, batches, load
        built, changed = model.traced(model.weights())
        if changed:
            raise ModelError(f"model {model.name} writes to its inputs; what is quantised does not")
        outputs = fold_constants(tuple(t.node for t in built))
        self._dtypes = [o.dtype for o in outputs]
        self.products = find_products(outputs)
        if not self.products:
            raise ModelError(
                f"model {model.name} has no convolution and no linear layer with known weights, so "
                "nothing to quantise"
            )
        self.tensors = _tensors(self.products)
        self._groups = _groups(self.tensors)
        self._observers: list[LoadedModel] = []
        self.costs: dict[int, float] = {}

    def _observed(self) -> Iterable[tuple[int, Node, Array]]:
        """(number, tensor, values) of each batch that calibrates. Raises ModelError for a number
        that is not finite.
        """
        if not self._observers:
            for group in self._groups:
                add = partial(_observing, places=group)
                self._observers.append(self._load(replace(self._model, rewrite=add)))
        for batch in self._batches.part(False):
            for group, program in zip(self._groups, self._observers, strict=True):
                for i, values in zip(group, _outputs(program, batch), strict=True):
                    if not np.isfinite(values).all():
                        raise ModelError(
                            f"model {self._model.name}: numbers that are not finite before "
                            f"{self._readers(i)[0].name or f'tensor {i}'}, on the batches given"
                        )
                    yield i, self.tensors[i], values

    def _readers(self, i: int) -> list[Product]:
        return [p for p in self.products if p.tensor is self.tensors[i]]

    def scales(self, method: Method, percentile: float, smooth: float | None) -> dict[Node, Scale]:
        """The scale of each tensor."""
        axes = [_axis(self._readers(i)) for i in range(len(self.tensors))]
        low = [np.array(np.inf) for _ in axes]
        high = [np.array(-np.inf) for _ in axes]
        for i, _, values in self._observed():
            axis = axes[i]
            others = None if axis is None else tuple(d for d in range(values.ndim) if d != axis)
            low[i] = np.minimum(low[i], values.min(others))
            high[i] = np.maximum(high[i], values.max(others))
        ranges = list(zip(low, high, strict=True))
        factors = [
            () if smooth is None or axes[i] is None else _factors(self._readers(i), a, b, smooth)
            for i, (a, b) in enumerate(ranges)
        ]
        by = [np.asarray(f, np.float32) if f else np.float32(1.0) for f in factors]
        spans = [
            (float((a / f).min()), float((b / f).max()))
            for (a, b), f in zip(ranges, by, strict=True)
        ]
        if method != "minmax":
            counts = [np.zeros(_BINS, np.int64) for _ in axes]
            for i, _, values in self._observed():
                shape = tuple(-1 if d == axes[i] else 1 for d in range(values.ndim))
                scaled = values / (by[i].reshape(shape) if factors[i] else by[i])
                counts[i] += np.histogram(scaled, _BINS, _proper(*spans[i]))[0]
            pick = partial(_percentile, share=percentile) if method == "percentile" else _nearest
            spans = [pick(c, *_proper(*span)) for c, span in zip(counts, spans, strict=True)]
        return {
            t: Scale.of(*span, f) for t, span, f in zip(self.tensors, spans, factors, strict=True)
        }

    def kept(
        self, scales: Mapping[Node, Scale], keep: Sequence[str], bound: float | None
    ) -> set[int]:
        """Places of products that stay in f32: those named, and the worst, as the bound takes."""
        keep = [keep] if isinstance(keep, str) else keep
        for name in keep:
            if not isinstance(name, str):
                raise ConfigError(f"keep {name!r:.60}: it is no text that a constant's name begins")
            if not any(p.name.startswith(name) for p in self.products):
                raise ConfigError(
                    f"keep {name!r}: no product's constant begins so; they are "
                    f"{', '.join(_name(p, i) for i, p in enumerate(self.products))}"
                )
        kept = {i for i, p in enumerate(self.products) if p.name.startswith(tuple(keep))}
        if bound is None or len(kept) == len(self.products):
            return kept
        compare = self._comparison(scales)
        free = [i for i in range(len(self.products)) if i not in kept]
        if compare(free) <= bound:
            return kept
        self.costs = {i: compare([i]) for i in free}
        worst = sorted(free, key=lambda i: (-self.costs[i], i))
        fewest, most = 0, len(worst)  # so many kept are too few, and enough
        while most - fewest > 1:
            middle = (fewest + most) // 2
            if compare(worst[middle:]) <= bound:
                most = middle
            else:
                fewest = middle
        return kept | set(worst[:most])

    def _comparison(self, scales: Mapping[Node, Scale]) -> Callable[[Sequence[int]], float]:
        """The error of the outputs, on a few batches, with only the products at these places of
        bytes: all of that is one program, which is told by inputs.
        """
        program = self._load(_switched(self._model, scales, len(self.products)))
        batches = [
            b for _, b in zip(range(_MOST_COMPARED), self._batches.part(False), strict=False)
        ]

        def run(places: Sequence[int]) -> list[tuple[Array, ...]]:
            flags = np.zeros(len(self.products), np.bool_)
            flags[list(places)] = True
            return [_outputs(program, {**b, _FLAGS: flags}) for b in batches]

        wanted = run([])

        def error(places: Sequence[int]) -> float:
            return self._deviation(run(places), wanted).rms

        return error

    def prices(self, made: Model, store: loading.StorePath) -> tuple[Price, ...]:
        """The time of a model here in f32, in bf16 where the processor multiplies pairs of those,
        and in bytes, each with its error on the batches that are held out.

        Each runs with what the store has for it, in turns with the others.
        """
        full = self._load(self._model, store)
        sides = {"f32": full}
        if full.multiplies_pairs:
            sides["bf16"] = self._load(self._model, store, "bf16")
        sides["int8"] = self._load(made, store)
        batch = next(self._batches.part(True))
        timers = {name: side.timer(**batch) for name, side in sides.items()}
        samples: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(_ROUNDS):
            for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
                samples[name] += timers[name](3)[1:]
        return tuple(
            Price(
                name,
                1e3 * statistics.median(samples[name]),
                None if name == "f32" else self._errors(full, side),
                sum(c.trial is not None for c in side.choices),
                len(side.choices),
            )
            for name, side in sides.items()
        )

    def _errors(self, full: LoadedModel, narrow: LoadedModel) -> Deviation:
        """The deviation of a model on the batches that are held out."""
        pair: list[list[tuple[Array, ...]]] = [[], []]
        for batch in self._batches.part(True):
            for side, program in zip(pair, (narrow, full), strict=True):
                side.append(_outputs(program, batch))
        return self._deviation(*pair)

    def _deviation(
        self, narrow: Sequence[tuple[Array, ...]], full: Sequence[tuple[Array, ...]]
    ) -> Deviation:
        """The deviation of outputs, those of all batches together."""
        sides = [
            [
                to_compute(np.stack(arrays), d)
                for arrays, d in zip(zip(*side, strict=True), self._dtypes, strict=True)
            ]
            for side in (narrow, full)
        ]
        return deviation(*sides)


def _groups(tensors: Sequence[Node]) -> list[tuple[int, ...]]:
    """Places of tensors, in parts of so many bytes that a program may give out."""
    groups: list[list[int]] = [[]]
    used = 0
    for i, t in enumerate(tensors):
        nbytes = t.size * t.dtype.itemsize
        if groups[-1] and used + nbytes > _OBSERVED_BYTES:
            groups.append([])
            used = 0
        groups[-1].append(i)
        used += nbytes
    return [tuple(g) for g in groups]


def _tensors(products: Sequence[Product]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(p.tensor for p in products))


def _observing(outputs: tuple[Node, ...], places: Sequence[int]) -> tuple[Node, ...]:
    """The tensors of a graph at some places, in place of its outputs."""
    tensors = _tensors(find_products(fold_constants(outputs)))
    return tuple(tensors[i] for i in places)


_FLAGS = "in bytes"
"""Input of a program that compares products: one truth for each."""


def _switched(base: Model, scales: Mapping[Node, Scale], count: int) -> Model:
    """A model whose products are of bytes where an input says so."""

    def rewrite(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
        folded = fold_constants(outputs)
        flags = graph_input(_FLAGS, (count,), BOOL)
        return switched(folded, find_products(folded), scales, flags)

    def make() -> Callable[..., tuple[Tensor, ...]]:
        return lambda *_: base.build(base.weights())  # inputs are known by their names

    inputs = (*base.inputs, InputSpec(_FLAGS, (count,), BOOL))
    return Model(f"{base.name} by layers", make, inputs, rewrite=rewrite)


def _axis(readers: Sequence[Product]) -> int | None:
    """The dimension of a tensor that all products which read it fold with their constants'."""
    axes = {None if p.along is None else p.along[0] for p in readers}
    return axes.pop() if len(axes) == 1 else None


def _factors(
    readers: Sequence[Product], low: Array, high: Array, share: float
) -> tuple[float, ...]:
    """Numbers that the channels of a tensor are divided by, and the constants multiplied."""
    mine = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
    mine = np.maximum(mine, np.quantile(mine, _USUAL))  # few rows say little of one channel
    theirs = np.zeros_like(mine)
    for p in readers:
        values = np.abs(cast(ConstData, p.weight.arg).array)
        at = cast(tuple[int, int], p.along)[1]
        others = tuple(d for d in range(values.ndim) if d != at)
        theirs = np.maximum(theirs, values.max(others))
    known = (mine > 0) & (theirs > 0)
    factors = np.ones_like(mine)
    factors[known] = mine[known] ** share / theirs[known] ** (1.0 - share)
    if known.any():  # their common size means nothing
        factors[known] /= np.exp(np.log(factors[known]).mean())
    return tuple(float(np.float32(f)) for f in factors)


def _proper(low: float, high: float) -> tuple[float, float]:
    """A range of some width, with zero in it."""
    low, high = min(low, 0.0), max(high, 0.0)
    return (low, high) if low < high else (low, low + 1.0)


def _percentile(counts: Array, low: float, high: float, share: float) -> tuple[float, float]:
    """The range without the numbers beyond a share, at either end."""
    beyond = counts.sum() * (1.0 - share / 100.0)
    edges = np.linspace(low, high, len(counts) + 1)
    first = int(np.searchsorted(np.cumsum(counts), beyond, "right"))
    last = int(np.searchsorted(np.cumsum(counts[::-1]), beyond, "right"))
    return float(edges[min(first, _BINS - 1)]), float(edges[max(len(counts) - last, 1)])


def _nearest(counts: Array, low: float, high: float) -> tuple[float, float]:
    """The range whose bytes are nearest to the numbers, in the mean square."""
    edges = np.linspace(low, high, len(counts) + 1)
    middles = ((edges[:-1] + edges[1:]) / 2).astype(np.float32)
    seen = counts > 0
    middles, weights = middles[seen], counts[seen]
    best, span = np.inf, (low, high)
    for a in _SHRINKS if low < 0.0 else (1.0,):
        for b in _SHRINKS if high > 0.0 else (1.0,):
            s = Scale.of(low * a, high * b)
            off = s.numbers_of(s.bytes_of(middles)) - middles
            error = float((weights * off.astype(np.float64) ** 2).sum())
            if error < best:
                best, span = error, (low * a, high * b)
    return span
