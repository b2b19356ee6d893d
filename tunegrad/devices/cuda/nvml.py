"""Clocks, power and temperature of a GPU by NVML, which needs no context: any process may ask.

Each reading is left out where the library, the driver or the GPU does not give it: what is timed is
timed all the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tunegrad.trial import Properties

__all__ = ["state"]


def state(number: int) -> Properties:
    """``memory_mhz``, ``power_w``, ``sm_mhz``, ``temperature_c`` and ``clock_reasons``: the bits of
    ``nvmlClocksEventReasons``, what keeps the clocks from being higher.

    ``number`` is the driver's, under CUDA_VISIBLE_DEVICES.
    """
    opened = _opened(number)
    if opened is None:
        return ()
    nvml, handle = opened
    clocks, sensor = nvml.ClockType, nvml.TemperatureSensors.TEMPERATURE_GPU
    asked: dict[str, Callable[[], float]] = {
        "clock_reasons": lambda: nvml.device_get_current_clocks_event_reasons(handle),
        "memory_mhz": lambda: nvml.device_get_clock_info(handle, clocks.CLOCK_MEM),
        "power_w": lambda: 1e-3 * nvml.device_get_power_usage(handle),
        "sm_mhz": lambda: nvml.device_get_clock_info(handle, clocks.CLOCK_SM),
        "temperature_c": lambda: nvml.device_get_temperature_v(handle, sensor),
    }
    found = []
    for name, ask in asked.items():
        try:
            found.append((name, float(ask())))
        except Exception:  # noqa: BLE001  # its errors are not one family, and none matters
            continue
    return tuple(found)


@functools.cache
def _opened(number: int) -> tuple[Any, Any] | None:
    """NVML and its handle of the GPU; None where either is not to be had."""
    try:
        from cuda.bindings import nvml

        from tunegrad.devices.cuda.bindings import bus_id

        nvml.init_v2()
        return nvml, nvml.device_get_handle_by_pci_bus_id_v2(bus_id(number))
    except Exception:  # noqa: BLE001  # no package, no library, no such function: no readings
        return None
