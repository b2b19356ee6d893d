"""The verifier of programs: every rule of the form has a program that breaks it and a message that
names the place.
"""

from dataclasses import replace

import pytest
from hand_programs import F, below, elementwise, group_add, loop, row_sum, tiled_gemm, vector_add

from tests.verifiers.program import verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.index import ALWAYS, Index, Range, Valid, Var, as_index, var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    Convert,
    Fold,
    For,
    If,
    Load,
    Number,
    Pack,
    Position,
    Program,
    Read,
    Register,
    Select,
    Splat,
    Store,
    VType,
    Write,
    is_grouped,
)
from tunegrad.ir.program import Test as Condition
from tunegrad.ir.target import Target

OUT = (Buffer("y", F32, 64, "out"), Buffer("x", F32, 64, "in"))
GPU = Target("gpu", "gpu", "test", shared_bytes=1024, max_local=64)
CPU = Target("cpu", "cpu", "test")
F4, B4, ONE = VType(F32, 4), VType(BOOL, 4), Number(1, 1.0, F)
ZERO = as_index(0)


def program(*body, allocs=(), packs=(), threads=1, local=1, params=OUT):
    return Program("p", params, allocs, packs, body, threads, local)


@pytest.mark.parametrize("make", [vector_add, group_add, tiled_gemm, row_sum])
def test_program_verifier_proves_every_access_of(make):
    assert verify_program(make()) == ()


BROKEN = {
    "%1 is defined twice": (ONE, ONE),
    "%1 is not defined before it": (Store("y", ZERO, 1, F),),
    "%2 is not defined before it": (loop("i", 2, Number(2, 1.0, F)), Store("y", ZERO, 2, F)),
    "%3 is not defined before it": (If(ALWAYS, (Number(3, 1.0, F),), (Store("y", ZERO, 3, F),)),),
    "the argument has 1 lanes, not 4": (ONE, Compute(2, Op.NEG, (1,), F4)),
    "2 arguments: fma takes 3": (ONE, Compute(2, Op.FMA, (1, 1), F)),
    "the result is f32, not bool": (ONE, Compute(2, Op.LT, (1, 1), F)),
    "where has no meaning on f32, f32, f32": (ONE, Compute(2, Op.WHERE, (1, 1, 1), F)),
    "shl has no meaning on f32, f32": (ONE, Compute(2, Op.SHL, (1, 1), F)),
    "exp has no meaning on i32": (Number(1, 1, VType(I32)), Compute(2, Op.EXP, (1,), VType(I32))),
    "add has no meaning on bool, bool": (Number(1, True, VType(BOOL)),
        Compute(2, Op.ADD, (1, 1), VType(BOOL))),
    "nothing computes in f16: convert to f32": (ONE, Convert(2, 1, VType(F16)),
        Compute(3, Op.NEG, (2,), VType(F16))),
    "the argument has 1 lanes, not 4$": (ONE, Convert(2, 1, VType(F64, 4))),
    "the argument is f32x4, not f32": (Number(1, 1.0, F4), Splat(2, 1, VType(F32, 8))),
    "the result is f32x2, not f32": (Number(1, 1.0, F4), Fold(2, Op.ADD, 1, VType(F32, 2))),
    "nothing to fold": (ONE, Fold(2, Op.ADD, 1, F)),
    "lanes of f32 do not fold with sub": (Number(1, 1.0, F4), Fold(2, Op.SUB, 1, F)),
    "the mask is f32, not bool": (ONE, Select(2, 1, 1, 1, F)),
    "%1 is f32, not f32x4": (ONE, Condition(2, ALWAYS, 4), Select(3, 2, 1, 1, F4)),
    "a position has no bool": (Position(1, ZERO, VType(BOOL)),),
    "a position has no bf16": (Position(1, ZERO, VType(BF16)),),
    "True is not of type f32|2.5 is not of type i32": (Number(1, 2.5, VType(I32)),),
    "2147483648 is not of type i32": (Number(1, 1 << 31, VType(I32)),),
    "1 is not of type bool": (Number(1, 1, VType(BOOL)),),
    "0 lanes: at least 1": (Number(1, 1.0, VType(F32, 0)),),
    "no buffer z; there are y, x": (Load(1, "z", ZERO, F),),
    "x holds f32": (Load(1, "x", ZERO, VType(F64)),),
    "x is read only": (ONE, Store("x", ZERO, 1, F)),
    "the value is f32, not f32x4": (ONE, Store("y", var("v", 4), 1, F4, "v")),
    "4 lanes need a lane variable": (Load(1, "x", ZERO, F4),),
    "all lanes store to one element": (Number(1, 1.0, F4), Store("y", ZERO, 1, F4, "v")),
    "the mask is bool, not boolx4": (Condition(1, ALWAYS), Load(2, "x", var("v", 4), F4, "v", 1)),
    "always out of bounds: x has 64 elements": (Load(1, "x", as_index(64), F),),
    "i is not a loop around it": (Load(1, "x", var("i", 4), F),),
    "v is not a loop around it": (Load(1, "x", var("v", 4), F4, "w"),),
    r"i runs over \[0, 4\), not \[0, 5\)": (loop("i", 4, Load(1, "x", var("i", 5), F)),),
    r"v runs over \[0, 4\), not \[0, 3\)": (Load(1, "x", var("v", 3), F4, "v"),),
    "lane variable i is the variable of a loop": (loop("i", 4, Load(1, "x", var("i", 4), F4, "i")),
        ),
    "i is the variable of a loop around it": (loop("i", 4, loop("i", 4)),),
    "its stop 5 is past its extent 4": (For("i", 4, (as_index(5),), ()),),
    "extent 4 and 0 stops": (For("i", 4, (), ()),),
    "register r is not declared": (ONE, Write("r", 1, F)),
    "register r is f32, not f32x4": (Number(1, 1.0, F4), Register("r", F), Write("r", 1, F4)),
    "is declared twice": (Register("r", F), loop("i", 2, Register("r", F))),
    "nothing has written the register before": (Register("r", F), Read(1, "r", F)),
}  # fmt: skip


@pytest.mark.parametrize("message", BROKEN)
def test_program_verifier_rejects(message):
    with pytest.raises(VerifyError, match=f"program p: `.*`: .*({message})"):
        verify_program(program(*BROKEN[message]))


@pytest.mark.parametrize(
    ("message", "broken"),
    [
        ("buffer y: is declared twice", program(allocs=(Alloc("y", F32, 4, "thread"),))),
        ("buffer s: size 0", program(allocs=(Alloc("s", F32, 0, "thread"),))),
        ("threads=0 local=1: at least 1 each", program(threads=0)),
        ("source w is not a parameter",
            program(packs=(Pack("k", "w", F32, ("p",), (4,), var("p", 4), ALWAYS),))),
        ("uses more than p",
            program(packs=(Pack("k", "x", F32, ("p",), (4,), var("p", 4) + var("q", 2), ALWAYS),))),
        ("parameter k: has role pack, but no pack fills it",
            program(params=(*OUT, Buffer("k", F32, 4, "pack")))),
        (
            r"pack k: f32\[4\] is not the parameter f32\[8\]",
            program(
                params=(*OUT, Buffer("k", F32, 8, "pack")),
                packs=(Pack("k", "x", F32, ("p",), (4,), var("p", 4), ALWAYS),),
            ),
        ),
    ],
)  # fmt: skip
def test_program_verifier_rejects_the_declarations(message, broken):
    with pytest.raises(VerifyError, match=message):
        verify_program(broken)


def team(count, *body, threads=4, inner=1, extent=4, name="i"):
    return program(
        loop(name, extent, *body, kind="thread", count=count, inner=inner), threads=threads
    )


def test_program_verifier_rejects_barriers_that_not_everybody_reaches():
    with pytest.raises(
        VerifyError, match="`barrier`: inside thread loop i, where not all threads arrive"
    ):
        verify_program(team(4, Barrier()))
    with pytest.raises(VerifyError, match="`barrier`: inside thread loop i"):
        verify_program(team(4, If(below(var("i", 4), 2), (Barrier(),))))
    item = loop("l", 3, Barrier(), kind="local", count=4)
    with pytest.raises(VerifyError, match="`barrier`: inside local loop l"):
        verify_program(program(item, local=4))
    half = loop("l", 4, If(below(var("l", 4), 2), (Barrier(),)), kind="local", count=4)
    with pytest.raises(
        VerifyError, match="`barrier`: inside `if 0<=l<2:`, which differs between threads"
    ):
        verify_program(program(half, local=4))
    uneven = loop(
        "l", 4, For("k", 4, (as_index(4), var("l", 4)), (Barrier(),)), kind="local", count=4
    )
    with pytest.raises(
        VerifyError, match="`barrier`: inside loop k, whose stop differs between threads"
    ):
        verify_program(program(uneven, local=4))


def test_program_verifier_allows_barriers_in_local_loops_that_every_work_item_runs_once():
    assert verify_program(program(loop("l", 4, Barrier(), kind="local", count=4), local=8)) == ()


def test_program_verifier_allows_barriers_in_the_loops_of_work_groups_and_uniform_conditions():
    g = var("g", 4)
    group = loop(
        "g", 4, If(below(g, 2), (Barrier(),)), loop("k", 3, Barrier()), kind="thread", count=4
    )
    assert verify_program(program(group, threads=4, local=8)) == ()
    assert (
        verify_program(program(loop("k", 3, If(below(var("k", 3), 1), (Barrier(),))), threads=4))
        == ()
    )


def test_program_verifier_rejects_shares_that_lose_iterations():
    with pytest.raises(VerifyError, match="count 8 x inner 1: of 4 threads"):
        verify_program(team(8))
    nested = loop("j", 4, kind="thread", count=2)
    with pytest.raises(VerifyError, match="shares its threads with loop i around it"):
        verify_program(team(2, nested))
    assert verify_program(team(2, nested, inner=2)) == ()
    with pytest.raises(VerifyError, match="extent 8: one iteration for each of 4, on a GPU"):
        verify_program(team(4, extent=8), GPU)


def test_program_verifier_checks_the_target():
    with pytest.raises(VerifyError, match="local=4: work-items are a GPU's"):
        verify_program(group_add(), CPU)
    with pytest.raises(VerifyError, match="shared memory is a work-group's"):
        verify_program(program(allocs=(Alloc("s", F32, 4, "shared"),)), CPU)
    with pytest.raises(VerifyError, match="local loops run on the work-items of a GPU"):
        verify_program(program(loop("l", 1, kind="local")), CPU)
    with pytest.raises(VerifyError, match="2048 bytes of shared memory: target gpu has 1024"):
        verify_program(tiled_gemm(), GPU)
    with pytest.raises(VerifyError, match="local=128: target gpu has groups of up to 64"):
        verify_program(group_add(items=128), GPU)
    assert verify_program(tiled_gemm(64, 8, 4), GPU) == ()


def test_program_verifier_knows_programs_of_work_groups_by_what_they_use():
    assert is_grouped(tiled_gemm())
    assert not is_grouped(vector_add())


def accesses(*body, size=37, facts=()):
    return verify_program(
        program(*body, params=(Buffer("y", F32, size, "out"), Buffer("x", F32, size, "in")))
    )


def test_program_verifier_proves_bounds_by_stops_masks_and_branches():
    i, j = var("i", 5), var("j", 8)
    load = Load(1, "x", i * 8 + j, F)
    assert accesses(loop("i", 5, loop("j", 8, load))) == (load,)
    assert accesses(loop("i", 5, For("j", 8, (as_index(8), 37 - i * 8), (load,)))) == ()
    assert accesses(loop("i", 5, loop("j", 8, If(below(i * 8 + j, 37), (load,))))) == ()
    masked = replace(load, mask=9)
    assert accesses(loop("i", 5, loop("j", 8, Condition(9, below(i * 8 + j, 37)), masked))) == ()
    assert accesses(loop("i", 5, loop("j", 8, Condition(9, below(i * 8 + j, 38)), masked))) == (
        masked,
    )


def test_program_verifier_proves_bounds_by_a_rounded_stop():
    i, j, v = var("i", 3), var("j", 4), var("v", 4)
    at = i * 16 + j * 4 + v
    nest = For("j", 4, (as_index(4), (36 - i * 16) // 4), (Load(1, "x", at, F4, "v"),))
    assert accesses(loop("i", 3, nest), size=36) == ()


def test_program_verifier_returns_loops_that_may_pass_their_extent():
    inner = For("j", 4, (var("i", 8),), ())
    assert accesses(loop("i", 8, inner)) == (inner,)


def test_program_verifier_accepts_dead_code_out_of_bounds():
    dead = For("i", 4, (ZERO,), (Load(1, "x", var("i", 4) + 99, F),))
    assert accesses(dead) == (dead.body[0],)


def test_program_verifier_accepts_every_operation_of_its_table():
    for op, dtype in (
        (Op.MAX, BOOL),
        (Op.XOR, I64),
        (Op.POW, F64),
        (Op.WHERE, BOOL),
        (Op.MOD, I32),
        (Op.NE, BOOL),
    ):
        assert verify_program(elementwise(op, dtype, 4, 8)) == ()


def test_program_verifier_rejects_a_variable_with_another_range():
    wide = Index(((Var("i", -1, 3), 1),), 1)
    with pytest.raises(VerifyError, match=r"i runs over \[0, 4\), not \[-1, 4\)"):
        verify_program(program(loop("i", 4, If(Valid((Range(wide * 2 + var("i", 4), 1, 5),)), ()))))
