"""A CUDA device's memory: kept for its next use, limited, and given back; its clock, and what it
says of itself beside samples. On cuda-host's driver.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import hostile
import numpy as np
import pytest

from tests.cuda_host import cuda_host
from tests.cuda_host.device import CudaHost
from tests.cuda_host.driver import HostDriver
from tunegrad.devices.cuda import engine as engines
from tunegrad.devices.cuda.engine import CudaEngine
from tunegrad.devices.job import (
    Candidate,
    Geometry,
    Hooks,
    KernelIO,
    Limits,
    Lowered,
    Parameter,
)
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.errors import DeviceFault
from tunegrad.trial import Status

pytestmark = pytest.mark.timing

GUARDS = 2 * 4096


class Capped(HostDriver):
    """A driver of a GPU with so little memory that it shows; it counts what is asked of it."""

    def __init__(self, total: int, reported: int = 1 << 40) -> None:
        super().__init__()
        self.total, self.reported = total, reported
        self.asked = self.freed = 0

    def memory(self) -> tuple[int, int]:
        return self.reported, self.reported

    def allocate(self, nbytes: int) -> int:
        if sum(self._sizes.values()) + nbytes > self.total:
            raise MemoryError(f"{nbytes} bytes")
        self.asked += 1
        return super().allocate(nbytes)

    def free(self, address: int) -> None:
        self.freed += 1
        super().free(address)


@pytest.fixture
def device():
    return cuda_host()


def test_a_thousand_of_one_size_are_asked_of_the_driver_once(device):
    driver = Capped(1 << 30)
    with CudaEngine(device, driver) as engine:
        for n in range(1000):
            memory = engine.allocate(4096, guard=n % 256)
            assert not memory.damage(), "its guard zones are new"
            assert not memory.read("i32").any(), "and it is zeroed"
            engine.write(memory, np.full(1024, 7, np.int32))
            del memory
        assert (driver.asked, driver.freed) == (1, 0)
    assert driver.freed == 1, "it goes back when the device is closed"


def test_what_is_kept_makes_room_for_another_size(device):
    driver = Capped(3 << 20)
    with CudaEngine(device, driver) as engine:
        held = [engine.allocate(1 << 19) for _ in range(4)]
        held.clear()
        gc.collect()
        assert driver.freed == 0
        assert engine.allocate(2 << 20).nbytes == 2 << 20
        assert driver.freed == 4
        with pytest.raises(MemoryError, match=r"buffer of 4194304 bytes on cuda-host: "):
            engine.allocate(4 << 20)


def test_a_process_takes_its_share_of_what_is_free_and_no_more(device):
    driver = Capped(1 << 30, reported=10 << 20)
    with CudaEngine(device, driver) as engine:
        assert engine.limit_bytes == 9 << 20
        held = [engine.allocate((1 << 20) - GUARDS) for _ in range(9)]
        with pytest.raises(MemoryError, match="0 of the 9437184 bytes that it may take are left"):
            engine.allocate(1)
        del held[0]
        assert engine.allocate((1 << 20) - GUARDS).nbytes


def test_only_so_much_is_kept(device, monkeypatch):
    monkeypatch.setattr(engines, "_IDLE_BYTES", 2 << 20)
    driver = Capped(1 << 30)
    with CudaEngine(device, driver) as engine:
        held = [engine.allocate(1 << 20) for _ in range(4)]
        held.clear()
        gc.collect()
        assert driver.freed == 3, "one and its guards fit"


def test_candidate_that_wants_more_than_there_is_is_out_of_resources(device):
    text = 'extern "C" __global__ void k(float *x, float *y, float *o, float *s) { o[0] = 1.0f; }'
    big = Candidate("add", Lowered(text, "k", hostile.IO, (1 << 50,), Geometry(1, 1)))
    hooks = Hooks(reference="hostile:reference")
    with DeviceMeasurer(device, hooks, Limits(compile_s=20.0), compile_workers=1) as measurer:
        (outcome,) = measurer.measure([big], hostile.QUICK)
        started = measurer._bench.started
        assert outcome.measurement.status is Status.OUT_OF_RESOURCES
        assert "buffer of 1125899906842624 bytes on cuda-host" in outcome.measurement.error
        assert "that it may take are left" in outcome.measurement.error
        assert measurer._bench.started == started, "it cost no worker"


@pytest.mark.parametrize("nbytes", [1000, 1 << 16, (1 << 16) + 5, (1 << 20) + 8])
def test_digest_of_a_watching_engine_is_of_every_byte_and_its_place(device, nbytes):
    """Of sizes that are copied, and that a kernel sums up; with and without a last part of a
    word.
    """
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    with device.open() as engine:
        engine.watch(())
        memory = engine.allocate(nbytes)
        digests = []
        for changed in (None, 0, 7, nbytes // 2, nbytes - 1):
            other = data.copy()
            if changed is not None:
                other[changed] ^= 1
            engine.write(memory, other)
            digests.append(engine.digest([memory]))
        engine.write(memory, np.roll(data, 8))
        digests.append(engine.digest([memory]))
        assert len(set(digests)) == len(digests)
        engine.write(memory, data)
        memory.protect()
        assert engine.digest([memory]) == digests[0]
        assert memory.damage() == ""
        engine.write(memory, np.roll(data, 1))
        assert memory.damage() == "the candidate wrote to this buffer, which it may only read"


SLOW = """
extern "C" __global__ void k(float *o) {
  float s = o[0];
  for (volatile int i = 0; i < 4000000; ++i) s = s * 0.5f + 1.0f;
  o[0] = s;
}
"""


def test_events_and_the_wall_around_them_agree_within_five_per_cent(device):
    """Of a kernel of some milliseconds; the wall can only be longer, by what else is done in it."""
    lowered = Lowered(SLOW, "k", KernelIO((Parameter("o", "f32", 64, "inout"),)))
    with device.open() as engine:
        code = engine.load(lowered, device.compile(lowered))
        launch = engine.launch(code, [engine.allocate(256)], ())
        ratios = []
        for _ in range(5):
            start = time.perf_counter()
            (seconds,) = engine.time(launch, 1)
            ratios.append((time.perf_counter() - start) / seconds)
            assert seconds > 1e-3
        assert 1.0 <= min(ratios) < 1.05


@dataclass(frozen=True, slots=True)
class Telling(CudaHost):
    """A GPU whose clocks can be read, one of them wrongly."""

    def state(self):
        return (("power_w", 312.5), ("sm_mhz", 1755.0), ("temperature_c", float("nan")))


def test_the_state_of_the_device_stands_beside_samples(device):
    text = 'extern "C" __global__ void k(float *x, float *y, float *out, float *s) {GOOD}'.replace(
        "GOOD", " for (int i = 0; i < 1000; ++i) out[i] = x[i] + y[i]; "
    )
    good, wrong = text, text.replace("x[i] + y[i]", "x[i]")
    hooks = Hooks(reference="hostile:reference")
    limits = Limits(compile_s=20.0)
    with DeviceMeasurer(Telling(), hooks, limits, compile_workers=1) as measurer:
        rows = measurer.measure(
            [
                Candidate("add", Lowered(t, "k", hostile.IO, (64,), Geometry(1, 1)))
                for t in (good, wrong)
            ],
            hostile.QUICK,
        )
    told, failed = (row.measurement for row in rows)
    assert (told.status, failed.status) == (Status.OK, Status.WRONG)
    assert told.state == (("power_w", 312.5), ("sm_mhz", 1755.0)), "what is no number is left out"
    assert dict(told.facts).keys() == {"code_bytes", "shared_bytes"} == dict(failed.facts).keys()
    assert failed.state == ()


def test_a_device_that_met_a_fault_gives_its_memory_back(device):
    driver = HostDriver()
    text = 'extern "C" __global__ void k(float *x) { ((volatile float *)x)[1l << 44] = 1.0f; }'
    lowered = Lowered(text, "k", KernelIO(()), (), Geometry(1, 1))
    with CudaEngine(device, driver) as engine:
        free, whole = driver.memory()
        held = engine.allocate(1 << 20)
        code = engine.load(lowered, device.compile(lowered))
        with pytest.raises(DeviceFault):
            engine.time(engine.launch(code, [held], ()), 1)
        assert driver.memory()[0] < free
    assert driver.memory() == (free, whole)
