"""Weights: what a model needs, drawn from a seed or read from a file, and checked.

A parameter's values depend on the seed and its own name only, so that neither order nor other
parameters matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tunegrad.config import machine_bytes
from tunegrad.errors import WeightsError
from tunegrad.ir.dtypes import BF16, F32, DType
from tunegrad.lazy import dataclass

from .nodes.arrays import bf16_bits, bf16_values

Array = NDArray[np.generic]
Weights = Mapping[str, Array]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A named array that a model needs, and the distribution it is drawn from when there is no
    file.

    ``spread`` is the standard deviation of a normal, or the half width of a uniform distribution
    around ``mean``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType = F32
    mean: float = 0.0
    spread: float = 1.0
    law: Literal["normal", "uniform"] = "normal"


def draw(parameters: Iterable[ParameterSpec], seed: int = 0) -> dict[str, Array]:
    """Draw every parameter from its distribution; one seed draws the same on every machine.

    Raises WeightsError where the parameters need more memory than the machine has.
    """
    parameters = tuple(parameters)
    sizes = {p: prod(p.shape) * p.dtype.bits // 8 for p in parameters}
    if (needed := sum(sizes.values())) > machine_bytes():
        largest = max(parameters, key=sizes.__getitem__)
        raise WeightsError(
            f"parameters of {needed:,} bytes, {largest.name} {list(largest.shape)} the largest: "
            f"this machine has {machine_bytes():,} bytes of memory"
        )
    return {p.name: _drawn(p, seed) for p in parameters}


def _drawn(p: ParameterSpec, seed: int) -> Array:
    key = int.from_bytes(hashlib.sha256(p.name.encode()).digest()[:16], "little")
    rng = np.random.default_rng([seed, key])
    kind = np.float64 if p.dtype.bits == 64 else np.float32
    if p.law == "normal":
        values = rng.standard_normal(p.shape, dtype=kind)
    else:
        values = rng.random(p.shape, dtype=kind) * kind(2) - kind(1)
    values *= kind(p.spread)
    values += kind(p.mean)
    return bf16_bits(values) if p.dtype == BF16 else values.astype(p.dtype.numpy, copy=False)


def load_weights(
    parameters: Sequence[ParameterSpec],
    source: Weights | str | Path | None = None,
    seed: int = 0,
    owner: str = "model",
) -> dict[str, Array]:
    """The parameters from a dict or a ``.safetensors`` file, checked; drawn from the seed without
    either.

    Raises:
        WeightsError: an unreadable file, or missing, unexpected or misshapen parameters.
    """
    if source is None:
        return draw(parameters, seed)
    if isinstance(source, Mapping):
        return check_weights(parameters, source, owner)
    return check_weights(parameters, read_safetensors(Path(source)), f"{owner} in {source}")


def check_weights(
    parameters: Sequence[ParameterSpec], weights: Weights, owner: str = "model"
) -> dict[str, Array]:
    """Exactly the parameters, in their order and dtypes; ``num_batches_tracked`` counters that are
    no parameters are ignored.

    Floats of another width are converted.

    Raises:
        WeightsError: names the first few missing, unexpected and misshapen ones, and how many there
        are.
    """
    known = {p.name: p for p in parameters}
    given = {
        name: _as_array(name, w)
        for name, w in weights.items()
        if name in known or not name.endswith("num_batches_tracked")
    }
    wrong = [
        f"{p.name} is {given[p.name].dtype} {given[p.name].shape}, must be {p.dtype} {p.shape}"
        for p in parameters
        if p.name in given
        and (given[p.name].shape != p.shape or not _converts(given[p.name], p.dtype))
    ]
    problems = (
        _counted("missing", [n for n in known if n not in given]),
        _counted("unexpected", [n for n in given if n not in known]),
        _counted("misshapen", wrong),
    )
    if any(problems):
        raise WeightsError(f"weights of {owner}: {'; '.join(p for p in problems if p)}")
    return {p.name: _converted(given[p.name], p.dtype) for p in parameters}


def read_safetensors(path: Path) -> dict[str, Array]:
    """Every tensor of a ``.safetensors`` file, mapped: what is not touched is not read. bf16 ones
    as f32.

    Raises:
        WeightsError: no such file, not a safetensors file, or a dtype numpy does not have.
    """
    from tunegrad.runtime import mapped

    try:
        arrays, _, kinds = mapped.map_arrays(path)
    except OSError as error:
        raise WeightsError(f"weights file {path}: {error.strerror or error}") from None
    except mapped.UnknownKindError as error:
        raise WeightsError(f"weights file {path}: {error}") from None
    except mapped.MappedFileError as error:
        raise WeightsError(f"weights file {path} is not a safetensors file: {error}") from None
    return {n: bf16_values(a) if kinds[n] == "BF16" else a for n, a in arrays.items()}


def _as_array(name: str, value: object) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise WeightsError(
            f"weights: {name} is of type {type(value).__name__}, it must be an array of numbers"
        )
    return array


def _converts(array: Array, dtype: DType) -> bool:
    return array.dtype == dtype.numpy or (array.dtype.kind == "f" and dtype.is_float)


def _converted(array: Array, dtype: DType) -> Array:
    if array.dtype == dtype.numpy:
        return array
    return bf16_bits(array) if dtype == BF16 else array.astype(dtype.numpy)


def _counted(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {what} ({', '.join(names[:_SHOWN])}{more})"
