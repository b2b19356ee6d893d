"""Sums that are cut into blocks agree with the interpreter under random schedules, at limits of a
few terms.
"""

from __future__ import annotations

from collections import Counter

import pytest
from kernel_corpus import NAMES, corpus_kernel

from benchmarks.hand_schedules import gemm, row_sum
from tests.property.test_schedules_agree import CPU, GPU, random_actions
from tests.rewrite_faults import Fault, planted
from tests.schedule_checks import assert_agrees, is_small
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.program import For, Program, Register, Write, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.lowering import reductions

PARTIAL = {
    "reorder(order=(k, m, n))": 1,
    "tile(axis=n, size=4) reorder(order=(k, m, n0, n1)) vectorize(axis=n1)": 1,
    "tile(axis=k, size=2) reorder(order=(k0, m, n, k1))": 2,
    "tile(axis=k, size=5) tile(axis=n, size=4) reorder(order=(k0, m, n0, k1, n1)) "
    "vectorize(axis=n1) thread(axis=m)": 5,
    "tile(axis=k, size=8) tile(axis=m, size=2) reorder(order=(k0, m0, n, k1, m1)) "
    "upcast(axis=m1)": 8,
    "tile(axis=k, size=4) tile(axis=k1, size=2) reorder(order=(k0, m, n, k1, k2)) "
    "unroll(axis=k2)": 4,
}
"""Of a matrix product: partial sums in memory, each of so many terms."""


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "BLOCK", 3)
    monkeypatch.setattr(reductions, "LONG_DOT", 4)
    monkeypatch.setattr(reductions, "DOT_BLOCK", 3)
    monkeypatch.setattr(reductions, "PANEL", 4)
    monkeypatch.setattr(reductions, "ROW_PARTIALS", 5)


def in_registers(program: Program) -> bool:
    return any(isinstance(i, Register) and i.name.endswith(".wide") for i in walk(program.body))


def in_memory(program: Program) -> bool:
    return any(a.name.endswith(".partial") for a in program.allocs)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 12), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_sums_in_blocks_agree_under_random_actions(target, seeds):
    count = Counter[str]()
    for name in NAMES:
        kernel = corpus_kernel(name)
        for seed in seeds:
            text = random_actions(kernel, target, seed)
            count["all"] += 1
            count["sums"] += bool(kernel.reduces)
            try:
                program = Space(kernel, target).lower(Schedule.parse(text))
            except IllegalAction:  # not proved to be free of races: one in hundreds is
                count["refused"] += 1
                continue
            count["cut"] += in_registers(program) and is_small(program)
            assert_agrees(kernel, program, f"{name}: {text}", seed)
    assert count["all"] == len(seeds) * len(NAMES)
    assert count["refused"] <= 0.02 * count["all"], count
    assert count["cut"] > count["sums"] // 5, count


@pytest.mark.parametrize("text", PARTIAL)
@pytest.mark.parametrize("depth", [16, 19, 13, 31])
def test_many_partial_sums_go_on_in_f64(text, depth):
    kernel = gemm(3, 8, depth)
    program = Space(kernel, CPU).lower(Schedule.parse(text))
    assert in_memory(program) == (-(-depth // PARTIAL[text]) > reductions.DOT_BLOCK)
    assert is_small(program)
    assert_agrees(kernel, program, text)


@pytest.mark.parametrize("columns", [7, 10, 13, 97, 98, 99])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "tile(axis=k, size=5)",
        "tile(axis=k, size=2) unroll(axis=k1)",
        "tile(axis=k, size=2) upcast(axis=k1)",
        "tile(axis=k, size=4) group(axis=k1)",
        "tile(axis=k, size=8) tile(axis=k1, size=4) upcast(axis=k1) group(axis=k2)",
        "pad(axis=k, multiple=4) tile(axis=k, size=4) unroll(axis=k1)",
    ],
)
def test_a_row_in_blocks_agrees_whatever_its_tail(text, columns):
    kernel = row_sum(2, columns)
    program = Space(kernel, CPU).lower(Schedule.parse(text))
    assert_agrees(kernel, program, text)
    if columns > 90:
        assert in_registers(program)
    for loop in walk(program.body):
        if isinstance(loop, For) and loop.var.endswith(".step"):
            assert loop.extent <= reductions.BLOCK


def test_a_peeled_tail_is_a_block_of_its_own():
    """Of 14 terms in copies of 3, four iterations are in blocks; the last two terms are added and
    flushed.
    """
    program = Space(row_sum(1, 14), CPU).lower(
        Schedule.parse("tile(axis=k, size=3) unroll(axis=k1)")
    )
    writes = [
        i.name for i in walk(program.body) if isinstance(i, Write) and i.name.endswith(".wide")
    ]
    assert len(writes) == 3, "identity, after a block, after the tail"
    assert_agrees(row_sum(1, 14), program, "tail")


_REGION = ".opts.lowering.region:Region."
_FAULTS = [
    Fault("a block is not begun from 0", _REGION + "_chain",
          "b.add(ir.Write(name, b.number(0.0, vtype.dtype, vtype.lanes), vtype))", "pass", ""),
    Fault("earlier blocks are lost", _REGION + "_chain",
          "both = [old, self._as(part, dtypes.F32, cut.wide)]",
          "both = [self._as(part, dtypes.F32, cut.wide)] * 2", ""),
    Fault("the last, shorter block is lost", _REGION + "_in_blocks",
          "(x + (step - 1)) // step", "x // step", ""),
    Fault("blocks overlap", _REGION + "_in_blocks",
          "block * step + count", "block * (step - 1) + count", ""),
    Fault("a peeled tail is no block", _REGION + "loops",
          "blocks.emit(loop.name, lambda: inside(env, limits))",
          "(blocks.begin(), inside(env, limits))", ""),
    Fault("partial sums of a panel are lost", _REGION + "partial_sums",
          "[earlier, old], [dtype] * 2", "[old, old], [dtype] * 2", ""),
]  # fmt: skip
_CUTS = {
    "": 19,
    "tile(axis=k, size=4) unroll(axis=k1)": 18,
    "tile(axis=k, size=3) upcast(axis=k1)": 17,
    "tile(axis=k, size=8) reorder(order=(k0, m, n, k1))": 19,
}


@pytest.mark.parametrize("fault", _FAULTS, ids=lambda f: f.name)
@pytest.mark.parametrize("few", [True, False], ids=["f32", "f64"])
def test_a_fault_in_blocks_is_seen(fault: Fault, few: bool, monkeypatch: pytest.MonkeyPatch):
    if few:
        monkeypatch.setattr(reductions, "_wide", lambda *_: F32)
    seen = []
    for text, depth in _CUTS.items():
        kernel = gemm(2, 4, depth)
        assert_agrees(kernel, Space(kernel, CPU).lower(Schedule.parse(text)), text)
        with planted(fault):
            program = Space(kernel, CPU).lower(Schedule.parse(text))
        try:
            assert_agrees(kernel, program, text)
        except (AssertionError, VerifyError):
            seen.append(text)
    assert seen, fault.name
