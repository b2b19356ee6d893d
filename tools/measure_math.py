"""Measure the f32 functions of tunegrad/render/math.py on this machine.

    python -m tools.measure_math                the table of errors: every 61st f32 bit pattern, by
                                                kind of target
    python -m tools.measure_math --write        the same, into docs/NUMERICS.md
    python -m tools.measure_math --stride 4087  a coarser sample, printed (a multiple of 61: a part
                                                of the finer one)
    python -m tools.measure_math --speed        nanoseconds for an element, next to a copy

An error is ``|result - reference|`` in units in the last place: over the spacing of f32 at the
reference, which numpy and scipy compute in float64. Where the reference is NaN, infinite, zero or
rounds to infinity the result must be that (and its sign the same); what is not counts as ``inf``.
exp may be zero where it is below 2^-126.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tools.numerics_page import put_out
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library
from tunegrad.ir.dtypes import F32, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.target import Target
from tunegrad.render.math import library
from tunegrad.render.math_body import vector_type

Array = NDArray[np.float32]
Wide = NDArray[np.float64]

SEED = 20
PAIR_CHUNKS = 16
STRIDE = 61


@dataclass(frozen=True)
class Case:
    """An operation, its float64 reference, and the words for where its error is measured.

    ``flushes``: zero is right too where the reference is below 2^-126.
    """

    op: Op
    reference: Callable[..., Wide]
    domain: str
    limit: float = np.inf
    flushes: bool = False


CASES = (
    Case(Op.EXP, np.exp, "all", flushes=True),
    Case(Op.LOG, np.log, "all"),
    Case(Op.LOG2, np.log2, "all"),
    Case(Op.LOG10, np.log10, "all"),
    Case(Op.TANH, np.tanh, "all"),
    Case(Op.ERF, special.erf, "all"),
    Case(Op.SIN, np.sin, "all"),
    Case(Op.COS, np.cos, "all"),
    Case(Op.TAN, np.tan, "all"),
    Case(Op.POW, np.power, "all pairs"),
)


class Kernel:
    """``op`` over arrays, compiled for the host: a loop of vectors of ``lanes``.

    ``op`` None copies.
    """

    def __init__(
        self, op: Op | None, dtype: DType = F32, lanes: int = 16, target: Target | None = None
    ) -> None:
        self.arity = 1 if op is None else op.arity
        self.lanes, self.dtype = lanes, dtype
        self._library = Library(
            compile_llvm(loop(op, dtype, lanes, (target or host()).avx512), target or host()),
            ["kernel"],
            {},
        )
        pointers = [ctypes.c_void_p] * (self.arity + 1)
        self.run = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64)(
            self._library.addresses["kernel"]
        )

    def __call__(self, *arrays: NDArray[np.floating]) -> NDArray[np.floating]:
        size = arrays[0].size
        whole = -(-size // self.lanes) * self.lanes
        padded = [np.zeros(whole, self.dtype.numpy) for _ in range(self.arity + 1)]
        for buffer, array in zip(padded, arrays, strict=False):
            buffer[:size] = array
        self.run(*(p.ctypes.data for p in padded), whole, 1)
        return padded[-1][:size]


def loop(op: Op | None, dtype: DType, lanes: int, avx512: bool = False) -> str:
    """A module with ``kernel(in..., out, n, repeats)``: ``n`` elements, a multiple of ``lanes``,
    ``repeats`` times.
    """
    kind = vector_type("float" if dtype == F32 else "double", lanes)
    inputs = range(1 if op is None else op.arity)
    head = ", ".join([*(f"ptr noalias %in{i}" for i in inputs), "ptr noalias %out"])
    loads = "\n".join(
        f"  %p{i} = getelementptr {dtype_text(dtype)}, ptr %in{i}, i64 %at\n"
        f"  %x{i} = load {kind}, ptr %p{i}, align {dtype.itemsize}" for i in inputs
    )  # fmt: skip
    call = "" if op is None else (
        f"  %y = call {kind} "
        f"@tg.{op}.{dtype}x{lanes}({', '.join(f'{kind} %x{i}' for i in inputs)})\n"
    )  # fmt: skip
    return f"""{"" if op is None else library([(op, dtype, lanes)], avx512)}
define void @kernel({head}, i64 %n, i64 %repeats) {{
entry:
  br label %outer
outer:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %latch ]
  br label %inner
inner:
  %at = phi i64 [ 0, %outer ], [ %at.next, %inner ]
{loads}
{call}  %q = getelementptr {dtype_text(dtype)}, ptr %out, i64 %at
  store {kind} {"%x0" if op is None else "%y"}, ptr %q, align {dtype.itemsize}
  %at.next = add i64 %at, {lanes}
  %more = icmp slt i64 %at.next, %n
  br i1 %more, label %inner, label %latch
latch:
  call void asm sideeffect "", "~{{memory}}"()
  %turn.next = add i64 %turn, 1
  %again = icmp slt i64 %turn.next, %repeats
  br i1 %again, label %outer, label %done
done:
  ret void
}}
"""


def dtype_text(dtype: DType) -> str:
    """LLVM's word for a scalar float type."""
    return "float" if dtype == F32 else "double"


def host() -> Target:
    """The machine this runs on; it may have AVX-512."""
    return host_target(1)


def without_avx512() -> Target:
    """The machine this runs on, as if it had no AVX-512."""
    return replace(host(), features=tuple(f for f in host().features if "avx512" not in f))


def without_fma() -> Target:
    """A machine of the x86-64 baseline: SSE2 and no FMA."""
    return Target("baseline", "cpu", "x86-64")


def patterns(stride: int, chunk: int = 1 << 21) -> Iterator[Array]:
    """Every ``stride``-th of the 2^32 bit patterns of f32, NaNs and infinities included."""
    for start in range(0, 1 << 32, stride * chunk):
        stop = min(start + stride * chunk, 1 << 32)
        yield np.arange(start, stop, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def pairs(chunks: int, size: int = 1 << 18) -> Iterator[tuple[Array, Array]]:
    """Random arguments of pow: bases of any bits; exponents for results all over f32, some whole,
    some of any bits.
    """
    for chunk in range(chunks):
        rng = np.random.default_rng([SEED, chunk])
        x = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
        wild = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            y = (rng.uniform(-152, 130, size) / np.log2(np.abs(x.astype(np.float64)))).astype(
                np.float32
            )
            whole = np.round(y)
        kind = rng.integers(0, 8, size)
        y = np.where(kind < 3, whole, np.where(kind == 3, wild, y))
        # A negative base with a fraction as exponent is NaN, which needs less attention.
        yield np.where((kind > 3) & (rng.random(size) < 0.9), np.abs(x), x), y


def ulps(result: Array, reference: Wide) -> Wide:
    """Errors in units in the last place; see the module's text."""
    with np.errstate(all="ignore"):
        rounded = reference.astype(np.float32)
        size = np.abs(rounded)
        spacing = np.spacing(
            np.where(np.isfinite(size), size, np.float32(np.finfo(np.float32).max))
        ).astype(np.float64)
        error = np.abs(result.astype(np.float64) - reference) / spacing
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    sign = (np.signbit(result) == np.signbit(rounded)) | np.isnan(rounded)
    exact = ~np.isfinite(rounded) | (reference == 0)
    error = np.where(exact, np.where(same, 0.0, np.inf), error)
    error = np.where(np.isfinite(rounded) & ~np.isfinite(result), np.inf, error)
    return np.where(sign, error, np.inf)


def worst(case: Case, kernel: Kernel, stride: int) -> tuple[float, float]:
    """The largest error of ``case`` on the sample, in ulps, and the first argument that has it."""
    top, where = -1.0, 0.0
    samples: Iterator[tuple[Array, ...]] = ((x,) for x in patterns(stride))
    if case.op is Op.POW:
        samples = pairs(max(1, PAIR_CHUNKS * STRIDE // stride))
    for arrays in samples:
        if np.isfinite(case.limit):
            arrays = tuple(a[np.abs(a) < case.limit] for a in arrays)
        if arrays[0].size == 0:
            continue
        with np.errstate(all="ignore"):
            result, reference = (
                kernel(*arrays),
                case.reference(*(a.astype(np.float64) for a in arrays)),
            )
            error = ulps(result, reference)
        if case.flushes:
            error = np.where(
                (result == 0) & (np.abs(reference) < 2.0**-126) & ~np.signbit(result), 0.0, error
            )
        at = int(np.argmax(error))
        if error[at] > top:
            top, where = float(error[at]), float(arrays[0][at])
    return top, where


TARGETS = (("AVX-512", host), ("FMA", without_avx512), ("no FMA", without_fma))


def table(stride: int) -> str:
    """Markdown: one row a function. Without AVX-512 here, its column repeats the next one."""
    heads = " | ".join(f"worst ulp, {name} | at" for name, _ in TARGETS)
    rows = [f"| f32 function | arguments | {heads} |", "|---|---|" + "---|---|" * len(TARGETS)]
    for case in CASES:
        found = (worst(case, Kernel(case.op, target=target()), stride) for _, target in TARGETS)
        cells = [f"{error:.2f} | {x:.9g}" for error, x in found]
        rows.append(f"| {case.op} | {case.domain} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def speed(count: int = 2048, repeats: int = 60) -> str:
    """Nanoseconds for an element in L1: the best of 50 runs, 16 lanes. Runs are short, so that some
    are not interrupted.
    """
    x = np.linspace(0.1, 3.0, count, dtype=np.float32)
    out = np.empty_like(x)
    rows = []
    for op in (None, *(c.op for c in CASES)):
        kernel = Kernel(op)
        best = np.inf
        for _ in range(50):
            start = time.perf_counter()
            kernel.run(*([x.ctypes.data] * kernel.arity), out.ctypes.data, count, repeats)
            best = min(best, time.perf_counter() - start)
        rows.append(f"{op or 'copy':5} {best / count / repeats * 1e9:.3f} ns")
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="errors and speed of the f32 functions")
    parser.add_argument("--stride", type=int, default=STRIDE)
    one = parser.add_mutually_exclusive_group()  # the table in the document is that of the errors
    one.add_argument("--write", action="store_true")
    one.add_argument("--speed", action="store_true")
    options = parser.parse_args(arguments)
    text = speed() if options.speed else table(options.stride)
    put_out("measure_math", text, options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
