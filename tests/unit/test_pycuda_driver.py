"""The driver over pycuda, on a fake of it: what is enqueued, refused, and a fault."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_host import cuda_host
from tests.cuda_texts import image
from tests.fake_pycuda import installed
from tunegrad.devices.cuda.pycuda import PycudaDriver
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceFault, OutOfResources

ADD = 'extern "C" __global__ void add(int *x) { x[threadIdx.x] += 1; }'
BAD = 'extern "C" __global__ void bad(int *x) { __trap(); }'


@pytest.fixture
def fake():
    cuda_host()
    with installed() as made:
        yield made


@pytest.fixture
def driver(fake):
    made = PycudaDriver(0)
    yield made
    made.close()


def test_work_goes_into_one_stream_and_happens_when_somebody_waits(driver):
    function, x = driver.load(image(ADD, "add"), "add"), driver.allocate(128)
    driver.fill(x, 0, 128)
    driver.launch(function, Geometry(1, 32), [x])
    first = driver.event()
    graph = driver.graph([(function, Geometry(1, 32), [x])] * 3)
    driver.replay(graph)
    driver.replay(graph)
    last = driver.event()
    data = np.empty(32, np.int32)
    driver.read(x, data)
    assert data.tolist() == [7] * 32
    assert driver.seconds(first, last) > 0
    driver.unload(function)
    driver.free(x)
    assert (driver.place, driver.stream) == ((2, 0), 0x5EED)


def test_every_call_leaves_the_stack_of_contexts_as_it_was(driver, fake):
    before = fake.pushed
    x = driver.allocate(128)
    driver.write(x, np.arange(32, dtype=np.float32))
    with pytest.raises(CompileFailure):
        driver.load(b"nonsense", "k")
    assert fake.pushed == before + 3
    assert fake._stack.contexts == ()


def test_too_much_is_refused_and_breaks_nothing(driver):
    function, x = driver.load(image(ADD, "add"), "add"), driver.allocate(128)
    with pytest.raises(OutOfResources, match="launch of 1 groups of 2000 items: cuLaunchKernel"):
        driver.launch(function, Geometry(1, 2000), [x])
    with pytest.raises(OutOfResources, match="bytes shared by a group: cuFuncSetAttribute"):
        driver.allow(function, 1 << 20)
    with pytest.raises(MemoryError, match=r"\d+ of \d+ bytes are free"):
        driver.allocate(1 << 60)
    driver.launch(function, Geometry(1, 32), [x])
    driver.finish()


def test_a_fault_stays_and_is_told_in_the_drivers_words(driver):
    function, x = driver.load(image(BAD, "bad"), "bad"), driver.allocate(128)
    driver.launch(function, Geometry(1, 1), [x])
    for call in (driver.finish, driver.finish, lambda: driver.allocate(4)):
        with pytest.raises(DeviceFault, match="illegal memory access"):
            call()
    with pytest.raises(DeviceFault):
        driver.launch(function, Geometry(1, 1), [x])


def test_images_that_are_none_are_compile_failures(driver):
    with pytest.raises(CompileFailure, match="program k: its image does not load: cuModule"):
        driver.load(b"nonsense", "k")
    with pytest.raises(CompileFailure, match="program k: its image does not load: cuModuleGet"):
        driver.load(image(ADD, "add"), "k")
