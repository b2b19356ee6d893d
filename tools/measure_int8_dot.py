"""Measure matrix products of bytes with i32 sums, in fours and one by one, on this machine.

    python -m tools.measure_int8_dot               default schedules, on one and two threads
    python -m tools.measure_int8_dot --threads 1 --least --rounds 60

Columns are milliseconds of a call, medians of calls in turns (or the least, for a machine that
others keep busy), with weights that are known when the
model is loaded: each product widened to i32 and multiplied by itself, in fours of u8 by i8 and of
i8 by i8, and where they are installed ONNX Runtime's MatMulInteger (u8 by i8) and PyTorch's
``torch._int_mm`` (i8 by i8). All of them are compared with numpy before. Threads that spin after
another library's call are asleep by the next one.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunegrad as tg
from tools.measure_bf16_dot import ROUNDS, SHAPES, Shape
from tunegrad.frontend import Tensor

_ASLEEP_S = 0.02

Call = Callable[[], Any]
Bytes = NDArray[np.generic]


def speed(threads: int, rounds: int, of: Callable[[list[float]], float]) -> str:
    """The table of one number of threads as markdown; ``of`` what is shown of the times."""
    rows = [{n: of(t) for n, t in _times(s, threads, rounds).items()} for s in SHAPES]
    names = list(rows[0])
    lines = [f"| {threads} threads | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for shape, row in zip(SHAPES, rows, strict=True):
        lines.append(f"| {shape} | " + " | ".join(f"{row[n]:.2f}" for n in names) + " |")
    return "\n".join(lines) + "\n"


def _times(shape: Shape, threads: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every call."""
    rng = np.random.default_rng([shape.m, shape.k, shape.n])
    unsigned = rng.integers(0, 256, (shape.m, shape.k)).astype(np.uint8)
    signed = rng.integers(-128, 128, (shape.m, shape.k)).astype(np.int8)
    weights = rng.integers(-128, 128, (shape.k, shape.n)).astype(np.int8)
    calls = {
        "widened": _ours(unsigned, weights, threads, wide=True),
        "u8 x i8": _ours(unsigned, weights, threads),
        "i8 x i8": _ours(signed, weights, threads),
        **_peers(unsigned, signed, weights, threads),
    }
    for name, call in calls.items():
        left = signed if name in ("i8 x i8", "PyTorch i8 x i8") else unsigned
        want = left.astype(np.float64) @ weights.astype(np.float64)
        if not np.array_equal(np.asarray(call()), want):
            raise SystemExit(f"{name} of {shape} is no exact product")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(_ASLEEP_S)
            call()
            begin = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - begin))
    return times


def _ours(x: Bytes, weights: Bytes, threads: int, *, wide: bool = False) -> Call:
    """``wide``: by way of i16, so that the product is none of bytes."""
    narrow = Tensor.constant(weights)

    def product(a: Tensor) -> Tensor:
        return (a.cast("i16") if wide else a).cast("i32") @ narrow.cast("i32")

    model = tg.compile(product, Tensor(x), threads=threads, store=False)
    return lambda: model(x)


def _peers(unsigned: Bytes, signed: Bytes, weights: Bytes, threads: int) -> dict[str, Call]:
    found: dict[str, Call] = {}
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        found["ONNX Runtime u8 x i8"] = _onnx_runtime(unsigned, weights, threads)
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        torch.set_num_threads(threads)
        a, b = torch.from_numpy(signed), torch.from_numpy(weights)
        multiply = getattr(torch, "_int_mm")  # noqa: B009  # it has no public name
        found["PyTorch i8 x i8"] = lambda: multiply(a, b)
    return found


def _onnx_runtime(x: Bytes, weights: Bytes, threads: int) -> Call:
    onnx, runtime = (importlib.import_module(name) for name in ("onnx", "onnxruntime"))
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product",
        [helper.make_tensor_value_info("a", kinds.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", kinds.INT32, (x.shape[0], weights.shape[1]))],
        [onnx.numpy_helper.from_array(weights, "b")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"a": x})[0]


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="times of products of bytes")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--least", action="store_true", help="the least time, not the median")
    given = parser.parse_args(arguments)
    of = min if given.least else median
    sys.stdout.write("\n".join(speed(n, given.rounds, of) for n in given.threads))


if __name__ == "__main__":
    main(sys.argv[1:])
