"""Code for the GPUs that most people have: every architecture that the registry takes is compiled
for, and nothing is offered that one of them lacks.

NVRTC is a library in a wheel; skips where it is missing.
"""

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel

from tests.gpu_hand import gemm
from tests.nvrtc_builds import clean_default, require_nvrtc
from tests.sass import instructions
from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.engine import products_text
from tunegrad.devices.cuda.nvrtc import build
from tunegrad.errors import OutOfResources
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.opts import Space

ARCHITECTURES = ("sm_75", "sm_86", "sm_100a", "sm_120a")


@pytest.fixture(autouse=True, scope="module")
def _nvrtc():
    require_nvrtc()


@pytest.mark.parametrize("name", NAMES)
def test_default_schedules_compile_for_one_architecture_each(name):
    clean_default(ARCHITECTURES[NAMES.index(name) % len(ARCHITECTURES)], corpus_kernel(name))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_default_schedules_compile_for_every_architecture(name, arch):
    clean_default(arch, corpus_kernel(name))


UNITS = [(arch, u.name) for arch in ARCHITECTURES for u in typical(arch).units]
NEWEST = {unit: arch for arch, unit in UNITS}


@pytest.mark.parametrize(
    ("arch", "unit"),
    [(a, u) if NEWEST[u] == a else pytest.param(a, u, marks=pytest.mark.slow) for a, u in UNITS],
)
def test_every_unit_that_is_offered_multiplies(arch, unit, tmp_path):
    """By default schedules, on its newest architecture; that each one's compiler takes the
    instruction is what the peaks below are measured by.
    """
    _, taken, gives = unit.split("_")
    found = clean_default(arch, gemm(1024, 1024, 1024, taken, gives))
    counted = instructions(found.image, tmp_path)
    assert counted["HMMA"] + counted["IMMA"] + counted["DMMA"] > 0


@pytest.mark.parametrize(("arch", "unit"), UNITS)
def test_the_peak_of_a_unit_is_measured_by_its_products(arch, unit, tmp_path):
    found = build(products_text(typical(arch).matrix_units[unit], 16), "peak_products", arch)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    counted = instructions(found.image, tmp_path)
    assert counted["HMMA"] + counted["IMMA"] + counted["DMMA"] >= 4


def test_an_instruction_of_a_later_architecture_is_one_line():
    kernel = gemm(64, 64, 64, "tf32")
    device = absent("sm_75")
    space = Space(kernel, device.target)
    program = space.lower(space.defaults()[0])
    with pytest.raises(OutOfResources, match="tg_tf32_f32 needs sm_80, the target is sm_75"):
        device.lower(program)


def test_copies_that_wait_leave_registers_for_what_a_warp_multiplies():
    """7.5 has no others: 32 tiles a warp spilled 152 bytes of this convolution of ResNet-50."""
    x, r = (
        Tensor.input(n, (6272, columns), "f16").cast("f32")
        for n, columns in (("x", 256), ("r", 1024))
    )
    w, b = (Tensor.constant(np.ones(s, np.float32)) for s in ((1024, 256), (1024,)))
    y = x @ w.cast("f16").cast("f32").transpose(0, 1) + b + r
    (launch,) = fuse(fold_constants((y.relu().cast("f16").node,))).launches
    clean_default("sm_75", launch.kernel)
