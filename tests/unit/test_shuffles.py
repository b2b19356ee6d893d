"""Shares of a reduction that a warp exchanges: where, and that everybody gets the total."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.hand_schedules import AHEAD, GPU, row_sum, softmax
from tests.interpreter import interpret
from tests.verifiers.program import verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import as_index, var
from tunegrad.ir.program import (
    Barrier,
    Buffer,
    For,
    Load,
    Program,
    Shuffle,
    Store,
    VType,
    walk,
)
from tunegrad.opts import Schedule, Space

WARPS = replace(AHEAD, max_local=1024)


def lowered(kernel, text, target=WARPS):
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert verify_program(program, target) == ()
    return program


def row_sums(rows, columns, text, target=WARPS):
    program = lowered(row_sum(rows, columns), text, target)
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    out = np.zeros(rows, np.float32)
    interpret(program, {"S": out, "X": x.reshape(-1)})
    np.testing.assert_allclose(out, 0.5 * x.astype(np.float64).sum(axis=1), rtol=1e-5, atol=1e-4)
    return program


def shuffles(program):
    return [i.across for i in walk(program.body) if isinstance(i, Shuffle)]


@pytest.mark.parametrize(
    ("items", "want"),
    [
        (32, [1, 2, 4, 8, 16]),
        (64, [1, 2, 4, 8, 16, 1]),
        (1024, [1, 2, 4, 8, 16, 1, 2, 4, 8, 16]),
    ],
)
def test_warps_exchange_their_shares_and_then_their_totals(items, want):
    text = f"tile(axis=k, size={items}) thread(axis=i, count=0) group(axis=k1)"
    program = row_sums(3, 1500, text)
    assert shuffles(program) == want
    barriers = [i for i in walk(program.body) if isinstance(i, Barrier)]
    assert len(barriers) == (items > 32)
    assert sum(a.size for a in program.allocs) == (items // 32 if items > 32 else 0)


@pytest.mark.parametrize(
    ("items", "target"),
    [(16, WARPS), (48, WARPS), (64, GPU), (96, WARPS)],
    ids=["half a warp", "no power of two", "no warps", "three warps"],
)
def test_elsewhere_shares_are_in_shared_memory(items, target):
    text = f"tile(axis=k, size={items}) thread(axis=i, count=0) group(axis=k1)"
    program = row_sums(3, 300, text, target)
    assert shuffles(program) == []
    assert any(a.name == "v0.items" for a in program.allocs)


def test_rows_beside_each_other_have_warps_of_their_own():
    text = (
        "tile(axis=i, size=4) tile(axis=k, size=64) thread(axis=i0, count=0) local(axis=i1) "
        "group(axis=k1)"
    )
    program = row_sums(10, 200, text)
    assert shuffles(program) == [1, 2, 4, 8, 16, 1]
    assert program.local == 256


@pytest.mark.parametrize(
    ("items", "want"),
    [((64, 32), 6 + 5), ((64, 128), 6 + 7), ((128, 16), 7 + 4), ((64, 96), 0)],
)
def test_stages_may_have_other_numbers_of_work_items(items, want):
    """Where one can not be exchanged, none is."""
    text = (
        f"tile(axis=p, size={items[0]}) tile(axis=q, size={items[1]}) tile(axis=t, size=64) "
        "thread(axis=i, count=0) group(axis=p1) group(axis=q1) local(axis=t1)"
    )
    if items == (64, 96):
        text = text.replace("size=64", "size=32")
    program = lowered(softmax(3, 100), text)
    assert len(shuffles(program)) == want
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    out = np.zeros(300, np.float32)
    interpret(program, {"Y": out, "X": x.reshape(-1)})
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.reshape(3, 100), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_one_work_item_stores_what_all_know():
    text = "tile(axis=k, size=64) thread(axis=i, count=0) group(axis=k1)"
    for target in (WARPS, GPU):
        program = row_sums(2, 200, text, target)
        (first,) = (i for i in walk(program.body) if isinstance(i, For) and i.var == "first")
        assert (first.kind, first.extent, first.count) == ("local", 1, 64)
        assert [type(i) for i in walk(first.body)][-1] is Store


def by_hand(across=1, local=32):
    one = VType(F32)
    i = var("i", local)
    body = (Load(1, "x", i, one), Shuffle(2, 1, across, one), Store("y", i, 2, one))
    loop = For("i", local, (as_index(local),), body, "local", local)
    params = (Buffer("x", F32, local, "in"), Buffer("y", F32, local, "out"))
    return Program("swap", params, (), (), (loop,), 1, local)


@pytest.mark.parametrize("across", [1, 2, 4, 8, 16])
def test_shuffle_gives_the_value_of_the_item_that_differs_in_a_bit(across):
    program = by_hand(across, 64)
    verify_program(program, WARPS)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    interpret(program, {"x": x, "y": y})
    np.testing.assert_array_equal(y, x[np.arange(64) ^ across])


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        (by_hand(3), "across 3: a power of two below 32"),
        (by_hand(32), "across 32: a power of two below 32"),
        (by_hand(1, 16), "groups of 16 work-items: it takes 32 together"),
    ],
)
def test_rule_of_shuffles_is_named(program, rule):
    with pytest.raises(VerifyError, match=rule):
        verify_program(program, WARPS)


def test_shuffle_that_some_skip_is_refused_and_found():
    program = by_hand()
    (loop,) = program.body
    some = replace(program, body=(replace(loop, extent=16, stops=(as_index(16),)),))
    some = replace(some, body=(replace(some.body[0], body=_of_16(loop.body)),))
    with pytest.raises(VerifyError, match="where not all threads arrive"):
        verify_program(some, WARPS)
    with pytest.raises(VerifyError, match="shuffle: work-item 0 waits, work-item 16 ends"):
        interpret(some, {"x": np.zeros(32, np.float32), "y": np.zeros(32, np.float32)})


def _of_16(body):
    i = var("i", 16)
    return tuple(replace(x, offset=i) if isinstance(x, Load | Store) else x for x in body)
