"""A fault that is planted in a rewrite is refused on every door, before anything of it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.rewrite_faults import FAULTS, planted
from tunegrad.errors import WrongPlan
from tunegrad.ir.variants import variants_of
from tunegrad.tuning.workload import with_variants, workload_of_function

Function = Callable[..., Any]

RNG = np.random.default_rng(84)
X = RNG.standard_normal((1, 2, 5, 6)).astype(np.float32)
W = RNG.standard_normal((3, 4, 3, 3)).astype(np.float32)
ROW = RNG.standard_normal((1, 7)).astype(np.float32)


def joined(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """What is padded is a choice between two masked reads."""
    return tg.cat([x, -x], 1).conv2d(w, padding=1)


def repeated(x: tg.Tensor) -> tg.Tensor:
    """A sum of copies."""
    return (x * 2.0).expand(5, 7).sum(0)


CASES: dict[str, tuple[Function, tuple[np.ndarray[Any, Any], ...]]] = {
    "a masked load counts as the constant 0 of a pad": (joined, (X, W)),
    "padding at an end alone has no mask": (joined, (X, W)),
    "a load under padding reads without its mask": (joined, (X, W)),
    "padding moves by its end": (
        lambda x, w: joined(x.pad(((0, 0), (0, 0), (1, 0), (0, 2))), w),
        (X, W),
    ),
    "what is summed counts once where it repeats": (repeated, (ROW,)),
}
"""By fault: in fusion, in positions, in a graph before it is planned."""


def numpy_of(f: Function, arrays: tuple[Any, ...]) -> Any:
    return f(*map(tg.Tensor, arrays)).numpy()


def tuned(f: Function, arrays: tuple[Any, ...], directory: Path) -> object:
    return tg.tune((f, [*arrays]), store=directory / "s.db", budget_s=30.0, max_trials=1)


DOORS: dict[str, Callable[[Function, tuple[Any, ...], Path], object]] = {
    "eager": lambda f, arrays, _: numpy_of(f, arrays),
    "compile": lambda f, arrays, _: tg.compile(f, *arrays, store=False),
    "load": lambda f, arrays, _: tg.load((f, [*arrays]), store=False),
    "file": lambda f, arrays, to: tg.compile(f, *arrays, store=False).save(to / "m.plan"),
    "tune": tuned,
}


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No verdict of another run, and no plan of another test, is asked."""
    from tunegrad.inference import realizing

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    realizing._plans.clear()
    yield
    realizing._plans.clear()


def fault_of(name: str) -> Any:
    return next(f for f in FAULTS if f.name == name)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_in_a_rewrite_is_refused(name: str, door: str, tmp_path: Path) -> None:
    f, arrays = CASES[name]
    with planted(fault_of(name)), pytest.raises(WrongPlan):
        DOORS[door](f, arrays, tmp_path)
    assert not (tmp_path / "m.plan").exists()


def test_a_fault_in_a_variant_is_refused_before_it_is_raced() -> None:
    w = tg.Tensor.constant(RNG.standard_normal((6, 4, 3, 3)).astype(np.float32))
    x = np.zeros((1, 4, 7, 9), np.float32)  # of no other test: what variants make is remembered
    workload = workload_of_function(lambda x: x.conv2d(w, padding=1), (x,))
    (use,) = (u for u in workload.kernels if "winograd2" in variants_of(u.kernel))
    with planted(fault_of("Winograd's image is not padded")), pytest.raises(WrongPlan):
        with_variants(workload, {use.key: "winograd2"})


@pytest.fixture
def module() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Joined(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.from_numpy(W.copy()))

        def forward(self, x: Any) -> Any:
            both = torch.cat([x, -x], 1)
            return torch.nn.functional.conv2d(both, self.w, padding=1)

    return Joined().eval()


MASKED = "a masked load counts as the constant 0 of a pad"


def test_a_module_from_torch_is_refused(module: Any) -> None:
    import torch

    with planted(fault_of(MASKED)), pytest.raises(WrongPlan):
        tg.load(tg.from_torch(module, torch.from_numpy(X)), store=False)


def test_a_graph_of_torch_compile_is_left_to_pytorch_with_a_warning(
    module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    x = torch.from_numpy(X)
    with torch.no_grad():
        wanted = module(x)
        with planted(fault_of(MASKED)), caplog.at_level(logging.WARNING):
            found = torch.compile(module, backend="tunegrad")(x)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
    assert "is not what the graph says" in caplog.text


def test_a_model_of_onnx_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import helper, numpy_helper

    f32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["minus"]),
            helper.make_node("Concat", ["x", "minus"], ["both"], axis=1),
            helper.make_node("Conv", ["both", "w"], ["y"], pads=[1, 1, 1, 1]),
        ],
        "joined",
        [helper.make_tensor_value_info("x", f32, X.shape)],
        [helper.make_tensor_value_info("y", f32, [1, 3, 5, 6])],
        [numpy_helper.from_array(W, "w")],
    )
    path = tmp_path / "joined.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    with planted(fault_of(MASKED)), pytest.raises(WrongPlan):
        tg.load(str(path), store=False)
