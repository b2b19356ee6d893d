"""The light models of the package onnx: ours as they are loaded next to ONNX Runtime, in turns.

    python -m benchmarks.onnx_light                     ours with default schedules
    python -m benchmarks.onnx_light --store tuned.db    ours tuned

The files hold the shapes of their weights only (ConstantOfShape); random ones stand in for them.
Results are compared first, by what the last softmax reads, since behind it all but one of such a
network's shares are nearly zero: within 1e-5 of the largest, of numbers that lie apart.
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
_CLOSE, _APART = 1e-5, 1e-2


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


def session(path: Path, threads: int, optimised: bool = True) -> Any:
    """A session of ONNX Runtime on a CPU; the file's own operators where it is not optimised."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # not a line for each shape that is unused now
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def _row(name: str, path: Path, threads: int, store: Any, pace: str) -> str:
    runtime = session(path, threads)
    ours = tg.load(str(path), store=store, threads=threads)
    rng = np.random.default_rng(1)
    given = {x.name: rng.normal(size=x.shape).astype(np.float32)
             for x in runtime.get_inputs()}  # fmt: skip
    arrays = [given[x.name] for x in ours.inputs]

    def call() -> Any:
        made = ours(*arrays)
        return made if isinstance(made, tuple) else (made,)

    wanted = runtime.run(None, given)
    logits = wanted[-1].astype(np.float64)
    apart = float(logits.std() / np.abs(logits).max())
    if apart < _APART:
        return f"{name:14} has logits that differ by {apart:.0e} of the largest: nothing to compare"
    # a share differs by as much as what the softmax reads does, which is what is compared
    if wrong := disagreement(np.asarray(call()[-1]), wanted[-1], _CLOSE):
        return f"{name:14} differs from ONNX Runtime: {wrong}"
    off = np.abs(np.asarray(call()[-1], np.float64) - logits).max()
    worst = float(off / np.abs(logits).max())
    said = f"{name:14} within {worst:.0e} of the largest, which lie {apart:.2f} apart"
    if not pace:
        return said
    mine, theirs = interleave(
        (
            CallContestant("ours", "", call, lambda: np.asarray(call()[0])),
            CallContestant("onnxruntime", "", lambda: runtime.run(None, given), lambda: wanted[0]),
        ),
        QUICK if pace == "quick" else FULL,
    )
    return (
        f"{said}   ours {1e3 * mine.seconds:8.3f} ms   onnxruntime {1e3 * theirs.seconds:8.3f} ms"
        f"   {theirs.seconds / mine.seconds:5.2f}x as fast"
        f"   (+- {100 * (mine.interval + theirs.interval):.1f} %)"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_light", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(_MODELS)}; all unless given")
    parser.add_argument("--store", default="", help="tuned winners")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pace", choices=("full", "quick", "none"), default="full",
                        help="none: compared only")  # fmt: skip
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in said.models or _MODELS:
            path = Path(folder) / f"{name}.onnx"
            whole = with_weights(onnx.load(_HERE / f"light_{name}.onnx"))
            onnx.save(with_logits(whole), path)
            pace = "" if said.pace == "none" else said.pace
            print(_row(name, path, said.threads, said.store or False, pace), flush=True)


if __name__ == "__main__":
    main()
