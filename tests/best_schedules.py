"""The best schedules we know for kernels of every kind, written by hand: the space must contain
each of them.

A schedule is written from the kernel's text, for a core with 32 vectors of 16 f32 and two threads
(``AVX512``) or a small GPU (``GPU``), then timed next to a few others. ``why`` is what makes it
fast. Axes and parameters have their canonical names: shared axes a, b ..., reduce axes ra, rb ...,
own axes sa ..., parameters p0 (the output), p1 ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from benchmarks.hand_schedules import AVX512, GPU
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule

__all__ = ["BEST", "Best"]


@dataclass(frozen=True, slots=True)
class Best:
    """One kernel and its best-known schedule; ``what`` names the kernel for people."""

    name: str
    what: str
    make: Callable[[], Tensor | Kernel]
    actions: str
    why: str
    target: Target = AVX512

    @property
    def kernel(self) -> Kernel:
        """The kernel, canonical; made once."""
        return _kernel(self.name)

    @property
    def schedule(self) -> Schedule:
        """The parsed action list."""
        return Schedule.parse(self.actions)


def _x(*shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _w(*shape: int) -> Tensor:
    return Tensor.constant((np.arange(prod(shape)) % 7).astype(np.float32).reshape(shape))


def _product(a: tuple[int, ...], b: tuple[int, ...], dtype: str = "f32") -> Tensor:
    return _x(*a, dtype=dtype, name="A") @ _x(*b, dtype=dtype, name="B")


def _sum(x: Tensor, y: tuple[int, ...]) -> Tensor:
    return x + _x(*y, name="y")


def _linear(rows: int, inputs: int, outputs: int) -> Tensor:
    return _biased(_x(rows, inputs) @ _w(outputs, inputs).transpose(0, 1))


def _biased(x: Tensor) -> Tensor:
    return x + _w(x.shape[-1])


def _last(channels: int, size: int) -> Tensor:
    """An image, channels last."""
    return _x(1, size, size, channels).permute(0, 3, 1, 2)


def _conv(
    channels: int, filters: int, size: int, window: int, stride: int = 1, groups: int = 1
) -> Tensor:
    w = _w(filters, channels // groups, window, window)
    y = _last(channels, size).conv2d(
        w, _w(filters), stride=stride, padding=window // 2, groups=groups
    )
    return y.relu().permute(0, 2, 3, 1).contiguous()


def _pool(x: Tensor) -> Tensor:
    return x.max_pool2d(3, stride=2, padding=1)


def _launched(made: Tensor) -> Kernel:
    return schedule(tuple(fold_constants((made.node,)))).launches[-1].kernel


def _winograd(part: int) -> Kernel:
    return parts_of(_launched(_conv(64, 64, 56, 3)), "winograd4")[part]


@cache
def _kernel(name: str) -> Kernel:
    made = BEST[name].make()
    return (made if isinstance(made, Kernel) else _launched(made)).canonical()


def _tiled(lane: str, vectors: int, row: str, rows: int) -> str:
    """The register tile ``rows x vectors``: loops like ``b0 b1 b2`` of the lane axis, ``a0 a1`` of
    the row axis.
    """
    return (
        f"tile(axis={lane}, size={16 * vectors}) tile(axis={lane}1, size=16) "
        f"tile(axis={row}, size={rows})"
    )


_ROWS = (
    Best(
        "gemm_1024", "matrix product 1024³", lambda: _product((1024, 1024), (1024, 1024)),
        f"tile(axis=ra, size=256) {_tiled('b', 4, 'a', 6)} reorder(order=(ra0, a0, b0, ra1, "
        "a1, b1, b2)) "
        "upcast(axis=a1) upcast(axis=b1) vectorize(axis=b2) thread(axis=a0, count=2) "
        "stage(param=p2, at=ra0, layout=(b0, ra1, b1, b2))",
        "B packed for each 256 steps of k, in L2; 6 rows of A are read in place, from L1",
    ),
    Best(
        "gemm_512", "matrix product 512³", lambda: _product((512, 512), (512, 512)),
        f"{_tiled('b', 2, 'a', 14)} reorder(order=(a0, b0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2)",
        "B fits L2, so nothing is packed; 28 accumulators read it the fewest times",
    ),
    Best(
        "gemm_skinny", "matrix product 1024 x 64 x 1024", lambda: _product((1024, 64), (64, 1024)),
        f"{_tiled('b', 4, 'a', 6)} reorder(order=(a0, b0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2)",
        "short sums: 6 x 4 vectors store whole lines, nothing to block",
    ),
    Best(
        "gemm_primes", "matrix product 127 x 131 x 137", lambda: _product((127, 131), (131, 137)),
        f"{_tiled('b', 3, 'a', 8)} reorder(order=(a0, b0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2)",
        "137 = 2 * 48 + 41 and 127 = 15 * 8 + 7: the tails are nearly whole tiles",
    ),
    Best(
        "linear_gelu", "linear 768 to 3072 of 128 rows, bias, gelu",
        lambda: _linear(128, 768, 3072).gelu(),
        f"{_tiled('b', 2, 'a', 12)} reorder(order=(a0, b0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2) stage(param=p2, at=load, layout=(b0, "
        "ra, b1, b2))",
        "weights re-laid at load; each thread's rows stay in L1 while weights stream",
    ),
    Best(
        "linear_1000", "linear 512 to 1000 of one row, bias",
        lambda: _linear(1, 512, 1000),
        "tile(axis=ra, size=32) tile(axis=ra1, size=16) tile(axis=a, size=4) "
        "reorder(order=(a0, a1, ra0, ra1, ra2)) "
        "upcast(axis=a1) upcast(axis=ra1) group(axis=ra2) thread(axis=a0, count=2)",
        "weights are read once, in order: lanes along the sum, 4 rows share each vector of "
        "the input",
    ),
    Best(
        "gemv", "matrix-vector product 4096²", lambda: _x(4096, 4096) @ _x(4096, name="v"),
        "tile(axis=ra, size=32) tile(axis=ra1, size=16) tile(axis=a, size=4) "
        "reorder(order=(a0, a1, ra0, ra1, ra2)) "
        "upcast(axis=a1) upcast(axis=ra1) group(axis=ra2) thread(axis=a0, count=2)",
        "bound by memory: 4 streams of whole rows, each vector loaded once for 4 rows",
    ),
    Best(
        "gemv_columns", "vector-matrix product 4096²", lambda: _product((1, 4096), (4096, 4096)),
        "tile(axis=a, size=16) tile(axis=ra, size=8) reorder(order=(ra0, a0, a1, ra1)) "
        "vectorize(axis=a1) "
        "unroll(axis=ra1) thread(axis=a0, count=2)",
        "8 rows are read from end to end at a time; their sums stay in L1",
    ),
    Best(
        "batched", "12 matrix products 128 x 64 x 128",
        lambda: _product((12, 128, 64), (12, 64, 128)),
        f"{_tiled('c', 4, 'b', 4)} reorder(order=(a, b0, c0, ra, b1, c1, c2)) upcast(axis=b1) "
        "upcast(axis=c1) "
        "vectorize(axis=c2) thread(axis=a, count=2)",
        "a whole matrix for each thread at a time; 128 = 32 * 4 = 2 * 64, no tails",
    ),
    Best(
        "scores", "attention scores, 12 heads of 128 x 64",
        lambda: (_x(12, 128, 64, name="q") @ _x(12, 128, 64, name="k").transpose(1, 2)) * 0.125,
        f"{_tiled('c', 4, 'b', 4)} reorder(order=(a, b0, c0, ra, b1, c1, c2)) upcast(axis=b1) "
        "upcast(axis=c1) "
        "vectorize(axis=c2) thread(axis=a, count=2) stage(param=p2, at=a, layout=(c0, ra, c1, c2))",
        "the keys of a head are transposed once into L1, then it is a matrix product",
    ),
    Best(
        "gemm_bf16", "matrix product 256³, stored as bf16",
        lambda: _product((256, 256), (256, 256), "bf16"),
        f"{_tiled('b', 4, 'a', 6)} reorder(order=(a0, b0, a1, b1, b2, ra)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2)",
        "widening costs an instruction for each vector of B: 6 rows share it",
    ),
)  # fmt: skip

_CONVOLUTIONS = (
    Best(
        "conv3x3", "convolution 3x3, 64 to 64 at 56²", lambda: _conv(64, 64, 56, 3),
        f"tile(axis=a, size=7) {_tiled('c', 2, 'b', 14)} reorder(order=(a0, c0, a1, b0, ra, "
        "rb, rc, b1, c1, c2)) "
        "upcast(axis=b1) upcast(axis=c1) vectorize(axis=c2) thread(axis=a0, count=2) "
        "stage(param=p1, at=a0, layout=()) stage(param=p2, at=load, layout=(c0, ra, rb, rc, "
        "c1, c2))",
        "bands of 7 rows copied with their padding, 14 pixels x 2 vectors, nothing to test inside",
    ),
    Best(
        "conv3x3_7", "convolution 3x3, 512 to 512 at 7²", lambda: _conv(512, 512, 7, 3),
        f"{_tiled('c', 4, 'b', 4)} reorder(order=(c0, a, b0, ra, rb, rc, b1, c1, c2)) "
        "upcast(axis=b1) "
        "upcast(axis=c1) vectorize(axis=c2) thread(axis=c0, count=2) "
        "stage(param=p2, at=load, layout=(c0, ra, rb, rc, c1, c2))",
        "9 MB of weights: filters outermost, so a thread reads its half once; 7 = 4 + 3 pixels",
    ),
    Best(
        "conv3x3_stride", "convolution 3x3 stride 2, 64 to 128 at 56²",
        lambda: _conv(64, 128, 56, 3, 2),
        f"tile(axis=a, size=14) {_tiled('c', 4, 'b', 4)} "
        "reorder(order=(a0, c0, a1, b0, ra, rb, rc, b1, c1, c2)) upcast(axis=b1) "
        "upcast(axis=c1) vectorize(axis=c2) "
        "thread(axis=a0, count=2) stage(param=p2, at=load, layout=(c0, ra, rb, rc, c1, c2))",
        "28 = 7 * 4 pixels: no tails, and only the first tile of a row meets the padding",
    ),
    Best(
        "conv1x1", "convolution 1x1, 64 to 256 at 56²", lambda: _conv(64, 256, 56, 1),
        f"{_tiled('b', 4, 'a', 4)} reorder(order=(a0, b0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=a0, count=2) stage(param=p2, at=load, layout=(b0, "
        "ra, b1, b2))",
        "a matrix product of 3136 pixels; 64 KB of packed weights stay in L2",
    ),
    Best(
        "conv1x1_stride", "convolution 1x1 stride 2, 64 to 128 at 56²",
        lambda: _conv(64, 128, 56, 1, 2),
        "tile(axis=c, size=16) tile(axis=b, size=16) reorder(order=(a, b0, c0, ra, b1, c1)) "
        "upcast(axis=b1) "
        "vectorize(axis=c1) thread(axis=a, count=2) stage(param=p2, at=load, layout=(c0, ra, c1))",
        "16 pixels broadcast against one vector of weights: 28 = 16 + 12",
    ),
    Best(
        "conv1x1_7", "convolution 1x1, 512 to 2048 at 7²", lambda: _conv(512, 2048, 7, 1),
        f"{_tiled('b', 3, 'a', 7)} reorder(order=(b0, a0, ra, a1, b1, b2)) upcast(axis=a1) "
        "upcast(axis=b1) "
        "vectorize(axis=b2) thread(axis=b0, count=2) stage(param=p2, at=load, layout=(b0, "
        "ra, b1, b2))",
        "49 = 7 * 7 rows; filters outermost, 4 MB of weights are read once",
    ),
    Best(
        "conv7x7", "convolution 7x7 stride 2, 3 to 64 at 224²", lambda: _conv(3, 64, 224, 7, 2),
        "tile(axis=a, size=56) tile(axis=c, size=16) tile(axis=b, size=4) "
        "reorder(order=(a0, a1, b0, ra, rb, rc, b1, c0, c1)) upcast(axis=b1) upcast(axis=c0) "
        "vectorize(axis=c1) "
        "unroll(axis=rc) thread(axis=a0, count=2) stage(param=p2, at=load, layout=(ra, rb, "
        "rc, c0, c1))",
        "all 64 filters in 4 vectors, 112 = 28 * 4 pixels, 3 channels unrolled; 37 KB of weights",
    ),
    Best(
        "conv_depthwise", "depthwise 3x3, 144 channels at 56²",
        lambda: _conv(144, 144, 56, 3, groups=144),
        "tile(axis=a, size=14) tile(axis=c, size=16) tile(axis=b, size=14) "
        "reorder(order=(a0, b0, c0, a1, ra, rb, b1, c1)) upcast(axis=b1) vectorize(axis=c1) "
        "unroll(axis=rb) "
        "thread(axis=a0, count=2) stage(param=p2, at=load, layout=(c0, ra, rb, c1))",
        "9 weights serve a row of 14 pixels; windows overlap in L1",
    ),
    Best(
        "conv_grouped", "convolution 3x3 of 4 groups, 128 to 128 at 28²",
        lambda: _conv(128, 128, 28, 3, groups=4),
        "tile(axis=a, size=14) tile(axis=d, size=16) tile(axis=b, size=7) "
        "reorder(order=(a0, c, a1, b0, ra, rb, rc, b1, d0, d1)) upcast(axis=b1) upcast(axis=d0) "
        "vectorize(axis=d1) thread(axis=a0, count=2) stage(param=p2, at=load, layout=(c, ra, "
        "rb, rc, d0, d1))",
        "a group's 32 filters are 2 vectors; 7 pixels, so that half the tiles meet no padding",
    ),
    Best(
        "conv_planes", "convolution 3x3, 64 to 64 at 28², row-major",
        lambda: _x(1, 64, 28, 28).conv2d(_w(64, 64, 3, 3), padding=1).relu(),
        "tile(axis=b, size=14) tile(axis=c, size=16) tile(axis=a, size=14) "
        "reorder(order=(b0, a0, c0, b1, ra, rb, rc, a1, c1)) upcast(axis=a1) "
        "vectorize(axis=c1) unroll(axis=rc) "
        "thread(axis=b0, count=2)",
        "pixels in the lanes, so the planes stay as they are; 14 filters share each load",
    ),
    Best(
        "winograd_input", "Winograd F(4x4) input of 64 channels at 56²", lambda: _winograd(0),
        "tile(axis=c, size=16) vectorize(axis=c1) thread(axis=a, count=2)",
        "36 vectors of one tile fill the registers alone",
    ),
    Best(
        "winograd_product", "Winograd F(4x4) products, 36 of 196 x 64 x 64", lambda: _winograd(1),
        "tile(axis=c, size=16) tile(axis=b, size=4) reorder(order=(a, b0, ra, b1, c0, c1)) "
        "upcast(axis=b1) "
        "upcast(axis=c0) vectorize(axis=c1) thread(axis=a, count=2) stage(param=p2, at=load, "
        "layout=(a, ra, c0, c1))",
        "all 64 channels in 4 vectors, 196 = 49 * 4 rows, 16 KB of weights in L1",
    ),
    Best(
        "winograd_output", "Winograd F(4x4) output of 64 channels at 56²", lambda: _winograd(2),
        "tile(axis=c, size=16) vectorize(axis=c1) thread(axis=a, count=2)",
        "36 vectors in, 16 out: one tile fills the registers alone",
    ),
)  # fmt: skip

_OTHERS = (
    Best(
        "softmax", "softmax of rows, 1024²", lambda: _x(1024, 1024).softmax(-1),
        "tile(axis=ra, size=64) tile(axis=ra1, size=16) upcast(axis=ra1) group(axis=ra2) "
        "tile(axis=rb, size=64) "
        "tile(axis=rb1, size=16) upcast(axis=rb1) group(axis=rb2) tile(axis=sa, size=16) "
        "vectorize(axis=sa1) "
        "thread(axis=a, count=2) keep(stage=1)",
        "a row stays in L1 for its three passes; each exponential is computed once",
    ),
    Best(
        "softmax_columns", "softmax of columns, 512²", lambda: _x(512, 512).softmax(0),
        "tile(axis=a, size=64) tile(axis=a1, size=16) upcast(axis=a1) vectorize(axis=a2) "
        "thread(axis=a0, count=2) "
        "keep(stage=1)",
        "lanes along the rows; 4 vectors side by side read 4 lines of each",
    ),
    Best(
        "layer_norm", "layer norm of 1024 rows of 768",
        lambda: _x(1024, 768).layer_norm(_w(768), _w(768)),
        "tile(axis=ra, size=64) tile(axis=ra1, size=16) upcast(axis=ra1) group(axis=ra2) "
        "tile(axis=rb, size=64) "
        "tile(axis=rb1, size=16) upcast(axis=rb1) group(axis=rb2) tile(axis=sa, size=16) "
        "vectorize(axis=sa1) "
        "thread(axis=a, count=2)",
        "4 vectors of partial sums hide the latency of the adds; 3 KB of a row stay in L1",
    ),
    Best(
        "gelu", "gelu of 1M", lambda: _x(1024, 1024).gelu(),
        "tile(axis=a, size=64) tile(axis=a1, size=16) upcast(axis=a1) vectorize(axis=a2) "
        "thread(axis=a0, count=2)",
        "4 polynomials in flight hide each other's latency",
    ),
    Best(
        "add_16m", "sum of two tensors of 16M", lambda: _sum(_x(4096, 4096), (4096, 4096)),
        "tile(axis=a, size=16) vectorize(axis=a1) thread(axis=a0, count=2) stream(param=p0)",
        "bound by memory: streaming stores, and the hardware sees the two streams coming",
    ),
    Best(
        "bias_relu", "bias and relu of 128 x 1000", lambda: _biased(_x(128, 1000)).relu(),
        "tile(axis=b, size=64) tile(axis=b1, size=16) upcast(axis=b1) vectorize(axis=b2) "
        "thread(axis=a, count=2)",
        "in L2: 4 vectors an iteration, one masked tail of 40 a row",
    ),
    Best(
        "residual", "sum and relu of 56 x 56 x 64",
        lambda: _sum(_x(1, 56, 56, 64), (1, 56, 56, 64)).relu(),
        "tile(axis=a, size=64) tile(axis=a1, size=16) upcast(axis=a1) vectorize(axis=a2) "
        "thread(axis=a0, count=2)",
        "in L2: one flat loop of 4 vectors, no streaming",
    ),
    Best(
        "row_sum", "sums of rows, 4096²", lambda: _x(4096, 4096).sum(1),
        "tile(axis=ra, size=128) tile(axis=ra1, size=16) upcast(axis=ra1) group(axis=ra2) "
        "thread(axis=a, count=2)",
        "8 vectors of partial sums, rows in order",
    ),
    Best(
        "column_sum", "sums of columns, 4096²", lambda: _x(4096, 4096).sum(0),
        "tile(axis=a, size=16) tile(axis=ra, size=8) reorder(order=(ra0, a0, a1, ra1)) "
        "vectorize(axis=a1) "
        "unroll(axis=ra1) thread(axis=a0, count=2)",
        "8 rows are read from end to end at a time; their sums stay in L1",
    ),
    Best(
        "full_sum", "sum of 1M", lambda: _x(1024, 1024).sum(),
        "tile(axis=ra, size=128) tile(axis=ra1, size=16) upcast(axis=ra1) group(axis=ra2)",
        "8 vectors of partial sums hide the latency of the adds",
    ),
    Best(
        "row_max", "maxima of 1024 rows of 1000", lambda: _x(1024, 1000).max(1),
        "tile(axis=ra, size=32) tile(axis=ra1, size=16) tile(axis=a, size=4) "
        "reorder(order=(a0, ra0, a1, ra1, ra2)) "
        "upcast(axis=a1) upcast(axis=ra1) group(axis=ra2) thread(axis=a0, count=2)",
        "4 rows at once: their folds at the end of a row overlap",
    ),
    Best(
        "global_pool", "mean of 7² pixels of 512 channels", lambda: _last(512, 7).mean((2, 3)),
        "tile(axis=a, size=64) tile(axis=a1, size=16) upcast(axis=a1) vectorize(axis=a2) "
        "thread(axis=a0, count=2)",
        "channels in the lanes, 4 vectors of sums in flight",
    ),
    Best(
        "transpose", "transpose of 2048²", lambda: _x(2048, 2048).transpose(0, 1).contiguous(),
        "tile(axis=a, size=512) tile(axis=a1, size=4) tile(axis=b, size=16) "
        "reorder(order=(a0, b0, a1, a2, b1)) "
        "upcast(axis=a2) vectorize(axis=b1) thread(axis=a0, count=2)",
        "512 columns of 16 rows: every line that is read stays in L2 until all of it is used",
    ),
    Best(
        "to_last", "64 planes of 56² to channels last",
        lambda: _x(1, 64, 56, 56).permute(0, 2, 3, 1).contiguous(),
        "tile(axis=a, size=256) tile(axis=a1, size=8) tile(axis=b, size=16) "
        "reorder(order=(a0, b0, a1, a2, b1)) "
        "upcast(axis=a2) vectorize(axis=b1) thread(axis=b0, count=2)",
        "8 pixels of 16 channels: half a line of every plane at a time",
    ),
    Best(
        "max_pool", "max pool 3x3 stride 2, 64 channels last at 112²",
        lambda: _pool(_last(64, 112)).permute(0, 2, 3, 1).contiguous(),
        "tile(axis=c, size=16) upcast(axis=c0) vectorize(axis=c1) unroll(axis=ra) unroll(axis=rb) "
        "thread(axis=a, count=2)",
        "all 64 channels in 4 vectors, the window unrolled: no loop of three steps",
    ),
    Best(
        "max_pool_planes", "max pool 3x3 stride 2, 64 planes of 112²",
        lambda: _pool(_x(1, 64, 112, 112)),
        "tile(axis=c, size=16) upcast(axis=c0) vectorize(axis=c1) unroll(axis=ra) unroll(axis=rb) "
        "thread(axis=a, count=2)",
        "pixels in the lanes, a row of 56 in 4 vectors, the window unrolled",
    ),
    Best(
        "pad", "512 x 1000 padded to 515 x 1024",
        lambda: _x(512, 1000).pad(((1, 2), (0, 24)), value=0.0),
        "tile(axis=b, size=64) tile(axis=b1, size=16) tile(axis=a, size=2) "
        "reorder(order=(a0, b0, a1, b1, b2)) "
        "upcast(axis=a1) upcast(axis=b1) vectorize(axis=b2) thread(axis=a0, count=2)",
        "two rows share the tests of the columns",
    ),
    Best(
        "flip", "512 rows of 1000 reversed, times 2", lambda: _x(512, 1000).flip(1) * 2.0,
        "tile(axis=b, size=16) tile(axis=a, size=4) reorder(order=(a0, b0, a1, b1)) "
        "upcast(axis=a1) "
        "vectorize(axis=b1) thread(axis=a0, count=2)",
        "rows are written from end to end; a vector is loaded and turned round",
    ),
    Best(
        "integers", "3 x + 1 of 1M i32", lambda: _x(1024, 1000, dtype="i32") * 3 + 1,
        "tile(axis=a, size=64) tile(axis=a1, size=16) upcast(axis=a1) vectorize(axis=a2) "
        "thread(axis=a0, count=2)",
        "one flat loop of 4 vectors",
    ),
)  # fmt: skip

_GPU = (
    Best(
        "gpu_gemm", "matrix product 1024³", lambda: _product((1024, 1024), (1024, 1024)),
        "tile(axis=a, size=64) tile(axis=a1, size=4) tile(axis=b, size=64) tile(axis=b1, size=4) "
        "tile(axis=ra, size=32) reorder(order=(a0, b0, a1, b1, ra0, ra1, a2, b2)) thread(axis=a0) "
        "thread(axis=b0) local(axis=a1) local(axis=b1) upcast(axis=a2) vectorize(axis=b2) "
        "stage(param=p1, at=ra0, layout=(ra1, a1, a2)) "
        "stage(param=p2, at=ra0, layout=(ra1, b1, b2))",
        "tiles of both operands in shared memory, 4 rows of a vector for each work-item", GPU,
    ),
    Best(
        "gpu_conv3x3", "convolution 3x3, 64 to 64 at 56²", lambda: _conv(64, 64, 56, 3),
        "tile(axis=c, size=4) tile(axis=b, size=16) tile(axis=b1, size=4) tile(axis=rc, size=8) "
        "reorder(order=(a, b0, b1, c0, rc0, ra, rb, rc1, b2, c1)) thread(axis=a) "
        "thread(axis=b0) local(axis=b1) "
        "local(axis=c0) upcast(axis=b2) vectorize(axis=c1) stage(param=p1, at=rc0, layout=()) "
        "stage(param=p2, at=rc0, layout=(ra, rb, rc1, c0, c1))",
        "16 pixels with their padding and the weights of 8 channels in shared memory", GPU,
    ),
    Best(
        "gpu_row_sum", "sums of rows, 4096²", lambda: _x(4096, 4096).sum(1),
        "tile(axis=ra, size=256) thread(axis=a) group(axis=ra1)",
        "256 neighbours read a row side by side, combined in shared memory", GPU,
    ),
    Best(
        "gpu_gemv", "matrix-vector product 4096²", lambda: _x(4096, 4096) @ _x(4096, name="v"),
        "tile(axis=ra, size=64) thread(axis=a) group(axis=ra1)",
        "a group for each row reads it side by side; 64 work-items have little to combine", GPU,
    ),
    Best(
        "gpu_column_sum", "sums of columns, 4096²", lambda: _x(4096, 4096).sum(0),
        "tile(axis=a, size=32) tile(axis=ra, size=512) group(axis=ra0) "
        "reorder(order=(a0, ra0, a1, ra1)) thread(axis=a0) local(axis=a1)",
        "neighbours read neighbouring columns, so lines are read whole; 8 share a column", GPU,
    ),
    Best(
        "gpu_add", "sum of two tensors of 1M", lambda: _sum(_x(1024, 1024), (1024, 1024)),
        "tile(axis=a, size=1024) tile(axis=a1, size=4) thread(axis=a0) local(axis=a1) "
        "vectorize(axis=a2)",
        "256 work-items, 16 bytes each", GPU,
    ),
    Best(
        "gpu_softmax", "softmax of rows, 1024²", lambda: _x(1024, 1024).softmax(-1),
        "tile(axis=ra, size=256) tile(axis=rb, size=256) tile(axis=sa, size=4) thread(axis=a) "
        "group(axis=ra1) group(axis=rb1) local(axis=sa0) vectorize(axis=sa1)",
        "a work-group for each row, read and stored side by side, combined in shared memory", GPU,
    ),
    Best(
        "gpu_transpose", "transpose of 2048²", lambda: _x(2048, 2048).transpose(0, 1).contiguous(),
        "tile(axis=b, size=32) tile(axis=a, size=32) tile(axis=a1, size=4) "
        "reorder(order=(a0, b0, a1, b1, a2)) thread(axis=a0) thread(axis=b0) local(axis=a1) "
        "local(axis=b1) upcast(axis=a2) stage(param=p1, at=b1, layout=(a1, b1, a2))",
        "a tile in shared memory: vectors of the source in, lines of the result out", GPU,
    ),
)  # fmt: skip

BEST = {b.name: b for b in (*_ROWS, *_CONVOLUTIONS, *_OTHERS, *_GPU)}
"""By name, in the order of the documents."""
