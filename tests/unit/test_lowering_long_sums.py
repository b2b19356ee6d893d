"""Which sums are cut into blocks, where, and what stays one chain."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import AVX512, gemm, row_sum
from tunegrad.ir.dtypes import F32, F64, I32, I64, DType
from tunegrad.ir.expr import Apply, Expr, Load, Op, Value
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.program import Compute, For, Program, Register, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.lowering.reductions import (
    BLOCK,
    LONG_DOT,
    LONG_SUM,
    Cut,
    cut_of,
    has_wide_partials,
)

LANES = "tile(axis=k, size=64) tile(axis=k1, size=16) upcast(axis=k1) group(axis=k2)"


def fold(op: Op, dtype: DType, terms: int) -> Kernel:
    k = Axis("k", terms)
    x: Expr = Load("X", (k.index,), dtype)
    params = (Param.dense("S", dtype, (), "out"), Param.dense("X", dtype, (terms,), "in"))
    return Kernel(
        params, (), (Reduce("v0", op, (k,), x, dtype), Store("S", (), Value("v0", dtype)))
    )


def lower(kernel: Kernel, text: str = "") -> Program:
    return Space(kernel, AVX512).lower(Schedule.parse(text))


def cut(kernel: Kernel, text: str = "") -> Cut | None:
    return cut_of(Space(kernel, AVX512).tree(Schedule.parse(text)), 0)


def test_long_row_adds_blocks_in_f64():
    program = lower(row_sum(1, 1 << 20))
    assert "\n".join(program.text.splitlines()[3:-4]) == (
        "  register v0 f32\n"
        "  %1 = 0.0 f32\n"
        "  v0 = %1 f32\n"
        "  register v0.wide f64\n"
        "  %2 = 0.0 f64\n"
        "  v0.wide = %2 f64\n"
        "  for k.block in 4096:\n"
        "    for k.step in 256:\n"
        "      %3 = v0 f32\n"
        "      %4 = X[256*k.block+k.step] f32\n"
        "      %5 = add %3 %4 f32\n"
        "      v0 = %5 f32\n"
        "    %6 = v0 f32\n"
        "    %7 = v0.wide f64\n"
        "    %8 = convert %6 f64\n"
        "    %9 = add %7 %8 f64\n"
        "    v0.wide = %9 f64\n"
        "    v0 = %1 f32\n"
        "  %10 = v0 f32\n"
        "  %11 = v0.wide f64\n"
        "  %12 = convert %10 f64\n"
        "  %13 = add %11 %12 f64\n"
        "  %14 = convert %13 f32\n"
        "  v0 = %14 f32"
    )


@pytest.mark.parametrize(("kernel", "limit"), [(row_sum, LONG_SUM), (gemm, LONG_DOT)])
def test_limits_themselves_are_one_chain(kernel, limit):
    make = (lambda n: row_sum(1, n)) if kernel is row_sum else (lambda n: gemm(1, 1, n))
    assert cut(make(limit)) is None
    assert cut(make(limit + 1)) is not None


def test_squares_are_cut_where_other_sums_are():
    def squares(terms: int) -> Kernel:
        k = Axis("k", terms)
        x: Expr = Load("X", (k.index,), F32)
        params = (Param.dense("S", F32, (), "out"), Param.dense("X", F32, (terms,), "in"))
        total = Reduce("v0", Op.ADD, (k,), Apply(Op.MUL, (x, x), F32), F32)
        return Kernel(params, (), (total, Store("S", (), Value("v0", F32))))

    assert cut(squares(LONG_SUM)) is None
    assert cut(squares(LONG_SUM + 1)) is not None


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(Op.MAX, F32), (Op.MIN, F32), (Op.MUL, F32), (Op.ADD, F64), (Op.ADD, I32), (Op.ADD, I64)],
)
def test_what_is_exact_or_wide_is_one_chain(op, dtype):
    kernel = fold(op, dtype, 1 << 20)
    assert cut(kernel) is None
    assert [i.var for i in walk(lower(kernel).body) if isinstance(i, For)] == ["k"]


@pytest.mark.parametrize(
    ("text", "loop", "step"),
    [
        ("", "k", 256),
        ("tile(axis=k, size=1024)", "k1", 256),
        ("tile(axis=k, size=64)", "k0", 4),
        ("tile(axis=k, size=8) unroll(axis=k1)", "k0", 32),
        ("tile(axis=k, size=48)", "k0", 3),
        ("tile(axis=k, size=200)", "k0", 1),
        (LANES, "k0", 256),
    ],
)
def test_the_loop_that_exceeds_a_block_is_cut(text, loop, step):
    assert cut(row_sum(1, 1 << 20), text) == Cut(loop, step)


@pytest.mark.parametrize("extent", [(1 << 20) + 1, 1_000_003, 999_999, 1 << 31])
def test_no_chain_is_longer_than_a_block(extent):
    found = cut(row_sum(1, extent))
    assert found is not None
    assert BLOCK // 4 < found.step <= BLOCK
    steps = [
        i
        for i in walk(lower(row_sum(1, extent)).body)
        if isinstance(i, For) and i.var.endswith(".step")
    ]
    assert [i.extent for i in steps] == [found.step]


def test_each_copy_of_lanes_has_its_own_f64_register():
    registers = [i for i in walk(lower(row_sum(1, 1 << 20), LANES).body) if isinstance(i, Register)]
    assert [str(i.vtype) for i in registers] == ["f32x16"] * 4 + ["f64x16"] * 4


@pytest.mark.parametrize(("size", "wide"), [(64, True), (500, True), (512, False), (4096, False)])
def test_many_partial_sums_are_f64_in_memory(size, wide):
    text = f"tile(axis=k, size={size}) reorder(order=(k0, m, n, k1))"
    kernel = gemm(2, 4, 1 << 15)
    assert has_wide_partials(Space(kernel, AVX512).tree(Schedule.parse(text)), 0) == wide
    program = lower(kernel, text)
    assert [(a.name, a.dtype, a.size) for a in program.allocs] == (
        [("v0.partial", F64, 8)] if wide else []
    )


def test_short_products_in_many_partial_sums_stay_in_the_output():
    program = lower(gemm(2, 4, 4608), "tile(axis=k, size=4) reorder(order=(k0, m, n, k1))")
    assert program.allocs == ()
    assert not any(isinstance(i, Compute) and i.vtype.dtype == F64 for i in walk(program.body))
