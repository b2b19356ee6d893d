# ruff: noqa: N802
"""NVIDIA's bindings without a GPU: the names, the numbers of arguments and the enumerations of the
installed package, over cuda-host's driver.

A function that the package does not have, or a wrong number of arguments, fails the test. What is
called before a context is current in the thread does, too. After a kernel's fault every call
answers with it, as on a GPU.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from tests.cuda_host.device import CudaHost
from tests.cuda_host.driver import HostDriver
from tunegrad.devices.cuda import bindings
from tunegrad.devices.cuda.bindings import BindingsDriver
from tunegrad.devices.cuda.engine import CudaEngine
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceFault, OutOfResources
from tunegrad.trial import Fingerprint, Properties

__all__ = ["GPUS", "FakeBindings", "FakeGpu", "FakeNvml", "NamedGpu", "arity", "real"]

GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA L4")
_ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": (9, 8), "COMPUTE_CAPABILITY_MINOR": (0, 9),
    "MULTIPROCESSOR_COUNT": (132, 58), "CLOCK_RATE": (1_980_000, 2_040_000),
    "MEMORY_CLOCK_RATE": (2_619_000, 6_251_000), "GLOBAL_MEMORY_BUS_WIDTH": (5120, 192),
    "L2_CACHE_SIZE": (50 << 20, 48 << 20), "ECC_ENABLED": (1, 1),
}  # fmt: skip
_ANYWHERE = re.compile(r"cuInit|cuDevice(?!PrimaryCtxRe(?!tain))|cuDriver|cuGet|cuCtxSetCurrent")


def real(module: str) -> Any:
    """A module of the installed package; skips without it."""
    package = pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    pytest.importorskip(f"cuda.bindings.{module}")
    return getattr(package, module)


def arity(function: Any) -> int:
    """How many arguments a function of the package takes, by the first line of its docstring."""
    (inside,) = re.findall(r"\w+\((.*?)\)(?: ->.*)?$", function.__doc__.splitlines()[0])
    return len([x for x in inside.split(",") if x.strip()])


class FakeBindings:
    """``cuda.bindings.driver``. ``called`` has the names of all calls."""

    def __init__(self) -> None:
        self._real, self._host = real("driver"), HostDriver()
        self.called: list[str] = []
        self._current = threading.local()
        self._code = self._real.CUresult.CUDA_SUCCESS
        self._captured: tuple[list[Any], dict[int, Any]] | None = None
        self._marks: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not name.startswith("cu"):
            return found
        answer, count = getattr(self, f"_{name}"), arity(found)

        def call(*arguments: Any) -> Any:
            self.called.append(name)
            assert len(arguments) == count, f"{name} takes {count} arguments: {arguments}"
            entered = getattr(self._current, "context", None)
            assert entered or _ANYWHERE.match(name), f"{name}: no context is current"
            return self._answered(answer, arguments)

        return call

    def _answered(self, answer: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        codes = self._real.CUresult
        sticky = self._code is not codes.CUDA_SUCCESS and answer != self._cuGetErrorString
        value, code = None, self._code if sticky else codes.CUDA_SUCCESS
        try:
            value = answer(*arguments)
        except DeviceFault:
            code = self._code = codes.CUDA_ERROR_ILLEGAL_ADDRESS
        except MemoryError:
            code = codes.CUDA_ERROR_OUT_OF_MEMORY
        except OutOfResources:
            code = codes.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        except CompileFailure:
            code = codes.CUDA_ERROR_INVALID_IMAGE
        nothing = getattr(answer, "__annotations__", {}).get("return") == "None"
        return (code,) if nothing else (code, None if sticky else value)

    # ---- the machine

    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuDriverGetVersion(self) -> int:
        return 13000

    def _cuDeviceGetCount(self) -> int:
        return len(GPUS)

    def _cuDeviceGet(self, number: int) -> int:
        return number

    def _cuDeviceGetName(self, room: int, device: int) -> bytes:
        return GPUS[device].encode() + b"\0" * (room - len(GPUS[device]))

    def _cuDeviceGetAttribute(self, kind: Any, device: int) -> int:
        return _ATTRIBUTES[kind.name.removeprefix("CU_DEVICE_ATTRIBUTE_")][device]

    def _cuDeviceTotalMem(self, device: int) -> int:
        return (80, 24)[device] << 30

    def _cuDeviceGetPCIBusId(self, room: int, device: int) -> bytes:
        return f"0000:{device + 1:02X}:00.0".encode() + b"\0" * 8

    def _cuGetErrorString(self, code: Any) -> bytes:
        return b"what it means"

    # ---- contexts, streams

    def _cuDevicePrimaryCtxRetain(self, device: int) -> str:
        return f"context {device}"

    def _cuDevicePrimaryCtxRelease(self, device: int) -> None:
        self._host.close()

    def _cuCtxSetCurrent(self, context: str) -> None:
        assert context.startswith("context ")
        self._current.context = context

    def _cuStreamCreate(self, flags: int) -> int:
        assert int(flags) == 1, "work in it does not wait for the default stream"
        return 0x5EED

    def _cuStreamDestroy(self, stream: int) -> None:
        assert stream == 0x5EED

    def _cuStreamSynchronize(self, stream: int) -> None:
        assert stream == 0x5EED
        self._host.finish()

    # ---- memory

    def _cuMemAlloc(self, nbytes: int) -> int:
        return self._host.allocate(nbytes)

    def _cuMemFree(self, address: int) -> None:
        self._host.free(address)

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self._host.memory()

    def _cuMemsetD8Async(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._host.fill(address, byte, nbytes)

    def _cuMemcpyHtoDAsync(self, to: int, at: int, nbytes: int, stream: int) -> None:
        self._host._check(to, nbytes)
        data = ctypes.string_at(at, nbytes)  # the caller keeps it until it has waited
        self._host._queue.append(lambda: ctypes.memmove(to, data, nbytes))

    def _cuMemcpyDtoHAsync(self, to: int, at: int, nbytes: int, stream: int) -> None:
        self._host._check(at, nbytes)
        self._host._queue.append(lambda: ctypes.memmove(to, at, nbytes))

    # ---- code

    def _cuModuleLoadData(self, image: bytes) -> dict[str, Any]:
        if not image.startswith(b"\x7fELF"):
            raise CompileFailure("no image")
        return {"image": image}

    def _cuModuleGetFunction(self, module: dict[str, Any], name: bytes) -> Any:
        module["function"] = self._host.load(module["image"], name.decode())
        return module["function"]

    def _cuModuleUnload(self, module: dict[str, Any]) -> None:
        if "function" in module:
            self._host.unload(module["function"])

    def _cuFuncGetAttribute(self, kind: Any, function: Any) -> int:
        found = self._host.resources(function)
        return {
            "NUM_REGS": found.registers,
            "LOCAL_SIZE_BYTES": found.local_bytes,
            "SHARED_SIZE_BYTES": found.shared_bytes,
            "MAX_THREADS_PER_BLOCK": found.most_items,
        }[kind.name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def _cuFuncSetAttribute(self, function: Any, kind: Any, value: int) -> None:
        assert kind.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        self._host.allow(function, value)

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        groups, y, z, items, yy, zz, shared, stream, table, extra = rest
        assert (y, z, yy, zz, stream, extra) == (1, 1, 1, 1, 0x5EED, 0)
        count = function.image.arguments
        places = (ctypes.c_uint64 * count).from_address(table)
        values = tuple(ctypes.c_uint64.from_address(at).value for at in places)
        launch = function, Geometry(groups, items, shared), values
        if self._captured is not None:
            self._host._launch(*launch)
            self._captured[0].append(launch)
        else:
            self._host.launch(*launch)

    # ---- events and graphs

    def _cuEventCreate(self, flags: int) -> int:
        self._marks[len(self.called)] = None
        return len(self.called)

    def _cuEventRecord(self, event: int, stream: int) -> None:
        self._marks[event] = self._host.event()

    def _cuEventElapsedTime(self, first: int, last: int) -> float:
        return 1e3 * self._host.seconds(self._marks[first], self._marks[last])

    def _cuEventDestroy(self, event: int) -> None:
        del self._marks[event]

    def _cuStreamBeginCapture(self, stream: int, mode: Any) -> None:
        assert self._captured is None
        self._captured = [], {}

    def _cuEventRecordWithFlags(self, event: int, stream: int, flags: Any) -> None:
        assert self._captured is not None
        assert flags.name == "CU_EVENT_RECORD_EXTERNAL"
        launches, marks = self._captured
        marks[len(launches)] = self._marks[event]

    def _cuStreamEndCapture(self, stream: int) -> tuple[list[Any], dict[int, Any]]:
        captured, self._captured = self._captured, None
        assert captured is not None
        return captured

    def _cuGraphInstantiate(self, graph: tuple[list[Any], dict[int, Any]], flags: int) -> Any:
        assert flags == 0
        return self._host.graph(*graph)

    def _cuGraphDestroy(self, graph: tuple[list[Any], dict[int, Any]]) -> None:
        for part in graph:
            part.clear()

    def _cuGraphLaunch(self, graph: Any, stream: int) -> None:
        self._host.replay(graph)

    def _cuGraphExecDestroy(self, graph: Any) -> None:
        self._host.drop(graph)


class FakeNvml:
    """``cuda.bindings.nvml``; what is in ``missing`` fails, as on an old driver."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self._real, self.missing, self.asked = real("nvml"), missing, []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not name.startswith(("init", "device")):
            return found
        answers: dict[str, Callable[..., Any]] = {
            "init_v2": lambda: None,
            "device_get_handle_by_pci_bus_id_v2": lambda bus: f"handle of {bus}",
            "device_get_clock_info": lambda _, kind: {
                self._real.ClockType.CLOCK_SM: 1755, self._real.ClockType.CLOCK_MEM: 2619,
            }[kind],
            "device_get_power_usage": lambda _: 312_500,
            "device_get_temperature_v": lambda _, sensor: 51 + 0 * int(sensor),
            "device_get_current_clocks_event_reasons": lambda _: 4,
        }  # fmt: skip
        count = arity(found)

        def call(*arguments: Any) -> Any:
            self.asked.append((name, *arguments))
            assert len(arguments) == count, f"{name} takes {count} arguments"
            if name in self.missing:
                raise RuntimeError(f"{name}: not found in the library")
            return answers[name](*arguments)

        return call


@dataclass(frozen=True, slots=True)
class FakeGpu(CudaHost):
    """cuda-host through the driver of NVIDIA's bindings."""

    def open(self, pin: bool = False) -> CudaEngine:
        with patch.object(bindings, "api", FakeBindings):
            return CudaEngine(self, BindingsDriver(0))


@dataclass(frozen=True, slots=True)
class NamedGpu(FakeGpu):
    """The same under a GPU's name, whose power says which one it is."""

    number: int = 0

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = dict(CudaHost.fingerprint(self, numerics).fields)
        fields |= {"device": "cuda", "cuda_number": str(self.number)}
        return Fingerprint(tuple(sorted(fields.items())))

    def state(self) -> Properties:
        return ("power_w", 300.0 + self.number), ("sm_mhz", 1755.0)
