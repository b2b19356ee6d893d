"""Which sums are cut into blocks, where, and what stays one chain."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import AVX512, GPU, gemm, row_sum
from tunegrad.ir.dtypes import F32, F64, I32, I64, DType
from tunegrad.ir.expr import Apply, Expr, Load, Op, Value
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.program import For, Program, Register, Write, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.lowering.reductions import (
    BLOCK,
    DOT_BLOCK,
    LONG_DOT,
    PANEL,
    ROW_PARTIALS,
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
        "    v0 = %1 f32\n"
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
        "  %10 = v0.wide f64\n"
        "  %11 = convert %10 f32\n"
        "  v0 = %11 f32"
    )


def test_product_begins_each_block_from_zero_and_adds_what_was_there():
    assert "\n".join(lower(gemm(1, 2, 512)).text.splitlines()[8:-2]) == (
        "    for k.block in 4:\n"
        "      %6 = v0 f32\n"
        "      v0 = %1 f32\n"
        "      for k.step in 128:\n"
        "        %2 = v0 f32\n"
        "        %3 = A[128*k.block+k.step] f32\n"
        "        %4 = B[256*k.block+2*k.step+n] f32\n"
        "        %5 = fma %3 %4 %2 f32\n"
        "        v0 = %5 f32\n"
        "      %7 = v0 f32\n"
        "      %8 = add %6 %7 f32\n"
        "      v0 = %8 f32"
    )


@pytest.mark.parametrize(("kernel", "limit"), [(row_sum, BLOCK), (gemm, DOT_BLOCK)])
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


@pytest.mark.parametrize(("kernel", "block"), [(row_sum, BLOCK), (gemm, DOT_BLOCK)])
def test_as_many_blocks_as_a_block_has_terms_are_added_in_f32(kernel, block):
    make = (lambda n: row_sum(1, n)) if kernel is row_sum else (lambda n: gemm(1, 2, n))
    for terms, wide in ((block + 1, F32), (block * block, F32), (block * block + 1, F64)):
        found = cut(make(terms))
        assert found is not None
        assert block // 4 < found.step <= block
        assert found.wide == wide


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
    assert len(writes) == 4, "identity, and after 16, 32 and 40"


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


PANELS = "tile(axis=k, size={}) reorder(order=(k0, m, n, k1))"


@pytest.mark.parametrize(
    ("size", "step"), [(PANEL, 0), (2 * PANEL, 128), (1024, 128), (100, 0), (DOT_BLOCK, 0)]
)
def test_a_panel_in_memory_is_a_block(size, step):
    found = cut(gemm(2, 4, 1 << 12), PANELS.format(size))
    assert found == (Cut("k1", step, wide=F32) if step else None)


@pytest.mark.parametrize(
    ("rows", "size", "wide"),
    [(2, 64, True), (2, 204, True), (2, 205, False), (1, 16, True), (1, 32, False)],
)
def test_many_partial_sums_are_f64_in_memory(rows, size, wide):
    """Of 32,768 products: above 160 panels, and above 1,024 where the matrix is read once."""
    kernel = gemm(rows, 4, 1 << 15)
    text = PANELS.format(size)
    assert (-(-(1 << 15) // size) > (DOT_BLOCK if rows > 1 else ROW_PARTIALS)) == wide
    assert has_wide_partials(Space(kernel, AVX512).tree(Schedule.parse(text)), 0) == wide
    program = lower(kernel, text)
    assert [(a.name, a.dtype, a.size) for a in program.allocs] == (
        [("v0.partial", F64, 4 * rows)] if wide else []
    )


def test_accumulators_that_stay_in_their_registers_are_cut_late():
    """Of work-items, whose registers are few: PyTorch adds in one chain there, too."""
    for terms, blocks in ((LONG_DOT, False), (LONG_DOT + 1, True)):
        tree = Space(gemm(2, 4, terms), GPU).tree(Schedule.parse(""))
        assert (cut_of(tree, 0) is not None) == blocks
