"""The interpreter of programs computes what the instructions say, on every kind of machine."""

import numpy as np
import pytest
from hand_programs import (
    BOOLS,
    FLOATS,
    INTS,
    NUMBERS,
    F,
    arguments_of,
    below,
    conversion,
    elementwise,
    expected,
    group_add,
    loop,
    row_sum,
    tiled_gemm,
    vector_add,
)

from tests.interpreter import interpret, pack_buffers
from tunegrad.ir.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.index import ALWAYS, as_index, var
from tunegrad.ir.interpret.numeric import compute, convert, to_compute, to_memory
from tunegrad.ir.program import (
    Buffer,
    Fold,
    For,
    If,
    Load,
    Number,
    Pack,
    Position,
    Program,
    Select,
    Splat,
    Store,
    VType,
)
from tunegrad.ir.program import Test as Condition

SAMPLES = {
    "bool": np.array([False, True, True, False, True, True, False, False]),
    "i32": np.array([-7, 3, 5, -2, 2**31 - 1, 4, -1, 9], np.int32),
    "i64": np.array([-7, 3, 5, -2, 2**62, 4, -1, 9], np.int64),
    "f32": np.array([0.5, -1.25, 3.0, np.inf, np.nan, 1e-3, 2.0, -0.0], np.float32),
    "f64": np.array([0.5, -1.25, 3.0, np.inf, np.nan, 1e-3, 2.0, -0.0], np.float64),
}
CASES = (
    [(op, t) for op in (*NUMBERS, *FLOATS) for t in (F32, F64)]
    + [(op, t) for op in (*NUMBERS, *INTS) for t in (I32, I64)]
    + [(op, BOOL) for op in BOOLS]
)


@pytest.mark.parametrize("make", [vector_add, group_add, tiled_gemm, row_sum])
def test_program_interpreter_gives_the_float64_result_of(make):
    program = make(32) if make is tiled_gemm else make()
    buffers = arguments_of(program)
    interpret(program, buffers)
    name, want = expected(program, buffers)
    np.testing.assert_allclose(buffers[name], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_program_interpreter_gives_every_iteration_to_one_thread(threads):
    program = vector_add(100, 4, threads)
    buffers = arguments_of(program)
    done = interpret(program, buffers)
    assert done.instructions == 25 * 5 + threads
    assert done.written["c"].all()


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_program_interpreter_operations_mean_what_numeric_says(op, dtype, lanes):
    program = elementwise(op, dtype, lanes, 8)
    a = SAMPLES[dtype.name]
    b = (
        np.roll(a, 3)
        if op not in (Op.FLOORDIV, Op.MOD)
        else np.where(np.roll(a, 3) == 0, 1, np.roll(a, 3))
    )
    args = [SAMPLES["bool"], a, b] if op is Op.WHERE else [a, b, np.roll(a, 5)]
    buffers = dict(zip("abc", args, strict=True)) | {
        "y": np.zeros(8, program.params[0].dtype.numpy)
    }
    interpret(program, buffers)
    want = compute(op, *(args[: op.arity]))
    if op is Op.FMA:
        want = (args[0].astype(np.longdouble) * args[1] + args[2]).astype(dtype.numpy)
    np.testing.assert_allclose(buffers["y"], want, rtol=1e-7 if op is Op.ERF else 0)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("to", DTYPES.values(), ids=str)
@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_program_interpreter_converts_as_numeric_does(source, to, lanes):
    values = np.array([0.0, 1.0, -2.5, 3.7, 100.25, -0.3, 1e-3, 7.0])
    x = convert(to_compute(to_memory(values, F32), F32), source.compute)
    memory = to_memory(x, source)
    buffers = {"x": memory, "y": np.zeros(8, to.numpy)}
    interpret(conversion(source, to, lanes, 8), buffers)
    want = to_memory(convert(to_compute(memory, source), to.compute), to)
    np.testing.assert_array_equal(buffers["y"], want)


def test_program_interpreter_fma_of_f32_rounds_once():
    program = elementwise(Op.FMA, F32, 1, 1)
    a = np.float32(1 + 2.0**-12)
    args = [np.array([x], np.float32) for x in (a, a, -(a * a))]
    buffers = dict(zip("abc", args, strict=True)) | {"y": np.zeros(1, np.float32)}
    interpret(program, buffers)
    assert buffers["y"][0] == np.float32(2.0**-24)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_program_interpreter_stores_16_bit_floats_unchanged(dtype):
    t = VType(dtype, 4)
    at = var("i", 2) * 4 + var("v", 4)
    body = (loop("i", 2, Load(1, "x", at, t, "v"), Store("y", at, 1, t, "v")),)
    program = Program(
        "copy", (Buffer("y", dtype, 8, "out"), Buffer("x", dtype, 8, "in")), (), (), body
    )
    buffers = arguments_of(program)
    interpret(program, buffers)
    np.testing.assert_array_equal(buffers["y"].view(np.uint16), buffers["x"].view(np.uint16))


def _folded(op, dtype, values):
    t = VType(dtype, len(values))
    body = (
        Load(1, "x", var("v", len(values)), t, "v"),
        Fold(2, op, 1, VType(dtype)),
        Store("y", as_index(0), 2, VType(dtype)),
    )
    program = Program(
        "fold", (Buffer("y", dtype, 1, "out"), Buffer("x", dtype, len(values), "in")), (), (), body
    )
    buffers = {"y": np.zeros(1, dtype.numpy), "x": np.array(values, dtype.numpy)}
    interpret(program, buffers)
    return buffers["y"][0]


def test_program_interpreter_folds_lanes():
    assert _folded(Op.ADD, F32, [1.0, 2.0, 3.0, 4.5]) == 10.5
    assert _folded(Op.MUL, I32, [1, -2, 3, 4]) == -24
    assert np.isnan(_folded(Op.MAX, F64, [1.0, np.nan, 3.0, 4.5]))
    assert _folded(Op.MIN, I64, [5, -2, 3, 4]) == -2


def test_program_interpreter_positions_and_conditions_follow_lanes():
    n, t = 10, VType(I64, 4)
    at = var("i", 3) * 4 + var("v", 4)
    body = (
        Condition(1, below(at, n), 4, "v"),
        Position(2, at % 3 + at // 4 * 10, t, "v"),
        Number(3, -1, VType(I64)),
        Splat(4, 3, t),
        Condition(5, below(at, 5), 4, "v"),
        Select(6, 5, 2, 4, t),
        Store("y", at, 6, t, "v", 1),
    )
    program = Program("positions", (Buffer("y", I64, n, "out"),), (), (), (loop("i", 3, *body),))
    buffers = arguments_of(program)
    interpret(program, buffers)
    want = [k % 3 + k // 4 * 10 if k < 5 else -1 for k in range(n)]
    assert buffers["y"].tolist() == want


def test_program_interpreter_strided_lanes_gather_and_scatter():
    t = VType(F32, 4)
    at = var("i", 4) + var("v", 4) * 4
    body = (
        loop(
            "i", 4, Load(1, "x", var("i", 4) * 4 + var("v", 4), t, "v"), Store("y", at, 1, t, "v")
        ),
    )
    program = Program(
        "transpose", (Buffer("y", F32, 16, "out"), Buffer("x", F32, 16, "in")), (), (), body
    )
    buffers = arguments_of(program)
    interpret(program, buffers)
    np.testing.assert_array_equal(buffers["y"].reshape(4, 4), buffers["x"].reshape(4, 4).T)


def test_program_interpreter_masked_lanes_read_nothing_and_give_zero():
    t = VType(F32, 4)
    at = var("v", 4) + 6
    body = (
        Condition(1, below(at, 8), 4, "v"),
        Load(2, "x", at, t, "v", 1),
        Store("y", var("v", 4), 2, t, "v"),
    )
    program = Program("tail", (Buffer("y", F32, 4, "out"), Buffer("x", F32, 8, "in")), (), (), body)
    buffers = arguments_of(program)
    interpret(program, buffers)
    assert buffers["y"].tolist() == [*buffers["x"][6:].tolist(), 0.0, 0.0]


def test_program_interpreter_loops_stop_at_the_least_stop_and_branches_choose():
    i, j = var("i", 4), var("j", 4)
    inner = For(
        "j",
        4,
        (as_index(4), 6 - i * 2),
        (If(below(j, 1), (Store("y", i * 4, 1, F),), (Store("y", i * 4 + j, 2, F),)),),
    )
    body = (Number(1, 1.0, F), Number(2, 2.0, F), loop("i", 4, inner))
    program = Program("triangle", (Buffer("y", F32, 16, "out"),), (), (), body)
    buffers = {"y": np.zeros(16, np.float32)}
    interpret(program, buffers)
    assert buffers["y"].reshape(4, 4).tolist() == [
        [1, 2, 2, 2],
        [1, 2, 2, 2],
        [1, 2, 0, 0],
        [0, 0, 0, 0],
    ]


def test_program_interpreter_fills_packs_before_it_starts():
    pack = Pack("w.p", "w", F32, ("p0", "p1"), (3, 2), var("p1", 2) * 3 + var("p0", 3), ALWAYS)
    body = (loop("i", 6, Load(1, "w.p", var("i", 6), F), Store("y", var("i", 6), 1, F)),)
    params = (
        Buffer("y", F32, 6, "out"),
        Buffer("w", F32, 6, "const"),
        Buffer("w.p", F32, 6, "pack"),
    )
    program = Program("packed", params, (), (pack,), body)
    buffers = {"y": np.zeros(6, np.float32), "w": np.arange(6, dtype=np.float32)}
    interpret(program, buffers)
    assert buffers["y"].tolist() == [0, 3, 1, 4, 2, 5]
    assert pack_buffers(program, buffers)["w.p"].tolist() == [0, 3, 1, 4, 2, 5]
