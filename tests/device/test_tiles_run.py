"""Products in tile registers run: plain code that stands for AMX gives the interpreter's bits.

Only the calls differ from what a processor with AMX runs (``render.llvm_tiles``).
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.amx_twins import TiledCpu, rendered
from tests.interpreter import interpret
from tests.programs import Programs
from tests.tile_kernels import NAME, SERVER, buffers, conv, gemm, run, tiled, wanted
from tunegrad.devices.host.facts import host_target, require_tiles
from tunegrad.errors import DeviceError
from tunegrad.ir.program import TileConfig, TileMul, walk
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser

KERNELS = {
    "gemm": gemm(48, 48, 64, constant=True),
    "odd gemm": gemm(33, 40, 32, constant=True),
    "padded k": gemm(33, 48, 40, constant=True),
    "rows of B": gemm(48, 56, 64, rows_of_b=True, bias=True),
    "conv3x3": conv(14, 16, 32),
    "small conv3x3": conv(7, 32, 40),
    "conv1x1": conv(9, 16, 20, 1),
    "padded channels": conv(7, 24, 16),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def agree(kernel, schedule, threads, target=None):
    """Compiled code and interpreter, bit by bit, and both with f64."""
    target = target or tiled(threads)
    program = Space(kernel, target).lower(schedule)
    arrays = buffers(program, kernel)
    said = {n: a.copy() for n, a in arrays.items()}
    interpret(program, said)
    got = run(program, arrays, target)
    np.testing.assert_array_equal(got, said["p0"], err_msg=schedule.text)
    want, size = wanted(kernel, arrays)
    terms = 2 * kernel.flops / kernel.outputs[0].size
    assert (np.abs(got - want) <= terms * 2.0**-24 * (size + np.abs(want))).all()
    return program


@every_kernel
@pytest.mark.parametrize("threads", [1, 2])
def test_default_schedules_agree_with_the_interpreter(name, threads):
    schedule = Space(KERNELS[name], tiled(threads)).defaults()[0]
    assert "tensorcore" in schedule.text
    assert agree(KERNELS[name], schedule, threads).threads == threads


@pytest.mark.skipif(not host_target().units, reason="this processor has no AMX, or may not use it")
@every_kernel
@pytest.mark.parametrize("threads", [1, 2])
def test_hardware_agrees_with_the_interpreter(name, threads):
    target = host_target(threads)
    agree(KERNELS[name], Space(KERNELS[name], target).defaults()[0], threads, target)


@pytest.mark.parametrize("seed", range(32))
def test_random_schedules_agree_with_the_interpreter(seed):
    kernel, threads = list(KERNELS.values())[seed % len(KERNELS)], 1 + seed % 2
    space = Space(kernel, tiled(threads))
    draws = (space.sample(RandomChooser(random.Random(f"{seed}.{i}"))) for i in range(20))
    schedule = next(s for s in draws if "tensorcore" in s.text)
    agree(kernel, schedule, threads)


def test_tails_set_registers_up_anew():
    text = (
        "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=16) tile(axis=ra, size=16) "
        "reorder(order=(b0, a0, a1, a2, b1, ra0, ra1)) upcast(axis=a1) "
        f"tensorcore(unit={NAME}, m=a2, n=b1, k=ra1) thread(axis=b0, count=2) "
        "stage(param=p2, at=load, layout=(b0, ra0, ra1, b1))"
    )
    program = agree(gemm(75, 64, 32, constant=True), Schedule.parse(text), 2)
    assert len({i.rows for i in walk(program.body) if isinstance(i, TileConfig)}) == 2


def test_what_does_not_fit_is_nan():
    """Where hardware would raise an exception: C of 16 rows += A of 8."""
    kernel, target = gemm(16, 16, 16), tiled(1)
    program = Space(kernel, target).lower(
        Schedule.parse(f"tensorcore(unit={NAME}, m=a, n=b, k=ra)")
    )
    text = rendered(program, target)
    rows = next(i.rows for i in walk(program.body) if isinstance(i, TileConfig))
    a = next(i.a for i in walk(program.body) if isinstance(i, TileMul))
    right = ", ".join(f"i8 {r}" for r in rows)
    wrong = ", ".join(f"i8 {8 if t == a else r}" for t, r in enumerate(rows))
    assert text.count(right) == 1
    spoilt = text.replace(right, wrong)
    device = TiledCpu(target)
    with Programs(device) as programs:
        compiled = programs.compile(program)
        lowered = replace(compiled.lowered, text=spoilt)
        bad = replace(compiled, lowered=lowered, image=device.compile(lowered))
        arrays = buffers(program, kernel)
        programs.run(bad, arrays)
    assert np.isnan(arrays["p0"]).all()


def test_tiles_that_the_system_refuses_do_not_open():
    require_tiles(tiled(1), lambda: False)  # plain code needs no leave
    with pytest.raises(DeviceError, match="refuses tile registers"):
        require_tiles(SERVER, lambda: False)
