"""Default and random schedules for a GPU, as CUDA C++ on this CPU, give what the interpreter gives.

The threads of a block run in another order by each seed, and asynchronous copies arrive at once, or
as late as they may. Skips without a C++ compiler.
"""

from dataclasses import replace

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel
from test_opencl_schedules import random_schedule

from benchmarks.hand_schedules import GPU
from tests.cuda_host import cuda_host
from tests.gpu_hand import CONV_BLOCKS, F32_GEMM, gemm, image_kernel
from tests.interpreter import interpret, pack_buffers
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tests.unit.test_tensorcore import PLAIN, STAGED
from tests.verifiers.program import verify_program
from tunegrad.devices.cuda.architectures import typical
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.opts import Schedule, Space

ORDERS = ((0, False), (1, False), (2, True), (3, True))
"""Seeds of orders of threads, and whether copies arrive late."""


UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7}
"""A unit in the last place: sums in f32 that differ in their order may round to neighbours."""


@pytest.fixture(scope="module")
def hosts():
    opened = [Programs(cuda_host(*order)) for order in ORDERS]
    yield opened
    for each in opened:
        each.close()


def drawn(kernel, program):
    rng = np.random.default_rng(0)
    made = {}
    for p in kernel.params:
        values = rng.standard_normal(p.size) if p.dtype.is_float else rng.integers(-5, 6, p.size)
        held = to_memory(values, p.dtype).astype(p.dtype.numpy, copy=False)
        made[p.name] = np.zeros(p.size, p.dtype.numpy) if p.role == "out" else held
    return pack_buffers(program, made)


def check(hosts, kernel, target, schedule):
    program = Space(kernel, target).lower(schedule)
    verify_program(program, target)
    mine = drawn(kernel, program)
    theirs = [{name: array.copy() for name, array in mine.items()} for _ in hosts]
    interpret(program, mine)
    compiled = hosts[0].compile(program)
    for host, arrays in zip(hosts, theirs, strict=True):
        host.run(compiled, arrays)
        for p in kernel.outputs:
            want, got = (memory[p.name].astype(np.float64) for memory in (mine, arrays))
            one = UNITS.get(p.dtype.name, 1e-5)
            np.testing.assert_allclose(got, want, rtol=one, atol=1e-4, err_msg=schedule.text)


@pytest.mark.parametrize("name", NAMES)
def test_cuda_host_runs_default_schedules_as_the_interpreter_does(hosts, name):
    kernel = corpus_kernel(name)
    target = hosts[0].target
    check(hosts, kernel, target, Space(kernel, target).defaults()[0])


@pytest.mark.parametrize("name", NAMES[1::4])
def test_cuda_host_runs_random_schedules_as_the_interpreter_does(hosts, name):
    kernel = corpus_kernel(name)
    target = hosts[0].target
    check(hosts, kernel, target, random_schedule(Space(kernel, target), f"cuda {name} 0"))


@pytest.mark.parametrize("name", NAMES[2::20])
def test_one_program_in_two_languages_gives_one_result(hosts, name):
    kernel = corpus_kernel(name)
    program = Space(kernel, GPU).lower(random_schedule(Space(kernel, GPU), f"languages {name}"))
    inputs = drawn(kernel, program)
    results = []
    with Programs(opencl_device()) as opencl:
        for device in (hosts[0], opencl):
            memory = {p: array.copy() for p, array in inputs.items()}
            device.run(device.compile(program), memory)
            results.append([memory[p.name].astype(np.float64) for p in kernel.outputs])
    one = max(UNITS.get(p.dtype.name, 1e-5) for p in kernel.outputs)
    for cuda, other in zip(*results, strict=True):
        np.testing.assert_allclose(cuda, other, rtol=one, atol=1e-4, err_msg=program.text)
    assert any(result.any() for result in results[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", NAMES)
def test_cuda_host_runs_many_random_schedules_as_the_interpreter_does(hosts, name, seed):
    kernel = corpus_kernel(name)
    target = hosts[0].target
    check(hosts, kernel, target, random_schedule(Space(kernel, target), f"cuda {name} {seed}"))


@pytest.mark.parametrize("text", [PLAIN, STAGED])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_cuda_host_multiplies_by_matrix_units(hosts, text, transposed, dtype):
    kernel = gemm(64, 64, 64, dtype, transposed=transposed)
    schedule = Schedule.parse(text.replace("_f16_", f"_{dtype}_"))
    check(hosts, kernel, hosts[0].target, schedule)


def test_cuda_host_multiplies_floats_by_a_schedule_by_hand(hosts):
    check(hosts, gemm(140, 128, 48, "f32"), hosts[0].target, Schedule.parse(F32_GEMM))


def test_cuda_host_convolves_in_blocks_by_hand(hosts):
    check(hosts, image_kernel(2, 64, 8), hosts[0].target, Schedule.parse(CONV_BLOCKS))


@pytest.mark.parametrize("transposed", [False, True])
def test_cuda_host_multiplies_as_a_gpu_does_whose_copies_do_not_run_ahead(hosts, transposed):
    """7.5: products of 16 x 8 x 8, fragments loaded by warps, nothing asynchronous."""
    units = typical("sm_75").units
    target = replace(hosts[0].target, units=units, copies_ahead=False)
    kernel = gemm(64, 64, 64, transposed=transposed)
    (schedule,) = Space(kernel, target).defaults()
    assert units[0].name in schedule.text
    check(hosts, kernel, target, schedule)


@pytest.mark.parametrize("transposed", [False, True])
def test_cuda_host_multiplies_bytes_by_matrix_units(hosts, transposed):
    kernel = gemm(64, 64, 128, "i8", "i32", transposed=transposed)
    check(hosts, kernel, hosts[0].target, Space(kernel, hosts[0].target).defaults()[0])


def test_cuda_host_multiplies_doubles_by_matrix_units(hosts):
    text = (
        "tile(axis=a, size=8) tile(axis=b, size=8) tile(axis=ra, size=4) "
        "tensorcore(unit=m8n8k4_f64_f64, m=a1, n=b1, k=ra1) thread(axis=a0, count=0)"
    )
    check(hosts, gemm(16, 8, 12, "f64", "f64"), hosts[0].target, Schedule.parse(text))


@pytest.mark.parametrize("unit", [*typical("sm_80").units, *typical("sm_75").units], ids=str)
def test_every_item_of_a_unit_holds_what_its_map_says(hosts, unit):
    """One tile, whose elements are powers of two apart: each product shows in one result alone."""
    target = replace(hosts[0].target, units=(unit,))
    m, n, k = unit.shape
    taken, gives = unit.dtypes
    kernel = gemm(m, n, k, taken, gives)
    schedule = Schedule.parse(f"tensorcore(unit={unit}, m=a, n=b, k=ra)")
    program = Space(kernel, target).lower(schedule)
    compiled = hosts[0].compile(program)
    for row in range(m):
        for inner in range(k):
            most = 128 if taken == "i8" else k * n
            a, b = np.zeros((m, k)), (np.arange(k * n) % most).astype(np.float64).reshape(k, n)
            a[row, inner] = 1.0
            want = a @ b
            held = DTYPES["f32" if taken == "tf32" else taken]
            a, b = (to_memory(x, held) for x in (a, b))
            out = np.full(m * n, 7, DTYPES[gives].numpy)
            hosts[0].run(compiled, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
            np.testing.assert_array_equal(out.reshape(m, n).astype(np.float64), want)
