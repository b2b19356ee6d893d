"""ONNX Runtime, CPU provider: all graph optimisations, inputs and outputs bound once, its own
spinning left on.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnxruntime

from benchmarks import onnx_graphs
from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, laid_out, touched

__all__ = ["contestants"]


def contestants(workload: Workload, threads: int) -> Iterator[Contestant]:
    """A session with ``threads`` intra-op threads per layout of images; output buffers are
    allocated once and kept.
    """
    layouts = (
        ("nchw", "nhwc") if workload.has_images_out else ("nchw",) if workload.has_images else ("",)
    )
    for layout in layouts:
        yield _bound(workload, threads, layout)


def _bound(workload: Workload, threads: int, layout: str) -> Contestant:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        onnx_graphs.serialized(workload, layout), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": array for i, array in enumerate(laid_out(workload, layout))}
    output = touched(session.run(["y"], feeds)[0].shape)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    kept = onnxruntime.OrtValue.ortvalue_from_numpy(
        output
    )  # a view: the arrays stay where they are
    binding.bind_ortvalue_output("y", kept)

    def run() -> None:
        session.run_with_iobinding(binding)

    def read(_alive: object = (feeds, kept)) -> Array:
        run()
        return output.transpose(0, 3, 1, 2).copy() if layout == "nhwc" else output.copy()

    return CallContestant("ort", f"io binding {layout}".rstrip(), run, read, layout)
