"""Products of pairs for tile registers, and targets that have some."""

from dataclasses import replace

import numpy as np

from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.executable import Executable
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Team
from tunegrad.ir.dtypes import BF16, BF16X2, F32
from tunegrad.ir.expr import Apply, Load, Op, Value
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.interpret_program import pack_buffers
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.numeric import to_memory
from tunegrad.ir.target import TileUnit
from tunegrad.render.llvm import render_llvm, workspace_bytes

UNIT = TileUnit((16, 16, 16), ("bf16x2", "f32"), fmas=1024)
NAME = UNIT.name


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
    value = Value("v0", F32)
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
    """Words of two bf16 numbers each, and those as f64: (words, numbers[..., 2])."""
    drawn = rng.standard_normal((*shape, 2))
    if integers:
        drawn = rng.integers(-8, 9, (*shape, 2)).astype(np.float64)
    narrow = to_memory(drawn, BF16)
    wide = (narrow.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.ascontiguousarray(narrow).view(np.uint32)[..., 0], wide


def buffers(program, kernel, seed=0, integers=False):
    """Arrays of every parameter by name, outputs NaN, with the program's packs."""
    rng = np.random.default_rng(seed)
    made = {}
    for p in kernel.params:
        if p.dtype == BF16X2:
            made[p.name] = pairs((p.size,), rng, integers)[0]
        else:
            made[p.name] = rng.standard_normal(p.size).astype(np.float32)
        if p.role == "out":
            made[p.name][:] = np.nan
    return pack_buffers(program, made)


def run(program, arrays, target):
    """What compiled code makes of the output ``p0``, on all threads."""
    held = {b.name: Buffer(b.size * b.dtype.itemsize) for b in program.params}
    for b in program.params:
        held[b.name].array(b.dtype.name)[:] = arrays[b.name]
    table = BufferTable([held[b.name].address for b in program.params], list(held.values()))
    scratch = Buffer(max(64, workspace_bytes(program)))
    image = compile_llvm(render_llvm(program, target), target, OPT_LEVEL)
    team = Team(program.threads)
    with Executable.load(image, program.name, program.threads) as code:
        team.run(code.address, table.address, scratch.address, program.threads)
    team.close()
    assert not any(h.damage() for h in held.values())
    return held["p0"].array("f32").copy()
