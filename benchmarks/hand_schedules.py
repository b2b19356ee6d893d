"""Schedules written by hand: known good ones that the space must be able to say.

Tests and documents use them.

Each entry is a kernel, the target it is meant for and an action list as text. ``FULL`` has them at
the sizes people quote, ``SMALL`` the same forms at sizes that the interpreter runs in a moment,
mostly with tails in every blocked axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunegrad.devices.host.facts import declared
from tunegrad.ir.dtypes import F16, F32
from tunegrad.ir.expr import Apply, Cast, Const, Expr, Load, Op, Value
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.layout import Layout
from tunegrad.ir.target import MatrixUnit, Target
from tunegrad.opts import Schedule

__all__ = [
    "AHEAD",
    "AVX512",
    "FULL",
    "GPU",
    "SMALL",
    "HandSchedule",
    "conv3x3",
    "gemm",
    "row_sum",
    "softmax",
]

AVX512 = declared(
    Target(
        "cpu", "cpu", "znver4", vector_bytes=64, registers=32, threads=2,
        l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20,
    )
)  # fmt: skip
"""A core with 32 vector registers of 16 f32; an LLVM name, so that any x86 machine compiles for
it.
"""

GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=256)
"""The least that OpenCL devices have: groups of 256 work-items, 32 KiB of shared memory."""


MATRICES = replace(GPU, units=(MatrixUnit((16, 8, 16), ("f16", "f32"), packed=2),))
"""The same with a matrix unit for f16."""

AHEAD = replace(MATRICES, warp=32, copies_ahead=True, loads_matrices=True)
"""The same with asynchronous copies, and loads of fragments by a warp."""


@dataclass(frozen=True, slots=True)
class HandSchedule:
    """One schedule. ``why`` says what makes it fast, in words for the documents."""

    name: str
    kernel: Kernel
    target: Target
    actions: str
    why: str = ""

    @property
    def schedule(self) -> Schedule:
        """The parsed action list."""
        return Schedule.parse(self.actions)


def gemm(rows: int, columns: int, depth: int) -> Kernel:
    """``C[m, n] = sum over k of A[m, k] * B[k, n]``, all row-major, f32."""
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", depth)
    product = _mul(Load("A", (m.index, k.index), F32), Load("B", (k.index, n.index), F32))
    params = (
        Param.dense("C", F32, (rows, columns), "out"),
        Param.dense("A", F32, (rows, depth), "in"),
        Param.dense("B", F32, (depth, columns), "in"),
    )
    stages = (
        Reduce("v0", Op.ADD, (k,), product, F32),
        Store("C", (m.index, n.index), Value("v0", F32)),
    )
    return Kernel(params, (m, n), stages, f"gemm {rows}x{columns}x{depth}")


def half_gemm(rows: int, columns: int, depth: int) -> Kernel:
    """``gemm`` of f16, summed and stored in f32."""
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", depth)
    a, b = Load("A", (m.index, k.index), F16), Load("B", (k.index, n.index), F16)
    params = (
        Param.dense("C", F32, (rows, columns), "out"),
        Param.dense("A", F16, (rows, depth), "in"),
        Param.dense("B", F16, (depth, columns), "in"),
    )
    stages = (
        Reduce("v0", Op.ADD, (k,), _mul(Cast(a, F32), Cast(b, F32)), F32),
        Store("C", (m.index, n.index), Value("v0", F32)),
    )
    return Kernel(params, (m, n), stages, f"gemm {rows}x{columns}x{depth} f16")


def conv3x3(channels: int, filters: int, size: int) -> Kernel:
    """A 3x3 convolution, stride 1, zero padding 1, channels last; ``W`` is a constant (filters,
    channels, 3, 3).
    """
    y, x, o = Axis("y", size), Axis("x", size), Axis("o", filters)
    c, r, s = Axis("c", channels), Axis("r", 3), Axis("s", 3)
    row, column = y.index + r.index - 1, x.index + s.index - 1
    inside = Valid((Range(row, 0, size), Range(column, 0, size)))
    pixel = Load("X", (row, column, c.index), F32, inside)
    product = _mul(pixel, Load("W", (o.index, c.index, r.index, s.index), F32))
    params = (
        Param.dense("Y", F32, (size, size, filters), "out"),
        Param.dense("X", F32, (size, size, channels), "in"),
        Param(
            "W",
            F32,
            (filters, channels, 3, 3),
            "const",
            Layout.row_major((filters, channels, 3, 3)),
        ),
    )
    store = Store("Y", (y.index, x.index, o.index), Value("v0", F32))
    reduce = Reduce("v0", Op.ADD, (r, s, c), product, F32)
    return Kernel(
        params, (y, x, o), (reduce, store), f"conv3x3 {channels}->{filters} {size}x{size}"
    )


def softmax(rows: int, columns: int) -> Kernel:
    """``Y[i, :] = softmax(X[i, :])``: the row's maximum, the sum of exponentials, the division, as
    three stages.
    """
    i, p, q, t = Axis("i", rows), Axis("p", columns), Axis("q", columns), Axis("t", columns)
    top = Value("top", F32)

    def power(axis: Axis) -> Expr:
        shifted = Apply(Op.SUB, (Load("X", (i.index, axis.index), F32), top), F32)
        return Apply(Op.EXP, (shifted,), F32)

    params = (
        Param.dense("Y", F32, (rows, columns), "out"),
        Param.dense("X", F32, (rows, columns), "in"),
    )
    stages = (
        Reduce("top", Op.MAX, (p,), Load("X", (i.index, p.index), F32), F32),
        Reduce("total", Op.ADD, (q,), power(q), F32),
        Store("Y", (i.index, t.index), Apply(Op.DIV, (power(t), Value("total", F32)), F32), (t,)),
    )
    return Kernel(params, (i,), stages, f"softmax {rows}x{columns}")


def row_sum(rows: int, columns: int) -> Kernel:
    """``S[i] = 0.5 * sum over k of X[i, k]``."""
    i, k = Axis("i", rows), Axis("k", columns)
    params = (Param.dense("S", F32, (rows,), "out"), Param.dense("X", F32, (rows, columns), "in"))
    half = _mul(Value("v0", F32), Const(0.5, F32))
    stages = (
        Reduce("v0", Op.ADD, (k,), Load("X", (i.index, k.index), F32), F32),
        Store("S", (i.index,), half),
    )
    return Kernel(params, (i,), stages, f"row sum {rows}x{columns}")


def _mul(a: Expr, b: Expr) -> Expr:
    return Apply(Op.MUL, (a, b), F32)


_GEMM = (
    "tile(axis=k, size={k}) tile(axis=m, size={m}) tile(axis=m1, size={m1}) "
    "tile(axis=n, size=32) tile(axis=n1, size=16) reorder(order=(k0, m0, n0, m1, k1, m2, n1, n2)) "
    "upcast(axis=m2) upcast(axis=n1) vectorize(axis=n2) "
    "stage(param=B, at=k0, layout=(n0, k1, n1, n2)) stage(param=A, at=m0, layout=(m1, m2, k1))"
)
_CONV = (
    "tile(axis=y, size={y}) tile(axis=x, size={x}) tile(axis=o, size=32) tile(axis=o1, size=16) "
    "reorder(order=(y0, o0, y1, x0, r, s, c, x1, o1, o2)) upcast(axis=x1) "
    "upcast(axis=o1) vectorize(axis=o2) "
    "stage(param=X, at=y0, layout=()) stage(param=W, at=load, layout=(o0, r, s, c, o1, o2))"
)
_SOFTMAX = (
    "tile(axis=p, size=64) tile(axis=p1, size=16) upcast(axis=p1) group(axis=p2) "
    "tile(axis=q, size=64) tile(axis=q1, size=16) upcast(axis=q1) group(axis=q2) "
    "tile(axis=t, size=16) vectorize(axis=t1)"
)
_SOFTMAX_GPU = (
    "tile(axis=p, size={i}) tile(axis=q, size={i}) tile(axis=t, size={t}) tile(axis=t1, size=4) "
    "thread(axis=i) group(axis=p1) group(axis=q1) local(axis=t1) vectorize(axis=t2)"
)
_GEMM_GPU = (
    "tile(axis=m, size={b}) tile(axis=m1, size=4) tile(axis=n, size={b}) tile(axis=n1, "
    "size=4) tile(axis=k, size={k}) "
    "reorder(order=(m0, n0, m1, n1, k0, k1, m2, n2)) thread(axis=m0) thread(axis=n0) "
    "local(axis=m1) local(axis=n1) "
    "upcast(axis=m2) vectorize(axis=n2) "
    "stage(param=A, at=k0, layout=(k1, m1, m2)) stage(param=B, at=k0, layout=(k1, n1, n2))"
)
_ROW_SUM_GPU = "tile(axis=k, size={k}) thread(axis=i) group(axis=k1)"

_WHY = {
    "packed_gemm": "The GEMM of GotoBLAS and BLIS: B packed in slivers of 32 columns once for "
    "each block of k, A in "
    "blocks that stay in the second-level cache, and a register tile of 12 rows by 2 vectors: 24 "
    "accumulators, 2 vectors of B, broadcasts of A.",
    "direct_conv": (
        "Output channels in the lanes, a row of 14 pixels by 2 vectors in registers (28 "
        "accumulators), the "
        "input rows of a band staged with their zero padding, so that the inner loops test "
        "nothing, and the "
        "weights re-laid when the model is loaded."
    ),
    "softmax_rows": (
        "One kernel and one trip through memory: a row is read three times, the second and "
        "third time from "
        "the first-level cache. Both reductions run in 4 vectors of partial results, folded "
        "at the end of the "
        "row."
    ),
    "softmax_group": (
        "A work-group for each row: its work-items read it side by side, combine their maxima and "
        "sums in shared memory, and store a vector each."
    ),
    "tiled_gemm": (
        "A work-group computes a tile of the output, a work-item 4 rows of a vector of it; the "
        "group copies the operands of each step of k to shared memory, between two barriers: whole "
        "vectors of B, and A in the order in which it lies, into rows with one element to spare."
    ),
    "group_row_sum": "A work-group for each row; its work-items add up shares of the row, and "
    "combine them in shared "
    "memory.",
}


def _entry(name: str, kernel: Kernel, target: Target, actions: str) -> HandSchedule:
    return HandSchedule(name, kernel, target, actions, _WHY[name])


def _table(*entries: HandSchedule) -> dict[str, HandSchedule]:
    return {e.name: e for e in entries}


FULL = _table(
    _entry("packed_gemm", gemm(1024, 1024, 1024), AVX512, _GEMM.format(k=256, m=144, m1=12)),
    _entry("direct_conv", conv3x3(64, 64, 56), AVX512, _CONV.format(y=7, x=14)),
    _entry("softmax_rows", softmax(1024, 1024), AVX512, _SOFTMAX),
    _entry("softmax_group", softmax(1024, 2048), GPU, _SOFTMAX_GPU.format(i=256, t=1024)),
    _entry("tiled_gemm", gemm(1024, 1024, 1024), GPU, _GEMM_GPU.format(b=64, k=16)),
    _entry("group_row_sum", row_sum(4096, 4096), GPU, _ROW_SUM_GPU.format(k=256)),
)

SMALL = _table(
    _entry("packed_gemm", gemm(29, 45, 21), AVX512, _GEMM.format(k=8, m=12, m1=6)),
    _entry("direct_conv", conv3x3(3, 37, 9), AVX512, _CONV.format(y=4, x=4)),
    _entry("softmax_rows", softmax(3, 150), AVX512, _SOFTMAX),
    _entry("softmax_group", softmax(3, 50), GPU, _SOFTMAX_GPU.format(i=8, t=32)),
    _entry("tiled_gemm", gemm(19, 21, 10), GPU, _GEMM_GPU.format(b=16, k=4)),
    _entry("group_row_sum", row_sum(5, 77), GPU, _ROW_SUM_GPU.format(k=16)),
)
