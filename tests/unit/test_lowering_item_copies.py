"""Copies to shared memory by work-items: in the source's order, in vectors, with few divisions."""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import GPU, conv3x3, gemm
from tests.coalescing import touched
from tests.schedule_checks import assert_agrees
from tunegrad.ir.index import FloorDiv, Index, Mod
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import For, Load, Program, Store, walk
from tunegrad.opts import Schedule, Space

TILES = (
    "tile(axis=m, size={m}) tile(axis=m1, size=4) tile(axis=n, size={n}) tile(axis=n1, size=4) "
    "tile(axis=k, size={k}) reorder(order=(m0, n0, m1, n1, m2, n2, k0, k1)) thread(axis=m0) "
    "thread(axis=n0) local(axis=m1) local(axis=n1) upcast(axis=m2) vectorize(axis=n2) "
    "stage(param=A, at=k0, layout=({a})) stage(param=B, at=k0, layout=({b}))"
)
USED = {"a": "k1, m1, m2", "b": "k1, n1, n2"}


def lowered(kernel: Kernel, text: str) -> Program:
    return Space(kernel, GPU).lower(Schedule.parse(text))


def copy_of(program: Program, param: str) -> tuple[Load, Store]:
    """The load from a parameter, and the store to its copy."""
    load = next(i for i in walk(program.body) if isinstance(i, Load) and i.buffer == param)
    return load, next(i for i in walk(program.body) if isinstance(i, Store) and i.value == load.id)


def test_lowering_copy_of_rows_is_in_vectors():
    program = lowered(gemm(64, 64, 64), TILES.format(m=64, n=64, k=16, **USED))
    load, store = copy_of(program, "B")
    assert (load.vtype.lanes, load.mask, store.vtype.lanes) == (4, None, 4)


def test_lowering_copy_across_its_source_reads_the_source_in_order():
    program = lowered(gemm(64, 64, 64), TILES.format(m=64, n=64, k=16, **USED))
    assert {t.share for t in touched(program)} == {1.0}
    assert {a.name: a.size for a in program.allocs} == {"A.k0": 15 * 65 + 64, "B.k0": 16 * 64}


def inside_divisions(index: Index) -> set[str]:
    """Variables under a division or a modulus."""
    atoms = [a for a, _ in index.terms if isinstance(a, FloorDiv | Mod)]
    return set().union(*(a.num.names() for a in atoms))


def test_lowering_copy_divides_nothing_from_round_to_round():
    program = lowered(gemm(128, 128, 64), TILES.format(m=64, n=64, k=32, **USED))
    rounds = {i.var for i in walk(program.body) if isinstance(i, For) and i.var.endswith(".i")}
    assert rounds == {"A.k0.i", "B.k0.i"}
    for param in ("A", "B"):
        for access in copy_of(program, param):
            assert not inside_divisions(access.offset) & rounds, access


CASES = {
    "uneven": (gemm(13, 21, 9), TILES.format(m=8, n=12, k=8, **USED)),
    "across_uneven": (gemm(28, 20, 30), TILES.format(m=12, n=20, k=10, **USED)),
    "across_in_three_dimensions": (gemm(24, 56, 9), TILES.format(m=24, n=56, k=3, **USED)),
    "source_order": (gemm(16, 16, 16), TILES.format(m=8, n=8, k=4, a="m1, m2, k1", b="n1, n2, k1")),
    "weights_of_a_window": (
        conv3x3(8, 12, 7),
        (
            "tile(axis=o, size=4) tile(axis=x, size=4) tile(axis=c, size=4) "
            "reorder(order=(y, x0, o0, x1, o1, c0, r, s, c1)) thread(axis=y) local(axis=x0) "
            "local(axis=o0) upcast(axis=x1) vectorize(axis=o1) stage(param=X, at=c0, layout=()) "
            "stage(param=W, at=c0, layout=(r, s, c1, o0, o1))"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lowering_copy_by_items_agrees(case):
    kernel, text = CASES[case]
    assert_agrees(kernel, lowered(kernel, text), text)
