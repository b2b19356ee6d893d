"""Random 3x3 convolutions: every variant is made of verified kernels and computes the direct one's
result.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from variant_builders import Conv, bound, kernel_of, ran

from tunegrad.ir.variants import match_conv3x3, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel


@st.composite
def convolutions(draw: st.DrawFn) -> Conv:
    """Any extents up to 9, any epilogue, both orders of dimensions, constant weights and others."""
    padding = draw(st.integers(0, 2))
    least = max(1, 3 - 2 * padding)
    flag = st.booleans()
    return Conv(
        channels=draw(st.integers(1, 9)), outputs=draw(st.integers(1, 9)),
        height=draw(st.integers(least, 9)), width=draw(st.integers(least, 9)),
        batch=draw(st.integers(1, 3)), padding=padding,
        bias=draw(flag), residual=draw(flag), relu=draw(flag), last=draw(flag),
        variable=draw(flag),
        seed=draw(st.integers(0, 99)),
    )  # fmt: skip


@settings(max_examples=25)
@given(convolutions())
def test_variants_compute_what_the_direct_kernel_does(conv: Conv) -> None:
    plan = conv.plan()
    kernel = kernel_of(plan)
    many = min(conv.channels, conv.outputs) > 1
    image = conv.height, conv.width  # a dimension of extent 1 is no dimension of a kernel
    sizes = [n + 2 * conv.padding - 2 for n in image]
    assert (match_conv3x3(kernel) is not None) == (many and min(*image, *sizes) > 1)
    wanted = ran(plan, conv.inputs, as_float64=True)
    for variant in variants_of(kernel):
        made = rewrite(plan, {kernel.key: variant})
        made.verify()
        for launch in made.launches:
            verify_kernel(launch.kernel)
        assert np.abs(ran(made, conv.inputs) - wanted).max() <= bound(conv, variant)
