"""Action lists for a GPU, lowered and printed as OpenCL C, give what the interpreter gives.

Skips without a device.
"""

import random

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel

from tests.interpreter import interpret, pack_buffers
from tests.opencl_device import compiled, opencl_device
from tests.programs import Programs
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Load, Op, Value
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.program import Barrier, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.opts.actions import ACTIONS

GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=256)


@pytest.fixture(scope="module")
def device():
    with Programs(opencl_device()) as device:
        yield device


def gemm(size):
    m, n, k = (Axis(name, size) for name in "mnk")
    a, b = Load("A", (m.index, k.index), F32), Load("B", (k.index, n.index), F32)
    shape = (size, size)
    params = tuple(
        Param.dense(name, F32, shape, role)
        for name, role in (("C", "out"), ("A", "in"), ("B", "in"))
    )
    total = Reduce("s", Op.ADD, (k,), Apply(Op.MUL, (a, b), F32), F32)
    return Kernel(params, (m, n), (total, Store("C", (m.index, n.index), Value("s", F32))))


def row_sum(rows, columns):
    r, c = Axis("r", rows), Axis("c", columns)
    params = (Param.dense("y", F32, (rows,), "out"), Param.dense("x", F32, (rows, columns), "in"))
    total = Reduce("s", Op.ADD, (c,), Load("x", (r.index, c.index), F32), F32)
    return Kernel(params, (r,), (total, Store("y", (r.index,), Value("s", F32))))


def both(device, kernel, program):
    """The buffers after the interpreter ran, and after the device did."""
    assert program.params[0].role == "out"
    rng = np.random.default_rng(0)
    made = {}
    for p in kernel.params:
        values = rng.standard_normal(p.size) if p.dtype.is_float else rng.integers(-5, 6, p.size)
        made[p.name] = (
            np.zeros(p.size, p.dtype.numpy) if p.role == "out" else values.astype(p.dtype.numpy)
        )
    mine = pack_buffers(program, made)
    theirs = {name: array.copy() for name, array in mine.items()}
    interpret(program, mine)
    device.run(compiled(device, program), theirs)
    return mine, theirs


def test_opencl_runs_a_scheduled_gemm_with_shared_tiles(device):
    text = (
        "tile(axis=m, size=16) tile(axis=n, size=16) tile(axis=k, size=16) "
        "reorder(order=(m0, n0, m1, n1)) "
        "thread(axis=m0, count=0) thread(axis=n0, count=0) local(axis=m1) local(axis=n1) "
        "stage(param=A, at=k0, layout=()) stage(param=B, at=k0, layout=())"
    )
    kernel = gemm(32)
    program = Space(kernel, GPU).lower(Schedule.parse(text))
    assert verify_program(program, GPU) == ()
    assert {(a.size, a.space) for a in program.allocs} == {(256, "shared")}
    assert (program.threads, program.local) == (4, 256)
    assert any(isinstance(i, Barrier) for i in walk(program.body))
    mine, theirs = both(device, kernel, program)
    np.testing.assert_array_equal(mine["C"], theirs["C"])
    exact = mine["A"].reshape(32, 32).astype(np.float64) @ mine["B"].reshape(32, 32)
    np.testing.assert_allclose(theirs["C"].reshape(32, 32), exact, rtol=1e-5, atol=1e-5)


def test_opencl_runs_a_scheduled_row_reduction_through_shared_memory(device):
    kernel = row_sum(6, 100)
    text = "tile(axis=c, size=16) thread(axis=r, count=0) group(axis=c1)"
    program = Space(kernel, GPU).lower(Schedule.parse(text))
    assert verify_program(program, GPU) == ()
    assert [a.space for a in program.allocs] == ["shared"]
    assert (program.threads, program.local) == (6, 16)
    mine, theirs = both(device, kernel, program)
    np.testing.assert_array_equal(mine["y"], theirs["y"])
    np.testing.assert_allclose(
        theirs["y"], mine["x"].reshape(6, 100).astype(np.float64).sum(1), rtol=1e-5, atol=1e-5
    )


def random_schedule(space, seed, most=8):
    """A random legal action list, grown one step at a time; work-items first, which random steps
    seldom find.
    """
    rng = random.Random(seed)
    schedule = Schedule(())
    names = [
        "tile",
        "local",
        "thread",
        "stage",
        *rng.sample(sorted(ACTIONS), rng.randrange(most - 3)),
    ]
    for name in names:
        tree = space.tree(schedule)
        options = list(ACTIONS[name].options(tree))
        rng.shuffle(options)
        for action in options[:6]:
            try:
                action.check(tree)
                space.lower(grown := Schedule((*schedule.actions, action)))
            except IllegalAction:
                continue
            schedule = grown
            break
    return schedule


def check_random(device, name, seed):
    kernel = corpus_kernel(name)
    space = Space(kernel, GPU)
    schedule = random_schedule(space, f"{name} {seed}")
    program = space.lower(schedule)
    verify_program(program, GPU)
    mine, theirs = both(device, kernel, program)
    for p in kernel.outputs:
        want, got = (memory[p.name].astype(np.float64) for memory in (mine, theirs))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=schedule.text)


@pytest.mark.parametrize("name", NAMES[::6])
def test_opencl_runs_random_schedules_as_the_interpreter_does(device, name):
    check_random(device, name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_opencl_runs_many_random_schedules_as_the_interpreter_does(device, name):
    for seed in range(1, 11):
        check_random(device, name, seed)
