"""Programs written by hand, instruction by instruction, for the tests of everything that reads
programs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Index, Range, Valid, as_index, var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    Convert,
    For,
    If,
    Instr,
    Load,
    Number,
    Program,
    Read,
    Register,
    Splat,
    Store,
    Test,
    VType,
    Write,
)

F = VType(F32)

FLOATS = (
    Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.SQRT, Op.RECIP, Op.TANH, Op.ERF, Op.SIN, Op.TAN, Op.FLOOR,
    Op.ROUND, Op.DIV, Op.POW, Op.FMA,
)  # fmt: skip
NUMBERS = (Op.NEG, Op.ABS, Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN, Op.LT, Op.EQ, Op.NE, Op.WHERE)
INTS = (Op.FLOOR, Op.FLOORDIV, Op.MOD, Op.NOT, Op.AND, Op.OR, Op.XOR)
BOOLS = (Op.NOT, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN, Op.EQ, Op.NE, Op.WHERE)
"""Operations of floats alone, of all numbers, of integers, and of truths."""


def loop(
    name: str,
    extent: int,
    *body: Instr,
    kind: Literal["serial", "thread", "local"] = "serial",
    count: int = 1,
    inner: int = 1,
) -> For:
    return For(name, extent, (as_index(extent),), body, kind, count, inner)


def below(index: Index, limit: int) -> Valid:
    return Valid((Range(index, 0, limit),))


def vector_add(n: int = 37, lanes: int = 8, threads: int = 2) -> Program:
    """c = a + b on a CPU team; the last vector is masked where ``lanes`` does not divide ``n``."""
    blocks = -(-n // lanes)
    at, v = var("i0", blocks) * lanes + var("i1", lanes), VType(F32, lanes)
    body = (
        Test(1, below(at, n), lanes, "i1"),
        Load(2, "a", at, v, "i1", 1),
        Load(3, "b", at, v, "i1", 1),
        Compute(4, Op.ADD, (2, 3), v),
        Store("c", at, 4, v, "i1", 1),
    )
    params = (Buffer("c", F32, n, "out"), Buffer("a", F32, n, "in"), Buffer("b", F32, n, "in"))
    return Program(
        "vector_add",
        params,
        (),
        (),
        (loop("i0", blocks, *body, kind="thread", count=threads),),
        threads,
    )


def group_add(n: int = 37, groups: int = 3, items: int = 4, lanes: int = 4) -> Program:
    """c = a + b on work-groups of work-items, ``lanes`` elements each; masked past ``n``."""
    at = var("g", groups) * (items * lanes) + var("l", items) * lanes + var("v", lanes)
    flat = vector_add(n, lanes)
    (old,) = flat.body
    assert isinstance(old, For)
    moved = tuple(
        replace(i, offset=at, lane="v") if isinstance(i, Load | Store) else i for i in old.body[1:]
    )
    body = (Test(1, below(at, n), lanes, "v"), *moved)
    nest = loop(
        "g", groups, loop("l", items, *body, kind="local", count=items), kind="thread", count=groups
    )
    return replace(flat, name="group_add", body=(nest,), threads=groups, local=items)


def tiled_gemm(size: int = 64, tile: int = 16, lanes: int = 4) -> Program:
    """C = A B: a group computes a tile, its work-items ``lanes`` neighbours each, from shared tiles
    of A and B.
    """
    blocks, across = size // tile, tile // lanes
    items, v = tile * across, VType(F32, lanes)
    m0, n0, k0 = var("m0", blocks), var("n0", blocks), var("k0", blocks)
    y, x, lane, k1 = var("y", tile), var("x", across) * lanes, var("v", lanes), var("k1", tile)
    row, col = m0 * tile + y, n0 * tile + x + lane

    def everyone(*body: Instr) -> For:
        inside = loop("x", across, *body, kind="local", count=across)
        return loop("y", tile, inside, kind="local", count=tile, inner=across)

    stage = everyone(
        Load(10, "A", row * size + k0 * tile + x + lane, v, "v"),
        Store("As", y * tile + x + lane, 10, v, "v"),
        Load(11, "B", (k0 * tile + y) * size + col, v, "v"),
        Store("Bs", y * tile + x + lane, 11, v, "v"),
    )
    multiply = everyone(
        loop(
            "k1", tile,
            Load(20, "As", y * tile + k1, F), Splat(21, 20, v),
            Load(22, "Bs", k1 * tile + x + lane, v, "v"),
            Read(23, "acc", v), Compute(24, Op.FMA, (21, 22, 23), v), Write("acc", 24, v),
        )
    )  # fmt: skip
    store = everyone(Read(30, "acc", v), Store("C", row * size + col, 30, v, "v"))
    group = (
        Register("acc", v), Number(1, 0.0, v), Write("acc", 1, v),
        loop("k0", blocks, stage, Barrier(), multiply, Barrier()),
        store,
    )  # fmt: skip
    columns = loop("n0", blocks, *group, kind="thread", count=blocks)
    body = (loop("m0", blocks, columns, kind="thread", count=blocks, inner=blocks),)
    params = (
        Buffer("C", F32, size * size, "out"),
        Buffer("A", F32, size * size, "in"),
        Buffer("B", F32, size * size, "in"),
    )
    allocs = tuple(Alloc(n, F32, tile * tile, "shared") for n in ("As", "Bs"))
    return Program("tiled_gemm", params, allocs, (), body, blocks * blocks, items)


def row_sum(rows: int = 5, columns: int = 100, items: int = 16) -> Program:
    """One group a row: work-items sum every ``items``-th element, then combine in a tree through
    shared memory.
    """
    row, item, step = var("r", rows), var("l", items), var("j", -(-columns // items))
    column = step * items + item

    def everyone(*body: Instr) -> For:
        return loop("l", items, *body, kind="local", count=items)

    add = (
        Test(2, below(column, columns)), Load(3, "x", row * columns + column, F, "", 2),
        Read(4, "acc", F), Compute(5, Op.ADD, (4, 3), F), Write("acc", 5, F),
    )  # fmt: skip
    partial = everyone(
        Register("acc", F), Number(1, 0.0, F), Write("acc", 1, F),
        loop("j", -(-columns // items), *add),
        Read(6, "acc", F), Store("s", item, 6, F),
    )  # fmt: skip
    tree: list[Instr] = []
    half, i = items // 2, 10
    while half:
        both = (
            Load(i, "s", item, F), Load(i + 1, "s", item + half, F),
            Compute(i + 2, Op.ADD, (i, i + 1), F), Store("s", item, i + 2, F),
        )  # fmt: skip
        tree += [everyone(If(below(item, half), both)), Barrier()]
        half, i = half // 2, i + 3
    last = everyone(If(below(item, 1), (Load(8, "s", as_index(0), F), Store("y", row, 8, F))))
    body = (loop("r", rows, partial, Barrier(), *tree, last, kind="thread", count=rows),)
    params = (Buffer("y", F32, rows, "out"), Buffer("x", F32, rows * columns, "in"))
    return Program("row_sum", params, (Alloc("s", F32, items, "shared"),), (), body, rows, items)


def elementwise(op: Op, dtype: DType, lanes: int, n: int) -> Program:
    """y = op(a, b, c): every argument is a parameter of ``n`` elements of ``dtype``; ``lanes``
    divides ``n``.
    """
    at, t = var("i", n // lanes) * lanes + var("v", lanes), VType(dtype, lanes)
    to = VType(BOOL, lanes) if op.compares else t
    names = "abc"[: op.arity]
    types = [VType(BOOL, lanes) if op is Op.WHERE and name == "a" else t for name in names]
    lane = "v" if lanes > 1 else ""
    loads = tuple(
        Load(k, name, at, kind, lane)
        for k, (name, kind) in enumerate(zip(names, types, strict=True))
    )
    body: tuple[Instr, ...] = (
        *loads,
        Compute(9, op, tuple(range(op.arity)), to),
        Store("y", at, 9, to, lane),
    )
    inputs = tuple(
        Buffer(name, kind.dtype, n, "in") for name, kind in zip(names, types, strict=True)
    )
    return Program(
        f"{op}_{dtype}",
        (Buffer("y", to.dtype, n, "out"), *inputs),
        (),
        (),
        (loop("i", n // lanes, *body),),
    )


def conversion(source: DType, to: DType, lanes: int, n: int) -> Program:
    """y = x as another dtype."""
    at, lane = var("i", n // lanes) * lanes + var("v", lanes), "v" if lanes > 1 else ""
    body = (
        Load(1, "x", at, VType(source, lanes), lane),
        Convert(2, 1, VType(to, lanes)),
        Store("y", at, 2, VType(to, lanes), lane),
    )
    params = (Buffer("y", to, n, "out"), Buffer("x", source, n, "in"))
    return Program(f"{source}_to_{to}", params, (), (), (loop("i", n // lanes, *body),))


def together(name: str, programs: dict[str, Program]) -> Program:
    """Serial programs one after the other; each one's output is renamed to its key, equal inputs
    are shared.
    """
    params: dict[str, Buffer] = {}
    body: list[Instr] = []
    for n, (out, program) in enumerate(programs.items()):
        for b in program.params:
            new = replace(b, name=out) if b.role == "out" else b
            params[new.name] = new
        old = program.params[0].name
        body += [_renumbered(i, 100 * n, f"i{n}", {old: out}) for i in program.body]
    return Program(name, tuple(params.values()), (), (), tuple(body))


def _renumbered(i: Instr, by: int, var_name: str, buffers: dict[str, str]) -> Instr:
    """``i`` with its ids moved up, its output renamed and its loop variable ``i`` renamed."""
    if isinstance(i, For):
        inside = tuple(_renumbered(j, by, var_name, buffers) for j in i.body)
        return replace(i, var=var_name, body=inside)
    new = {}
    for field in ("id", "value", "arg", "mask"):
        at = getattr(i, field, None)
        if at is not None:
            new[field] = at + by
    if isinstance(i, Compute):
        new["args"] = tuple(a + by for a in i.args)
    if isinstance(i, Load | Store):
        new["buffer"] = buffers.get(i.buffer, i.buffer)
        new["offset"] = i.offset.substitute(
            {v.name: var(var_name, v.hi + 1) for v in i.offset.variables() if v.name == "i"}
        )
    return replace(i, **new)


def arguments_of(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs and poisoned outputs for a program of f32 parameters and such."""
    draw = np.random.default_rng(seed)
    made = {}
    for b in program.params:
        if b.role == "out":
            made[b.name] = np.full(b.size, np.nan if b.dtype == F32 else 1, b.dtype.numpy)
        elif b.dtype in (F16, BF16):
            made[b.name] = draw.integers(0, 0x7F00, b.size).astype(np.uint16).view(b.dtype.numpy)
        else:
            made[b.name] = draw.standard_normal(b.size).astype(b.dtype.numpy)
    return made


def expected(program: Program, buffers: dict[str, np.ndarray]) -> tuple[str, np.ndarray]:
    """The output's name and its value in float64, for the four programs above."""
    b = {k: v.astype(np.float64) for k, v in buffers.items()}
    if program.name in ("vector_add", "group_add"):
        return "c", b["a"] + b["b"]
    if program.name == "tiled_gemm":
        n = int(len(b["A"]) ** 0.5)
        return "C", (b["A"].reshape(n, n) @ b["B"].reshape(n, n)).reshape(-1)
    return "y", b["x"].reshape(len(buffers["y"]), -1).sum(1)
