"""Models of PyTorch through ONNX: exported by either of PyTorch's exporters, next to eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from tests.torch_zoo import ZOO, spelled_out  # noqa: E402 - it is written in PyTorch

CLOSE = 1e-4


def exported(module: Any, inputs: tuple[Any, ...], path: Path, dynamo: bool) -> Path:
    """A file of the module, by the exporter of graphs of ``torch.export``, or of TorchScript."""
    names = [f"x{i}" for i in range(len(inputs))]
    if dynamo:
        pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
        torch.onnx.export(module, inputs, path, dynamo=True, input_names=names, verbose=False)
    else:
        torch.onnx.export(spelled_out(module), inputs, path, dynamo=False, input_names=names)
    return path


def check(name: str, full: bool, path: Path, dynamo: bool) -> None:
    module, inputs = ZOO[name](full)
    with torch.inference_mode():
        wanted = module(*inputs)
    loaded = tg.load(str(exported(module, inputs, path, dynamo)), store=False)
    found = loaded(*(x.numpy() for x in inputs))
    pairs = zip(several(found), several(wanted), strict=True)
    for got, want in pairs:
        np.testing.assert_allclose(got, want.numpy(), atol=CLOSE, rtol=CLOSE)


def several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


EXPORTERS = [
    pytest.param(name, dynamo, id=f"{name}-{'dynamo' if dynamo else 'torchscript'}",
                 marks=[pytest.mark.slow] * (dynamo and name not in ("lstm", "mobilenet_v2")))
    for name in ZOO for dynamo in (False, True)
]  # fmt: skip
"""Both of each model; the exporter of graphs takes ten seconds of most."""


@pytest.mark.parametrize(("name", "dynamo"), EXPORTERS)
def test_a_small_exported_model_gives_what_pytorch_gives(
    name: str, dynamo: bool, tmp_path: Path
) -> None:
    check(name, False, tmp_path / "model.onnx", dynamo)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", ZOO)
def test_an_exported_model_of_full_size_gives_what_pytorch_gives(
    name: str, dynamo: bool, tmp_path: Path
) -> None:
    check(name, True, tmp_path / "model.onnx", dynamo)
