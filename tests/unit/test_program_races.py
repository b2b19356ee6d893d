"""No two threads or work-items touch what one of them writes: what is proved, and what is
refused.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hand_programs import F, below, loop, tiled_gemm, vector_add

import tunegrad as tg
from benchmarks.hand_schedules import gemm
from tests.best_schedules import BEST
from tests.kernel_corpus import corpus_kernel
from tests.schedule_checks import assert_agrees
from tests.schedule_fuzzer import TWO
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Index, Range, Valid, as_index, var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    For,
    If,
    Instr,
    Load,
    Number,
    Position,
    Program,
    Read,
    Register,
    Store,
    Write,
)
from tunegrad.opts import Schedule, Space, lower

ONE = Number(1, 1.0, F)
II, J, K = var("i", 4), var("j", 8), var("k", 4)


def program(*body: Instr, threads: int = 2, team: int = 0) -> Program:
    allocs = (Alloc("s", F32, team, "team"),) if team else ()
    return Program(
        "p", (Buffer("y", F32, 64, "out"), Buffer("x", F32, 64, "in")), allocs, (), body, threads
    )


def threaded(name: str, extent: int, *body: Instr, count: int = 2, inner: int = 1) -> For:
    return loop(name, extent, *body, kind="thread", count=count, inner=inner)


def store(at: Index, value: int = 1, buffer: str = "y") -> Store:
    return Store(buffer, at, value, F)


FROM_X = (Load(2, "x", II, F), Store("y", II, 2, F))
TO_S = threaded("i", 4, Load(2, "x", II, F), Store("s", II, 2, F))
FROM_S = threaded("k", 4, Load(3, "s", 3 - K, F), Store("y", K, 3, F))

PROVED = {
    "each iteration its own element": (threaded("i", 4, ONE, store(II)),),
    "another order of them": (threaded("i", 4, ONE, store(3 - II)),),
    "columns of a row-major tile": (loop("j", 8, threaded("i", 4, ONE, store(J * 4 + II))),),
    "everybody writes the same": (loop("i", 4, *FROM_X),),
    "sums that a thread adds to its own": (
        loop("k", 4,
            threaded("i", 4, Load(2, "y", II, F), Compute(3, Op.ADD, (2, 2), F), store(II, 3))),
    ),
    "two stores side by side": (threaded("i", 4, ONE, store(II * 2), store(II * 2 + 1)),),
    "halves apart": (ONE, threaded("i", 4, store(II)), threaded("k", 4, store(K + 4))),
    "a stop that the address tells": (
        loop("k", 4, For("i", 4, (as_index(4), 14 - K * 4), (ONE, store(K * 4 + II)), "thread", 2)),
    ),
    "one after the other at a barrier": (TO_S, Barrier(), FROM_S),
    "again after a barrier": (loop("j", 8, Barrier(), TO_S, Barrier(), FROM_S),),
    "two loops that make up the team": (
        threaded("i", 4, threaded("j", 8, ONE, store(II * 8 + J)), inner=2),
    ),
}  # fmt: skip

RACES = {
    "a loop that is not there": (Load(2, "y", as_index(0), F), Compute(3, Op.ADD, (2, 2), F),
        store(as_index(0), 3)),
    "everybody adds": (loop("i", 4, Load(2, "y", II, F), Compute(3, Op.ADD, (2, 2), F),
        store(II, 3)),),
    "one element for all": (threaded("i", 4, Position(2, II, F), store(as_index(0), 2)),),
    "shares that overlap": (threaded("i", 4,
        loop("k", 4, Position(2, II, F), store(II * 3 + K, 2))),),
    "a neighbour's element is read": (threaded("i", 4, Load(2, "y", II + 1, F), store(II, 2)),),
    "another order in two loops": (
        threaded("i", 4, Position(2, II, F), store(II, 2)),
        threaded("k", 4, Position(3, K, F), store(3 - K, 3)),
    ),
    "a stop that the address does not tell": (
        loop("k", 4,
            For("i", 4, (as_index(4), K + 1), (Position(2, K, F), store(II, 2)), "thread", 2)),
    ),
    "no barrier after": (TO_S, FROM_S),
    "no barrier around the loop": (loop("j", 8, TO_S, Barrier(), FROM_S),),
    "a barrier on one branch": (loop("j", 8, TO_S, If(below(J, 4), (Barrier(),)), FROM_S,
        Barrier()),),
    "half of a team of four": (threaded("i", 4, Position(2, J, F), store(II, 2)),),
    "what every thread counted": (
        Register("r", F), ONE, Write("r", 1, F),
        threaded("i", 4, Position(2, II, F), Write("r", 2, F)), Read(3, "r", F),
        store(as_index(0), 3),
    ),
    "the last iteration wins": (loop("i", 4, loop("k", 4, Position(2, K, F), store(II, 2))),),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_program_races_are_ruled_out_where(name: str) -> None:
    assert (
        verify_program(program(*PROVED[name], threads=4 if "two loops" in name else 2, team=4))
        == ()
    )


@pytest.mark.parametrize("name", RACES)
def test_program_races_are_refused_where(name: str) -> None:
    half = "half" in name
    made = program(
        *([loop("j", 8, *RACES[name])] if half else RACES[name]), threads=4 if half else 2, team=4
    )
    with pytest.raises(
        VerifyError,
        match=r"can not be proved to be run by one of the \d (threads|work-items) alone",
    ):
        verify_program(made)


def test_program_races_of_one_thread_are_none() -> None:
    verify_program(program(*RACES["everybody adds"], threads=1))


def test_program_races_between_work_items_and_groups_are_refused() -> None:
    good = tiled_gemm(8, 4, 2)
    verify_program(good)

    def without(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        inner = (replace(i, body=without(i.body)) if isinstance(i, For) else i for i in body)
        return tuple(i for i in inner if not isinstance(i, Barrier))

    with pytest.raises(VerifyError, match="one of the 8 work-items"):
        verify_program(replace(good, body=without(good.body)))
    flat = vector_add(16, 4, 4)
    (groups,) = flat.body
    assert isinstance(groups, For)
    grouped = replace(flat, allocs=(Alloc("s", F32, 4, "shared"),))
    verify_program(grouped)
    index = Position(8, var("i0", 4), F)
    with pytest.raises(VerifyError, match="one of the 4 threads alone"):
        verify_program(
            replace(grouped, body=(replace(groups, body=(index, Store("c", as_index(0), 8, F))),))
        )


def test_program_races_through_masks_and_tails_are_told_apart() -> None:
    """Rows of 7 in vectors of 4: without its mask the last vector of a row reaches into the next
    one.
    """
    at, inside = II * 7 + J, Valid((Range(J, 0, 7),))
    rows = threaded("i", 4, loop("j", 8, If(inside, (Position(2, J, F), store(at, 2)))))
    assert verify_program(program(rows)) == ()
    with pytest.raises(VerifyError, match="one of the 2 threads"):
        verify_program(program(threaded("i", 4, loop("j", 8, Position(2, J, F), store(at, 2)))))


LOST = (
    "tile(axis=m, size=4) tile(axis=k, size=16) reorder(order=(k0, m0, m1, n, k1)) "
    "thread(axis=m0, count=2)"
)


def test_thread_of_a_loop_of_one_iteration_is_illegal() -> None:
    with pytest.raises(
        IllegalAction, match=r"thread\(axis=m0, count=2\): count 2: loop m0 has 1 iterations"
    ):
        Space(gemm(4, 64, 64), TWO).tree(Schedule.parse(LOST))


@pytest.mark.parametrize("actions", [LOST, LOST.replace("reorder(order=(k0, m0, m1, n, k1)) ", "")])
def test_fence_with_a_race_is_refused(actions: str) -> None:
    """What a user saw: both threads added their partial sums to the same elements, and every run
    was wrong.
    """
    asked = re.sub(r"\bm(?=\d|,)", "a", re.sub(r"\bk(?=\d|,)", "ra", actions)).replace("n,", "b,")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 64), (64, 32)))

    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).contiguous(schedule=asked)

    with pytest.raises(
        IllegalAction, match=r"thread\(axis=a0, count=2\): count 2: loop a0 has 1 iterations"
    ):
        tg.compile(product, x, y, store=False, threads=2)


def test_lowering_refuses_what_is_not_proved() -> None:
    """Whatever the actions let through: here the loop's count is changed behind their back."""
    space = Space(gemm(4, 64, 64), TWO)
    tree = space.tree(
        Schedule.parse(LOST.replace(" thread(axis=m0, count=2)", " thread(axis=m0, count=0)"))
    )
    m0 = tree.loop("m0")
    bad = tree.with_loop(m0, replace(m0, count=2))
    with pytest.raises(
        IllegalAction, match=r"kernel gemm 4x64x64: a race: program kernel: .* one of the 2 threads"
    ):
        lower(bad)


def test_copy_between_two_thread_loops_is_illegal() -> None:
    """Found by the fuzzer: a barrier inside the outer thread loop, where threads with fewer
    iterations never come.
    """
    with pytest.raises(
        IllegalAction, match=r"stage\(param=B, at=m\): between thread loops m and n"
    ):
        Space(gemm(6, 8, 8), replace(TWO, threads=4)).tree(
            Schedule.parse(
                "thread(axis=m, count=2) thread(axis=n, count=2) stage(param=B, at=m, "
                "layout=(n, k))"
            )
        )


RIGHT = {
    "add": "fuse(outer=a, inner=b) tile(axis=abf, size=5) reorder(order=(abf1, abf0)) "
    "fuse(outer=abf1, inner=abf0) thread(axis=abf1abf0f, count=2)",
    "linear": "tile(axis=b, size=8) tile(axis=b1, size=4) reorder(order=(b0, a, b1, b2, ra)) "
    "upcast(axis=a) "
    "upcast(axis=b1) vectorize(axis=b2) thread(axis=b0, count=2)",
    "winograd_residual_output": "fuse(outer=a, inner=b) reorder(order=(c, abf)) "
    "thread(axis=abf, count=0) "
    "pad(axis=c, multiple=4) upcast(axis=c)",
    "winograd_input": "tile(axis=a, size=2) thread(axis=a1, count=0) upcast(axis=c) "
    "tile(axis=b, size=2) "
    "vectorize(axis=b1) reorder(order=(b0, a1)) tile(axis=b0, size=4) upcast(axis=a0)",
    "max_pool": "pad(axis=c, multiple=4) fuse(outer=a, inner=b) tile(axis=c, size=5) "
    "reorder(order=(c0, abf)) "
    "thread(axis=abf, count=2)",
    "conv1x1s2": "stage(param=p2, at=a, layout=()) thread(axis=b, count=0) pad(axis=c, multiple=4) "
    "stage(param=p1, at=a, layout=()) pad(axis=a, multiple=4) unroll(axis=ra)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_races_are_ruled_out_for_schedules_that_are_right(name: str) -> None:
    """Found by the fuzzer: each was right, and not proved, once."""
    kernel, text = corpus_kernel(name), RIGHT[name]
    program = Space(kernel, TWO).lower(Schedule.parse(text))
    assert program.threads == 2
    assert_agrees(kernel, program, text)


@pytest.mark.parametrize("name", BEST)
def test_best_known_schedules_are_free_of_races(name: str) -> None:
    best = BEST[name]
    assert Space(best.kernel, best.target).lower(best.schedule).threads >= 1
