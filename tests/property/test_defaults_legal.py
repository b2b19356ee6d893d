"""Defaults of random products and of normalised rows are legal on CPUs of 4, 8 and 16 lanes, with
one multiply-add a cycle or two, each set of instructions for narrow factors, and with caches that
hold a row or do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hand_schedules import AVX512
from tunegrad.devices.host.facts import AMX_BF16, AMX_INT8, declared
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.target import Target
from tunegrad.opts import Space
from tunegrad.planning import prepared

_VNNI, _PAIRS = ("+avx512f", "+avx512vl", "+avx512vnni"), ("+avx512f", "+avx512vl", "+avx512bf16")
_NARROW = {
    "none": {},
    "bytes": {"features": _VNNI},
    "avxvnni": {"features": ("+avxvnni",)},
    "pairs": {"features": _PAIRS},
    "byte tiles": {"units": AMX_INT8},
    "pair tiles": {"units": (AMX_BF16,)},
    "everything": {"features": (*_VNNI, *_PAIRS[2:]), "units": (AMX_BF16, *AMX_INT8)},
}

targets = st.builds(
    lambda vector, narrow, threads, fmas, l2: declared(
        replace(
            AVX512, vector_bytes=vector, registers=32 if vector == 64 else 16, threads=threads,
            fmas_per_cycle=fmas, l2_bytes=l2, **_NARROW[narrow],
        )
    ),
    st.sampled_from([16, 32, 64]), st.sampled_from(sorted(_NARROW)), st.sampled_from([1, 2, 16]),
    st.sampled_from([1, 2]), st.sampled_from([1 << 15, 1 << 20]),
)  # fmt: skip
extents = st.one_of(st.integers(1, 9), st.sampled_from([14, 16, 17, 31, 33, 40, 64, 100, 160]))


@st.composite
def products(draw: st.DrawFn) -> Tensor:
    """A product or a padded convolution of bytes, of bf16 or of f32."""
    left, right = draw(
        st.sampled_from([("u8", "i8"), ("i8", "i8"), ("bf16", "bf16"), ("f32",) * 2])
    )
    wide = "i32" if "8" in left else "f32"
    m, n, k = draw(extents), draw(extents), draw(extents)
    if draw(st.booleans()):
        lead = draw(st.sampled_from([(), (1,), (3,)]))
        crossed = draw(st.booleans())
        a = Tensor.input("a", (*lead, k, m) if crossed else (*lead, m, k), left)
        b = Tensor.input("b", (k, n), right)
        return (a.mT if crossed else a).cast(wide) @ b.cast(wide)
    size, window = draw(st.integers(1, 9)), draw(st.sampled_from([1, 3]))
    image = Tensor.input("a", (draw(st.integers(1, 2)), k, size, min(m, 17)), left)
    taps = Tensor.input("b", (n, k, window, window), right)
    return image.cast(wide).conv2d(
        taps.cast(wide), stride=draw(st.integers(1, 2)), padding=window // 2
    )


@settings(max_examples=100)
@given(products(), targets)
def test_defaults_of_products_are_legal(product: Tensor, target: Target) -> None:
    for launch in schedule(prepared((product.node,), "bf16-dot", target)).launches:
        space = Space(launch.kernel, target)
        for found in space.defaults():
            space.lower(found)


ROWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": Tensor.softmax,
    "log_softmax": Tensor.log_softmax,
    "logsumexp": Tensor.logsumexp,
    "var": Tensor.var,
    "normalise": lambda x, dim: (x - x.mean(dim, True)) / (x.var(dim, keepdim=True) + 1e-5).sqrt(),
    "cumsum": Tensor.cumsum,
    "argmax": Tensor.argmax,
}


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", ROWS)
def test_defaults_of_rows_are_legal(name: str, lanes: int) -> None:
    """Second caches hold no row, a row, and as many as lanes lie beside each other."""
    for shape, dim in [((160, 64), 0), ((160, 64), 1), ((3, 160, 33), 1), ((160, 5, 16), 0)]:
        made = ROWS[name](Tensor.input("x", shape), dim)
        for launch in schedule((made.node,)).launches:
            for l2_bytes, threads in itertools.product((64, 1 << 10, 1 << 12, 1 << 20), (1, 2)):
                target = replace(
                    AVX512, vector_bytes=4 * lanes, registers=32 if lanes == 16 else 16,
                    l2_bytes=l2_bytes, threads=threads,
                )  # fmt: skip
                space = Space(launch.kernel, target)
                for found in space.defaults():
                    space.lower(found)
