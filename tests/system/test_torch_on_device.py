"""``torch.compile`` with tensors on the device that the model is compiled for: they are read where
they lie, and outputs stay there. On cuda-host, where they are in this process's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cuda_host import cuda_host
from tunegrad.errors import DeviceError, ModelError
from tunegrad.inference import LoadedModel

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
backends = pytest.importorskip("tunegrad.torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    cuda_host()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Any, device: str = "cuda-host") -> Any:
    options = {"store": False, "device": device}
    return torch.compile(function, backend="tunegrad", options=options)


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_tensors_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    lent: list[int] = []
    outputs: list[int] = []
    on_device = LoadedModel.on_device

    def noted(self: LoadedModel, *tensors: Any) -> Any:
        lent.extend(t.data_ptr() for t in tensors)
        found = on_device(self, *tensors)
        outputs.append(found.memory.address)
        return found

    monkeypatch.setattr(LoadedModel, "on_device", noted)
    x = torch.randn(4, 16)
    with torch.inference_mode():
        f = compiled(module)
        found = f(x)
        again = f(x + 1.0)
        close(found, module(x))
        close(again, module(x + 1.0))
    assert lent[0] == x.data_ptr()
    assert outputs == [found.data_ptr(), again.data_ptr()]


def test_tensors_that_can_not_be_read_where_they_lie_are_copied() -> None:
    f = compiled(lambda a, b: (a.abs() + b, (a < b).logical_not()))
    base = torch.randn(65)
    with torch.inference_mode():
        for a in (base[1:], base[1::2], base[:64].reshape(8, 8).T, torch._neg_view(base[:64])):
            b = torch.ones_like(a)
            for mine, theirs in zip(f(a, b), (a.abs() + b, ~(a < b)), strict=True):
                close(mine, theirs)


class _Heads(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Attention in two heads: its backward reads tensors in other orders of dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 24)

    def forward(self, x: Any) -> Any:
        """Of x f32[2, 5, 8]."""
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _convolution() -> Any:
    """Batch norm counts its batches in a tensor without dimensions."""
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)), nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()
    )


@pytest.mark.parametrize("make", [_Heads, _convolution])
def test_a_loop_of_training_changes_what_it_changes_in_pytorch(make: Any) -> None:
    found: list[list[Any]] = []
    for through in (lambda m: m, compiled):
        torch.manual_seed(0)
        module = make()
        f, optimizer = through(module), torch.optim.SGD(module.parameters(), 0.1, 0.9)
        for _ in range(3):
            optimizer.zero_grad()
            f(torch.randn(2, 5, 8)).square().mean().backward()
            optimizer.step()
        found.append([*module.parameters(), *module.buffers()])
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "int64", "bool"])
def test_types_of_elements(dtype: str) -> None:
    x = torch.tensor([[0, 1, 2, 3]] * 4).to(getattr(torch, dtype))
    with torch.inference_mode():
        found = compiled(lambda x: x.flip(0).T.contiguous())(x)
    assert found.dtype is x.dtype
    assert torch.equal(found, x.flip(0).T)


def test_a_device_that_the_tensors_do_not_lie_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_place", lambda _: "cuda:0")
    said = r'lie on cuda:0, and it is compiled for cpu; .* say options={"device": "cuda:0"}'
    with torch.inference_mode(), pytest.raises(Exception, match=said) as raised:
        compiled(lambda x: x + 1.0, "cpu")(torch.ones(4))
    assert DeviceError.__name__ in repr(raised.value)


def test_a_graph_lies_on_the_cpu_or_on_one_gpu() -> None:
    def on(*names: str) -> list[Any]:
        return [SimpleNamespace(device=torch.device(name)) for name in names]

    assert [backends._place(on(*n)) for n in ((), ("cpu",), ("cuda:1", "cuda:1"))] == [
        "cpu", "cpu", "cuda:1",
    ]  # fmt: skip
    for names in (("cpu", "cuda:0"), ("cuda:0", "cuda:1"), ("meta",)):
        with pytest.raises(ModelError, match=f"lie on {', '.join(names)}; all must be on the CPU"):
            backends._place(on(*names))
