"""What a program may not do with tile registers: each rule is broken once."""

from dataclasses import replace

import pytest

from tests.tile_kernels import UNIT, tiled
from tests.verifiers.program import verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import BF16X2, F32
from tunegrad.ir.index import var
from tunegrad.ir.program import (
    Alloc,
    Buffer,
    Program,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    VType,
)

ROW, LANE = var("r", 16), var("l", 16)
WORDS, NUMBERS = VType(BF16X2, 16), VType(F32, 16)
CONFIG = TileConfig(UNIT, (16, 8, 16, 8, 0, 0, 0, 0))
A = TileLoad(0, "a", ROW * 16 + LANE, WORDS, "r", "l", 16)
B = replace(A, tile=2, buffer="b")
C = TileLoad(0, "a", ROW * 16 + LANE, WORDS, "r", "l", 8)
A8 = replace(C, tile=1)
MUL = TileMul(3, 1, 2, UNIT)
STORE = TileStore(3, "s", ROW * 16 + LANE, NUMBERS, "r", "l", 8)
GOOD = (CONFIG, TileZero(3), A8, B, MUL, STORE)


def program(*body):
    params = (
        Buffer("o", F32, 256, "out"), Buffer("a", BF16X2, 256, "in"), Buffer("b", BF16X2, 256, "in")
    )  # fmt: skip
    return Program("p", params, (Alloc("s", F32, 256, "thread"),), (), body)


def test_rows_of_eight_are_multiplied():
    assert verify_program(program(*GOOD), tiled()) == ()


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (GOOD[1:], "tile3 is not set up before it"),
        ((replace(CONFIG, rows=(16,) * 7), *GOOD[1:]), "has 8 registers of up to 16 rows"),
        ((replace(CONFIG, rows=(17,) * 8), *GOOD[1:]), "has 8 registers of up to 16 rows"),
        ((CONFIG, replace(A8, rows=7)), "7 rows: tile1 has 8"),
        ((CONFIG, replace(A8, offset=ROW * 16 + LANE * 2)), "not rows of neighbours"),
        ((CONFIG, replace(A8, offset=ROW * 64 + LANE + 128)), "out of bounds"),
        ((CONFIG, replace(A8, buffer="x")), "no buffer x"),
        ((CONFIG, A8, B, MUL), "nothing has written tile3 before"),
        ((CONFIG, TileZero(3), A8, MUL), "nothing has written tile2 before"),
        ((CONFIG, TileZero(3), A, B, replace(MUL, a=0)), "8 rows \\+= 16 rows \\* 16 rows"),
        ((*GOOD[:-1], replace(STORE, buffer="o")), "o is not scratch of a thread's own"),
        ((*GOOD[:-1], CONFIG, STORE), "nothing has written tile3 before"),
        ((*GOOD[:-1], replace(STORE, tile=4)), "tile4 is not set up"),
    ],
)
def test_each_rule_is_kept(body, rule):
    with pytest.raises(VerifyError, match=rule):
        verify_program(program(*body), tiled())


def test_a_target_without_tiles_is_refused():
    with pytest.raises(VerifyError, match="has no m16n16k16_bf16x2_f32"):
        verify_program(program(*GOOD), replace(tiled(), units=()))
