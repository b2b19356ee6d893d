"""Products in tile registers: from the action to the program, and what that computes."""

from dataclasses import replace

import numpy as np
import pytest

from tests.interpreter import interpret
from tests.interpreter.values import multiply_tiles
from tests.tile_kernels import NAME, UNIT, buffers, conv, gemm, tiled, wanted
from tests.verifiers.looptree import verify_looptree
from tests.verifiers.program import verify_program
from tunegrad.devices.job import unread
from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopKind
from tunegrad.ir.program import (
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    executed_flops,
    walk,
)
from tunegrad.opts import Schedule, Space
from tunegrad.opts.actions import Tensorcore
from tunegrad.render.llvm import render_llvm

TARGET = tiled(2)
CUT = "tile(axis=a, size=16) tile(axis=b, size=16) tile(axis=ra, size=16) "
ONE = f"{CUT}tensorcore(unit={NAME}, m=a1, n=b1, k=ra1)"
FOUR = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=16) "
    "tile(axis=ra, size=16) reorder(order=(b0, a0, a1, a2, b1, b2, ra0, ra1)) upcast(axis=a1) "
    f"upcast(axis=b1) tensorcore(unit={NAME}, m=a2, n=b2, k=ra1) "
)
PACKED = FOUR + "stage(param=p2, at=load, layout=(b0, ra0, b1, ra1, b2))"
IMAGE = (
    "tile(axis=c, size=16) tile(axis=rc, size=16) "
    "reorder(order=(a, c0, b, c1, ra, rb, rc0, rc1)) "
    f"tensorcore(unit={NAME}, m=b, n=c1, k=rc1) "
    "stage(param=p2, at=load, layout=(c0, ra, rb, rc0, rc1, c1)) "
)


def lowered(kernel, text):
    space = Space(kernel, TARGET)
    tree = space.tree(Schedule.parse(text))
    verify_looptree(tree)
    program = space.lower(Schedule.parse(text))
    assert verify_program(program, TARGET) == ()
    return tree, program


def result(kernel, program, *, integers=False):
    arrays = buffers(program, kernel, integers=integers)
    interpret(program, arrays)
    return arrays["p0"], wanted(kernel, arrays)


def count(program, kind):
    return sum(isinstance(i, kind) for i in walk(program.body))


def test_loops_of_a_tile_are_rows_lanes_and_terms():
    tree, _ = lowered(gemm(32, 48, 32), ONE)
    kinds = [tree.loop(x).kind for x in (tree.matrix.m, tree.matrix.n, tree.matrix.k)]
    assert kinds == [LoopKind.UPCAST, LoopKind.VECTOR, LoopKind.MATRIX]


def test_two_by_two_tiles_load_each_operand_once_a_step():
    _, program = lowered(gemm(64, 64, 64), FOUR)
    kinds = (TileConfig, TileZero, TileLoad, TileMul, TileStore)
    assert [count(program, k) for k in kinds] == [1, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (gemm(32, 48, 32), ONE),
        (gemm(64, 96, 64), FOUR),
        (gemm(64, 96, 64, constant=True, bias=True), PACKED),
        (gemm(64, 96, 64, constant=True, rows_of_b=True), PACKED),
        (conv(7, 32, 32), IMAGE + "stage(param=p1, at=a, layout=())"),
        (conv(14, 16, 32, 1), IMAGE.replace("ra, rb, rc0, rc1", "rc").replace(
            "ra, rb, rc0, rc1, c1", "rc, c1").replace("rc1", "rc").replace(
            "tile(axis=rc, size=16) ", "")),
    ],
    ids=["one tile", "four tiles", "packed", "packed rows", "conv3x3", "conv1x1"],
)  # fmt: skip
def test_products_are_what_numpy_says(kernel, text):
    _, program = lowered(kernel, text)
    got, (want, _) = result(kernel, program, integers=True)
    if "p3" not in {p.name for p in kernel.params}:
        np.testing.assert_array_equal(got, want)  # every element of a tile in its place
    got, (want, size) = result(kernel, program)
    terms = 2 * kernel.flops / kernel.outputs[0].size
    assert (np.abs(got - want) <= terms * 2.0**-24 * (size + np.abs(want))).all()


@pytest.mark.parametrize("rows", [33, 40, 47])
def test_a_tile_past_the_end_has_fewer_rows(rows):
    kernel = gemm(rows, 64, 32, constant=True)
    _, program = lowered(kernel, PACKED)
    configs = [i.rows for i in walk(program.body) if isinstance(i, TileConfig)]
    assert len(configs) == 2
    got, (want, _) = result(kernel, program, integers=True)
    np.testing.assert_array_equal(got, want)


def test_columns_past_the_end_are_zero_in_a_copy_and_not_stored():
    kernel = gemm(32, 40, 32, constant=True)
    _, program = lowered(kernel, PACKED)
    got, (want, _) = result(kernel, program, integers=True)
    np.testing.assert_array_equal(got, want)


def test_sums_go_on_in_memory_between_blocks_of_the_reduction():
    kernel = gemm(32, 32, 64)
    order = "reorder(order=(ra0, a0, b0, a1, b1, ra1)) "
    _, program = lowered(kernel, CUT + order + ONE.removeprefix(CUT))
    got, (want, _) = result(kernel, program, integers=True)
    np.testing.assert_array_equal(got, want)


def word(low, high):
    """Two numbers that bf16 holds."""
    first, second = (np.float32(x).view(np.uint32) for x in (low, high))
    return (second & 0xFFFF0000) | (first >> 16)


def test_pairs_are_added_up_apart_as_the_processor_does():
    """The first numbers of pairs, the second ones, both, and then the sum so far."""
    a, b = np.zeros((1, 16), np.uint32), np.zeros((16, 16), np.uint32)
    a[0, :2], b[:2, 0] = word(1, 1), [word(1, 2.0**25), word(1, -(2.0**25))]
    (got,) = multiply_tiles(UNIT, a, b, np.zeros((1, 16), np.float32))[:, 0]
    assert got == 2, "one sum of all would lose both ones beside 2^25"


def test_flops_of_tiles_are_those_of_their_products():
    kernel = gemm(64, 64, 64)
    _, program = lowered(kernel, FOUR)
    assert executed_flops(program) == 4 * 64 * 64 * 64


def test_options_are_loops_that_a_tile_holds():
    tree = Space(gemm(32, 48, 32), TARGET).tree(Schedule.parse(CUT))
    found = [str(x) for x in Tensorcore.options(tree)]
    assert f"tensorcore(unit={NAME}, m=a1, n=b1, k=ra1)" in found


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (CUT.replace("size=16) tile(axis=b", "size=32) tile(axis=b") + ONE.removeprefix(CUT),
         "m is loop a1 of extent 32, not up to 16"),
        (CUT.replace("b, size=16", "b, size=8") + ONE.removeprefix(CUT),
         "n is loop b1 of extent 8, not 16"),
        (CUT + f"tensorcore(unit={NAME}, m=b1, n=a1, k=ra1)",
         "p2 does not lie in rows along ra1; stage it"),
        (CUT + "vectorize(axis=b0) " + ONE.removeprefix(CUT), "vector lanes beside b1"),
        (FOUR.replace("size=32", "size=64"), "12 tiles of results|8 tiles|16 tiles"),
        (ONE + " tile(axis=a0, size=2)", "beside a matrix unit"),
    ],
)  # fmt: skip
def test_what_tiles_can_not_do_is_refused(text, rule):
    with pytest.raises(IllegalAction, match=rule):
        Space(gemm(64, 64, 64), TARGET).lower(Schedule.parse(text))


def test_padding_has_to_be_copied():
    with pytest.raises(IllegalAction, match="p1 is not there for all of a tile; stage it"):
        Space(conv(7, 32, 32), TARGET).lower(Schedule.parse(IMAGE))


def test_columns_past_the_end_have_to_be_copied():
    with pytest.raises(IllegalAction, match="p2 is not there for all of a tile; stage it"):
        Space(gemm(32, 40, 32), TARGET).lower(Schedule.parse(FOUR))


def test_a_sum_too_long_for_one_accumulator_is_refused():
    text = CUT + ONE.removeprefix(CUT)
    with pytest.raises(IllegalAction, match="too long for one accumulator"):
        Space(gemm(16, 16, 16 * 8208), TARGET).lower(Schedule.parse(text))


def test_what_only_tiles_read_is_read():
    _, program = lowered(gemm(32, 48, 32, constant=True), ONE)
    assert unread(program) == ()
    _, packed = lowered(gemm(64, 96, 64, constant=True), PACKED)
    assert unread(packed) == ("p2",)


def test_operands_that_registers_hold_are_loaded_before_the_first_product():
    _, program = lowered(gemm(64, 64, 64, constant=True), PACKED)
    moves = [type(i) for i in walk(program.body) if isinstance(i, TileLoad | TileMul)]
    assert moves == [TileLoad] * 4 + [TileMul] * 4


def test_packed_tiles_are_asked_for_ahead_line_by_line():
    """A hint of each row of the weights' tiles, and of no other operand's."""
    kernel = gemm(64, 96, 64, constant=True)
    _, program = lowered(kernel, f"{PACKED} prefetch(param=p2, distance=4096)")
    ahead = {i.buffer: i.prefetch for i in walk(program.body) if isinstance(i, TileLoad)}
    assert ahead == {"p1": 0, "p2.load": 4096}
    tiles = sum(isinstance(i, TileLoad) and i.prefetch > 0 for i in walk(program.body))
    amx = replace(TARGET, features=("+amx-bf16", "+amx-tile"))
    assert render_llvm(program, amx).count("call void @llvm.prefetch") == 16 * tiles
    got, (want, _) = result(kernel, program, integers=True)
    np.testing.assert_array_equal(got, want)
