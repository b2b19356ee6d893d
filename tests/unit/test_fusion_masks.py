"""Masks of a kernel: padding of what is chosen by a mask itself."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import Tensor
from tunegrad.ir.fusion import schedule


@pytest.mark.parametrize("function", ["neg", "exp", "sigmoid"])
def test_padding_after_cat_keeps_every_part(function: str) -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 2, 2) / 8

    def padded(a: Tensor) -> Tensor:
        return tg.cat([a, getattr(a, function)()], 1).pad(((0, 0), (0, 0), (1, 1), (1, 1)))

    other = {"neg": -x, "exp": np.exp(x), "sigmoid": 1 / (1 + np.exp(-x))}[function]
    want = np.pad(np.concatenate([x, other], 1), ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_allclose(padded(tg.tensor(x)).numpy(), want, rtol=1e-6, atol=0)
    compiled = np.asarray(tg.compile(padded, x, threads=1)(x))
    np.testing.assert_allclose(compiled, want, rtol=1e-6, atol=0)


def test_mask_of_a_mask_keeps_both() -> None:
    x = np.arange(1, 9, dtype=np.float32)

    def chosen(a: Tensor) -> Tensor:
        inner = tg.ones(3, dtype="bool").pad(((2, 3),))
        return tg.where(inner, a.exp(), a).pad(((1, 1),))

    want = np.pad(np.where((np.arange(8) >= 2) & (np.arange(8) < 5), np.exp(x), x), 1)
    np.testing.assert_allclose(chosen(tg.tensor(x)).numpy(), want, rtol=1e-6, atol=0)


def test_a_reduction_that_no_element_reads_is_no_stage() -> None:
    """It had axes that the other one lacks, so that one was to have memory, again and again."""
    a = Tensor.input("a", (2, 3), "f32")
    never = tg.arange(1).reshape(1, 1).expand(2, 3) < 0
    total = tg.where(never, a.amin(0, keepdim=True).expand(2, 3), 0.0).sum(0)
    (launch,) = schedule((total.node,)).launches
    assert [type(s).__name__ for s in launch.kernel.stages] == ["Reduce", "Store"]
