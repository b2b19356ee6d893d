"""The light models of the package onnx: ours as they are loaded next to ONNX Runtime, in turns.

    python -m benchmarks.onnx_light                     ours with default schedules
    python -m benchmarks.onnx_light --store tuned.db    ours tuned

The files hold the shapes of their weights only (ConstantOfShape); random ones stand in for them,
which keep deviations: those of a layer's outputs are scaled to 1 on the inputs that are drawn.
Results are compared first, before the last softmax as well as behind it: within 1e-5 of the
largest, of numbers that differ from each other.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import tunegrad as tg
from benchmarks.contestants import CallContestant, disagreement
from benchmarks.interleave import FULL, QUICK, interleave

__all__ = ["main", "session", "with_logits", "with_weights"]

_HERE = Path(onnx.__file__).parent / "backend/test/data/light"
_MODELS = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2",
           "bvlc_alexnet", "vgg19", "zfnet512")  # fmt: skip
_CLOSE = 1e-5


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with random weights where it makes constant ones of a known shape.

    Weights of two and more dimensions have He's deviation; vectors (biases, statistics of batches)
    lie in [0.5, 1.5), as variances have to be positive.
    """
    rng, graph = np.random.default_rng(seed), model.graph
    known = {x.name: numpy_helper.to_array(x) for x in graph.initializer}
    kept = []
    for node in graph.node:
        shape = known.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None:
            kept.append(node)
            continue
        fan = max(1, int(np.prod(shape[1:])))
        values = (
            rng.normal(0, np.sqrt(2 / fan), shape)
            if len(shape) > 1
            else rng.uniform(0.5, 1.5, shape)
        )
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    return model


def with_logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what its last softmaxes and sigmoids read as further outputs: behind them a
    difference of small shares is not seen.
    """
    graph = model.graph
    makers = {o: node for node in graph.node for o in node.output}
    held = {o.name for o in graph.output} | {i.name for i in graph.input}
    for output in list(graph.output):
        node = makers.get(output.name)
        while node is not None and node.op_type in ("Identity", "Reshape", "Cast", "Transpose"):
            node = makers.get(node.input[0])
        if node is None or node.op_type not in ("Softmax", "LogSoftmax", "Sigmoid"):
            continue
        if node.input[0] not in held:
            held.add(node.input[0])
            graph.output.append(onnx.helper.make_empty_tensor_value_info(node.input[0]))
    return model


def session(path: Path, threads: int) -> Any:
    """A session of ONNX Runtime on a CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # not a line for each shape that is unused now
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def _row(name: str, path: Path, threads: int, store: Any, quick: bool) -> str:
    theirs = session(path, threads)
    ours = tg.load(str(path), store=store, threads=threads)
    rng = np.random.default_rng(1)
    given = {x.name: rng.normal(size=x.shape).astype(np.float32)
             for x in theirs.get_inputs()}  # fmt: skip
    arrays = [given[x.name] for x in ours.inputs]

    def call() -> Any:
        return ours(*arrays)

    def first(result: Any) -> Any:
        return np.asarray(result[0] if isinstance(result, tuple | list) else result)

    reference = theirs.run(None, given)[0]
    wrong = disagreement(first(call()), reference, _CLOSE)
    if wrong:
        return f"{name:14} differs from ONNX Runtime: {wrong}"
    mine, theirs = interleave(
        (
            CallContestant("ours", "", call, lambda: first(call())),
            CallContestant("onnxruntime", "", lambda: theirs.run(None, given), lambda: reference),
        ),
        QUICK if quick else FULL,
    )
    return (
        f"{name:14} ours {1e3 * mine.seconds:8.3f} ms   onnxruntime {1e3 * theirs.seconds:8.3f} ms"
        f"   {theirs.seconds / mine.seconds:5.2f}x as fast"
        f"   (+- {100 * (mine.interval + theirs.interval):.1f} %)"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_light", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(_MODELS)}; all unless given")
    parser.add_argument("--store", default="", help="tuned winners")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pace", choices=("full", "quick"), default="full")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in said.models or _MODELS:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(with_weights(onnx.load(_HERE / f"light_{name}.onnx")), path)
            print(_row(name, path, said.threads, said.store or False, said.pace == "quick"),
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
