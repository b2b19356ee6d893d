"""OpenVINO, CPU plugin: one stream, latency hint, f32 (its own default on such CPUs may be bf16),
one kept request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openvino
from openvino.preprocess import PrePostProcessor

from benchmarks import onnx_graphs
from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, laid_out, touched

__all__ = ["contestants", "model_at"]


def contestants(workload: Workload, threads: int) -> Iterator[Contestant]:
    """One compiled model with ``threads`` inference threads and one request, called in two ways;
    buffers are kept.

    Images are given, and for kernels taken back, in both layouts: NCHW, and NHWC declared as the
    layout of the tensors.
    """
    for layout in ("nchw", "nhwc") if workload.has_images else ("",):
        yield from _in_layout(workload, threads, layout)


def model_at(workload: Workload, threads: int, precision: str) -> Iterator[Contestant]:
    """A model at a precision, "f32" or "default", the plugin's own choice: bf16 where the processor
    multiplies it. The peer is named by both.
    """
    layouts = ("nchw", "nhwc") if workload.has_images else ("",)
    for layout in layouts:
        hint = "" if precision == "default" else precision
        yield from _in_layout(workload, threads, layout, f"openvino {precision}", hint)


def _in_layout(
    workload: Workload, threads: int, layout: str, peer: str = "openvino", precision: str = "f32"
) -> Iterator[Contestant]:
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        # others move the main thread: it would share a core with a pinned worker
        "ENABLE_CPU_PINNING": False,
    }
    if precision:
        settings["INFERENCE_PRECISION_HINT"] = precision
    model = core.read_model(onnx_graphs.serialized(workload))
    inputs = laid_out(workload, layout)
    if layout == "nhwc":
        model = _channels_last(model, images_out=workload.has_images_out)
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    for i, array in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))
    request.infer()
    kept = touched(tuple(request.get_output_tensor(0).shape))
    request.set_output_tensor(0, openvino.Tensor(kept, shared_memory=True))

    def wait() -> None:
        request.start_async()
        request.wait()

    def read(
        _alive: object = inputs,
    ) -> Array:  # the tensors point at the arrays and do not keep them
        request.infer()
        result: Array = kept.copy()
        return (
            result.transpose(0, 3, 1, 2) if layout == "nhwc" and workload.has_images_out else result
        )

    # On its own thread OpenVINO always gets its workers to share the job; called directly, it is
    # cheaper to reach, but for the first seconds of some processes the calling thread does all the
    # work while a worker spins.
    suffix = f" {layout}" if layout else ""
    yield CallContestant(peer, f"sync{suffix}", request.infer, read, layout)
    yield CallContestant(peer, f"async{suffix}", wait, read, layout)


def _channels_last(model: Any, images_out: bool) -> Any:
    """The model for NHWC tensors; the plugin sees a change of layout at its boundary, not a copy
    that it must make.
    """
    steps = PrePostProcessor(model)
    steps.input().tensor().set_layout(openvino.Layout("NHWC"))
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    if images_out:
        steps.output().model().set_layout(openvino.Layout("NCHW"))
        steps.output().tensor().set_layout(openvino.Layout("NHWC"))
    return steps.build()
