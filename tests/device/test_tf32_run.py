"""tf32 on devices: the same bits everywhere, and products by the matrix unit, on cuda-host and in
machine code.
"""

from __future__ import annotations

import numpy as np
import pytest
from hand_programs import elementwise

from tests.banks import turns
from tests.cover import across, each_once
from tests.cuda_host import cuda_host
from tests.gpu_hand import gemm
from tests.interpreter import interpret
from tests.nvrtc_builds import require_nvrtc
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tests.sass import instructions, listing
from tests.unit.test_tf32 import PLAIN, STAGED, nearest
from tunegrad.devices import host_device
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.nvrtc import build
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.interpret.numeric import compute
from tunegrad.ir.program import Compute, walk
from tunegrad.opts import Schedule, Space

ORDERS = ((0, False), (1, True), (3, True))
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a")


def numbers():
    """Of every exponent; ties, infinities and a NaN among them."""
    bits = np.arange(0, 1 << 32, 1_048_583, dtype=np.uint64).astype(np.uint32)
    ties = (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    made = np.concatenate([bits.view(np.float32), ties.view(np.float32), special])
    return np.ascontiguousarray(made[: len(made) // 16 * 16])


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize(
    "device", [lambda: host_device(1), opencl_device, cuda_host], ids=["cpu", "opencl", "cuda-host"]
)
def test_every_device_rounds_to_the_same_bits(device, lanes):
    x = numbers()
    want, out = compute(Op.TF32, x), np.zeros_like(x)
    program = elementwise(Op.TF32, F32, lanes, len(x))
    with Programs(device()) as on:
        on.run(on.compile(program), {"y": out, "a": x.copy()})
    np.testing.assert_array_equal(np.isnan(out), np.isnan(x))
    same = ~np.isnan(x)
    np.testing.assert_array_equal(out[same].view(np.uint32), want[same].view(np.uint32))
    again = np.zeros_like(x)
    interpret(program, {"y": again, "a": x.copy()})
    np.testing.assert_array_equal(again[same].view(np.uint32), want[same].view(np.uint32))


@pytest.mark.parametrize(
    ("text", "order", "transposed"), each_once([PLAIN, STAGED, "", PLAIN], ORDERS, [False, True])
)
def test_products_on_cuda_host_are_those_of_rounded_factors(order, text, transposed):
    device = cuda_host(*order)
    space = Space(gemm(64, 64, 64, "tf32", transposed=transposed), device.target)
    schedule = Schedule.parse(text) if text else space.defaults()[0]
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    out = np.full(64 * 64, np.nan, np.float32)
    with Programs(device) as on:
        compiled = on.compile(space.lower(schedule))
        on.run(compiled, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    want = nearest(a) @ (nearest(b).T if transposed else nearest(b))
    np.testing.assert_allclose(out.reshape(64, 64), want, rtol=1e-5, atol=1e-4)


@pytest.fixture
def _nvrtc():
    require_nvrtc()


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize(("arch", "transposed"), across(ARCHITECTURES, [False, True]))
def test_machine_code_rounds_and_multiplies_tf32(arch, transposed, tmp_path):
    device = absent(arch)
    space = Space(gemm(1024, 1024, 1024, "tf32", transposed=transposed), device.target)
    program = space.lower(space.defaults()[0])
    lowered = device.lower(program)
    found = build(lowered.text, lowered.entry, arch)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    assert set(turns(program).values()) == {1}
    code = listing(found.image, tmp_path)
    products = [line for line in code.splitlines() if "HMMA" in line]
    assert products
    assert all("HMMA.1688.F32.TF32" in line for line in products)
    counted = instructions(found.image, tmp_path)
    assert min(counted["LDSM"], counted["LDGSTS"]) > 0
    # cvt.rna is two instructions: half of the last digit is added, unless it is no finite number
    rounds = sum(isinstance(i, Compute) and i.op is Op.TF32 for i in walk(program.body))
    assert counted["FSETP"] == rounds <= 2 * len(products) * 2
