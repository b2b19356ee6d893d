"""Kernels that read views give the same on every device, wherever its views may begin."""

from __future__ import annotations

import numpy as np
import pytest

import tests.cuda_host  # noqa: F401  # adds the device
import tunegrad as tg
from tests.opencl_device import opencl_device
from tunegrad.errors import DeviceError

ROWS = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)


def stepped(y: tg.Tensor) -> tg.Tensor:
    """A number of each row, which a kernel of its own makes of a part of the input."""
    return tg.stack([(y[t] * 2).exp().sum() + y[t].max() for t in range(3)])


@pytest.mark.parametrize(("device", "kernels"), [("cpu", 2), ("cuda-host", 2), ("opencl", 4)])
def test_views_of_an_input_are_read_where_the_device_lets_them_begin(
    device: str, kernels: int
) -> None:
    model = tg.Model.of_function("rows", stepped, [ROWS])
    if device == "opencl":
        opencl_device()
    try:
        loaded = tg.load(model, store=False, device=device)
    except DeviceError as error:
        pytest.skip(str(error))
    np.testing.assert_allclose(
        loaded(ROWS), np.exp(2 * ROWS).sum(1) + ROWS.max(1), rtol=1e-5, atol=1e-5
    )
    views = [b.start for b in loaded._plan.buffers if b.role == "view"]
    assert len(loaded._plan.kernels()) <= kernels
    assert views
    assert loaded.profile_s(1)


def test_views_of_what_the_caller_changes_are_of_the_new_array() -> None:
    loaded = tg.load(tg.Model.of_function("rows", stepped, [ROWS]), store=False)
    for x in (ROWS, ROWS + 1, np.zeros_like(ROWS)):
        np.testing.assert_allclose(loaded(x), np.exp(2 * x).sum(1) + x.max(1), rtol=1e-5)
