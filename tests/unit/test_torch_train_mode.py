"""``from_torch`` of a module in train mode: refused by the names of its layers, or right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ModelError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.Linear(4, 4), nn.Dropout(0.1)], r"train mode: 1 \(Dropout\) draws random numbers; call its eval"),
        ([nn.Linear(4, 4), nn.BatchNorm1d(4)], r"1 \(BatchNorm1d\) writes its running statistics"),
        ([nn.Dropout(0.2)] * 1 + [nn.Sequential(nn.BatchNorm1d(4)) for _ in range(4)], r"; 2\.0 .* and 2 more"),
    ],
)  # fmt: skip
def test_a_module_in_train_mode_is_refused_by_the_names_of_its_layers(
    layers: Any, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        tg.from_torch(nn.Sequential(*layers), torch.randn(3, 4))


def test_a_module_in_train_mode_that_does_the_same_in_both_is_taken() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(3, 4, 1), nn.Dropout(0.0), nn.BatchNorm1d(4, track_running_stats=False)
            )

        def forward(self, x: Any) -> Any:
            return self.layers(x) + (1 if self.training else 2)

    module, x = Net(), torch.randn(2, 3, 5)
    got = tg.load(tg.from_torch(module, x), store=False)(x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(got, module(x).numpy(), atol=1e-5)
    assert module.training


def test_dropout_that_is_no_layer_is_refused_by_name() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.dropout(x, 0.5, self.training)

    with pytest.raises(ModelError, match="dropout"):
        tg.from_torch(Net(), torch.randn(3, 4))
    tg.from_torch(Net().eval(), torch.randn(3, 4))
