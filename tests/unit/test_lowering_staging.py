"""What staging copies: how much, from where, into which memory, and zeros where there is
nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.hand_schedules import AVX512, GPU, conv3x3, gemm
from tests.property.test_schedules_agree import assert_agrees
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.looptree import Staged
from tunegrad.ir.program import Barrier, Load, Store, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.staging import needed_loops, staged_copy

CONV = conv3x3(3, 8, 10)
BANDS = "tile(axis=y, size=4)"


def lowered(kernel, text, target=AVX512):
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert_agrees(kernel, program, text)
    return program


@pytest.mark.parametrize(
    ("at", "rows", "columns"),
    [
        ("()", 14, 12),
        ("y0", 6, 12),
        ("y1", 3, 12),
        ("x", 3, 3),
        ("o", 3, 3),
        ("r", 1, 3),
        ("s", 1, 1),
    ],
)
def test_lowering_staged_region_is_what_the_inner_loops_touch(at, rows, columns):
    program = lowered(CONV, f"{BANDS} stage(param=X, at={at}, layout=())")
    (alloc,) = program.allocs
    assert (alloc.size, alloc.space) == (rows * columns * 3, "thread")


def test_lowering_staged_region_takes_the_masks_with_it():
    program = lowered(CONV, f"{BANDS} stage(param=X, at=y0, layout=())")
    reads = [i for i in walk(program.body) if isinstance(i, Load) and i.buffer == "X.y0"]
    assert reads
    assert all(i.mask is None for i in reads)


def test_lowering_packed_copy_is_read_in_its_own_order():
    program = lowered(
        gemm(6, 8, 5),
        "tile(axis=n, size=4) vectorize(axis=n1) stage(param=B, at=(), layout=(n0, k, n1))",
    )
    (read,) = (i for i in walk(program.body) if isinstance(i, Load) and i.buffer == "B.root")
    assert str(read.offset) == "4*k+20*n0+n1"
    (alloc,) = program.allocs
    assert alloc.size == 40


def test_lowering_packed_copy_of_a_tail_is_filled_with_zeros():
    program = lowered(
        gemm(6, 7, 5),
        "tile(axis=n, size=4) vectorize(axis=n1) stage(param=B, at=(), layout=(n0, k, n1))",
    )
    (alloc,) = program.allocs
    assert alloc.size == 2 * 5 * 4
    copies = [i for i in walk(program.body) if isinstance(i, Store) and i.buffer == "B.root"]
    assert all(i.mask is None for i in copies), "the whole copy is written"


@pytest.mark.parametrize(
    ("columns", "terms", "turned"),
    [(64, 32, True), (48, 32, True), (48, 16, True), (40, 32, False)],
)
def test_lowering_copy_of_a_transposed_operand_reads_lines(columns, terms, turned):
    """Blocks of 16 x 16; rows past a tile that is not whole are zeros, and no load asks which. 40
    rows end in a vector.
    """
    x, w = Tensor.input("x", (6, terms)), Tensor.input("w", (columns, terms))
    (launch,) = schedule(((x @ w.mT).node,)).launches
    program = lowered(
        launch.kernel,
        "tile(axis=b, size=32) tile(axis=b1, size=16) reorder(order=(a, b0, b1, b2, ra)) "
        "upcast(axis=b1) vectorize(axis=b2) stage(param=p2, at=(), layout=(b0, ra, b1, b2))",
    )
    reads = [i for i in walk(program.body) if isinstance(i, Load) and i.buffer == "p2"]
    assert [i.vtype.lanes for i in reads] == ([16] * 16 if turned else [1])
    if turned:
        assert all(i.mask is None for i in reads)
        assert sorted(i.offset.const for i in reads) == list(range(16))


@pytest.mark.parametrize(("dtype", "turned"), [("f32", True), ("f16", False), ("i8", False)])
def test_lowering_copy_of_narrow_numbers_is_not_a_load_for_each_of_a_block(dtype, turned):
    """Registers turn 16 lanes; 64 x 64 bytes were 4,096 loads."""
    x, w = Tensor.input("x", (2, 64), dtype), Tensor.input("w", (64, 64), dtype)
    (launch,) = schedule(((x @ w.mT).node,)).launches
    program = lowered(launch.kernel, "stage(param=p2, at=(), layout=(ra, b))")
    reads = [i for i in walk(program.body) if isinstance(i, Load) and i.buffer == "p2"]
    assert len(reads) == (16 if turned else 1)


def test_lowering_constant_staged_at_load_is_a_pack():
    program = lowered(
        CONV, "tile(axis=o, size=4) stage(param=W, at=load, layout=(o0, r, s, c, o1))"
    )
    (pack,) = program.packs
    assert (pack.source, pack.extents, program.allocs) == ("W", (2, 3, 3, 3, 4), ())
    weights = np.arange(8 * 3 * 3 * 3, dtype=np.float32)
    packed = pack.run(weights).reshape(pack.extents)
    np.testing.assert_array_equal(packed, weights.reshape(2, 4, 3, 3, 3).transpose(0, 3, 4, 2, 1))
    assert not any(isinstance(i, Load) and i.buffer == "W" for i in walk(program.body))


def test_lowering_pack_of_a_tail_is_padded_with_zeros():
    kernel = conv3x3(3, 6, 5)
    program = lowered(
        kernel,
        "tile(axis=o, size=4) upcast(axis=o1) stage(param=W, at=load, layout=(o0, r, s, c, o1))",
    )
    (pack,) = program.packs
    packed = pack.run(np.ones(6 * 3 * 9, np.float32)).reshape(pack.extents)
    assert packed.shape == (2, 3, 3, 3, 4)
    assert not packed[1, ..., 2:].any()
    assert packed[1, ..., :2].all()


def test_lowering_copy_outside_the_threads_is_shared_between_barriers():
    text = "thread(axis=m, count=2) stage(param=B, at=(), layout=(n, k))"
    program = lowered(gemm(6, 8, 5), text)
    (alloc,) = program.allocs
    assert alloc.space == "team"
    assert sum(isinstance(i, Barrier) for i in walk(program.body)) == 1


def test_lowering_copy_that_is_made_again_waits_before_too():
    text = (
        "tile(axis=k, size=2) reorder(order=(k0, m, n, k1)) thread(axis=m, count=2) "
        "stage(param=B, at=k0, layout=(n, k1))"
    )
    program = lowered(gemm(6, 8, 5), text)
    assert sum(isinstance(i, Barrier) for i in walk(program.body)) == 2


def test_lowering_copy_inside_the_threads_is_private():
    program = lowered(gemm(6, 8, 5), "thread(axis=m, count=2) stage(param=A, at=m, layout=(k))")
    (alloc,) = program.allocs
    assert (alloc.space, alloc.size) == ("thread", 5)
    assert not any(isinstance(i, Barrier) for i in walk(program.body))


def test_lowering_copy_of_a_group_is_in_shared_memory():
    text = (
        "tile(axis=m, size=4) tile(axis=k, size=4) reorder(order=(m0, m1, n, k0, k1)) "
        "thread(axis=m0) thread(axis=n) "
        "local(axis=m1) stage(param=A, at=k0, layout=({layout}))"
    )
    program = lowered(gemm(10, 6, 9), text.format(layout="m1, k1"), GPU)
    (alloc,) = program.allocs
    assert (alloc.space, alloc.size) == ("shared", 16)
    assert sum(isinstance(i, Barrier) for i in walk(program.body)) == 2
    (alloc,) = lowered(gemm(10, 6, 9), text.format(layout="k1, m1"), GPU).allocs
    assert (alloc.space, alloc.size) == ("shared", 3 * 5 + 4), "rows of 4 are 5 apart: other banks"


def test_lowering_both_operands_staged_at_two_places():
    text = (
        "tile(axis=k, size=4) tile(axis=m, size=3) tile(axis=n, size=4) reorder(order=(k0, "
        "m0, n0, k1, m1, n1)) "
        "upcast(axis=m1) vectorize(axis=n1) stage(param=B, at=k0, layout=(n0, k1, n1)) "
        "stage(param=A, at=m0, layout=())"
    )
    for shape in ((6, 8, 8), (7, 9, 10), (2, 3, 3)):
        program = lowered(gemm(*shape), text)
        assert {a.name for a in program.allocs} == {"B.k0", "A.m0"}


def test_lowering_needed_loops_put_registers_last():
    tree = Space(gemm(6, 8, 5), AVX512).tree(
        Schedule.parse("tile(axis=n, size=4) vectorize(axis=n1) upcast(axis=k)")
    )
    assert needed_loops(tree, Staged("B", "")) == ("n0", "k", "n1")
    assert needed_loops(tree, Staged("A", "m")) == ("k",)


def test_lowering_copy_plan_says_where_it_comes_from():
    tree = Space(replace(CONV, name="c"), AVX512).tree(Schedule.parse(BANDS))
    plan = staged_copy(tree, Staged("X", "y0"))
    assert plan.variables == (("X.y0.d0", 6), ("X.y0.d1", 12), ("X.y0.d2", 3))
    assert str(plan.read) == "36*r+3*s+3*x+36*y1+c" or str(plan.read) == "c+36*r+3*s+3*x+36*y1"
    assert str(plan.valid) == "1<=X.y0.d0+4*y0<11&1<=X.y0.d1<11"
