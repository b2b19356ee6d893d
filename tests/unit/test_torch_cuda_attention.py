"""Attention as PyTorch takes it apart on an NVIDIA GPU: what its operators give is what the function
gives on a CPU, forward and backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tunegrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
aten = pytest.importorskip("tunegrad.frontend.torch.aten")

FLASH, CUDNN = "flash_attention", "cudnn_attention"
EFFICIENT = "efficient_attention"


@pytest.mark.parametrize("kind", [FLASH, EFFICIENT, CUDNN])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_its_operators_give_what_the_function_gives(kind: str, causal: bool, masked: bool) -> None:
    if masked and (causal or kind == FLASH):
        return  # no mask beside another, and none in this one
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 3, n, 8) for n in (5, 5, 5, 5))
    bias = torch.randn(2, 3, 5, 5) if masked else None
    leaves = [t.clone().requires_grad_() for t in (q, k, v, *([bias] if masked else []))]
    right = torch.nn.functional.scaled_dot_product_attention(
        *leaves[:3], leaves[3] if masked else None, is_causal=causal, scale=0.3
    )
    right.backward(grad)
    x, y, z, g = (tg.Tensor(t.numpy()) for t in (q, k, v, grad))
    b = tg.Tensor(bias.numpy()) if bias is not None else None
    table = aten.TABLE
    forward = table[f"_scaled_dot_product_{kind}.default"]
    given: tuple[Any, ...] = () if kind == FLASH else (b, True)
    found = forward(x, y, z, *given, 0.0, causal, scale=0.3)
    schema = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default._schema
    assert len(found) == len(schema.returns)
    np.testing.assert_allclose(found[0].numpy(), right.detach(), rtol=1e-5, atol=1e-6)
    backward = table[f"_scaled_dot_product_{kind}_backward.default"]
    saved: dict[str, tuple[Any, ...]] = {
        FLASH: (found[0], *found[1:6], 0.0, causal, *found[6:8]),
        EFFICIENT: (b, found[0], *found[1:4], 0.0, (True, True, True, masked), causal),
        CUDNN: (found[0], found[1], *found[6:8], b, *found[2:6], 0.0, causal),
    }
    got = backward(g, x, y, z, *saved[kind], scale=0.3)
    for mine, leaf in zip(got, leaves[: 3 if kind != EFFICIENT else 4], strict=False):
        np.testing.assert_allclose(mine.numpy(), leaf.grad, rtol=1e-4, atol=1e-5)
