"""What a user can get wrong is one line that names the thing, the value and what would be valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tunegrad.errors import (
    ConfigError,
    DeviceError,
    DTypeError,
    ModelError,
    ShapeError,
    StoreError,
    UserError,
    WeightsError,
)
from tunegrad.inference.choosing import engine_of
from tunegrad.models import mlp

MODEL = mlp(sizes=(4, 3))


@pytest.mark.parametrize(
    ("model", "settings", "error", "message"),
    [
        ("resnet19", {}, ModelError, "model 'resnet19' is unknown, did you mean 'resnet18'"),
        (
            "mlp",
            {"device": "tpu"},
            DeviceError,
            r"device 'tpu' is unknown, did you mean 'cpu'\?; valid: cpu",
        ),
        (
            "mlp",
            {"device": "rocm"},
            DeviceError,
            "device 'rocm' is unknown; valid: cpu, opencl, cuda, null",
        ),
        (
            "mlp",
            {"device": "opencl:"},
            DeviceError,
            "device 'opencl:': a number or a name must follow the colon",
        ),
        (
            "mlp",
            {"on_miss": "guess"},
            ConfigError,
            "on_miss 'guess' is unknown; valid: default, nearest, error",
        ),
        ("mlp", {"threads": 0}, DeviceError, "threads 0 is not a positive whole number"),
        ("mlp", {"threads": 1_000_000_000}, DeviceError, "threads 1000000000: at most 1024"),
        (
            "mlp",
            {"store": "/nowhere/t.db"},
            StoreError,
            "store /nowhere/t.db: directory /nowhere does not exist",
        ),
        ("mlp", {"weights": {}}, WeightsError, "weights of mlp: 6 missing .layers.0.weight"),
        (
            "mlp",
            {"weights": "/nowhere.safetensors"},
            WeightsError,
            "weights file /nowhere.safetensors",
        ),
    ],
)
def test_load(model: str, settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"^{message}") as caught:
        tg.load(model, **settings)
    assert isinstance(caught.value, UserError)
    assert "\n" not in str(caught.value)


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; `tunegrad tune"):
        tg.load(MODEL, store=tmp_path / "t.db")


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("hello, this is not a store, it only looks like a file")
    with pytest.raises(StoreError, match=r"t\.db"):
        tg.load(MODEL, store=tmp_path / "t.db")


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (
            np.zeros((2, 4), np.float32),
            ShapeError,
            r"input 'x' has shape \(2, 4\), it must be \(1, 4\)",
        ),
        (np.zeros((1, 4)), DTypeError, "input 'x' has dtype float64, it must be float32"),
    ],
)
def test_call(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"^mlp\(x f32\[1,4\]\): {message}$"):
        tg.load(MODEL, store=False)(x)


def test_a_function_that_returns_no_tensor_is_named() -> None:
    with pytest.raises(ModelError, match="model lambda returns float"):
        tg.compile(lambda x: 1.0, np.zeros(3, np.float32))


def test_a_tensor_without_a_value_can_not_be_computed() -> None:
    with pytest.raises(ModelError, match="input 'x' of"):
        (tg.Tensor.input("x", (3,)) + 1).numpy()


def test_a_device_that_is_too_small_is_said_with_what_it_takes(monkeypatch):
    """One line: the device, the model, its bytes, what there is, and what takes less."""
    device = cuda_host()
    from tests.cuda_host.driver import HostDriver

    allocate, most = HostDriver.allocate, 40_000

    def capped(self: HostDriver, nbytes: int) -> int:
        if nbytes > most:
            raise MemoryError(f"{most} of {most} bytes are free")
        return allocate(self, nbytes)

    engine_of.cache_clear()  # an engine keeps memory for the next of its size
    monkeypatch.setattr(HostDriver, "allocate", capped)
    large = mlp(sizes=(256, 256, 4))
    told = (
        r"^device cuda-host has no memory for mlp: 0\.3 MB of weights, 0\.0 MB of activations; "
        r"buffer of \d+ bytes on cuda-host: 40000 of 40000 bytes are free; a smaller batch, or "
        r"dtype f16 or bf16, takes less$"
    )
    with pytest.raises(DeviceError, match=told):
        tg.load(large, device=device.name)
    monkeypatch.undo()
    tg.load(large, device=device.name)
