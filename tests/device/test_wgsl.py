"""WGSL of the corpus and of every operation: Tint takes it, and on a driver, by naga, it gives what
the interpreter says. Skips where a checker, or an adapter, is missing.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hand_programs import arguments_of, group_add, loop, row_sum, tiled_gemm
from kernel_corpus import NAMES

from tests.interpreter import interpret
from tests.opencl_batches import Case, corpus_cases, has_barriers, uses_shared
from tests.schedule_checks import assert_close, buffers_of, expected
from tests.webgpu import tint, webgpu
from tests.wgsl import WEBGPU, render_wgsl
from tunegrad.errors import CompileFailure
from tunegrad.ir.dtypes import BOOL, F32, I32, U32, DType
from tunegrad.ir.expr import Op, result_type
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    Convert,
    Load,
    Number,
    Program,
    Store,
    VType,
    walk,
)
from tunegrad.ir.target import Target

WIDE = replace(WEBGPU, vector_bytes=16)
"""Lanes, each a variable of its own."""
N = 96


def cases(target: Target, draws: int, names: Sequence[str] = NAMES, first: int = 0) -> list[Case]:
    """Those of the corpus that WGSL can say."""
    found = []
    for case in corpus_cases(names, target, draws, first):
        try:
            render_wgsl(case.program)
        except CompileFailure:
            continue
        found.append(case)
    return found


def check(found: list[Case]) -> None:
    """Every case gives what its kernel says."""
    on = webgpu()
    for case in found:
        given = buffers_of(case.kernel, case.program, 0)
        got = on.run(case.program, given)
        assert_close(got, expected(case.kernel, given), f"{case.kernel}\n{case.schedule.text}")


@pytest.mark.parametrize("target", [WEBGPU, WIDE], ids=["scalars", "lanes"])
def test_tint_takes_wgsl_of_the_corpus(target):
    accept, found = tint(), cases(target, 2)
    assert len({case.name for case in found}) == 51, "of 62"
    for case in found:
        accept(render_wgsl(case.program))


def test_tint_refuses_a_barrier_that_not_all_reach():
    text = render_wgsl(row_sum())
    assert tint()(text)
    wrong = text.replace("  workgroupBarrier();", "  if (item < 1) { workgroupBarrier(); }", 1)
    with pytest.raises(RuntimeError, match="uniform control flow"):
        tint()(wrong)


def test_naga_refuses_a_wrong_type():
    on = webgpu()
    wrong = render_wgsl(group_add()).replace("let v4_0: f32", "let v4_0: i32")
    with pytest.raises(RuntimeError, match="v4_0"):
        on.compile(wrong)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("target", [WEBGPU, WIDE], ids=["scalars", "lanes"])
def test_wgsl_runs_the_corpus_as_its_kernels_say(target, part):
    found = cases(target, 1, NAMES[part::3])
    check(found)
    assert len({case.name for case in found}) >= 14, "of 19 or 20"
    assert any(uses_shared(c.program) and has_barriers(c.program) for c in found)


@pytest.mark.slow
@pytest.mark.parametrize("target", [WEBGPU, WIDE], ids=["scalars", "lanes"])
def test_wgsl_runs_many_draws_of_the_corpus_as_its_kernels_say(target):
    check(cases(target, 10, first=1))


@pytest.mark.parametrize("make", [group_add, tiled_gemm, row_sum])
def test_wgsl_runs_shared_memory_and_barriers_as_the_interpreter_does(make):
    program = make(32, 8) if make is tiled_gemm else make()
    given = arguments_of(program)
    want = {name: values.copy() for name, values in given.items()}
    interpret(program, want)
    assert_close(
        webgpu().run(program, given), {program.params[0].name: want[program.params[0].name]}, ""
    )


def mirror() -> Program:
    """y[l] = x[7 - l], through memory that all share and memory that nobody else has."""
    item, F = var("l", 8), VType(F32)
    give = (
        Load(1, "x", item, F), Store("mine", as_index(1), 1, F),
        Load(2, "mine", as_index(1), F), Store("all", item, 2, F),
    )  # fmt: skip
    take = (Load(3, "all", 7 - item, F), Store("y", item, 3, F))
    params = (Buffer("y", F32, 8, "out"), Buffer("x", F32, 8, "in"))
    allocs = (Alloc("mine", F32, 2, "thread"), Alloc("all", F32, 8, "team"))
    body = (*(loop("l", 8, *part, kind="local", count=8) for part in (give, take)),)
    return Program("mirror", params, allocs, (), (body[0], Barrier(), body[1]), 1, 8)


def test_tint_takes_wgsl_of_scratch_of_all_items_and_of_each():
    tint()(render_wgsl(mirror()))


def test_wgsl_runs_scratch_of_all_items_and_of_each():
    x = np.arange(8, dtype=np.float32)
    assert "storageBarrier(); workgroupBarrier();" in render_wgsl(mirror())
    np.testing.assert_array_equal(webgpu().run(mirror(), {"x": x})["y"], x[::-1])


# ---- every operation


def applied(op: Op, dtype: DType) -> Program:
    """y = op(a, b, c) of so many arguments. Truth values are made of i32, and stored as such."""
    held = I32 if dtype.is_bool else dtype
    to = result_type(op, [BOOL, dtype, dtype] if op is Op.WHERE else [dtype] * op.arity)
    assert to is not None
    names, at = "abc"[: op.arity], var("i", N)
    kinds = [BOOL if op is Op.WHERE and name == "a" else dtype for name in names]
    loads = [
        Load(k, name, at, VType(I32 if kind.is_bool else kind))
        for k, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    args = [Convert(k + 3, k, VType(kind)) for k, kind in enumerate(kinds)]
    result = I32 if to.is_bool else to
    body = (
        *loads, *args, Compute(9, op, tuple(c.id for c in args), VType(to)),
        Convert(10, 9, VType(result)), Store("y", at, 10, VType(result)),
    )  # fmt: skip
    inputs = (Buffer(name, i.vtype.dtype, N, "in") for name, i in zip(names, loads, strict=True))
    params = (Buffer("y", result, N, "out"), *inputs)
    assert held in (result, *(b.dtype for b in params))
    return Program(f"{op}_{dtype}", params, (), (), (loop("i", N, *body),))


def drawn(dtype: DType, seed: int, special: bool = False) -> np.ndarray:
    """Half of the integers at the ends of their type or near zero; ``special`` floats are NaN or
    infinite.
    """
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        made = (rng.standard_normal(N) * 3).astype(np.float32)
        made[40 + seed : 43 + seed] = [1.0, -2.0, 3.0]
        if special:
            made[[5, 17 + seed, 29, 33 + seed]] = [np.nan, np.nan, np.inf, -np.inf]
        return made
    wide = rng.integers(dtype.least, dtype.greatest, N, dtype=dtype.numpy.str, endpoint=True)
    edges = np.array([0, 1, 2, 3, 31, 32, dtype.least, dtype.greatest], dtype.numpy)
    return np.where(rng.random(N) < 0.5, wide, edges[rng.integers(0, len(edges), N)])


def agrees(program: Program, given: dict[str, np.ndarray], rtol: float, atol: float = 0) -> None:
    want = {**given, **{b.name: np.zeros(N, b.dtype.numpy) for b in program.params[:1]}}
    with np.errstate(all="ignore"):
        interpret(program, want)
    got = webgpu().run(program, given)
    np.testing.assert_allclose(got["y"], want["y"], rtol=rtol, atol=atol, err_msg=program.name)


ROUNDED = {
    Op.EXP: 1e-5, Op.LOG: 1e-5, Op.LOG2: 1e-5, Op.LOG10: 1e-5,
    Op.TANH: 1e-5, Op.ERF: 1e-5, Op.SIN: 1e-3, Op.COS: 1e-3, Op.TAN: 1e-3,
    Op.POW: 1e-4, Op.SQRT: 1e-6, Op.DIV: 1e-6, Op.RECIP: 1e-6, Op.FMA: 1e-6, Op.MOD: 1e-4,
    Op.FLOORDIV: 0,
}  # fmt: skip
"""Relative errors that WGSL allows, or more; 0: the same number."""


def operations(dtype: DType) -> list[Program]:
    """One for each operation that the type has and that is not of words."""
    words = (Op.PAIR, Op.QUAD, Op.DOT2I, Op.DOT2I_ADD)
    takes = (op for op in Op if result_type(op, [dtype] * op.arity) is not None)
    return [applied(op, dtype) for op in (*(op for op in takes if op not in words), Op.WHERE)]


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL], ids=str)
def test_tint_takes_wgsl_of_every_operation(dtype):
    accept = tint()
    for program in operations(dtype):
        accept(render_wgsl(program))


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL], ids=str)
def test_wgsl_operations_equal_the_interpreter(dtype):
    webgpu()
    programs = operations(dtype)
    assert len(programs) >= 9
    for program in programs:
        op = next(i.op for i in walk(program.body) if isinstance(i, Compute))
        special = op in (Op.MAX, Op.MIN)
        given = {b.name: drawn(b.dtype, k, special) for k, b in enumerate(program.params[1:])}
        rtol = ROUNDED.get(op, 0) if dtype.is_float else 0
        agrees(program, given, rtol, rtol / 10)


@pytest.mark.parametrize("to", [F32, I32, U32], ids=str)
@pytest.mark.parametrize("source", [F32, I32, U32], ids=str)
def test_wgsl_conversions_equal_the_interpreter(source, to):
    at = var("i", N)
    body = (Load(1, "x", at, VType(source)), Convert(2, 1, VType(to)), Store("y", at, 2, VType(to)))
    params = (Buffer("y", to, N, "out"), Buffer("x", source, N, "in"))
    program = Program(f"{source}_to_{to}", params, (), (), (loop("i", N, *body),))
    x = drawn(source, 3, special=True)
    if source.is_float:
        x[:7] = [-0.9, 2.0**31, -(2.0**31), 2.0**32, 4e9, -3e9, 1.9]
    agrees(program, {"x": x}, 0)


def test_wgsl_numbers_are_the_interpreters():
    """Each in a program of its own: the least integer, infinities, NaN, what f32 rounds."""

    def stored(value, dtype: DType, at: Index) -> Program:
        body = (Number(1, value, VType(dtype)), Store("y", at, 1, VType(dtype)))
        return Program("number", (Buffer("y", dtype, N, "out"),), (), (), (loop("i", N, *body),))

    for value in (np.inf, -np.inf, np.nan, 0.1, -1e-40, 3.4e38):
        agrees(stored(value, F32, var("i", N)), {}, 0, 1.2e-38)
    for value, dtype in ((-(2**31), I32), (2**31 - 1, I32), (-1, I32), (2**32 - 1, U32)):
        agrees(stored(value, dtype, var("i", N)), {}, 0)
