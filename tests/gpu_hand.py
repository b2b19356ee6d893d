"""Schedules for GPUs written by hand, as the fastest public kernels have them, for tests of what
becomes of them.
"""

from __future__ import annotations

import numpy as np

from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.expr import Apply, Cast, Expr, Load, Op, Value
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.opts import Schedule

__all__ = ["CONV", "CONV_BLOCKS", "F32_GEMM", "GROUPED", "HGEMM", "gemm", "hgemm", "image_kernel"]

HGEMM = (
    "tile(axis=a, size=128) tile(axis=a1, size=32) tile(axis=a2, size=16) "
    "tile(axis=b, size=128) tile(axis=b1, size=64) tile(axis=b2, size=8) "
    "tile(axis=ra, size=32) tile(axis=ra1, size=16) "
    "reorder(order=(a0, b0, a1, b1, ra0, ra1, a2, b2, a3, b3, ra2)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) local(axis=a1) local(axis=b1) "
    "upcast(axis=a2) upcast(axis=b2) unroll(axis=ra1) "
    "tensorcore(unit=m16n8k16_f16_f32, m=a3, n=b3, k=ra2) "
    "stage(param=p1, at=ra0, layout=(a1, a2, a3, a4, ra1, ra2)) "
    "stage(param=p2, at=ra0, layout=(ra1, ra2, b1, b2, b3, b4)) "
)
"""A product of halves in blocks of 128 x 128 x 32: 256 items, 4 x 2 warps of 32 x 64 each."""


GROUPED = (
    "tile(axis=a, size=1024) tile(axis=a1, size=128) tile(axis=a2, size=32) tile(axis=a3, size=16) "
    "tile(axis=b, size=128) tile(axis=b1, size=64) tile(axis=b2, size=8) "
    "tile(axis=ra, size=32) tile(axis=ra1, size=16) "
    "reorder(order=(a0, b0, a1, a2, b1, ra0, ra1, a3, b2, a4, b3, ra2)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) thread(axis=a1, count=0) "
    "local(axis=a2) local(axis=b1) upcast(axis=a3) upcast(axis=b2) unroll(axis=ra1) "
    "tensorcore(unit=m16n8k16_f16_f32, m=a4, n=b3, k=ra2) "
    "stage(param=p1, at=ra0, layout=(a2, a3, a4, a5, ra1, ra2)) "
    "stage(param=p2, at=ra0, layout=(ra1, ra2, b1, b2, b3, b4)) pipeline(loop=ra0, slots=4)"
)
"""The same product, whose groups walk 8 blocks down before they go one across."""

F32_GEMM = (
    "tile(axis=a, size=128) tile(axis=a1, size=8) "
    "tile(axis=b, size=128) tile(axis=b1, size=64) tile(axis=b2, size=4) tile(axis=ra, size=16) "
    "reorder(order=(a0, b0, a1, b1, b2, ra0, ra1, a2, b3)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) local(axis=a1) local(axis=b2) "
    "upcast(axis=a2) upcast(axis=b1) vectorize(axis=b3) unroll(axis=ra1) "
    "stage(param=p1, at=ra0, layout=(ra1, a1, a2)) "
    "stage(param=p2, at=ra0, layout=(ra1, b1, b2, b3)) pipeline(loop=ra0, slots=3)"
)
"""A product of f32 in blocks of 128 x 128 x 16: 256 items, 8 rows by two times 4 columns each."""

CONV = (
    "fuse(outer=a, inner=b) fuse(outer=abf, inner=c) fuse(outer=ra, inner=rb) "
    "tile(axis=abfcf, size=64) tile(axis=abfcf1, size=32) tile(axis=abfcf2, size=16) "
    "tile(axis=d, size=8) tile(axis=rc, size=16) "
    "fuse(outer=rarbf, inner=rc0) "
    "reorder(order=(abfcf0, abfcf1, d0, abfcf2, abfcf3, d1, rarbfrc0f, rc1)) "
    "thread(axis=abfcf0, count=0) local(axis=abfcf1) local(axis=d0) upcast(axis=abfcf2) "
    "tensorcore(unit=m16n8k16_f16_f32, m=abfcf3, n=d1, k=rc1) "
    "stage(param=p2, at=load, layout=(rarbfrc0f, d0, d1, d2, rc1)) "
    "stage(param=p1, at=rarbfrc0f, layout=(abfcf1, abfcf2, abfcf3, abfcf4, rc1)) "
    "stage(param=p2, at=rarbfrc0f, layout=(d0, d1, d2, rc1)) pipeline(loop=rarbfrc0f, slots=3)"
)
"""A convolution 3x3 of images with their channels last, as one product: pixels by filters, over
rows, columns and channels in one loop. Weights are packed in the order of their use.
"""

CONV_BLOCKS = (
    "fuse(outer=a, inner=b) fuse(outer=abf, inner=c) fuse(outer=ra, inner=rb) "
    "tile(axis=abfcf, size=128) tile(axis=abfcf1, size=32) tile(axis=abfcf2, size=16) "
    "tile(axis=d, size=64) tile(axis=d1, size=32) tile(axis=d2, size=8) "
    "tile(axis=rc, size=32) tile(axis=rc1, size=16) fuse(outer=rarbf, inner=rc0) "
    "reorder(order=(abfcf0, d0, abfcf1, d1, abfcf2, d2, abfcf3, d3, rarbfrc0f, rc1, rc2)) "
    "thread(axis=abfcf0, count=0) thread(axis=d0, count=0) local(axis=abfcf1) local(axis=d1) "
    "upcast(axis=abfcf2) upcast(axis=d2) unroll(axis=rc1) "
    "tensorcore(unit=m16n8k16_f16_f32, m=abfcf3, n=d3, k=rc2) "
    "stage(param=p2, at=load, layout=(d0, rarbfrc0f, d1, d2, d3, d4, rc1, rc2)) "
    "stage(param=p1, at=rarbfrc0f, layout=(abfcf1, abfcf2, abfcf3, abfcf4, rc1, rc2)) "
    "stage(param=p2, at=rarbfrc0f, layout=(d1, d2, d3, d4, rc1, rc2)) "
    "pipeline(loop=rarbfrc0f, slots=3)"
)
"""The same in blocks of 128 pixels by 64 filters by 32 terms, for multiples of them: 256 items,
4 x 2 warps of 32 x 32.
"""


def gemm(
    m: int, n: int, k: int, dtype: str = "f16", total: str = "f32", *, transposed: bool = False
) -> Kernel:
    """C[m, n] = A @ B of a dtype in another; B lies as (n, k) where it is ``transposed``. Of tf32:
    f32 that are rounded to it.
    """
    d, t = DTYPES["f32" if dtype == "tf32" else dtype], DTYPES[total]
    a, b, c = Axis("a", m), Axis("b", n), Axis("ra", k)
    left = Load("p1", (a.index, c.index), d)
    right = Load("p2", (b.index, c.index) if transposed else (c.index, b.index), d)
    wide: list[Expr] = [x if d == t else Cast(x, t) for x in (left, right)]
    if dtype == "tf32":
        wide = [Apply(Op.TF32, (x,), t) for x in wide]
    params = (
        Param.dense("p0", t, (m, n), "out"),
        Param.dense("p1", d, (m, k), "in"),
        Param.dense("p2", d, (n, k) if transposed else (k, n), "in"),
    )
    summed = Reduce("v0", Op.ADD, (c,), Apply(Op.MUL, tuple(wide), t), t)
    return Kernel(params, (a, b), (summed, Store("p0", (a.index, b.index), Value("v0", t))))


def hgemm(slots: int = 4, dtype: str = "f16") -> Schedule:
    """``HGEMM`` with copies that run ahead. B lies as (k, n)."""
    text = f"{HGEMM} pipeline(loop=ra0, slots={slots})"
    return Schedule.parse(text.replace("_f16_", f"_{dtype}_"))


def image_kernel(batch: int, channels: int, size: int, stride: int = 1) -> Kernel:
    """A convolution 3x3 of halves between two others, so that images have their channels last."""

    def weights(side: int) -> Tensor:
        values = np.random.default_rng(side).standard_normal((channels, channels, side, side))
        return Tensor.constant((values / channels).astype(np.float32)).cast("f16").cast("f32")

    x = Tensor.input("x", (batch, channels, size, size), "f16").cast("f32")
    x = x.conv2d(weights(1)).cast("f16").cast("f32")
    x = x.conv2d(weights(3), padding=1, stride=stride).relu().cast("f16").cast("f32")
    y = x.conv2d(weights(1)).cast("f16")
    return schedule(fold_constants((y.node,))).launches[1].kernel
