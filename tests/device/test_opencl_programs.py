"""OpenCL C of every instruction, run by a driver, equals the interpreter.

Skips where there is no OpenCL device.
"""

import time

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
    together,
    vector_add,
)

from tests.interpreter import interpret
from tests.opencl_device import compiled, opencl_device
from tests.programs import Programs
from tunegrad import devices
from tunegrad.errors import CompileFailure, DeviceError, InternalError, OutOfResources
from tunegrad.ir.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.index import as_index, var
from tunegrad.ir.interpret.numeric import convert, to_compute, to_memory
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Fold,
    For,
    If,
    Load,
    Number,
    Position,
    Program,
    Register,
    Select,
    Splat,
    Store,
    VType,
    Write,
)
from tunegrad.ir.program import Test as Condition

pytestmark = pytest.mark.timing

N = 96


@pytest.fixture(scope="module")
def device():
    with Programs(opencl_device()) as device:
        yield device


def both(device, program, buffers):
    """The outputs of the interpreter and of the device."""
    mine = {k: v.copy() for k, v in buffers.items()}
    interpret(program, buffers)
    device.run(compiled(device, program), mine)
    name = program.params[0].name
    return buffers[name], mine[name]


def samples(dtype, seed):
    draw = np.random.default_rng(seed)
    if dtype.is_bool:
        return draw.integers(0, 2, N).astype(np.bool_)
    if dtype.is_int:
        made = draw.integers(-50, 50, N).astype(dtype.numpy)
        return np.where(made == 0, 7, made).astype(dtype.numpy)
    made = draw.standard_normal(N).astype(dtype.numpy)
    made[:4] = [np.nan, np.inf, 0.0, 2.5]
    return made


APPROXIMATE = (Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.TANH, Op.ERF, Op.SIN, Op.TAN, Op.POW, Op.SQRT,
               Op.DIV, Op.RECIP)  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "dtype", "lanes"),
    [
        pytest.param((*NUMBERS, *FLOATS), F32, 1, id="f32"),
        pytest.param((*NUMBERS, *FLOATS), F32, 3, id="f32x3"),
        pytest.param((*NUMBERS, *FLOATS), F32, 16, id="f32x16"),
        pytest.param((*NUMBERS, *FLOATS), F64, 3, id="f64x3"),
        pytest.param((*NUMBERS, *INTS), I32, 16, id="i32x16"),
        pytest.param((*NUMBERS, *INTS), I64, 1, id="i64"),
        pytest.param(BOOLS, BOOL, 3, id="boolx3"),
    ],
)
def test_opencl_operations_equal_the_interpreter(device, ops, dtype, lanes):
    plain = tuple(op for op in ops if op is not Op.WHERE)
    program = together("operations", {f"y.{op}": elementwise(op, dtype, lanes, N) for op in plain})
    buffers = {name: samples(dtype, seed) for seed, name in enumerate("abc")}
    _compare(device, program, buffers, dtype)
    if Op.WHERE in ops:
        _compare(
            device, elementwise(Op.WHERE, dtype, lanes, N), buffers | {"a": samples(BOOL, 0)}, dtype
        )


def _compare(device, program, inputs, dtype):
    outputs = {p.name: np.zeros(N, p.dtype.numpy) for p in program.params if p.role == "out"}
    want, got = inputs | outputs, inputs | {name: y.copy() for name, y in outputs.items()}
    interpret(program, want)
    device.run(compiled(device, program), got)
    for name in outputs:
        rtol = (2e-6 if dtype == F32 else 1e-14) if name.removeprefix("y.") in APPROXIMATE else 0
        np.testing.assert_allclose(got[name], want[name], rtol=rtol, err_msg=f"{name} {dtype}")


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_opencl_conversions_equal_the_interpreter(device, source, lanes):
    values = np.random.default_rng(1).uniform(-60, 60, N).astype(np.float32)
    values[:3] = [0.0, 1.0, -0.5]
    program = together(
        "conversions", {f"y.{to}": conversion(source, to, lanes, N) for to in DTYPES.values()}
    )
    _compare(device, program, {"x": to_memory(convert(values, source.compute), source)}, source)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_opencl_rounds_16_bit_floats_to_nearest_even(device, dtype):
    x = np.frombuffer(np.random.default_rng(5).bytes(4 * 4 * N), np.float32)[:N].copy()
    x = np.where(np.isnan(x), np.float32(1.5), x)
    want, got = both(device, conversion(F32, dtype, 4, N), {"x": x, "y": np.zeros(N, dtype.numpy)})
    np.testing.assert_array_equal(to_compute(got, dtype), to_compute(want, dtype))


@pytest.mark.parametrize("make", [group_add, tiled_gemm, row_sum])
def test_opencl_runs_shared_memory_and_barriers_as_the_interpreter_does(device, make):
    program = make(32, 8) if make is tiled_gemm else make()
    buffers = arguments_of(program)
    want, got = both(device, program, buffers)
    np.testing.assert_array_equal(got, want)
    _, exact = expected(program, buffers)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


def odds_and_ends(extent=1):
    """Conditions, positions, folds, gathers, divisions of negative numbers, private scratch, a
    remainder loop.
    """
    i, j, v, t = var("i", 5), var("j", 4), var("v", 4), VType(F32, 4)
    at = i * 16 + j * 4 + v
    body = (
        Alloc("p", F32, 8, "thread"),
        (
            Condition(1, below(at, 70), 4, "v"),
            Load(2, "x", at, t, "v", 1),
            Fold(3, Op.ADD, 2, F),
            Store("p", j * 2, 3, F),
            Load(4, "p", j * 2, F),
            Splat(5, 4, t),
            Position(6, (at - 37) // 7 + (at - 41) % 5 * 100, t, "v"),
            Condition(7, below(at % 3, 2), 4, "v"),
            Select(8, 7, 5, 6, t),
            Register("r", t), Write("r", 8, t),
            If(
                below(i + j * 2, 6),
                (Store("y", at, 8, t, "v", 1),),
                (Number(9, -3.5, t), Store("y", at, 9, t, "v", 1)),
            ),
        ),
    )  # fmt: skip
    inner = For("j", 4, (as_index(4), (83 - i * 16) // 4), body[1])
    nest = loop("i", 5, inner, kind="thread", count=5)
    params = (Buffer("y", F32, 70, "out"), Buffer("x", F32, 70 if extent == 1 else extent, "in"))
    return Program("odds", params, (body[0],), (), (nest,), 5)


def test_opencl_runs_the_rest_of_the_instructions_as_the_interpreter_does(device):
    program = odds_and_ends()
    want, got = both(device, program, arguments_of(program))
    np.testing.assert_array_equal(got, want)


def test_opencl_threads_of_a_team_become_groups_with_contiguous_shares(device):
    for threads in (1, 2, 3, 7):
        program = vector_add(61, 4, threads)
        want, got = both(device, program, arguments_of(program))
        np.testing.assert_array_equal(got, want)


def test_opencl_has_no_team_barrier(device):
    program = Program("team", (Buffer("y", F32, 1, "out"),), (), (), (Barrier(),), 2)
    with pytest.raises(InternalError, match="opencl has no team barrier"):
        device.compile(program)


def test_opencl_refuses_more_than_the_device_has(device):
    items = device.target.max_local * 2
    with pytest.raises(
        OutOfResources, match=f"{items} work-items, groups of .* have up to {items // 2}"
    ):
        device.compile(group_add(items=items))
    big = device.target.shared_bytes
    program = Program(
        "big", (Buffer("y", F32, 1, "out"),), (Alloc("s", F32, big, "shared"),), (), ()
    )
    with pytest.raises(OutOfResources, match=f"{4 * big} bytes shared, .* has {big}"):
        device.compile(program)


def test_opencl_compile_failure_carries_the_drivers_words(device, monkeypatch):
    monkeypatch.setattr(
        "tunegrad.devices.opencl.device.render_opencl",
        lambda _: "__kernel void tg_vector_add() { no_such; }",
    )
    with pytest.raises(CompileFailure, match="no_such"):
        device.compile(group_add())


@pytest.mark.parametrize(("size", "inner"), [(128, 24), (256, 3)])
def test_opencl_clock_agrees_with_the_wall_around_it(device, size, inner):
    program = tiled_gemm(size)
    made, buffers = compiled(device, program), arguments_of(program)
    with device.device.open() as engine:
        memories = [engine.allocate(p.nbytes) for p in made.lowered.io.params]
        for p, memory in zip(made.lowered.io.params, memories, strict=True):
            engine.write(memory, buffers[p.name])
        launch = engine.launch(engine.load(made.lowered, made.image), memories, [])
        shares = []
        # A busy machine takes the core between launches; a wrong clock is wrong every time.
        while len(shares) < 40 and max(shares, default=0.0) < 0.9:
            began_s = time.perf_counter()
            (seconds,) = engine.time(launch, 1, inner)
            shares.append(seconds * inner / (time.perf_counter() - began_s))
    assert 0.9 <= max(shares) <= 1.0, shares


def test_opencl_device_that_is_not_there_is_one_line(device):
    with pytest.raises(
        DeviceError, match=r"device opencl:99: this machine has \d+ OpenCL devices"
    ) as caught:
        devices.open("opencl:99")
    assert "\n" not in str(caught.value)
