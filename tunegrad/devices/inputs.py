"""Fresh inputs from a seed: normal-ish floats with no denormals, NaN or infinities, and small integers."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.job import KernelIO, Parameter
from tunegrad.ir.dtypes import buffer_dtype

__all__ = ["draw", "draw_inputs"]

_SMALL = 8


def draw_inputs(io: KernelIO, seed: int, kernel_key: str = "") -> dict[str, npt.NDArray[Any]]:
    """A flat array for every parameter that a kernel reads; the same in every process for the same arguments.

    Constants do not depend on ``seed``, only on the kernel: what is packed from them stays valid for every input set.
    """
    return {
        p.name: _constant(p, kernel_key).copy()
        if p.role == "const"
        else draw(p, np.random.default_rng(_entropy(kernel_key, p.name, seed)))
        for p in io.params
        if p.role in ("in", "const", "inout")
    }


@lru_cache(maxsize=4)
def _constant(param: Parameter, kernel_key: str) -> npt.NDArray[Any]:
    """A kernel's constant; kept, since its second input set has it, too."""
    return draw(param, np.random.default_rng(_entropy(kernel_key, param.name, 0)))


def draw(param: Parameter, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Values for one parameter. Floats: standard normal, rounded away from the denormals."""
    kind = buffer_dtype(param.dtype)
    if kind.is_bool:
        return rng.integers(0, 2, param.elements).astype(bool)
    if kind.is_int:
        low, high = (0, param.bound) if param.bound else (-_SMALL, _SMALL + 1)
        return rng.integers(low, high, param.elements).astype(kind.numpy)
    if kind.is_pair:
        halves = _away_from_zero(rng.standard_normal(2 * param.elements, dtype=np.float32)).view(np.uint32) >> 16
        return halves[0::2] | (halves[1::2] << 16)
    if kind.name == "f64":
        return _away_from_zero(rng.standard_normal(param.elements))
    values = _away_from_zero(rng.standard_normal(param.elements, dtype=np.float32))
    if kind.name == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(kind.numpy, copy=False)


def _away_from_zero(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values[np.abs(values) < 1e-3] = 1e-3  # f16 has denormals below 6e-5
    return values


def _entropy(kernel_key: str, name: str, seed: int) -> int:
    digest = hashlib.blake2b(f"{kernel_key}\0{name}\0{seed}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")
