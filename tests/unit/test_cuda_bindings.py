"""What is asked of NVIDIA's bindings: functions that there are, with their arguments; what their
driver does, and that over pycuda; names of GPUs; and one line where something is missing.
"""

from __future__ import annotations

import builtins
import re
import sys
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_host import cuda_host
from tests.cuda_texts import image
from tests.fake_cuda import FakeBindings, FakeGpu, FakeNvml, real
from tests.fake_pycuda import installed
from tunegrad import devices
from tunegrad.devices import registry
from tunegrad.devices.cuda import bindings, nvrtc, pycuda
from tunegrad.devices.cuda.bindings import BindingsDriver
from tunegrad.devices.cuda.pycuda import PycudaDriver
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceError, DeviceFault, OutOfResources

ADD = 'extern "C" __global__ void add(int *x) { x[threadIdx.x] += 1; }'
BAD = 'extern "C" __global__ void bad(int *x) { __trap(); }'


@pytest.fixture
def fake(monkeypatch):
    """Two GPUs."""
    made = FakeBindings()
    monkeypatch.setattr(bindings, "api", lambda: made)
    return made


@pytest.fixture
def driver(fake):
    cuda_host()
    made = BindingsDriver(0)
    yield made
    made.close()


TOLD = {
    "bindings": {
        "launch": "CUDA_ERROR_LAUNCH", "shared": "CUDA_ERROR", "load": "CUDA_ERROR",
        "fault": "CUDA_ERROR_ILLEGAL_ADDRESS: what it means",
        "lacks": "its image lacks the kernel: CUDA_ERROR",
    },
    "pycuda": {
        "launch": "cuLaunchKernel", "shared": "cuFuncSetAttribute", "load": "cuModule",
        "fault": "illegal memory access", "lacks": "its image does not load: cuModuleGet",
    },
}  # fmt: skip
"""The words of each package for what its driver refuses."""


@pytest.fixture(params=TOLD)
def told(request):
    return TOLD[request.param]


@pytest.fixture
def either(told, monkeypatch):
    """The driver over NVIDIA's bindings, or over pycuda, on a fake of it."""
    cuda_host()
    with ExitStack() as stack:
        if told is TOLD["pycuda"]:
            stack.enter_context(installed())
            made = PycudaDriver(0)
        else:
            fake = FakeBindings()
            monkeypatch.setattr(bindings, "api", lambda: fake)
            stack.callback(lambda: fake._marks and pytest.fail("marks are left"))
            made = BindingsDriver(0)
        with closing(made):
            yield made


@pytest.mark.parametrize(
    ("module", "file", "pattern"),
    [
        ("driver", bindings, r"\b(cu[A-Z]\w+)\("),
        ("nvrtc", nvrtc, r"\b(nvrtc[A-Z]\w+)\b"),
        ("nvml", bindings, r"nvml\.((?:init|device)_\w+)\("),
    ],
)
def test_every_function_that_is_called_is_one_of_the_package(module, file, pattern):
    package = real(module)
    names = set(re.findall(pattern, Path(file.__file__).read_text()))
    assert len(names) > 5
    assert [n for n in names if not hasattr(package, n)] == []


def test_enumerations_are_those_of_the_package():
    cu, text = real("driver"), Path(bindings.__file__).read_text()
    for group, prefix in (("CUdevice_attribute", "CU_DEVICE"), ("CUfunction_attribute", "CU_FUNC")):
        wanted = re.findall(r'ask\("([A-Z_0-9]+)"\)', text)
        known = [n for n in wanted if hasattr(getattr(cu, group), f"{prefix}_ATTRIBUTE_{n}")]
        assert len(known) >= 4
    assert all(
        hasattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{n}")
        or hasattr(cu.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{n}")
        for n in re.findall(r'ask\("([A-Z_0-9]+)"\)', text)
    )
    assert all(hasattr(cu.CUresult, name) for name in bindings._REFUSED)
    for name in re.findall(r"\b(CU_STREAM\w+|CU_EVENT_RECORD\w+|CUDA_ERROR\w+)\b", text):
        groups = (cu.CUresult, cu.CUstream_flags, cu.CUstreamCaptureMode, cu.CUevent_record_flags)
        assert any(hasattr(g, name) for g in groups), name


# ---- the driver


def test_work_goes_into_one_stream_and_happens_when_somebody_waits(either):
    function, x = either.load(image(ADD, "add"), "add"), either.allocate(128)
    either.fill(x, 0, 128)
    either.launch(function, Geometry(1, 32), [x])
    first = either.event()
    graph = either.graph([(function, Geometry(1, 32), [x])] * 3)
    either.replay(graph)
    either.replay(graph)
    last = either.event()
    data = np.empty(32, np.int32)
    either.read(x, data)
    assert data.tolist() == [7] * 32
    assert either.seconds(first, last) > 0
    for event in (first, last):
        either.forget(event)
    either.drop(graph)
    either.unload(function)
    either.free(x)
    assert (either.place, either.stream) == ((2, 0), 0x5EED)


def test_too_much_is_refused_and_breaks_nothing(either, told):
    function, x = either.load(image(ADD, "add"), "add"), either.allocate(128)
    with pytest.raises(OutOfResources, match=f"of 1 groups of 2000 items: {told['launch']}"):
        either.launch(function, Geometry(1, 2000), [x])
    with pytest.raises(OutOfResources, match=f"bytes shared by a group: {told['shared']}"):
        either.allow(function, 1 << 20)
    with pytest.raises(MemoryError, match=r"\d+ of \d+ bytes are free"):
        either.allocate(1 << 60)
    either.launch(function, Geometry(1, 32), [x])
    either.finish()


def test_graph_that_there_is_no_memory_for_breaks_nothing(driver, fake, monkeypatch):
    function, x = driver.load(image(ADD, "add"), "add"), driver.allocate(128)

    def no_memory(graph, flags):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(fake, "_cuGraphInstantiate", no_memory)
        with pytest.raises(OutOfResources, match="a graph of 1 launches: CUDA_ERROR_OUT_OF_MEM"):
            driver.graph([(function, Geometry(1, 32), [x])])
    assert fake.called.count("cuGraphDestroy") == 1
    driver.replay(driver.graph([(function, Geometry(1, 32), [x])]))
    driver.finish()


def test_a_fault_stays_and_is_told_in_the_drivers_words(either, told):
    function, x = either.load(image(BAD, "bad"), "bad"), either.allocate(128)
    either.launch(function, Geometry(1, 1), [x])
    for call in (either.finish, either.finish, lambda: either.allocate(4)):
        with pytest.raises(DeviceFault, match=told["fault"]):
            call()
    with pytest.raises(DeviceFault):
        either.launch(function, Geometry(1, 1), [x])


def test_images_that_are_none_are_compile_failures(either, told):
    with pytest.raises(CompileFailure, match=f"program k: its image does not load: {told['load']}"):
        either.load(b"nonsense", "k")
    with pytest.raises(CompileFailure, match=f"program k: {told['lacks']}"):
        either.load(image(ADD, "add"), "k")


def test_every_call_of_pycuda_leaves_the_stack_of_contexts_as_it_was():
    cuda_host()
    with installed() as pycuda_fake:
        driver = PycudaDriver(0)
        before = pycuda_fake.pushed
        x = driver.allocate(128)
        driver.write(x, np.arange(32, dtype=np.float32))
        with pytest.raises(CompileFailure):
            driver.load(b"nonsense", "k")
        assert pycuda_fake.pushed == before + 3
        assert pycuda_fake._stack.contexts == ()
        driver.close()


def test_a_device_that_met_a_fault_is_closed_without_a_word(monkeypatch):
    told = []
    monkeypatch.setattr("sys.excepthook", lambda *error: told.append(error))
    device = FakeGpu()
    engine = device.open()
    memory = engine.allocate(128)
    engine.driver.launch(engine.driver.load(image(BAD, "bad"), "bad"), Geometry(1, 1), [0])
    with pytest.raises(DeviceFault):
        engine.driver.finish()
    del memory
    engine.close()
    assert told == []


def test_cold_samples_follow_a_write_of_twice_the_last_cache(monkeypatch):
    with FakeGpu().open() as engine:
        code = engine.driver.load(image(ADD, "add"), "add")
        x = engine.allocate(128)
        launch = type("L", (), {"parts": (code, Geometry(1, 32), (x.address,))})()
        filled = []
        fill = engine.driver.fill
        monkeypatch.setattr(engine.driver, "fill", lambda *a: filled.append(a[2]) or fill(*a))
        assert len(engine.time(launch, 5, 1, [x])) == 5
        assert filled.count(2 * engine.device.target.l3_bytes) == 5
        filled.clear()
        engine.time(launch, 5)
        assert filled == []


# ---- names, and what a GPU says


@pytest.mark.parametrize(
    ("name", "number"),
    [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("cuda:h100", 0), ("cuda:L4", 1)],
)
def test_gpus_are_named_by_number_and_by_a_part_of_the_name(fake, name, number):
    device = devices.open(name)
    assert device.name == f"cuda:{number}"
    assert device.target.arch == ("sm_90a", "sm_89")[number]
    assert (
        device.describe()
        == (
            "NVIDIA H100 80GB HBM3, compute capability 9.0, 132 units, 80 GiB",
            "NVIDIA L4, compute capability 8.9, 58 units, 24 GiB",
        )[number]
    )
    fields = dict(device.fingerprint().fields)
    assert fields["cuda_name"] in device.describe()
    assert not [f for f in fields if "mhz" in f or "power" in f], "what changes is no part of it"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cuda:2", "device cuda:2: this machine has 2 GPUs: cuda:0 .NVIDIA H100.*cuda:1"),
        ("cuda:a100", "device cuda:a100: no GPU has that in the name: cuda:0"),
        ("cuda:nvidia", "device cuda:nvidia: several GPUs have that in the name"),
        ("cuda:", "device 'cuda:': a number or a name must follow the colon"),
    ],
)
def test_a_name_that_is_none_of_them_lists_them(fake, name, told):
    with pytest.raises(DeviceError, match=told):
        devices.open(name)


def test_doctor_lists_every_gpu(fake):
    rows = {name: found for name, found in registry.found() if name.startswith("cuda")}
    assert list(rows) == ["cuda:0", "cuda:1"]


def test_clocks_power_and_temperature_are_read(fake, monkeypatch):
    told = FakeNvml()
    monkeypatch.setattr(sys.modules["cuda.bindings"], "nvml", told)
    bindings._opened.cache_clear()
    try:
        found = devices.open("cuda:1").state()
    finally:
        bindings._opened.cache_clear()
    assert found == (
        ("clock_reasons", 4.0), ("memory_mhz", 2619.0), ("power_w", 312.5), ("sm_mhz", 1755.0),
        ("temperature_c", 51.0),
    )  # fmt: skip
    assert told.asked[:2] == [("init_v2",), ("device_get_handle_by_pci_bus_id_v2", "0000:02:00.0")]
    assert {a[1] for a in told.asked[2:]} == {"handle of 0000:02:00.0"}


def test_what_a_driver_does_not_read_is_left_out(fake, monkeypatch):
    told = FakeNvml(("device_get_temperature_v", "device_get_power_usage"))
    monkeypatch.setattr(bindings, "_opened", lambda n: (told, "h"))
    assert [name for name, _ in bindings.state(0)] == ["clock_reasons", "memory_mhz", "sm_mhz"]


def test_without_nvml_there_are_no_readings():
    bindings._opened.cache_clear()
    assert bindings.state(0) == ()


# ---- what is missing


@pytest.fixture
def without(monkeypatch):
    """Imports of some packages fail."""

    def hide(*packages):
        found = builtins.__import__

        def only(name, *rest):
            if name.split(".")[0] in packages:
                raise ImportError(f"No module named {name!r}")
            return found(name, *rest)

        monkeypatch.setattr(builtins, "__import__", only)

    return hide


def line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_no_bindings_is_one_line(without):
    without("cuda")
    with pytest.raises(DeviceError) as error:
        devices.open("cuda")
    assert line(error).startswith("device cuda needs cuda-bindings: pip install 'tunegrad[cuda]'")


def test_no_driver_is_one_line(monkeypatch):
    def missing(flags):
        raise RuntimeError("libcuda.so.1 was not found")

    monkeypatch.setattr(real("driver"), "cuInit", missing)
    with pytest.raises(DeviceError) as error:
        devices.open("cuda:1")
    assert line(error).startswith("device cuda: no NVIDIA driver was found on this machine")
    assert "--device null:sm_90a" in line(error)


def test_a_driver_that_does_not_start_is_one_line(monkeypatch):
    cu = real("driver")
    monkeypatch.setattr(cu, "cuInit", lambda flags: (cu.CUresult.CUDA_ERROR_NO_DEVICE,))
    with pytest.raises(DeviceError) as error:
        devices.open("cuda")
    assert line(error) == "device cuda: the driver does not start: CUDA_ERROR_NO_DEVICE"


def test_no_gpu_is_one_line(fake):
    fake._cuDeviceGetCount = lambda: 0
    with pytest.raises(DeviceError, match="the driver sees no GPU; CUDA_VISIBLE_DEVICES may"):
        devices.open("cuda")


def test_an_architecture_of_tomorrow_is_one_line(fake, monkeypatch):
    monkeypatch.setitem(
        fake._cuDeviceGetAttribute.__globals__["_ATTRIBUTES"], "COMPUTE_CAPABILITY_MAJOR", (14, 8)
    )
    with pytest.raises(DeviceError) as error:
        devices.open("cuda")
    assert line(error).startswith(
        "architecture 'sm_140' is not known to this version of tunegrad; valid: sm_75"
    )
    assert "a later version may know it; --device opencl runs on any GPU" in line(error)


def test_a_later_member_of_a_known_family_runs_code_of_the_one_before_it(fake, monkeypatch):
    attributes = fake._cuDeviceGetAttribute.__globals__["_ATTRIBUTES"]
    for word, number in (("MAJOR", 12), ("MINOR", 7)):
        monkeypatch.setitem(attributes, f"COMPUTE_CAPABILITY_{word}", (number, number))
    target = devices.open("cuda").target
    assert target.arch == "sm_121"
    assert target.shared_bytes == 99 << 10


def test_no_nvrtc_is_one_line(without):
    nvrtc._nvrtc.cache_clear()
    without("cuda")
    try:
        with pytest.raises(DeviceError) as error:
            devices.open("null:sm_90a").compile(_lowered())
    finally:
        nvrtc._nvrtc.cache_clear()
    assert line(error).startswith("compiling for CUDA needs NVRTC: pip install 'tunegrad[cuda]'")


def _lowered():
    from tunegrad.devices.job import KernelIO, Lowered

    return Lowered(ADD, "add", KernelIO(()), (), Geometry(1, 32))


def test_no_pycuda_is_one_line_and_with_neither_the_bindings_are_named(fake, monkeypatch, without):
    monkeypatch.setenv("TUNEGRAD_CUDA_DRIVER", "pycuda")
    device = devices.open("cuda")
    nvrtc.version()  # which stays loaded: what is missing here is a driver
    without("pycuda", "cuda")
    with pytest.raises(DeviceError) as error:
        device.open()
    assert line(error).startswith("pycuda: pip install 'tunegrad[pycuda]'")
    monkeypatch.undo()
    without("pycuda", "cuda")
    with pytest.raises(DeviceError, match="device cuda needs cuda-bindings"):
        devices.open("cuda")


def test_another_driver_is_one_line(fake, monkeypatch):
    monkeypatch.setenv("TUNEGRAD_CUDA_DRIVER", "magic")
    with pytest.raises(DeviceError, match="TUNEGRAD_CUDA_DRIVER='magic'; valid: bindings, pycuda"):
        devices.open("cuda").open()


def test_a_driver_older_than_the_compiler_is_one_line(fake, monkeypatch):
    """Its cubins would not load: every candidate would fail, and not say why."""
    monkeypatch.setattr(nvrtc, "_version", lambda: (13, 5))
    fake._cuDriverGetVersion = lambda: 12040
    device = devices.open("cuda")
    with pytest.raises(DeviceError) as error:
        device.open()
    assert line(error) == (
        "device cuda: this driver is for CUDA 12.4, and NVRTC 13.5 makes code for 13.0 and later; "
        "update the driver, or pip install 'cuda-bindings<13' 'nvidia-cuda-nvrtc-cu12'"
    )
    nvrtc.check_driver(13000)
    nvrtc.check_driver(14010)


def test_clocks_that_are_hidden_are_reckoned_with(fake, monkeypatch):
    table = fake._cuDeviceGetAttribute.__globals__["_ATTRIBUTES"]
    for name in ("CLOCK_RATE", "MEMORY_CLOCK_RATE", "L2_CACHE_SIZE"):
        monkeypatch.setitem(table, name, (0, 0))
    rates = devices.open("cuda").target.rates
    assert 1e11 < rates.f32_flops_per_s < 1e12
    assert rates.memory_bytes_per_s == 1e12


def test_a_gpu_that_went_away_is_one_line(fake, monkeypatch):
    device = devices.open("cuda:0")
    fake._cuDeviceTotalMem = lambda device: 40 << 30
    with pytest.raises(DeviceError, match=r"device cuda:0: NVIDIA H100 .* 80 GiB is absent; it"):
        device.open()


def test_pycuda_refusals_are_told_from_faults():
    assert pycuda.refused("cuLaunchKernel failed: too many resources requested for launch")
    assert pycuda.refused("cuLaunchKernel failed: invalid argument")
    assert not pycuda.refused("cuLaunchKernel failed: an illegal memory access was encountered")
    assert not pycuda.refused("cuLaunchKernel failed: unspecified launch failure")


def test_marks_within_a_graph_are_recorded_as_nodes_of_it(driver, fake):
    function, x = driver.load(image(ADD, "add"), "add"), driver.allocate(128)
    marks = [driver.event() for _ in range(3)]
    launches = [(function, Geometry(1, 32), [x])] * 2
    graph = driver.graph(launches, dict(enumerate(marks)))
    for _ in range(2):
        driver.replay(graph)
        driver.finish()
        assert all(driver.seconds(a, b) > 0 for a, b in pairwise(marks))
    for mark in marks:
        driver.forget(mark)
    driver.drop(graph)
    assert not fake._marks
