"""Machine code of products in tile registers, compiled for a processor with AMX and never run."""

import platform
import re

import pytest

from tests.tile_kernels import NAME, SERVER, gemm
from tunegrad import config
from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.cpu.machine_code import code_facts, hot_loop
from tunegrad.devices.host.codegen import assembly
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm
from tunegrad.tuning.workload import workload_of_spec

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip(
        f"LLVM here compiles for {platform.machine()}, not for x86-64", allow_module_level=True
    )

TAIL = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=16) "
    "tile(axis=ra, size=16) reorder(order=(b0, a0, a1, a2, b1, b2, ra0, ra1)) upcast(axis=a1) "
    f"upcast(axis=b1) tensorcore(unit={NAME}, m=a2, n=b2, k=ra1) "
    "stage(param=p2, at=load, layout=(b0, ra0, b1, ra1, b2))"
)


def compiled(kernel, schedule):
    program = Space(kernel, SERVER).lower(schedule)
    return assembly(render_llvm(program, SERVER), SERVER, OPT_LEVEL)


def default(kernel):
    return compiled(kernel, Space(kernel, SERVER).defaults()[0])


def instructions(text, name):
    return len(re.findall(rf"^\s+{name}\b", text, re.MULTILINE))


@pytest.fixture(scope="module")
def text():
    return default(gemm(1024, 1024, 512, constant=True))


def test_hot_loop_is_four_products_and_four_loads(text):
    body, facts = hot_loop(text), code_facts(text)
    assert [instructions(body, n) for n in ("tdpbf16ps", "tileloadd", "tilestored")] == [4, 4, 0]
    assert (facts.fmas, facts.vector_bits, facts.spills, facts.kernel_spills) == (4, 512, 0, 0)


def test_registers_are_set_up_once_a_call_and_given_back_at_its_end(text):
    names = ("ldtilecfg", "tilerelease", "tilezero", "tilestored")
    assert [instructions(text, n) for n in names] == [1, 1, 4, 4]
    body = text[text.index("kernel.body:") :]
    assert body.index("ldtilecfg") < body.index("tilezero") < body.index("tilestored")
    assert body.index("tilestored") < body.index("tilerelease") < body.index("retq")


def test_a_tail_sets_registers_up_anew_where_it_stands():
    text = compiled(gemm(1000, 1024, 512, constant=True), Schedule.parse(TAIL))
    assert instructions(text, "ldtilecfg") == 2
    assert instructions(text, "tilerelease") == 1


@pytest.mark.parametrize(
    ("model", "vectors"),
    [
        ("resnet18", ["conv7x7s2 4->64 112x112 bf16-dot +relu"]),
        ("resnet50", ["conv7x7s2 4->64 112x112 bf16-dot +relu"]),
        ("encoder", []),
    ],
)
def test_products_of_models_run_in_tiles_by_default(model, vectors):
    """Every convolution and product of pairs, but that of an image of four channels."""
    work = workload_of_spec(config.resolve_model(model), 0, "contract", SERVER, "bf16")
    left = []
    for kernel, _ in work.plan.kernels().values():
        if "bf16-dot" not in kernel.name:
            continue
        text = default(kernel)
        if not instructions(text, "tdpbf16ps"):
            left.append(kernel.name)
            continue
        configs = 2 if kernel.axes[0].extent == 49 else 1  # 49 pixels: tiles of 13, and of 10
        assert instructions(text, "ldtilecfg") == configs, kernel.name
        assert code_facts(text).kernel_spills == 0, kernel.name
    assert left == vectors
