"""The order in which groups make blocks of a product: tiles of thread loops say it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.gpu_hand import GROUPED, gemm, hgemm
from tests.interpreter import interpret
from tests.unit.test_tensorcore import TARGET
from tests.verifiers.program import verify_program
from tunegrad.ir.program import For, Program, walk
from tunegrad.opts import Schedule, Space


def blocks(program: Program) -> Iterator[tuple[int, int]]:
    """The (row, column) of blocks of 128 x 128 that groups make, in the order of their numbers."""
    threads = [i for i in walk(program.body) if isinstance(i, For) and i.kind == "thread"]
    for group in range(program.threads):
        place = {"a": 0, "b": 0}
        sizes = {"a": 1, "b": 1}
        for loop in reversed(threads):
            axis = loop.var[0]
            place[axis] += group // loop.inner % loop.count * sizes[axis]
            sizes[axis] *= loop.count
        yield place["a"], place["b"]


def lowered(schedule: Schedule, m: int, n: int) -> Program:
    program = Space(gemm(m, n, 128), TARGET).lower(schedule)
    assert verify_program(program, TARGET) == ()
    return program


def test_groups_walk_eight_rows_of_blocks_down_and_then_one_across() -> None:
    found = list(blocks(lowered(Schedule.parse(GROUPED), 2048, 512)))
    down = [
        (row, column) for half in (0, 8) for column in range(4) for row in range(half, half + 8)
    ]
    assert found == down


def test_without_the_tile_they_walk_along_the_rows() -> None:
    found = list(blocks(lowered(hgemm(4), 2048, 512)))
    assert found == [(row, column) for row in range(16) for column in range(4)]


@pytest.mark.parametrize("width", [16, 40])
def test_what_some_groups_read_together(width: int) -> None:
    """What a turn of 64 groups reads: by rows of blocks, a few of them and many columns; in squares
    of 8 by 8, 8 of each.
    """
    size = 128 * width
    rows, columns = (
        {len(set(side)) for side in zip(*list(blocks(lowered(s, 2048, size)))[:64], strict=True)}
        for s in (hgemm(4), Schedule.parse(GROUPED))
    )
    assert sum(columns) <= 8 + 8
    assert max(rows) == width or max(rows) > 16


@pytest.mark.parametrize("m", [2048, 1100])
def test_a_grouped_product_is_the_same_product(m: int) -> None:
    n, k = 128, 128
    program = lowered(Schedule.parse(GROUPED), m, n)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    out = np.full(m * n, np.nan, np.float32)
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    want = a.astype(np.float64) @ b
    np.testing.assert_allclose(out.reshape(m, n), want, rtol=1e-4, atol=1e-3)
