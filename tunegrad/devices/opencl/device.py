"""The OpenCL device, through pyopencl: any GPU with a driver, or any CPU with PoCL (extra ``opencl``).

A launch is timed by the queue's profiling events, on the device's clock. pyopencl is imported when a device is opened.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from tunegrad.devices.programs import Buffers, Compiled, checked_buffers
from tunegrad.errors import CompileFailure, DeviceError, OutOfResources
from tunegrad.ir.program import Alloc, Program
from tunegrad.ir.target import Target
from tunegrad.render.c_family import arguments, kernel_name
from tunegrad.render.opencl import render_opencl

__all__ = ["OpenClDevice"]

_MAX_MESSAGE = 4000


class OpenClDevice:
    """One OpenCL device. ``index`` counts all devices of all platforms, GPUs first.

    Raises DeviceError when the extra is not installed, or there is no such device.
    """

    runs = True

    def __init__(self, index: int = 0) -> None:
        self._cl = cl = _pyopencl()
        found = _devices(cl)
        if index >= len(found):
            raise DeviceError(
                f"device opencl:{index}: this machine has {len(found)} OpenCL devices; "
                "a driver or PoCL makes more: pip install 'tunegrad[opencl]'"
            )
        self._device = found[index]
        self.name = "opencl"
        self.description = f"{self._device.platform.name}: {self._device.name}".strip()
        self._context = cl.Context([self._device])
        self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.target = _target(self._device)
        self._kernels: dict[str, Any] = {}

    def compile(self, program: Program) -> Compiled:
        """OpenCL C, built by the driver. Raises CompileFailure with its log, OutOfResources past its limits."""
        self._check_resources(program)
        compiled = Compiled(program, render_opencl(program))
        self._kernel(compiled)
        return compiled

    def run(self, compiled: Compiled, buffers: Buffers) -> None:
        """Copy in, launch, wait, copy the outputs back."""
        self.time(compiled, buffers, 1)

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:
        """Seconds of each launch between the events of its start and end; copies are not in them."""
        program, cl = compiled.program, self._cl
        full = checked_buffers(program, buffers)
        kernel = self._kernel(compiled)
        memory = [self._memory(cl, a.size * a.dtype.itemsize, full.get(a.name)) for a in arguments(program)]
        try:
            size = (program.threads * program.local,)
            launches = [kernel(self._queue, size, (program.local,), *memory) for _ in range(samples)]
            self._queue.finish()
            for a, m in zip(arguments(program), memory, strict=True):
                if not isinstance(a, Alloc) and getattr(a, "role", "") == "out":
                    cl.enqueue_copy(self._queue, full[a.name], m)
            self._queue.finish()
        except (cl.MemoryError, cl.RuntimeError) as error:
            raise OutOfResources(f"program {program.name} on {self.description}: {error}") from error
        finally:
            for m in memory:
                m.release()
        return tuple((e.profile.end - e.profile.start) * 1e-9 for e in launches)

    def close(self) -> None:
        """Drop the kernels; the driver frees the rest with the device object."""
        self._kernels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _memory(self, cl: Any, nbytes: int, data: Any) -> Any:
        flags = cl.mem_flags.READ_WRITE
        if data is None:
            return cl.Buffer(self._context, flags, size=nbytes)
        return cl.Buffer(self._context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(data))

    def _kernel(self, compiled: Compiled) -> Any:
        made = self._kernels.get(compiled.source)
        if made is None:
            cl = self._cl
            try:
                with warnings.catch_warnings(action="ignore", category=cl.CompilerWarning):
                    built = cl.Program(self._context, compiled.source).build(options=["-cl-std=CL1.2"], cache_dir=False)
                made = self._kernels[compiled.source] = cl.Kernel(built, kernel_name(compiled.program))
            except cl.Error as error:
                text = str(error)[:_MAX_MESSAGE]
                raise CompileFailure(f"program {compiled.program.name} on {self.description}: {text}") from error
        return made

    def _check_resources(self, program: Program) -> None:
        if program.local > self.target.max_local:
            raise OutOfResources(
                f"program {program.name}: {program.local} work-items, groups of {self.description} have up to "
                f"{self.target.max_local}"
            )
        shared = sum(a.size * a.dtype.itemsize for a in program.allocs if a.space == "shared")
        if shared > self.target.shared_bytes:
            raise OutOfResources(
                f"program {program.name}: {shared} bytes shared, {self.description} has {self.target.shared_bytes}"
            )


def _pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"device opencl needs pyopencl: pip install 'tunegrad[opencl]' ({error})") from error
    return pyopencl


def _devices(cl: Any) -> list[Any]:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # the loader found no driver at all
        return []
    found = [d for platform in platforms for d in platform.get_devices()]
    return sorted(found, key=lambda d: not d.type & cl.device_type.GPU)


def _target(device: Any) -> Target:
    return Target(
        name="opencl",
        kind="gpu",
        arch=f"{device.name} {device.version}".strip(),
        features=tuple(sorted(device.extensions.split())),
        vector_bytes=16,
        registers=64,
        threads=int(device.max_compute_units),
        l2_bytes=int(device.global_mem_cache_size),
        shared_bytes=int(device.local_mem_size),
        max_local=int(device.max_work_group_size),
    )
