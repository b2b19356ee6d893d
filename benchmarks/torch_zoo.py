"""Models in plain PyTorch (tests/torch_zoo.py): ours next to eager and others, as users call them.

    python -m benchmarks.torch_zoo                      ours with default schedules, and eager
    python -m benchmarks.torch_zoo --store tuned.db     ours tuned, and the other compilers

Contestants take turns with quiet between them (benchmarks.interleave); each result is compared with
eager's first.
``tunegrad tune benchmarks.torch_zoo:NAME --budget 5m --store tuned.db`` tunes one.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import tunegrad as tg
from benchmarks.contestants import CallContestant
from benchmarks.interleave import FULL, QUICK, interleave
from tests.torch_zoo import ZOO, Case

__all__ = ["main"]

Call = Callable[[], Sequence[Any]]
_CLOSE = 1e-4


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _eager(module: Any, inputs: Any) -> Call:
    return lambda: _several(module(*inputs))


def _ours(module: Any, inputs: Any, store: Any, threads: int) -> Call:
    loaded = tg.load((module, list(inputs)), store=store, threads=threads)
    arrays = [x.numpy() for x in inputs]
    return lambda: _several(loaded(*arrays))


def _compiled(module: Any, inputs: Any, backend: str, options: dict[str, Any] | None) -> Call:
    call = torch.compile(module, backend=backend, options=options)
    return lambda: _several(call(*inputs))


def _exported(module: Any, inputs: Any) -> bytes:
    buffer = io.BytesIO()
    torch.onnx.export(module, tuple(inputs), buffer, dynamo=False)
    return buffer.getvalue()


def _onnxruntime(module: Any, inputs: Any, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        _exported(module, inputs), options, ["CPUExecutionProvider"]
    )
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feed)


def _openvino(module: Any, inputs: Any, threads: int) -> Call:
    import openvino

    converted = openvino.convert_model(module, example_input=tuple(inputs))
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    settings["INFERENCE_PRECISION_HINT"] = "f32"  # its own choice is bf16 where the CPU has it
    compiled = openvino.compile_model(converted, "CPU", settings)
    arrays = [x.numpy() for x in inputs]
    return lambda: list(compiled(arrays).values())


def _contestants(
    module: Any, inputs: Any, store: str, threads: int
) -> dict[str, Callable[[], Call]]:
    where = store or False
    found: dict[str, Callable[[], Call]] = {
        "eager": partial(_eager, module, inputs),
        "ours": partial(_ours, module, inputs, where, threads),
        "ours by torch.compile": partial(
            _compiled, module, inputs, "tunegrad", {"store": where, "threads": threads}
        ),
    }
    if store:
        found["inductor"] = partial(_compiled, module, inputs, "inductor", None)
        found["onnxruntime"] = partial(_onnxruntime, module, inputs, threads)
        found["openvino"] = partial(_openvino, module, inputs, threads)
    return found


def _ready(
    makers: dict[str, Callable[[], Call]], wanted: Sequence[Any]
) -> Iterator[CallContestant]:
    """Those that start, and give what eager gives."""
    for name, make in makers.items():
        try:
            call = make()
            got = call()
        except Exception as error:  # noqa: BLE001 - another library's; the row says it
            print(f"  {name}: does not run: {' '.join(str(error).split())[:150]}")
            continue
        worst = max(
            float(np.abs(np.asarray(g) - w.numpy()).max()) for g, w in zip(got, wanted, strict=True)
        )
        if worst > _CLOSE:
            print(f"  {name}: differs from eager by {worst:.2g}")
            continue
        yield CallContestant(name, "", call, lambda call=call: np.asarray(call()[0]))  # type: ignore[misc]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_zoo", description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*ZOO, []], help="all unless given")
    parser.add_argument("--store", default="", help="tuned winners; others take part then")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pace", choices=("full", "quick"), default="full")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    said = parser.parse_args()
    import tunegrad.torch  # noqa: F401 - it registers the backend

    torch.set_num_threads(said.threads)
    torch._dynamo.config.allow_rnn = True  # noqa: SLF001 - or its compilers never see an LSTM
    pace = QUICK if said.pace == "quick" else FULL
    for name in said.models or ZOO:
        module, inputs = ZOO[name](not said.small)
        torch._dynamo.reset()  # noqa: SLF001 - its documented name
        print(name, flush=True)
        with torch.no_grad():
            wanted = _several(module(*inputs))
            makers = _contestants(module, inputs, said.store, said.threads)
            timings = interleave(list(_ready(makers, wanted)), pace)
        eager_s = timings[0].seconds
        for t in timings:
            print(
                f"  {t.peer:24} {1e3 * t.seconds:9.3f} ms +- {100 * t.interval:4.1f} %"
                f"  {eager_s / t.seconds:5.2f}x eager"
            )


def mobilenet_v2() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["mobilenet_v2"](True)


def unet() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["unet"](True)


def vit_s() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["vit_s"](True)


def bert_6() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["bert_6"](True)


def llama_block() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["llama_block"](True)


def lstm() -> Case:
    """For ``tunegrad tune``."""
    return ZOO["lstm"](True)


if __name__ == "__main__":
    main()
