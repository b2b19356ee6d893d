"""Models of PyTorch, whole: ``from_torch`` and ``torch.compile`` next to eager."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.cli.app import run
from tunegrad.errors import ModelError, StoreError, WeightsError
from tunegrad.frontend import find_model
from tunegrad.tune import show

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.torch_zoo import ZOO  # noqa: E402 - it is written in PyTorch

CLOSE = 1e-4
MOST_KERNELS = {
    "mobilenet_v2": 15, "unet": 25, "vit_s": 21, "bert_6": 57, "llama_block": 21, "lstm": 35,
}  # fmt: skip
"""Launches of the small models, untuned, as they were when this was written, without Winograd's
transforms of the input and products: how many there are is up to the CPU.
"""


def several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def check(name: str, full: bool) -> None:
    module, inputs = ZOO[name](full)
    with torch.inference_mode():
        wanted = several(module(*inputs))
    loaded = tg.load(tg.from_torch(module, *inputs), store=False)
    found = several(loaded(*(x.numpy() for x in inputs)))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=CLOSE, rtol=CLOSE)
    if not full:
        launched = [kernel for kernel, _ in loaded.profile_s(1)]
        transforms = [k for k in launched if re.match(r"winograd\d? (input|product) ", k)]
        assert len(launched) - len(transforms) <= MOST_KERNELS[name]
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="tunegrad", options={"store": False})
    with torch._dynamo.config.patch(allow_rnn=True), torch.inference_mode():
        for got, want in zip(several(compiled(*inputs)), wanted, strict=True):
            torch.testing.assert_close(got, want, atol=CLOSE, rtol=CLOSE)


@pytest.fixture(autouse=True)
def _registered() -> None:
    pytest.importorskip("tunegrad.torch")


@pytest.mark.parametrize("name", ZOO)
def test_a_small_model_gives_what_pytorch_gives(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    check(name, full=False)
    assert "runs in PyTorch" not in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ZOO)
def test_a_model_of_full_size_gives_what_pytorch_gives(name: str) -> None:
    check(name, full=True)


def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return body, torch.randn(3, 8)


def test_parameters_have_their_names_and_can_be_given() -> None:
    module, x = small()
    model = tg.from_torch(module, x)
    assert [p.name for p in model.parameters] == list(module.state_dict())
    other, _ = small()
    with torch.no_grad():
        other[0].weight.mul_(3)
        want = other(x).numpy()
    loaded = tg.load(model, store=False, weights=other.state_dict())
    np.testing.assert_allclose(loaded(x.numpy()), want, atol=1e-5)
    with pytest.raises(WeightsError, match=r"1 missing \(0.weight\)"):
        tg.load(model, store=False, weights={k: v for k, v in other.state_dict().items()
                                             if k != "0.weight"})  # fmt: skip


def test_its_own_weights_share_memory_and_layers_have_names() -> None:
    module, x = small()
    model = tg.from_torch(module, x)
    assert np.shares_memory(model.weights()["0.weight"], module[0].weight.detach().numpy())
    layers = {name for row in tg.load(model, store=False).report() for name in row.layers}
    assert {name.split(".")[0] for name in layers} >= {"0", "2"}


def test_a_module_is_taken_wherever_a_model_is() -> None:
    module, x = small()
    with torch.no_grad():
        want = module(x).numpy()
    for f in (
        tg.compile(module, x, store=False),
        tg.load((module, x), store=False),
        tg.load((module, [x]), store=False),
    ):
        np.testing.assert_allclose(f(x.numpy()), want, atol=1e-5)
    with pytest.raises(StoreError, match=r"nowhere\.db"):
        show((module, x), store="nowhere.db")
    with pytest.raises(ModelError, match=r"torch.nn.Module without examples"):
        find_model("tests.system.test_torch_models:_without_examples")


def _without_examples() -> Any:
    return small()[0]


def test_a_module_in_train_mode_that_draws_numbers_is_refused_and_stays_in_that_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)).train()
    x = torch.randn(2, 4)
    with pytest.raises(ModelError, match=r"train mode: 0 \(Dropout\) draws random numbers"):
        tg.load((module, x), store=False)
    assert module.training
    assert module[0].training


def test_training_flags_stay() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).train()
    x = torch.randn(2, 4)
    loaded = tg.load((module, x), store=False)
    assert all(m.training for m in module.modules())
    with torch.no_grad():
        np.testing.assert_allclose(loaded(x.numpy()), module(x).numpy(), atol=1e-5)


def test_nested_inputs_and_numbers() -> None:
    class Nested(torch.nn.Module):
        def forward(self, x: Any, pair: Any, scale: float, *, last: Any = None) -> Any:
            return {"sum": x + pair[0] * scale, "rest": [pair[1] + last]}

    a, b, c, d = (torch.full((2,), float(i)) for i in range(4))
    model = tg.from_torch(Nested(), a, (b, c), 2.0, last=d)
    assert len(model.inputs) == 4
    first, second = tg.load(model, store=False)(*(t.numpy() for t in (a, b, c, d)))
    np.testing.assert_array_equal(first, [2, 2])
    np.testing.assert_array_equal(second, [5, 5])


def test_one_tensor_as_several_examples_is_several_inputs() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 4))

        def forward(self, a: Any, b: Any, pair: Any) -> Any:
            return a @ b.t() + self.weight.sum(), a, b - pair[0], pair[1] * self.weight

    module, x = Twice(), torch.randn(3, 4)
    model = tg.from_torch(module, x, x, (x, module.weight))
    assert len(model.inputs) == 4
    a, b, c, d = (torch.randn(3, 4) for _ in range(4))
    with torch.no_grad():
        wanted = module(a, b, (c, d))
    found = tg.load(model, store=False)(*(t.numpy() for t in (a, b, c, d)))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def test_layers_that_share_a_weight() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.table(ids).tanh())

    module, ids = Tied(), torch.tensor([[1, 2, 6]])
    model = tg.from_torch(module, ids)
    with torch.no_grad():
        module.table.weight.mul_(-2.0)
        want = module(ids).numpy()
    for weights in (None, module.state_dict()):
        loaded = tg.load(model, store=False, weights=weights)
        np.testing.assert_allclose(loaded(ids.numpy()), want, atol=1e-5)


def test_a_module_that_writes_to_its_buffer_is_an_error() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    with pytest.raises(ModelError, match="Counter writes to count"):
        tg.from_torch(Counter(), torch.ones(2))


def outcomes_of(module: Any, x: Any, store: Path) -> set[str]:
    """Where ``torch.compile`` finds the schedules of a module, which gives what PyTorch gives."""
    import tunegrad.torch as backends

    outcomes: set[str] = set()
    original = backends.load

    def noted(*args: Any, **settings: Any) -> Any:
        loaded = original(*args, **settings)
        outcomes.update(row.outcome for row in loaded.report())
        return loaded

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(backends, "load", noted)
        f = torch.compile(module, backend="tunegrad", options={"store": str(store), "threads": 1})
        torch.testing.assert_close(f(x), module(x), atol=1e-5, rtol=1e-5)
    return outcomes


def test_what_was_tuned_is_used_by_torch_compile(tmp_path: Path) -> None:
    module, x = small()
    store = tmp_path / "s.db"

    tg.tune((module, [x]), budget_s=600.0, max_trials=8, store=store, threads=1)
    assert outcomes_of(module, x, store) == {"hit"}


def test_what_the_command_tuned_is_used_by_torch_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef model():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.ones(2, 4)\n"
    )
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    monkeypatch.chdir(tmp_path)
    words = "tune mine:model --budget 600s --max-trials 6 --store s.db --threads 1"
    assert run(words.split()) == 0
    assert outcomes_of(module, torch.ones(2, 4), tmp_path / "s.db") == {"hit"}


def test_without_pytorch_there_is_one_line() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tunegrad as tg\n"
        "try: tg.from_torch(None, 1)\n"
        "except tg.errors.ModelError as e: print(e)\n"
    )
    python = [sys.executable, "-c", code]
    done = subprocess.run(python, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("models of PyTorch need it: pip install 'tunegrad[torch]'")
    assert done.stdout.count("\n") == 1
