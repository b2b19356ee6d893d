# mypy: disable-error-code="import-not-found,import-untyped"
"""OpenVINO, CPU plugin: one stream, latency hint, f32 (its own default on such CPUs may be bf16), one kept request."""

from __future__ import annotations

from collections.abc import Iterator

import openvino

from benchmarks import onnx_graphs
from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, arrays

__all__ = ["contestants"]


def contestants(workload: Workload, threads: int) -> Iterator[Contestant]:
    """One compiled model with ``threads`` inference threads and one request, called in two ways; buffers are kept."""
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,  # others move the main thread: it would share a core with a pinned worker
    }
    compiled = core.compile_model(core.read_model(onnx_graphs.serialized(workload)), "CPU", settings)
    request = compiled.create_infer_request()
    for i, array in enumerate(arrays(workload)[0]):
        request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))

    def wait() -> None:
        request.start_async()
        request.wait()

    def read() -> Array:
        request.infer()
        result: Array = request.get_output_tensor(0).data.copy()
        return result

    # On its own thread OpenVINO always gets its workers to share the job; called directly, it is cheaper to reach,
    # but for the first seconds of some processes the calling thread does all the work while a worker spins.
    yield CallContestant("openvino", "sync", request.infer, read)
    yield CallContestant("openvino", "async", wait, read)
