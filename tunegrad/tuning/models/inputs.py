"""The inputs of whole models: two sets, the same in every process.

0   as drawn for timing: standard normal floats, small integers, indices in range; integers of 32
    bits and more that nothing is known of are 0 or 1: they are tokens, positions and masks, and
    ``(1 - mask) * least`` overflows for a mask of 2
1   a quarter zeros, the others from 2^-4 to 2^4 times a normal draw: cancellation
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices import Parameter
from tunegrad.devices.verifying.inputs import draw
from tunegrad.ir.dtypes import BF16, DType
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.runtime import Argument

__all__ = ["SETS", "drawn"]

SETS = 2

_OCTAVES = 4


def drawn(inputs: Sequence[Argument], number: int) -> dict[str, NDArray[Any]]:
    """The arrays of set ``number`` by name, in memory form (bf16 as uint16)."""
    rng = np.random.default_rng(number)
    found = {
        a.name: draw(Parameter(a.name, a.dtype.name, prod(a.shape), "in", _bound(a)), rng)
        for a in inputs
    }
    if number:
        found = {a.name: _uneven(found[a.name], a.dtype, rng) for a in inputs}
    return {a.name: found[a.name].reshape(a.shape) for a in inputs}


def _bound(a: Argument) -> int:
    """Upper bound of the elements of an input, from 0 on; 0: of either sign."""
    return a.bound or (2 if a.dtype.is_int and a.dtype.bits >= 32 else 0)


def _uneven(values: NDArray[Any], dtype: DType, rng: np.random.Generator) -> NDArray[Any]:
    """Zeros among values of several magnitudes, signs as they were; integers keep their range."""
    zero = rng.random(values.size) < 0.25
    if dtype.is_float:
        scale = np.exp2(rng.integers(-_OCTAVES, _OCTAVES + 1, values.size)).astype(np.float32)
        wide = to_compute(values, dtype) * scale
        values = to_memory(wide, dtype) if dtype == BF16 else wide.astype(values.dtype)
    return np.asarray(np.where(zero, np.zeros((), values.dtype), values))
