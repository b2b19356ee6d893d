"""A driver over NVIDIA's own bindings of it (the package cuda-bindings)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cuda.driver import DLPACK_CUDA, Function, Resources
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceError, DeviceFault, OutOfResources
from tunegrad.trial import Properties

_INSTALL = "pip install 'tunegrad[cuda]'"

_REFUSED = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            "CUDA_ERROR_INVALID_VALUE")  # fmt: skip
"""Errors of a launch that asks for too much; nothing is broken by it."""


def api() -> Any:
    """The bindings, initialised. Raises DeviceError where they, or a driver, are missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(f"device cuda needs cuda-bindings: {_INSTALL} ({error})") from error
    try:
        (code,) = driver.cuInit(0)
    except Exception as error:  # the bindings do not find libcuda
        raise DeviceError(
            "device cuda: no NVIDIA driver was found on this machine (libcuda.so.1); install the "
            "driver of your GPU, or use --device null:sm_90a, which compiles and runs nothing"
        ) from error
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"device cuda: the driver does not start: {code.name}")
    return driver


def count() -> int:
    """Number of GPUs that the driver sees. Raises DeviceError as ``api`` does."""
    cu = api()
    return int(_checked(cu, cu.cuDeviceGetCount()))


def attributes(cu: Any, number: int) -> dict[str, str]:
    """Attributes of a GPU, from the driver, that never change while it is in the machine."""
    device = _checked(cu, cu.cuDeviceGet(number))
    kinds = cu.CUdevice_attribute

    def ask(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_checked(cu, cu.cuDeviceGetAttribute(kind, device)))

    name = _checked(cu, cu.cuDeviceGetName(256, device))
    found = {
        "name": name.split(b"\0")[0].decode(),
        "capability": f"{ask('COMPUTE_CAPABILITY_MAJOR')}.{ask('COMPUTE_CAPABILITY_MINOR')}",
        "units": ask("MULTIPROCESSOR_COUNT"),
        "clock_khz": ask("CLOCK_RATE"),
        "memory_clock_khz": ask("MEMORY_CLOCK_RATE"),
        "memory_bus_bits": ask("GLOBAL_MEMORY_BUS_WIDTH"),
        "memory": int(_checked(cu, cu.cuDeviceTotalMem(device))),
        "l2": ask("L2_CACHE_SIZE"),
        "ecc": ask("ECC_ENABLED"),
        "driver": int(_checked(cu, cu.cuDriverGetVersion())),
    }
    return {key: str(value) for key, value in found.items()}


def bus_id(number: int) -> str:
    """Bus address of a GPU, as NVML names it: ``0000:1B:00.0``."""
    cu = api()
    device = _checked(cu, cu.cuDeviceGet(number))
    text: bytes = _checked(cu, cu.cuDeviceGetPCIBusId(32, device))
    return text.split(b"\0")[0].decode()


class BindingsDriver:
    """See ``devices.cuda.driver.Driver``: the primary context of a GPU, and one stream."""

    def __init__(self, number: int) -> None:
        self._cu, self._number = api(), number
        cu = self._cu
        self._device = self._ask(cu.cuDeviceGet(number))
        self._context = self._ask(cu.cuDevicePrimaryCtxRetain(self._device))
        self._enter()
        self._stream = self._ask(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))

    @property
    def place(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._number

    @property
    def stream(self) -> int | None:
        return int(self._stream)

    # ---- memory

    def memory(self) -> tuple[int, int]:
        self._enter()
        free, total = self._ask(self._cu.cuMemGetInfo())
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        self._enter()
        code, address = self._cu.cuMemAlloc(max(1, nbytes))
        if code == self._cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            free, total = self.memory()
            raise MemoryError(f"{free} of {total} bytes are free")
        return int(self._ask((code, address)))

    def free(self, address: int) -> None:
        self._enter()
        self._ask(self._cu.cuMemFree(address))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._enter()
        if nbytes:
            self._ask(self._cu.cuMemsetD8Async(address, byte, nbytes, self._stream))

    def write(self, address: int, data: NDArray[Any]) -> None:
        self._enter()
        if data.nbytes:
            at = data.ctypes.data
            self._ask(self._cu.cuMemcpyHtoDAsync(address, at, data.nbytes, self._stream))
            self.finish()

    def read(self, address: int, data: NDArray[Any]) -> None:
        self._enter()
        if data.nbytes:
            at = data.ctypes.data
            self._ask(self._cu.cuMemcpyDtoHAsync(at, address, data.nbytes, self._stream))
            self.finish()

    # ---- code

    def load(self, image: bytes, entry: str) -> Function:
        self._enter()
        cu = self._cu
        code, module = cu.cuModuleLoadData(image)
        if code != cu.CUresult.CUDA_SUCCESS:
            raise CompileFailure(f"program {entry}: its image does not load: {code.name}")
        code, function = cu.cuModuleGetFunction(module, entry.encode())
        if code != cu.CUresult.CUDA_SUCCESS:
            cu.cuModuleUnload(module)
            raise CompileFailure(f"program {entry}: its image lacks the kernel: {code.name}")
        return module, function

    def resources(self, function: Function) -> Resources:
        cu, kinds = self._cu, self._cu.CUfunction_attribute

        def ask(name: str) -> int:
            kind = getattr(kinds, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(self._ask(cu.cuFuncGetAttribute(kind, function[1])))

        return Resources(
            ask("NUM_REGS"),
            ask("LOCAL_SIZE_BYTES"),
            ask("SHARED_SIZE_BYTES"),
            ask("MAX_THREADS_PER_BLOCK"),
        )

    def allow(self, function: Function, shared_bytes: int) -> None:
        cu = self._cu
        kind = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (code,) = cu.cuFuncSetAttribute(function[1], kind, shared_bytes)
        if code != cu.CUresult.CUDA_SUCCESS:
            raise OutOfResources(f"{shared_bytes} bytes shared by a group: {code.name}")

    def unload(self, function: Function) -> None:
        self._enter()
        self._ask(self._cu.cuModuleUnload(function[0]))

    def launch(self, function: Function, geometry: Geometry, addresses: Sequence[int]) -> None:
        values = np.array(addresses, np.uint64)
        at = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        self._launch(function, geometry, at, self._stream)

    def _launch(
        self, function: Function, geometry: Geometry, table: NDArray[np.uint64], stream: Any
    ) -> None:
        """One launch; the ``table`` has the addresses of the arguments."""
        g = geometry
        (code,) = self._cu.cuLaunchKernel(
            function[1], g.groups, 1, 1, g.items, 1, 1, g.shared_bytes, stream,
            int(table.ctypes.data), 0,
        )  # fmt: skip
        if code.name in _REFUSED:
            raise OutOfResources(f"launch of {g.groups} groups of {g.items} items: {code.name}")
        self._ask((code,))

    def finish(self) -> None:
        self._ask(self._cu.cuStreamSynchronize(self._stream))

    # ---- time and graphs

    def event(self) -> Any:
        self._enter()
        event = self._ask(self._cu.cuEventCreate(0))
        self._ask(self._cu.cuEventRecord(event, self._stream))
        return event

    def seconds(self, first: Any, last: Any) -> float:
        ms = self._ask(self._cu.cuEventElapsedTime(first, last))
        return float(ms) * 1e-3

    def forget(self, event: Any) -> None:
        self._cu.cuEventDestroy(event)

    def graph(
        self,
        launches: Sequence[tuple[Function, Geometry, Sequence[int]]],
        marks: Mapping[int, Any] | None = None,
    ) -> Any:
        self._enter()
        cu = self._cu

        def mark(place: int) -> None:
            if marks and place in marks:
                flags = cu.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
                self._ask(cu.cuEventRecordWithFlags(marks[place], self._stream, flags))

        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._ask(cu.cuStreamBeginCapture(self._stream, mode))
        try:
            for place, (function, geometry, addresses) in enumerate(launches):
                mark(place)
                self.launch(function, geometry, addresses)
            mark(len(launches))
        finally:
            code, graph = cu.cuStreamEndCapture(self._stream)
        self._ask((code,))
        code, made = cu.cuGraphInstantiate(graph, 0)
        cu.cuGraphDestroy(graph)
        if code.name in _REFUSED:
            raise OutOfResources(f"a graph of {len(launches)} launches: {code.name}")
        return self._ask((code, made))

    def replay(self, graph: Any) -> None:
        self._ask(self._cu.cuGraphLaunch(graph, self._stream))

    def drop(self, graph: Any) -> None:
        self._cu.cuGraphExecDestroy(graph)

    def close(self) -> None:
        if self._context is not None:
            self._cu.cuStreamDestroy(self._stream)
            self._cu.cuDevicePrimaryCtxRelease(self._device)
            self._context = None

    def _enter(self) -> None:
        """The context is this thread's from now on."""
        self._ask(self._cu.cuCtxSetCurrent(self._context))

    def _ask(self, answer: tuple[Any, ...]) -> Any:
        code, *rest = answer
        if code != self._cu.CUresult.CUDA_SUCCESS:
            raise DeviceFault(_words(self._cu, code))
        return rest[0] if len(rest) == 1 else rest


def _words(cu: Any, code: Any) -> str:
    _, text = cu.cuGetErrorString(code)
    return f"{code.name}: {(text or b'').decode()}"


def _checked(cu: Any, answer: tuple[Any, ...]) -> Any:
    code, *rest = answer
    if code != cu.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"device cuda: {_words(cu, code)}")
    return rest[0] if len(rest) == 1 else rest


# ---- nvml
#
# Clocks, power and temperature of a GPU by NVML, which needs no context: any process may ask.
#
# Each reading is left out where the library, the driver or the GPU does not give it: what is timed
# is timed all the same.


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

        nvml.init_v2()
        return nvml, nvml.device_get_handle_by_pci_bus_id_v2(bus_id(number))
    except Exception:  # noqa: BLE001  # no package, no library, no such function: no readings
        return None
