"""Kernels that write over their inputs, on an OpenCL device, and as CUDA C++ on this CPU: the same
bits with both in one buffer.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tests.overwriting_kernels import OVERWRITING, overwriting_kernel
from tests.schedule_checks import buffers_of
from tunegrad.compiling import build
from tunegrad.devices import Device
from tunegrad.opts import Schedule, Space

FAST = ("over: adam", "over: softmax")


def _compare(device: Device, name: str) -> None:
    kernel = overwriting_kernel(name)
    schedule = Schedule.parse(Space(kernel, device.target).defaults()[0].text)
    lowered = build(kernel, schedule, device)
    program = Space(kernel, device.target).lower(schedule)
    given = buffers_of(kernel, program, 7)
    with device.open() as engine:
        code = engine.load(lowered, device.compile(lowered))
        scratch = [engine.allocate(n) for n in lowered.scratch_bytes]
        found = []
        for over in ({}, lowered.io.overwritten):
            held = {p.name: engine.allocate(p.nbytes) for p in lowered.io.params}
            for p in lowered.io.params:
                if p.role != "out":
                    engine.write(held[over.get(p.name, p.name)], given[p.name])
            memories = [held[over.get(p.name, p.name)] for p in lowered.io.params]
            engine.time(engine.launch(code, memories, scratch), 1)
            found.append({p.name: held[p.name].read(p.dtype) for p in lowered.io.params
                          if p.role == "out"})  # fmt: skip
    for out, values in found[0].items():
        np.testing.assert_array_equal(values.view(np.uint8), found[1][out].view(np.uint8))


@pytest.mark.parametrize("name", FAST)
def test_a_kernel_over_its_input_gives_the_bits_that_it_gives_beside_it(name: str):
    _compare(opencl_device(), name)


@pytest.mark.parametrize("name", OVERWRITING)
def test_a_cuda_kernel_over_its_input_gives_the_bits_that_it_gives_beside_it(name: str):
    _compare(cuda_host(3, True), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERWRITING)
def test_any_kernel_over_its_input_gives_the_bits_that_it_gives_beside_it(name: str):
    _compare(opencl_device(), name)
