"""The cost of 16 bits to a model: its outputs next to those of the model as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.reports import Deviation

Array = NDArray[Any]


def deviation(narrow: Sequence[Array], full: Sequence[Array]) -> Deviation:
    """Distance of float outputs from those of the same model in f32; of several the worst.

    Elements where the f32 model is not finite say nothing. No floats, or no elements, is no
    deviation.
    """
    found = [_of_output(n, f) for n, f in zip(narrow, full, strict=True) if f.dtype.kind == "f"]
    return Deviation(
        max((d.largest for d in found), default=0.0), max((d.rms for d in found), default=0.0)
    )


def deviation_of_graph(
    outputs: tuple[Node, ...], full: tuple[Node, ...], inputs: Mapping[str, Array]
) -> Deviation:
    """``deviation`` of a narrowed graph from the full one, both evaluated by numpy.

    ``inputs`` are by name, in memory form (bf16 as uint16).
    """
    pair = [
        [to_compute(a, n.dtype) for a, n in zip(evaluate(graph, inputs), graph, strict=True)]
        for graph in (outputs, full)
    ]
    return deviation(*pair)


def _of_output(narrow: Array, full: Array) -> Deviation:
    known = np.isfinite(full)
    want, got = full[known].astype(np.float64), narrow[known].astype(np.float64)
    if not want.size:
        return Deviation(0.0, 0.0)
    if not np.isfinite(got).all():
        return Deviation(inf, inf)
    off = got - want
    return Deviation(
        _ratio(float(np.abs(off).max()), float(np.abs(want).max())),
        _ratio(sqrt(float(np.mean(off**2))), sqrt(float(np.mean(want**2)))),
    )


def _ratio(off: float, size: float) -> float:
    """``off`` over ``size``; of nothing, anything is infinitely far off."""
    found = off / size if size else (inf if off else 0.0)
    return found if isfinite(found) else inf
