"""Sums of products as matrix products are what the interpreter adds up term by term."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel

from tunegrad.ir.interpret.kernel import contraction_of, interpret, interpret_at, interpret_steps

SUMS = ("gemm", "gemv", "batched", "conv3x3", "conv3x3s2", "conv_dilated", "conv_grouped",
    "conv_depthwise",
        "winograd_product", "conv_blocked", "masked_sums")  # fmt: skip


def drawn(k, rng):
    found = {}
    for p in k.params:
        if p.role != "out":
            values = (
                rng.standard_normal(p.size) if p.dtype.is_float else rng.integers(-8, 9, p.size)
            )
            found[p.name] = values.astype(p.dtype.numpy)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_whole_results_are_those_of_points(name):
    k = corpus_kernel(name)
    arrays = drawn(k, np.random.default_rng(5))
    grid = (
        np.indices([a.extent for a in k.axes]).reshape(len(k.axes), -1)
        if k.axes
        else np.zeros((0, 1), np.int64)
    )
    whole = interpret(k, arrays, as_float64=True)
    part = interpret_at(k, arrays, {a.name: grid[i] for i, a in enumerate(k.axes)}, as_float64=True)
    for p, (offsets, values) in part.items():
        np.testing.assert_allclose(whole[p][offsets], values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_products_are_contracted(name):
    k = corpus_kernel(name)
    assert all(contraction_of(k, r) is not None for r in k.reduces)


def test_contraction_takes_fewer_steps_than_its_terms():
    k = corpus_kernel("gemm_square")
    assert interpret_steps(k) < k.points * sum(prod(a.extent for a in s.axes) for s in k.stages)


@pytest.mark.parametrize("name", ["softmax", "row_sum", "row_max", "layer_norm", "doubles"])
def test_other_reductions_are_not_contracted(name):
    k = corpus_kernel(name)
    assert all(contraction_of(k, r) is None for r in k.reduces)
