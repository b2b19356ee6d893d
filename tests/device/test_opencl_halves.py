"""Conversions between f16 and f32 in OpenCL C are numpy's: all halves, floats at their ties."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opencl_batches import Platform, platform_of
from tunegrad import devices
from tunegrad.errors import DeviceError
from tunegrad.render.opencl import OPENCL

SOURCE = "\n".join(
    [
        OPENCL.prologue,
        OPENCL.helpers["from_f16"],
        OPENCL.helpers["to_f16"],
        "__kernel void widen(__global float *y, __global const ushort *x) {",
        "  y[get_global_id(0)] = tg_from_f16(x[get_global_id(0)]);",
        "}",
        "__kernel void narrow(__global ushort *y, __global const float *x) {",
        "  y[get_global_id(0)] = tg_to_f16(x[get_global_id(0)]);",
        "}",
    ],
)


@pytest.fixture(scope="module")
def pocl() -> Platform:
    try:
        return platform_of(devices.open("opencl:pocl"))
    except DeviceError as error:
        pytest.skip(str(error))


def converted(on: Platform, name: str, x: np.ndarray, dtype: type) -> np.ndarray:
    cl, flags = on.cl, on.cl.mem_flags
    y = np.zeros(x.shape, dtype)
    given = cl.Buffer(on.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=x)
    made = cl.Buffer(on.context, flags.READ_WRITE, size=y.nbytes)
    program = cl.Program(on.context, SOURCE).build(options=list(on.options), cache_dir=False)
    cl.Kernel(program, name)(on.queue, x.shape, None, made, given)
    cl.enqueue_copy(on.queue, y, made)
    return y


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    unsigned = f"u{want.itemsize}"
    np.testing.assert_array_equal(got.view(unsigned)[~nan], want.view(unsigned)[~nan])


def test_opencl_widens_every_half_as_numpy_does(pocl):
    halves = np.arange(1 << 16).astype(np.uint16)
    got = converted(pocl, "widen", halves, np.float32)
    assert_same_bits(got, halves.view(np.float16).astype(np.float32))


def test_opencl_narrows_floats_as_numpy_does(pocl):
    """Every half, what lies half way to the next one, its neighbours, and floats of any bits."""
    halves = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)
    ties = halves.view(np.uint32) + np.uint32(1 << 12)
    near = [ties, ties - np.uint32(1), ties + np.uint32(1), halves.view(np.uint32)]
    small = (np.arange(1 << 16) * 2.0**-27).astype(np.float32).view(np.uint32)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    x = np.concatenate([*near, small, drawn]).view(np.float32)
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
    assert_same_bits(converted(pocl, "narrow", x, np.uint16).view(np.float16), want)
