"""What reads WGSL: ``wgpu``, whose naga compiles it for a driver that runs it (Mesa's on a CPU);
``pydawn``, whose Tint needs no driver.

The device has WebGPU's default limits and no more, whatever the driver has. A missing package, or a
machine without an adapter, is a skip that says what to install. ``wgpu`` works in a process of its
own: Mesa's driver and PoCL bring an LLVM each, and crash in one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.schedule_checks import Arrays
from tests.wgsl import WEBGPU, render_wgsl
from tunegrad.ir.program import Alloc, Buffer, Pack, Program
from tunegrad.render.c_family import arguments, kernel_name

__all__ = ["WebGpu", "tint", "webgpu"]

POISON = 0x7E
_LIMITS = {
    "max-storage-buffers-per-shader-stage": WEBGPU.max_buffers,
    "max-storage-buffer-binding-size": WEBGPU.max_buffer_bytes,
    "max-compute-invocations-per-workgroup": WEBGPU.max_local,
    "max-compute-workgroup-size-x": WEBGPU.max_local,
    "max-compute-workgroup-storage-size": WEBGPU.shared_bytes,
    "max-compute-workgroups-per-dimension": WEBGPU.max_groups,
}


class WebGpu:
    """A device of WebGPU, in another process."""

    def __init__(self, process: Executor) -> None:
        self._process = process

    def compile(self, text: str) -> None:
        """Raises RuntimeError, in naga's words, for what it refuses."""
        self._process.submit(_compile, text).result()

    def run(self, program: Program, given: Arrays) -> Arrays:
        """The outputs of a run; outputs and scratch begin as 0x7E bytes. Raises as ``compile``."""
        return self._process.submit(_run, program, given).result()


@cache
def _opened() -> WebGpu | str:
    """The first adapter's device, or why there is none."""
    process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    why = process.submit(_why_not).result()
    if why:
        process.shutdown()
    return why or WebGpu(process)


def webgpu() -> WebGpu:
    """The device. Skips where there is none."""
    found = _opened()
    if isinstance(found, str):
        pytest.skip(found)
    return found


# ---- in the process of the device


@cache
def _device() -> tuple[Any, Any]:
    """The package and its device. Raises ImportError without the one, RuntimeError without the
    other.
    """
    import wgpu

    adapter = wgpu.gpu.request_adapter_sync()
    return wgpu, adapter.request_device_sync(required_limits=_LIMITS)


def _why_not() -> str:
    try:
        _device()
    except ImportError as error:
        return f"WGSL is checked by wgpu: pip install wgpu ({error})"
    except RuntimeError as error:
        return f"wgpu finds no adapter; Debian's mesa-vulkan-drivers has one ({error})"
    return ""


def _compile(text: str) -> None:
    _module(text)


def _module(text: str) -> Any:
    wgpu, device = _device()
    try:
        return device.create_shader_module(code=text)
    except wgpu.GPUValidationError as error:
        raise RuntimeError(str(error)) from None


def _run(program: Program, given: Arrays) -> Arrays:
    wgpu, device = _device()
    usage, reads = wgpu.BufferUsage, wgpu.BufferBindingType
    module, given_to = _module(render_wgsl(program)), arguments(program)
    # Said of all buffers: what naga works out has only those that the kernel touches.
    layout = device.create_bind_group_layout(
        entries=[
            {
                "binding": n,
                "visibility": wgpu.ShaderStage.COMPUTE,
                "buffer": {"type": reads.storage if _written(a) else reads.read_only_storage},
            }
            for n, a in enumerate(given_to)
        ]
    )
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={"module": module, "entry_point": kernel_name(program)},
    )
    memory = {}
    for a in given_to:
        host = np.full(a.size * a.dtype.numpy.itemsize, POISON, np.uint8)
        if not _written(a):
            host[:] = np.ascontiguousarray(given[a.name]).view(np.uint8).reshape(-1)
        memory[a.name] = device.create_buffer_with_data(
            data=host, usage=usage.STORAGE | usage.COPY_SRC
        )
    entries = [{"binding": n, "resource": {"buffer": b}} for n, b in enumerate(memory.values())]
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, device.create_bind_group(layout=layout, entries=entries))
    work.dispatch_workgroups(program.threads)
    work.end()
    device.queue.submit([encoder.finish()])
    return {
        b.name: np.frombuffer(device.queue.read_buffer(memory[b.name]), b.dtype.numpy)
        for b in program.params
        if b.role == "out"
    }


def _written(a: Buffer | Pack | Alloc) -> bool:
    """Whether it is an output, or scratch."""
    return isinstance(a, Alloc) or (isinstance(a, Buffer) and a.role == "out")


# ---- Tint


@cache
def _tint() -> Callable[[str], object] | str:
    """What compiles a text by Tint, or why there is nothing."""
    try:
        from pydawn import utils, webgpu
    except (ImportError, OSError) as error:
        return f"WGSL is checked by Tint: pip install dawn-python ({error})"
    utils.supported_backends["Null"] = webgpu.WGPUBackendType_Null
    with mock.patch.dict(os.environ, {"BACKEND_TYPE": "Null"}):
        adapter = utils.request_adapter_sync(webgpu.WGPUPowerPreference_HighPerformance)
    device = utils.request_device_sync(adapter)
    return lambda text: utils.create_shader_module(device, text)


def tint() -> Callable[[str], object]:
    """Compiles a text by Tint; raises RuntimeError for what it refuses. Skips where it is not."""
    found = _tint()
    if isinstance(found, str):
        pytest.skip(found)
    return found
