"""Long f32 sums on an OpenCL device are right to 1e-6. Skips where there is no OpenCL device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.hand_schedules import GPU, gemm, row_sum
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space

TERMS = 1 << 22
ROWS = [
    "",
    "tile(axis=k, size=8) unroll(axis=k1)",
    "tile(axis=k, size=4) upcast(axis=k1)",
    "tile(axis=k, size=64) group(axis=k1)",
]
PRODUCTS = {
    "": False,
    "reorder(order=(k, m, n))": True,
    "tile(axis=k, size=64) reorder(order=(k0, m, n, k1))": True,
    "tile(axis=k, size=65536) reorder(order=(k0, m, n, k1))": False,
}


@pytest.fixture(scope="module")
def device() -> Iterator[Programs]:
    with Programs(opencl_device()) as device:
        yield device


def relative_error(
    device: Programs, kernel: Kernel, text: str, *given: np.ndarray, wanted: np.ndarray
) -> float:
    program = Space(kernel, GPU).lower(Schedule.parse(text))
    out, *inputs = kernel.params
    buffers = {p.name: a.reshape(-1) for p, a in zip(inputs, given, strict=True)}
    buffers[out.name] = np.full(out.size, np.nan, np.float32)
    device.run(device.compile(program), buffers)
    return float(
        np.max(
            np.abs(buffers[out.name].astype(np.float64) - wanted.reshape(-1)) / wanted.reshape(-1)
        )
    )


@pytest.mark.parametrize("text", ROWS)
def test_long_rows_are_right_on_opencl(device: Programs, text: str) -> None:
    x = np.random.default_rng(0).random((1, TERMS), np.float32)
    wanted = 0.5 * x.sum(axis=1, dtype=np.float64)
    assert relative_error(device, row_sum(1, TERMS), text, x, wanted=wanted) <= 1e-6


@pytest.mark.parametrize("text", PRODUCTS)
def test_long_products_are_right_on_opencl(device: Programs, text: str) -> None:
    depth = TERMS >> 2
    rng = np.random.default_rng(1)
    a, b = rng.random((2, depth), np.float32), rng.random((depth, 2), np.float32)
    kernel = gemm(2, 2, depth)
    allocated = [x.name for x in Space(kernel, GPU).lower(Schedule.parse(text)).allocs]
    assert allocated == (["v0.partial"] if PRODUCTS[text] else [])
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert relative_error(device, kernel, text, a, b, wanted=wanted) <= 1e-6
