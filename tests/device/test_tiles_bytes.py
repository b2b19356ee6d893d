"""Products of bytes in tile registers: all four units, by the interpreter, by plain code that
stands for AMX, and by AMX where this processor has it. All is exact.
"""

import platform
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from quad_builders import conv, dot_kernel, in_fours, matmul, memory
from word_checks import runs_alike

from tests.amx_twins import TiledCpu, rendered
from tests.interpreter.values import multiply_tiles
from tests.programs import Programs
from tests.tile_kernels import SERVER
from tests.verifiers.program import verify_program
from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.cpu.machine_code import code_facts, hot_loop
from tunegrad.devices.host.codegen import assembly
from tunegrad.devices.host.facts import AMX_INT8, host_target
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.interpret.numeric import bytes_of
from tunegrad.ir.program import TileConfig, TileMul, walk
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm
from tunegrad.search import RandomChooser

HOST = host_target(1)
TILED = replace(
    HOST, units=AMX_INT8,
    features=tuple(f for f in HOST.features if "amx" not in f and "vnni" not in f),
)  # fmt: skip
"""This machine's CPU with tile registers that plain code stands for, and no vectors for bytes."""

SAPPHIRE = replace(
    SERVER, units=AMX_INT8, features=(*SERVER.features, "+amx-int8", "+avx512vnni"), threads=1
)
every_unit = pytest.mark.parametrize("unit", AMX_INT8, ids=str)
every_thread = pytest.mark.parametrize("threads", [1, 2])


def kinds(unit):
    """The dtypes of A and of B, of a byte each."""
    return [name[:2] for name in unit.factors]


def kernels(unit, target=TILED):
    a, b = kinds(unit)
    cases = [
        matmul((48, 128), (128, 48), a, b, constant=True),
        matmul((33, 160), (160, 40), a, b),
        matmul((17, 100), (100, 20), a, b, constant=True),
        conv(64, 32, 1, a, b, constant=True),
        matmul((14, 64), (64, 7), a, b),
        matmul((51, 200), (200, 9), a, b),
    ]
    return [in_fours(case, target).launches[-1].kernel for case in cases]


def agree(kernel, schedule, target):
    """Compiled code on all threads and interpreter, bit by bit."""
    program = Space(kernel, target).lower(schedule)
    verify_program(program, target)
    runs_alike(kernel, program, target, memory)
    return program


@every_unit
def test_a_tile_is_the_exact_product_that_wraps_around(unit):
    a, b = (memory(buffer_dtype(n), 256, i).reshape(16, 16) for i, n in enumerate(unit.factors))
    c = np.full((16, 16), (1 << 31) - 5, np.int32)
    left = bytes_of(a).astype(np.int64).reshape(16, 64)
    right = bytes_of(b).astype(np.int64).transpose(0, 2, 1).reshape(64, 16)
    want = (left @ right + c).astype(np.int32)
    np.testing.assert_array_equal(multiply_tiles(unit, a, b, c), want)


@every_unit
@every_thread
def test_default_schedules_agree_with_the_interpreter(unit, threads):
    target = replace(TILED, threads=threads)
    for kernel in kernels(unit, target):
        schedule = Space(kernel, target).defaults()[0]
        assert "tensorcore(" in schedule.text
        agree(kernel, schedule, target)


@every_unit
@pytest.mark.parametrize("seed", range(6))
def test_random_schedules_agree_with_the_interpreter(unit, seed):
    target = replace(TILED, threads=1 + seed % 2)
    kernel = kernels(unit, target)[seed]
    space = Space(kernel, target)
    draws = (space.sample(RandomChooser(random.Random(f"{seed}.{i}"))) for i in range(20))
    agree(kernel, next(s for s in draws if "tensorcore" in s.text), target)


@pytest.mark.skipif(
    not set(AMX_INT8) <= set(HOST.units), reason="this processor has no AMX-INT8, or may not use it"
)
@every_unit
@every_thread
def test_hardware_agrees_with_the_interpreter(unit, threads):
    target = replace(host_target(threads), units=AMX_INT8)
    for kernel in kernels(unit, TILED):
        agree(kernel, Space(kernel, target).defaults()[0], target)


def test_units_take_their_own_signs_only():
    kernel = dot_kernel(matmul((16, 64), (64, 16)))
    for unit in AMX_INT8:
        text = f"tensorcore(unit={unit}, m=a, n=b, k=ra)"
        if unit.factors == ("u8x4", "i8x4"):
            assert agree(kernel, Schedule.parse(text), TILED)
            continue
        with pytest.raises(IllegalAction, match="a sum of u8x4 x i8x4 in i32, the unit's is of"):
            Space(kernel, TILED).lower(Schedule.parse(text))


def test_what_does_not_fit_has_all_bits():
    """Where hardware would raise an exception: C of 16 rows += A of 8."""
    kernel, device = dot_kernel(matmul((16, 64), (64, 16))), TiledCpu(TILED)
    name = AMX_INT8[0].name
    schedule = Schedule.parse(f"tensorcore(unit={name}, m=a, n=b, k=ra)")
    program = Space(kernel, TILED).lower(schedule)
    text = rendered(program, TILED)
    rows = next(i.rows for i in walk(program.body) if isinstance(i, TileConfig))
    a = next(i.a for i in walk(program.body) if isinstance(i, TileMul))
    right, wrong = (
        ", ".join(f"i8 {8 if t == a and spoilt else r}" for t, r in enumerate(rows))
        for spoilt in (False, True)
    )
    assert text.count(right) == 1
    with Programs(device) as programs:
        compiled = programs.compile(program)
        lowered = replace(compiled.lowered, text=text.replace(right, wrong))
        bad = replace(compiled, lowered=lowered, image=device.compile(lowered))
        arrays = {p.name: memory(p.dtype, p.size, 0) for p in kernel.params}
        programs.run(bad, arrays)
    assert (arrays["p0"] == -1).all()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86-64")
@pytest.mark.parametrize("unit", AMX_INT8, ids=str)
def test_hot_loop_is_four_products_and_four_loads(unit):
    no_vectors = replace(SAPPHIRE, features=tuple(f for f in SAPPHIRE.features if "vnni" not in f))
    case = matmul((1024, 1024), (1024, 1024), *kinds(unit), constant=True)
    kernel = in_fours(case, no_vectors).launches[-1].kernel
    program = Space(kernel, SAPPHIRE).lower(Space(kernel, SAPPHIRE).defaults()[0])
    text = assembly(render_llvm(program, SAPPHIRE), SAPPHIRE, OPT_LEVEL)
    a, b = (kind[0].replace("i", "s") for kind in kinds(unit))
    found = [len(re.findall(rf"\b{n}\b", hot_loop(text))) for n in (f"tdpb{a}{b}d", "tileloadd")]
    assert found == [4, 4]
    assert (code_facts(text).fmas, code_facts(text).spills) == (4, 0)


def test_a_sign_of_its_own_is_moved_where_vectors_multiply_bytes_too():
    """So that what is too small for tiles is multiplied by vectors."""
    kernel = in_fours(matmul((64, 64), (64, 64), "i8", "i8", constant=True), SAPPHIRE)
    assert "dot4(p1[a, ra], p2[ra, b])" in kernel.launches[-1].kernel.text
    assert [p.dtype.name for p in kernel.launches[-1].kernel.params[1:3]] == ["u8x4", "i8x4"]
