"""Hand-written CUDA C++ that runs on cuda-host's driver: what came of a launch, damage included."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cuda_host.build import build
from tests.cuda_host.driver import HostDriver
from tunegrad.devices.job import Geometry
from tunegrad.errors import DeviceError, DeviceFault

__all__ = ["ORDERS", "Ran", "driver", "image", "launch"]

ORDERS = tuple((seed, lazy) for lazy in (False, True) for seed in (0, 1, 2))
"""Seeds of the order of threads, and whether copies are lazy."""
_GUARD, _GUARD_BYTES = 0xA5, 512


@dataclass(frozen=True)
class Ran:
    """``fault``: in words, '' for none. ``damaged``: arrays beside which something was written."""

    arrays: Mapping[str, NDArray[Any]]
    fault: str
    damaged: tuple[str, ...]

    def __getitem__(self, name: str) -> NDArray[Any]:
        assert not self.fault, self.fault
        assert not self.damaged
        return self.arrays[name]


def driver(seed: int = 0, lazy: bool = False) -> HostDriver:
    """Skips where there is no C++ compiler."""
    try:
        return HostDriver(seed, lazy)
    except DeviceError as error:
        pytest.skip(str(error))


@functools.lru_cache(maxsize=256)
def image(text: str, entry: str) -> bytes:
    """Built once for all orders of threads. Skips where there is no C++ compiler."""
    try:
        return build(text, entry)
    except DeviceError as error:
        pytest.skip(str(error))


def launch(
    text: str,
    entry: str,
    geometry: Geometry,
    arrays: Mapping[str, NDArray[Any]],
    seed: int = 0,
    lazy: bool = False,
) -> Ran:
    """One launch; the arrays are the kernel's arguments, in order, between guard zones."""
    made = driver(seed, lazy)
    loaded = made.load(image(text, entry), entry)
    starts = {}
    for name, array in arrays.items():
        whole = -(-array.nbytes // 256) * 256 + 2 * _GUARD_BYTES
        starts[name] = made.allocate(whole) + _GUARD_BYTES
        made.fill(starts[name] - _GUARD_BYTES, _GUARD, whole)
        made.write(starts[name], np.ascontiguousarray(array))
    made.allow(loaded, geometry.shared_bytes)
    made.launch(loaded, geometry, list(starts.values()))
    fault = ""
    try:
        made.finish()
    except DeviceFault as error:
        fault = str(error)
    after, damaged = {}, []
    if not fault:
        for name, array in arrays.items():
            after[name] = np.empty_like(np.ascontiguousarray(array))
            made.read(starts[name], after[name])
            zones = [np.empty(_GUARD_BYTES, np.uint8) for _ in range(2)]
            for zone, at in zip(
                zones, (starts[name] - _GUARD_BYTES, starts[name] + array.nbytes), strict=True
            ):
                made.read(at, zone)
            if any((zone != _GUARD).any() for zone in zones):
                damaged.append(name)
    made.unload(loaded)
    made.close()
    return Ran(after, fault, tuple(damaged))
