"""im2col: which convolutions have it, what its kernels are, and that they compute the
convolution.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variant_builders import constant, kernel_of, only, ran

from benchmarks.hand_schedules import AVX512
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.variants import exact, parts_of, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import expected

SERVER = replace(AVX512, threads=1)


def conv(
    x: tuple[int, ...], w: tuple[int, ...], stride: int = 2, *, last: bool = False, **more: int
) -> LaunchPlan:
    """A convolution with bias and relu; ``last``: its output has its channels last."""
    y = Tensor.input("x", x).conv2d(constant(*w), constant(w[0]), stride=stride, **more).relu()
    return only(y.permute(0, 2, 3, 1) if last else y)


def test_a_first_convolution_has_it() -> None:
    for last in (False, True):
        kernel = kernel_of(conv((1, 3, 224, 224), (64, 3, 7, 7), padding=3, last=last))
        assert "im2col" in variants_of(kernel)
        assert exact("im2col")
        assert expected(kernel, SERVER) == ("direct" if last else "channels_last"), (
            "where im2col was measured slower"
        )


@pytest.mark.parametrize(
    "plan",
    [
        conv((1, 16, 20, 20), (32, 16, 3, 3)),
        conv((1, 3, 20, 20), (32, 3, 1, 1)),
        conv((1, 4, 20, 20), (64, 1, 3, 3), groups=4),
        conv((1, 3, 20, 20), (32, 3, 3, 3), stride=1),
        conv((1, 3, 20, 20), (8, 3, 3, 3)),
        only(Tensor.input("x", (4, 5)) @ constant(5, 6)),
    ],
    ids=["channels", "1x1", "groups", "winograd", "outputs", "product"],
)
def test_other_kernels_do_not(plan: LaunchPlan) -> None:
    assert "im2col" not in variants_of(kernel_of(plan))


def test_text() -> None:
    gather, product = parts_of(kernel_of(conv((1, 3, 8, 8), (16, 3, 3, 3), padding=1)), "im2col")
    assert gather.text == dedent(
        """
        kernel
          param p0 f32[3,3,3,4,4] out row
          param p1 f32[3,8,8] in row
          axis a:3 b:3 c:3 d:4 e:4
          store p0[a, b, c, d, e] = p1[a, b+2*d+-1, c+2*e+-1 if 1<=b+2*d<9&1<=c+2*e<9]
        """
    ).strip("\n")
    assert product.text == dedent(
        """
        kernel
          param p0 f32[16,16] out row
          param p1 f32[27,16] in row
          param p2 f32[16,27] const row
          param p3 f32[16] const row
          axis a:16 b:16
          v0 = add over ra:27 in f32: mul(p1[ra, b], p2[a, ra])
          store p0[a, b] = max(add(v0, p3[a]), 0.0:f32)
        """
    ).strip("\n")


@settings(max_examples=40)
@given(
    batch=st.integers(1, 2), channels=st.integers(1, 7), outputs=st.integers(16, 18),
    size=st.integers(5, 11),
    window=st.integers(2, 5), stride=st.integers(1, 3), padding=st.integers(0, 2),
    last=st.booleans(),
)  # fmt: skip
def test_it_computes_the_convolution(
    batch: int,
    channels: int,
    outputs: int,
    size: int,
    window: int,
    stride: int,
    padding: int,
    last: bool,
) -> None:
    shape = (batch, channels, size, size + 1)
    plan = conv(shape, (outputs, channels, window, window), stride, last=last, padding=padding)
    kernel = kernel_of(plan)
    if "im2col" not in variants_of(kernel):
        return
    made = rewrite(plan, {kernel.key: "im2col"})
    made.verify()
    for launch in made.launches:
        verify_kernel(launch.kernel)
    inputs = {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
    wanted = ran(plan, inputs, as_float64=True)
    np.testing.assert_allclose(ran(made, inputs), wanted, rtol=0, atol=1e-4)
