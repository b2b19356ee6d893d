"""Which sums are cut into blocks, where, and what stays one chain."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import AVX512, gemm, row_sum
from tunegrad.ir.dtypes import F32, F64, I32, I64, DType
from tunegrad.ir.expr import Apply, Expr, Load, Op, Value
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.program import Compute, For, Program, Register, Write, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.lowering.reductions import (
    BLOCK,
    LONG_DOT,
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
        "  for k.block in 65536:\n"
        "    for k.step in 16:\n"
        "      %3 = v0 f32\n"
        "      %4 = X[16*k.block+k.step] f32\n"
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


@pytest.mark.parametrize(("kernel", "limit"), [(row_sum, BLOCK), (gemm, LONG_DOT)])
def test_limits_themselves_are_one_chain(kernel, limit):
    make = (lambda n: row_sum(1, n)) if kernel is row_sum else (lambda n: gemm(1, 2, n))
    assert cut(make(limit)) is None
    assert cut(make(limit + 1)) is not None


def test_squares_are_cut_where_other_sums_are():
    def squares(terms: int) -> Kernel:
        k = Axis("k", terms)
        x: Expr = Load("X", (k.index,), F32)
        params = (Param.dense("S", F32, (), "out"), Param.dense("X", F32, (terms,), "in"))
        total = Reduce("v0", Op.ADD, (k,), Apply(Op.MUL, (x, x), F32), F32)
        return Kernel(params, (), (total, Store("S", (), Value("v0", F32))))

    assert cut(squares(BLOCK)) is None
    assert cut(squares(BLOCK + 1)) is not None


@pytest.mark.parametrize("terms", [BLOCK + 1, BLOCK * BLOCK, BLOCK * BLOCK + 1])
def test_few_blocks_are_added_in_f32(terms):
    found = cut(row_sum(1, terms))
    assert found is not None
    assert found.wide == (F32 if -(-terms // found.step) <= BLOCK else F64)


def test_products_of_what_is_read_once_are_terms():
    """A dot product, or the gradient of a batch norm's weight, is no contraction."""
    c, k = Axis("c", 4), Axis("k", 2 * BLOCK)
    x, y = (Load(name, (k.index, c.index), F32) for name in "XY")
    total = Reduce("v0", Op.ADD, (k,), Apply(Op.MUL, (x, y), F32), F32)
    params = (
        Param.dense("S", F32, (4,), "out"),
        Param.dense("X", F32, (2 * BLOCK, 4), "in"),
        Param.dense("Y", F32, (2 * BLOCK, 4), "in"),
    )
    kernel = Kernel(params, (c,), (total, Store("S", (c.index,), Value("v0", F32))))
    assert cut(kernel) == Cut("k", BLOCK, wide=F32)
    assert cut(gemm(1, 4, 2 * BLOCK)) is None


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
        ("", "k", 16),
        ("tile(axis=k, size=64)", "k1", 16),
        ("tile(axis=k, size=4)", "k0", 4),
        ("tile(axis=k, size=8) unroll(axis=k1)", "k0", 2),
        ("tile(axis=k, size=3)", "k0", 2),
        ("tile(axis=k, size=12)", "k0", 1),
        (LANES, "k0", 16),
    ],
)
def test_the_loop_that_exceeds_a_block_is_cut(text, loop, step):
    assert cut(row_sum(1, 1 << 20), text) == Cut(loop, step)


def test_copies_of_a_long_iteration_are_flushed_between():
    text = "tile(axis=k, size=40) unroll(axis=k1)"
    assert cut(row_sum(1, 4000), text) == Cut("k0", 1, copies=BLOCK)
    writes = [
        i.name
        for i in walk(lower(row_sum(1, 40), "unroll(axis=k)").body)
        if isinstance(i, Write) and i.name == "v0.wide"
    ]
    assert len(writes) == 3, "identity, and after 16 and 32 of 40"


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
