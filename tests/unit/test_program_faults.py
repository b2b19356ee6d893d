"""The interpreter refuses what a compiled candidate would do silently."""

from dataclasses import replace

import numpy as np
import pytest
from hand_programs import F, arguments_of, below, loop, row_sum, tiled_gemm, vector_add

from tests.interpreter import interpret
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.index import as_index, var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    For,
    If,
    Load,
    Number,
    Program,
    Read,
    Register,
    Store,
    VType,
    Write,
)

OUT = (Buffer("y", F32, 8, "out"), Buffer("x", F32, 8, "in"))


def run(*body, allocs=(), threads=1, local=1, params=OUT):
    program = Program("planted", params, allocs, (), body, threads, local)
    buffers = arguments_of(program)
    interpret(program, buffers)
    return buffers


def without_barrier(body, number, seen):
    """The block without barrier ``number`` of the program; ``seen`` counts them."""
    kept = []
    for i in body:
        if isinstance(i, Barrier):
            seen.append(i)
            if len(seen) - 1 == number:
                continue
        kept.append(
            replace(i, body=without_barrier(i.body, number, seen)) if isinstance(i, For) else i
        )
    return tuple(kept)


@pytest.mark.parametrize(
    ("make", "number"), [(tiled_gemm, 0), (tiled_gemm, 1), *((row_sum, k) for k in range(4))]
)
def test_program_interpreter_finds_the_race_of_a_missing_barrier(make, number):
    program = make(32) if make is tiled_gemm else make()
    broken = replace(program, body=without_barrier(program.body, number, []))
    with pytest.raises(VerifyError, match=r"race: .* since the last barrier|never written"):
        interpret(broken, arguments_of(broken))


def test_program_interpreter_finds_two_threads_that_write_different_values():
    i = var("i", 4)
    store = Store("y", as_index(0), 1, F)
    with pytest.raises(VerifyError, match="race: writes another value than thread 0"):
        run(loop("i", 4, Load(1, "x", i, F), store, kind="thread", count=4), threads=4)


def test_program_interpreter_allows_every_thread_to_write_the_same_value():
    buffers = run(
        Number(1, 2.5, F), Store("y", as_index(3), 1, F), Load(2, "y", as_index(3), F), threads=4
    )
    assert buffers["y"][3] == 2.5


def test_program_interpreter_finds_a_thread_that_updates_what_all_write():
    update = (
        Load(2, "y", as_index(0), F),
        Compute(3, Op.ADD, (2, 2), F),
        Store("y", as_index(0), 3, F),
    )
    with pytest.raises(VerifyError, match="race"):
        run(Number(1, 2.5, F), Store("y", as_index(0), 1, F), *update, threads=2)


def test_program_interpreter_finds_a_read_of_what_another_thread_writes_later():
    i = var("i", 2)
    body = (
        Load(1, "s", 1 - i, F),
        Store("s", i, 1, F),
    )
    fill = loop(
        "j", 2, Load(9, "x", var("j", 2), F), Store("s", var("j", 2), 9, F), kind="thread", count=2
    )
    with pytest.raises(VerifyError, match=r"race: (reads|writes) what thread 0"):
        run(
            fill,
            Barrier(),
            loop("i", 2, *body, kind="thread", count=2),
            allocs=(Alloc("s", F32, 2, "team"),),
            threads=2,
        )


def test_program_interpreter_finds_a_race_of_vector_accesses():
    v = VType(F32, 4)
    at = var("i", 2) * 2 + var("v", 4)
    loads = (Load(1, "x", var("i", 2) + var("v", 4), v, "v"), Compute(2, Op.ADD, (1, 1), v))
    body = loop("i", 2, *loads, Store("y", at, 2, v, "v"), kind="thread", count=2)
    with pytest.raises(VerifyError, match="race: writes another value than thread 0"):
        run(body, threads=2)


def test_program_interpreter_finds_a_race_between_work_groups():
    g, item = var("g", 2), var("l", 2)
    body = loop(
        "l", 2, Load(1, "x", g * 2 + item, F), Store("y", item, 1, F), kind="local", count=2
    )
    with pytest.raises(VerifyError, match="race: writes another value than work-group 0"):
        run(loop("g", 2, body, kind="thread", count=2), threads=2, local=2)


def test_program_interpreter_has_no_barrier_between_work_groups():
    g, item = var("g", 2), var("l", 2)
    first = loop(
        "l", 2, Load(1, "x", g * 2 + item, F), Store("y", g * 2 + item, 1, F), kind="local", count=2
    )
    second = loop("l", 2, Load(2, "y", (g * -2 + 2) + item, F), kind="local", count=2)
    with pytest.raises(VerifyError, match="race: reads what work-group 1 wrote"):
        run(loop("g", 2, first, Barrier(), second, kind="thread", count=2), threads=2, local=2)


@pytest.mark.parametrize("shift", [-1, 8, 100])
def test_program_interpreter_finds_an_access_out_of_bounds(shift):
    at = var("i", 4) + shift
    with pytest.raises(
        VerifyError, match=rf"out of bounds: x\[{shift}\] of 8 elements; thread 0, i=0"
    ):
        run(loop("i", 4, Load(1, "x", at, F)))
    with pytest.raises(VerifyError, match=rf"out of bounds: y\[{shift}\]"):
        run(Number(1, 0.0, F), loop("i", 4, Store("y", at, 1, F)))


def test_program_interpreter_finds_a_vector_tail_out_of_bounds():
    program = vector_add(37)
    (outer,) = program.body
    unmasked = tuple(i if not hasattr(i, "mask") else replace(i, mask=None) for i in outer.body)
    broken = replace(program, body=(replace(outer, body=unmasked),))
    with pytest.raises(VerifyError, match=r"out of bounds: a\[39\] of 37 elements"):
        interpret(broken, arguments_of(broken))


def test_program_interpreter_finds_reads_of_what_was_never_written():
    scratch = (Alloc("s", F32, 8, "thread"),)
    with pytest.raises(VerifyError, match=r"reads s\[2\], which was never written"):
        run(Load(1, "s", as_index(2), F), allocs=scratch)
    with pytest.raises(VerifyError, match="reads elements of s that were never written"):
        run(
            Number(1, 0.0, F),
            Store("s", as_index(0), 1, F),
            Load(2, "s", var("v", 4), VType(F32, 4), "v"),
            allocs=scratch,
        )
    with pytest.raises(VerifyError, match=r"reads y\[2\], which was never written"):
        run(Load(1, "y", as_index(2), F))
    with pytest.raises(VerifyError, match="reads a register that was never written"):
        run(Register("r", F), Read(1, "r", F))


def test_program_interpreter_keeps_private_scratch_of_threads_apart():
    i = var("i", 2)
    body = (
        Load(1, "x", i, F),
        Store("s", as_index(0), 1, F),
        Load(2, "s", as_index(0), F),
        Store("y", i, 2, F),
    )
    buffers = run(
        loop("i", 2, *body, kind="thread", count=2),
        allocs=(Alloc("s", F32, 1, "thread"),),
        threads=2,
    )
    np.testing.assert_array_equal(buffers["y"][:2], buffers["x"][:2])


def test_program_interpreter_forgets_registers_declared_again():
    again = (
        Register("r", F),
        If(below(var("i", 2), 1), (Number(1, 0.0, F), Write("r", 1, F))),
        Read(2, "r", F),
    )
    with pytest.raises(VerifyError, match="never written; thread 0, i=1"):
        run(loop("i", 2, *again))


def test_program_interpreter_forgets_shared_memory_of_the_group_before():
    first = If(below(var("g", 2), 1), (Number(1, 0.0, F), Store("s", as_index(0), 1, F)))
    with pytest.raises(
        VerifyError, match=r"reads s\[0\], which was never written; work-item 0 of group 1"
    ):
        run(
            loop("g", 2, first, Load(2, "s", as_index(0), F), kind="thread", count=2),
            allocs=(Alloc("s", F32, 1, "shared"),),
            threads=2,
        )


def test_program_interpreter_finds_a_barrier_that_not_everybody_reaches():
    halves = loop("i", 4, If(below(var("i", 4), 2), (Barrier(),)), kind="thread", count=4)
    with pytest.raises(VerifyError, match="barrier 0: thread 0 waits, thread 2 ends without it"):
        run(halves, threads=4)
    either = loop(
        "i", 2, If(below(var("i", 2), 1), (Barrier(),), (Barrier(),)), kind="thread", count=2
    )
    with pytest.raises(VerifyError, match="thread 0 waits, thread 1 waits at barrier 1"):
        run(either, threads=2)


def test_program_interpreter_finds_a_loop_longer_than_its_extent():
    with pytest.raises(VerifyError, match="runs to 5, past its extent 4"):
        run(For("i", 4, (as_index(5),), ()))


def test_program_interpreter_names_a_buffer_that_is_missing_or_does_not_fit():
    program = vector_add()
    buffers = arguments_of(program)
    with pytest.raises(VerifyError, match="no buffer 'a' was given"):
        interpret(program, {k: v for k, v in buffers.items() if k != "a"})
    with pytest.raises(VerifyError, match=r"buffer 'a' is float64\[37\], not flat float32\[37\]"):
        interpret(program, buffers | {"a": buffers["a"].astype(np.float64)})
