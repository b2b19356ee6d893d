"""An ONNX file as a model: make one, tune it, run it.

The same on the command line: ``tunegrad tune perceptron.onnx``, then
``tunegrad run perceptron.onnx``.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tunegrad as tg

STORE = "example.db"


def write_file(path):
    """Write ``relu(x @ w + b)`` with a batch that has only a name, and return w and b."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 32)).astype(np.float32)
    b = rng.standard_normal(32).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer"),
            helper.make_node("Relu", ["y"], ["scores"]),
        ],
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 32])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return w, b


def main(budget_s):
    """Tune the file for a batch of 8, load it, and compare it with numpy."""
    w, b = write_file("perceptron.onnx")
    name = "perceptron.onnx[batch=8]"  # a named dimension is given an extent
    tg.tune(name, budget_s=budget_s, max_trials=40, store=STORE)

    model = tg.load(name, store=STORE)
    x = np.ones((8, 64), np.float32)
    np.testing.assert_allclose(model(x), np.maximum(x @ w + b, 0), atol=1e-4)
    print([(x.name, x.shape) for x in model.inputs])
    for row in model.report():
        print(row.kernel, row.outcome, *row.differs)


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
