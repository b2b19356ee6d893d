"""Models quantised by ONNX Runtime's own tool: ours in bytes and in f32 next to ONNX Runtime and
OpenVINO, in turns.

    python -m benchmarks.quantised                      ours with default schedules
    python -m benchmarks.quantised resnet18 --store tuned.db
    python -m benchmarks.quantised --write DIR          the files alone, to tune them; no file is
                                                        written again: --files DIR times these
    python -m benchmarks.quantised --batch 8 resnet18   images at a time

QuantizeLinear and DequantizeLinear around each operator (QDQ), bytes without a sign for activations
and with one for weights, a scale a channel. Weights and the calibration are drawn. Outputs are
compared with the file's own meaning, ONNX Runtime without its optimiser: shares of elements that
are equal, and within one quantum.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

import tunegrad as tg
from benchmarks import onnx_light
from benchmarks.contestants import CallContestant
from benchmarks.interleave import FULL, QUICK, interleave

__all__ = ["MODELS", "main", "quantised"]

_OPSET = 20
_SAMPLES = 4
"""Inputs that the ranges of activations are read off."""


def _exported(module: Any, inputs: tuple[Any, ...]) -> onnx.ModelProto:
    import torch

    buffer = io.BytesIO()
    names = [
        f"x{i}" if x.dtype.is_floating_point else "mask" if i else "ids"
        for i, x in enumerate(inputs)
    ]
    torch.onnx.export(
        module.eval(), inputs, buffer, dynamo=False, opset_version=_OPSET, input_names=names
    )
    return onnx.load_from_string(buffer.getvalue())


def _of_benchmarks(name: str, batch: int) -> onnx.ModelProto:
    import torch

    from benchmarks import torch_models
    from benchmarks.workloads import select

    ((_, *rest), *_) = select("models", [name])[0].inputs
    return _exported(torch_models.build(name), (torch.zeros(batch, *rest),))


def _of_zoo(name: str, batch: int) -> onnx.ModelProto:
    from tests.torch_zoo import ZOO

    module, inputs = ZOO[name](True)
    return _exported(module, tuple(x.repeat(batch, *[1] * (x.dim() - 1)) for x in inputs))


def _light(name: str, batch: int) -> onnx.ModelProto:
    """One of the package onnx, up to what its last softmax reads: behind it all but one of the
    shares are nearly zero, and alike whatever was computed. Its batch is 1.
    """
    if batch > 1:
        raise SystemExit(f"{name}: the file's batch is 1, not {batch}")
    path = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    model = onnx_light.with_logits(
        onnx_light.with_weights(onnx.version_converter.convert_version(onnx.load(path), 13))
    )
    del model.graph.output[:-1]
    return model


MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "resnet18": partial(_of_benchmarks, "resnet18"),
    "resnet50": partial(_of_benchmarks, "resnet50"),
    "mobilenet_v2": partial(_of_zoo, "mobilenet_v2"),
    "bert_6": partial(_of_zoo, "bert_6"),
    "squeezenet": partial(_light, "squeezenet"),
    "encoder": partial(_of_benchmarks, "encoder"),
}


_QUANTISED = {name: ["MatMul", "Gemm", "Gather"] for name in ("bert_6", "encoder")}
"""Operators that are quantised, where not all are: the range of an attention mask is infinite."""


def _drawn(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    """Inputs of a file: normal floats, integers below 100, masks of ones."""
    rng, known = np.random.default_rng(seed), {x.name for x in model.graph.initializer}
    found = {}
    for x in model.graph.input:
        if x.name in known:
            continue
        shape = [d.dim_value or 1 for d in x.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        drawn = rng.normal(size=shape) if kind.kind == "f" else rng.integers(0, 100, shape)
        found[x.name] = np.asarray(np.ones(shape) if "mask" in x.name else drawn, kind)
    return found


class _Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Some drawn inputs, once."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._samples: Iterator[dict[str, Any]] = iter(
            [_drawn(model, seed) for seed in range(_SAMPLES)]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._samples, None)


def quantised(name: str, folder: Path, batch: int = 1) -> tuple[Path, Path]:
    """The files of a model in f32 and in bytes; those that the folder has are not made again."""
    called = f"{name}-{batch}" if batch > 1 else name
    plain, made = folder / f"{called}.onnx", folder / f"{called}-int8.onnx"
    if made.exists():
        return plain, made
    model, prepared = MODELS[name](batch), folder / f"{called}-prepared.onnx"
    onnx.save(model, plain)
    quant_pre_process(str(plain), str(prepared))
    quantization.quantize_static(
        str(prepared),
        str(made),
        _Calibration(model),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=_QUANTISED.get(name),
    )
    prepared.unlink()
    return plain, made


def _openvino(path: Path, threads: int, given: dict[str, Any]) -> Callable[[], Any]:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    return lambda: next(iter(compiled(given).values()))


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple | list) else found


def _ours(path: Path, store: Any, threads: int, given: dict[str, Any]) -> Callable[[], Any]:
    loaded = tg.load(str(path), store=store, threads=threads)
    arrays = [given[x.name] for x in loaded.inputs]
    return lambda: _first(loaded(*arrays))


def _runtime(path: Path, threads: int, given: dict[str, Any]) -> Callable[[], Any]:
    runtime = onnx_light.session(path, threads)
    return lambda: runtime.run(None, given)[0]


def _agreement(got: Any, wanted: Any) -> str:
    """Shares of elements that are equal, and within one quantum of an output of bytes; of one of
    floats, which lie nearer to each other, one of 256 parts of its range.
    """
    gap = float(np.diff(np.unique(wanted)).min(initial=np.inf))
    step = max(gap if np.isfinite(gap) else 0.0, float(np.ptp(wanted)) / 255, 1e-30)
    apart = np.abs(np.asarray(got, np.float64) - wanted) / step
    equal, near = (100 * np.mean(apart < least) for least in (1e-3, 1.001))
    return f"{equal:.1f} % equal, {near:.2f} % within one"


def _rows(name: str, folder: Path, said: argparse.Namespace) -> Iterator[str]:
    plain, made = quantised(name, folder, said.batch)
    given = _drawn(onnx.load(made), 99)
    wanted = onnx_light.session(made, said.threads, optimised=False).run(None, given)[0]
    store = said.store or False
    makers = {
        "ours int8": partial(_ours, made, store, said.threads, given),
        "ours f32": partial(_ours, plain, store, said.threads, given),
        "onnxruntime int8": partial(_runtime, made, said.threads, given),
        "onnxruntime f32": partial(_runtime, plain, said.threads, given),
        "openvino int8": partial(_openvino, made, said.threads, given),
        "openvino f32": partial(_openvino, plain, said.threads, given),
    }
    contestants = []
    for peer, make in makers.items():
        try:
            call = make()
            got = call()
        except Exception as error:  # noqa: BLE001 - another library's; the row says it
            yield f"  {peer}: does not run: {' '.join(str(error).split())[:200]}"
            continue
        if peer.endswith("int8"):
            yield f"  {peer:18} {_agreement(got, wanted)}"
        contestants.append(CallContestant(peer, "", call, lambda call=call: np.asarray(call())))  # type: ignore[misc]
    if said.pace == "none":
        return
    timings = interleave(contestants, QUICK if said.pace == "quick" else FULL)
    mine = next((t for t in timings if t.peer == "ours int8"), None)
    for t in timings:
        of_ours = f"   {t.seconds / mine.seconds:5.2f} of ours" if mine else ""
        yield f"  {t.peer:18} {1e3 * t.seconds:9.3f} ms +- {100 * t.interval:4.1f} %{of_ours}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantised", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all unless given")
    parser.add_argument("--store", default="", help="tuned winners")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--write", type=Path, help="a folder for the files; nothing is timed")
    parser.add_argument("--files", type=Path, help="a folder of such files")
    parser.add_argument("--pace", choices=("full", "quick", "none"), default="quick",
                        help="none: compared only")  # fmt: skip
    said = parser.parse_args()
    if unknown := [name for name in said.models if name not in MODELS]:
        parser.error(f"models {', '.join(unknown)}; valid: {', '.join(MODELS)}")
    for name in said.models or MODELS:
        if said.write:
            said.write.mkdir(parents=True, exist_ok=True)
            print(*quantised(name, said.write, said.batch), flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(name, flush=True)
            for row in _rows(name, said.files or Path(folder), said):
                print(row, flush=True)


if __name__ == "__main__":
    main()
