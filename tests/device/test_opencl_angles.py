"""sin, cos and tan of OpenCL are rounded once, whatever stands beside an argument in a vector."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import devices
from tunegrad.errors import DeviceError


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_small_angles_beside_large_ones_are_right(name: str) -> None:
    """PoCL's own vectors gave 0.015 for sin(1e-38) beside 1e30."""
    try:
        devices.open("opencl:pocl")
    except DeviceError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    sizes = np.exp2(np.where(np.arange(4096) % 3, rng.uniform(-140, 7, 4096), 100))
    x = (sizes * rng.choice([-1, 1], 4096)).astype(np.float32)
    found = tg.compile(lambda v: getattr(v, name)(), x, store=False, device="opencl:pocl")(x)
    wanted = getattr(np, name)(x.astype(np.float64))
    least = np.float32(2.0**-126)
    ulps = np.abs(found - wanted) / np.spacing(np.maximum(np.abs(wanted), least).astype(np.float32))
    assert ulps.max() <= 0.51
