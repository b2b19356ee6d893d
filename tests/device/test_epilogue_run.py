"""Results that go through shared memory, compiled: as the interpreter has them in every order of
threads, and for GPUs that are not here in accesses of 16 bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.banks import turns
from tests.cuda_host import cuda_host
from tests.gpu_hand import gemm, hgemm, image_kernel
from tests.interpreter import interpret, pack_buffers
from tests.product_kernels import residual
from tests.programs import Programs
from tests.sass import instructions
from tests.unit.test_epilogue import with_epilogue
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.nvrtc import build, version
from tunegrad.errors import DeviceError
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space

ORDERS = ((0, False), (1, False), (2, True), (3, True))
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a")
BY_HAND = f"{hgemm(3).text} epilogue(param=p0)"

CASES = {
    "product": lambda: (gemm(128, 128, 96), Schedule.parse(BY_HAND)),
    "residual": lambda: default(residual(64, 128, 64)),
    "residual bf16 with tails": lambda: default(residual(40, 44, 48, "bf16")),
    "image": lambda: default(image_kernel(2, 32, 8)),
    "doubles": lambda: default(gemm(32, 64, 16, "f64", "f64")),
}


def default(kernel: Kernel) -> tuple[Kernel, Schedule]:
    return kernel, with_epilogue(kernel)


@pytest.mark.parametrize("name", CASES)
def test_cuda_host_gives_what_the_interpreter_gives(name: str) -> None:
    kernel, schedule = CASES[name]()
    program = Space(kernel, cuda_host().target).lower(schedule)
    rng = np.random.default_rng(0)
    made = {
        p.name: np.zeros(p.size, p.dtype.numpy)
        if p.role == "out"
        else to_memory(rng.standard_normal(p.size), p.dtype).astype(p.dtype.numpy, copy=False)
        for p in kernel.params
    }
    mine = pack_buffers(program, made)
    theirs = [{n: a.copy() for n, a in mine.items()} for _ in ORDERS]
    interpret(program, mine)
    out = kernel.outputs[0].name
    for order, arrays in zip(ORDERS, theirs, strict=True):
        with Programs(cuda_host(*order)) as host:
            host.run(host.compile(program), arrays)
        got, want = (x[out].astype(np.float64) for x in (arrays, mine))
        rounding = {"f32": 1e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}
        np.testing.assert_allclose(got, want, rounding[kernel.param(out).dtype.name], 1e-4)


def counted(arch: str, kernel: Kernel, schedule: Schedule, folder: Path) -> Counter[str]:
    """Instructions; without a warning, a spill or a conflict of banks."""
    try:
        version()
    except DeviceError as error:
        pytest.skip(str(error))
    device = absent(arch)
    program = Space(kernel, device.target).lower(schedule)
    assert set(turns(program).values()) == {1}
    lowered = device.lower(program)
    found = build(lowered.text, lowered.entry, arch)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    assert found.registers * program.local <= device.target.unit_registers // 2
    return instructions(found.image, folder)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_product_by_hand_is_stored_in_accesses_of_sixteen_bytes(
    arch: str, tmp_path: Path
) -> None:
    """Of 64 results an item: 16 stores of 4, after 32 pairs that were put down; 7 barriers more."""
    schedule = Schedule.parse(f"{hgemm(4).text} epilogue(param=p0)")
    found = counted(arch, gemm(1024, 1024, 1024), schedule, tmp_path)
    assert (found["HMMA"], found["LDSM"], found["LDGSTS"]) == (32, 12, 16)
    assert (found["STS"], found["LDS"], found["STG"], found["BAR"]) == (32, 16, 16, 8)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_residual_is_read_as_wide_as_halves_are_stored(arch: str, tmp_path: Path) -> None:
    """Of 8 results an item and run, 16 bytes each of the residual and of the bias. Two slots leave
    room for a slice on every architecture.
    """
    kernel = residual(1024, 1024, 1024)
    (plain,) = Space(kernel, absent(arch).target).defaults()
    text = re.sub(r"slots=\d", "slots=2", plain.text.split(" epilogue(")[0])
    schedule = Schedule.parse(f"{text} epilogue(param={kernel.outputs[0].name})")
    found = counted(arch, kernel, schedule, tmp_path)
    assert found["LDS"] == 2 * found["STG"]
    assert found["STG"] <= found["LDG"] <= 2 * found["STG"]
