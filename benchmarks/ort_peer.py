# mypy: disable-error-code="import-not-found,import-untyped"
"""ONNX Runtime, CPU provider: all graph optimisations, inputs and outputs bound once, its own spinning left on."""

from __future__ import annotations

from collections.abc import Iterator

import onnxruntime

from benchmarks import onnx_graphs
from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, arrays, touched

__all__ = ["contestants"]


def contestants(workload: Workload, threads: int) -> Iterator[Contestant]:
    """One session with ``threads`` intra-op threads; the output buffer is allocated once and kept."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        onnx_graphs.serialized(workload), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": array for i, array in enumerate(arrays(workload)[0])}
    output = touched(session.run(["y"], feeds)[0].shape)
    kept = onnxruntime.OrtValue.ortvalue_from_numpy(output)  # a view: the arrays stay where they are
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_ortvalue_output("y", kept)

    def run() -> None:
        session.run_with_iobinding(binding)

    def read() -> Array:
        run()
        return output.copy()

    layout = "nchw" if workload.has_images else ""
    yield CallContestant("ort", "io binding", run, read, layout)
