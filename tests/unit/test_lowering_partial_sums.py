"""Reduce loops around shared ones: sums go on in the output, and the epilogue runs in the last
block only.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.hand_schedules import AVX512, gemm
from tests.property.test_schedules_agree import assert_agrees
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import F16, F32
from tunegrad.ir.expr import Apply, Cast, Const, Load, Op, Value
from tunegrad.ir.kernel import Param, Store
from tunegrad.ir.program import Compute, If, walk
from tunegrad.ir.program import Load as LoadInstr
from tunegrad.ir.program import Store as StoreInstr
from tunegrad.opts import Schedule, Space

BLOCKED = "tile(axis=k, size=8) reorder(order=(k0, m, n, k1))"


def with_epilogue(m, n, k, *, half=False):
    """``C = relu(A @ B + R)``, in f16 too as a second output."""
    base = gemm(m, n, k)
    reduce, store = base.stages
    total = Apply(Op.ADD, (Value("v0", F32), Load("R", store.index, F32)), F32)
    value = Apply(Op.MAX, (total, Const(0.0, F32)), F32)
    stages = (reduce, replace(store, expr=value))
    params = (*base.params, Param.dense("R", F32, (m, n), "in"))
    if half:
        params = (*params, Param.dense("H", F16, (m, n), "out"))
        stages = (*stages, Store("H", store.index, Cast(value, F16)))
    return replace(base, params=params, stages=stages)


@pytest.mark.parametrize("depth", [16, 19, 8, 5])
@pytest.mark.parametrize(
    "text",
    [
        BLOCKED,
        (
            "tile(axis=k, size=8) tile(axis=n, size=4) reorder(order=(k0, m, n0, k1, n1)) "
            "vectorize(axis=n1)"
        ),
        "tile(axis=k, size=8) tile(axis=k1, size=4) reorder(order=(k0, m, k1, n, k2))",
        (
            "tile(axis=k, size=8) tile(axis=m, size=2) reorder(order=(m0, k0, n, k1, m1)) "
            "upcast(axis=m1) thread(axis=m0)"
        ),
        "tile(axis=k, size=4) tile(axis=k1, size=2) reorder(order=(k0, m, n, k1)) unroll(axis=k2)",
    ],
)
def test_lowering_partial_sums_agree_with_an_epilogue(text, depth):
    for kernel in (with_epilogue(3, 8, depth), with_epilogue(3, 8, depth, half=True)):
        assert_agrees(kernel, Space(kernel, AVX512).lower(Schedule.parse(text)), text)


def test_lowering_epilogue_stands_in_the_last_block_only():
    program = Space(with_epilogue(4, 8, 32), AVX512).lower(Schedule.parse(BLOCKED))
    first, last = (i for i in walk(program.body) if isinstance(i, If))
    assert (str(first.valid), first.body) == ("0<=k0<1", ())
    assert [i.buffer for i in first.orelse if isinstance(i, LoadInstr)] == ["C"]
    assert str(last.valid) == "3<=k0<4"
    assert any(isinstance(i, Compute) and i.op is Op.MAX for i in last.body)
    assert not any(isinstance(i, Compute) for i in last.orelse)
    assert [i.buffer for i in last.orelse if isinstance(i, StoreInstr)] == ["C"]


def test_lowering_other_outputs_are_stored_once():
    program = Space(with_epilogue(4, 8, 32, half=True), AVX512).lower(Schedule.parse(BLOCKED))
    *_, last = (i for i in walk(program.body) if isinstance(i, If))
    assert [i.buffer for i in last.body if isinstance(i, StoreInstr)] == ["C", "H"]
    assert [i.buffer for i in last.orelse if isinstance(i, StoreInstr)] == ["C"]


def test_lowering_one_block_needs_no_partial_sums():
    program = Space(with_epilogue(4, 8, 8), AVX512).lower(Schedule.parse(BLOCKED))
    assert not any(isinstance(i, If) for i in walk(program.body))


def test_lowering_partial_sums_need_an_output_of_the_sums_type():
    kernel = with_epilogue(4, 8, 32, half=True)
    narrow = replace(
        kernel, params=(*kernel.params[1:],), stages=(kernel.stages[0], kernel.stages[2])
    )
    with pytest.raises(
        IllegalAction, match="no output has the accumulator's dtype to hold partial sums"
    ):
        Space(narrow, AVX512).tree(Schedule.parse(BLOCKED))
