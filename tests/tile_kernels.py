"""Products of pairs for tile registers, and targets that have some."""

from dataclasses import replace

import numpy as np

from tests.amx_twins import device_of
from tests.interpreter import pack_buffers
from tests.programs import Programs
from tunegrad.devices.host.facts import AMX_BF16, declared, host_target
from tunegrad.ir.dtypes import BF16, BF16X2, F32
from tunegrad.ir.expr import Apply, Expr, Load, Op, Value
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.target import Target

UNIT = AMX_BF16
NAME = UNIT.name

SERVER = declared(
    Target(
        "cpu", "cpu", "sapphirerapids",
        ("+amx-bf16", "+amx-tile", "+avx512bf16", "+avx512bw", "+avx512dq", "+avx512f",
         "+avx512vl"),
        vector_bytes=64, registers=32, threads=2, l1_bytes=48 << 10, l2_bytes=2 << 20,
        l3_bytes=60 << 20, units=(UNIT,),
    )
)  # fmt: skip
"""A CPU with AMX, for which code is compiled and never run."""


def tiled(threads=1):
    """This machine's CPU with tile registers that plain code stands for."""
    host = host_target(threads)
    features = tuple(f for f in host.features if "amx" not in f)
    return replace(host, features=features, units=(UNIT,))


def gemm(m, n, k, *, constant=False, rows_of_b=False, bias=False):
    """C[m, n] = A @ B of pairs along k; B lies as (n, k) where it is ``rows_of_b``."""
    a, b, c = Axis("a", m), Axis("b", n), Axis("ra", k)
    left = Load("p1", (a.index, c.index), BF16X2)
    right = Load("p2", (b.index, c.index) if rows_of_b else (c.index, b.index), BF16X2)
    params = [
        Param.dense("p0", F32, (m, n), "out"),
        Param.dense("p1", BF16X2, (m, k), "in"),
        Param.dense("p2", BF16X2, (n, k) if rows_of_b else (k, n), "const" if constant else "in"),
    ]
    total = Reduce("v0", Op.ADD, (c,), Apply(Op.DOT2, (left, right), F32), F32)
    value: Expr = Value("v0", F32)
    if bias:
        params.append(Param.dense("p3", F32, (n,), "in"))
        value = Apply(Op.ADD, (value, Load("p3", (b.index,), F32)), F32)
    return Kernel(tuple(params), (a, b), (total, Store("p0", (a.index, b.index), value)))


def conv(size, channels, filters, window=3):
    """A channels-last convolution with its padding, of pairs of channels."""
    y, x, f = Axis("a", size), Axis("b", size), Axis("c", filters)
    i, j, c = Axis("ra", window), Axis("rb", window), Axis("rc", channels)
    pad = window // 2
    at_y, at_x = y.index + i.index - pad, x.index + j.index - pad
    inside = Valid((Range(at_y, 0, size), Range(at_x, 0, size)))
    left = Load("p1", (at_y, at_x, c.index), BF16X2, inside)
    right = Load("p2", (f.index, c.index, i.index, j.index), BF16X2)
    params = (
        Param.dense("p0", F32, (size, size, filters), "out"),
        Param.dense("p1", BF16X2, (size, size, channels), "in"),
        Param.dense("p2", BF16X2, (filters, channels, window, window), "const"),
    )
    total = Reduce("v0", Op.ADD, (i, j, c), Apply(Op.DOT2, (left, right), F32), F32)
    store = Store("p0", (y.index, x.index, f.index), Value("v0", F32))
    return Kernel(params, (y, x, f), (total, store))


def pairs(shape, rng, integers=False):
    """Words of two bf16 numbers each."""
    drawn = rng.standard_normal((*shape, 2))
    if integers:
        drawn = rng.integers(-8, 9, (*shape, 2)).astype(np.float64)
    return np.ascontiguousarray(to_memory(drawn, BF16)).view(np.uint32)[..., 0]


def buffers(program, kernel, seed=0, integers=False):
    """Arrays of every parameter by name, outputs NaN, with the program's packs."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for p in kernel.params:
        if p.dtype == BF16X2:
            made[p.name] = pairs((p.size,), rng, integers)
        else:
            made[p.name] = rng.standard_normal(p.size).astype(np.float32)
        if p.role == "out":
            made[p.name][:] = np.nan
    return pack_buffers(program, made)


def run(program, arrays, target):
    """What compiled code makes of the output ``p0``, on all threads; guard zones are looked at."""
    with Programs(device_of(target)) as programs:
        full = {n: a for n, a in arrays.items() if n in {b.name for b in program.params}}
        programs.run(programs.compile(program), full)
    return full["p0"]


def wanted(kernel, arrays):
    """The output ``p0`` of a product or convolution, in f64, and what rounding may do to it."""
    numbers = {n: halves(arrays[n]) for n in ("p1", "p2")}
    shapes = {p.name: p.shape for p in kernel.params}
    a, b = (numbers[n].reshape(*shapes[n], 2) for n in ("p1", "p2"))
    if a.ndim == 3:
        if shapes["p2"][-1] == shapes["p1"][-1]:
            b = b.transpose(1, 0, 2)
        total, size = (np.einsum("mkh,knh->mn", f(a), f(b)) for f in (np.asarray, np.abs))
    else:
        window = shapes["p2"][-1]
        pad = window // 2
        wide = np.pad(a, ((pad, pad), (pad, pad), (0, 0), (0, 0)))
        views = np.lib.stride_tricks.sliding_window_view(wide, (window, window), axis=(0, 1))
        total, size = (np.einsum("yxchij,fcijh->yxf", f(views), f(b)) for f in (np.asarray, np.abs))
    if "p3" in arrays:
        total = total + arrays["p3"]
    return total.reshape(-1), size.reshape(-1)


def halves(words):
    """The two numbers of each word, in f64."""
    return np.stack([words << 16, words & 0xFFFF0000], -1).view(np.float32).astype(np.float64)
