"""Products whose sum is split: both kernels, compiled, give what numpy gives, on a CPU and as CUDA
C++; for GPUs that are not here they compile to what their schedules say.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stored_decisions import decided

import tunegrad as tg
from tests.cover import across
from tests.cuda_host import cuda_host
from tests.gpu_hand import gemm
from tests.interpreter import interpret
from tests.programs import Programs
from tests.sass import instructions
from tests.verifiers.program import verify_program
from tunegrad.db import open_store
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.nvrtc import build, version
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import DeviceError
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Space
from tunegrad.planning import expected

RNG = np.random.default_rng(0)
ORDERS = ((0, False), (1, False), (2, True), (3, True))


def default(kernel: Kernel, target: Target) -> Program:
    space = Space(kernel, target)
    (found,) = space.defaults()
    program = space.lower(found)
    verify_program(program, target)
    return program


@pytest.mark.parametrize("variant", ["split_k2", "split_k8"])
def test_a_stored_split_runs_on_a_cpu(tmp_path: Path, variant: str) -> None:
    x, y = (RNG.standard_normal(s, dtype=np.float32) for s in ((24, 2048), (2048, 40)))
    b = RNG.standard_normal(40, dtype=np.float32)

    def model(x, y, b):
        return (x @ y + b).relu()

    given = [Tensor.input(f"x{i}", a.shape) for i, a in enumerate((x, y, b))]
    (launch,) = schedule((model(*given).node,)).launches
    here = fingerprint(host_target(2))
    with open_store(tmp_path / "s.db", "write") as store, store.session("tune", 0, {}, "0", "s1"):
        store.record_decision(decided("variant", launch.kernel.text, variant, here))
    compiled = tg.compile(model, x, y, b, store=tmp_path / "s.db", threads=2)
    exact = np.maximum(x.astype(np.float64) @ y + b, 0.0)
    np.testing.assert_allclose(compiled(x, y, b), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("variant", "transposed"), [("split_k2", False), ("split_k4", True)])
def test_both_kernels_run_as_cuda_in_every_order(variant: str, transposed: bool) -> None:
    """And as the interpreter has them, bit for bit where both add in one order."""
    m, n, k = 32, 64, 1024
    partial, finish = parts_of(gemm(m, n, k, transposed=transposed), variant)
    target = cuda_host().target
    programs = [default(p, target) for p in (partial, finish)]
    shapes = (m, k), (n, k) if transposed else (k, n)
    a, b = (to_memory(RNG.standard_normal(s), partial.params[1].dtype) for s in shapes)
    exact = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)

    def ran(run) -> np.ndarray:
        t = np.full(partial.outputs[0].size, np.nan, np.float32)
        run(programs[0], {"p0": t, "p1": a.reshape(-1), "p2": b.reshape(-1)})
        out = np.full(m * n, np.nan, np.float32)
        run(programs[1], {"p0": out, "p1": t})
        return out.reshape(m, n)

    interpreted = ran(interpret)
    np.testing.assert_allclose(interpreted, exact, rtol=1e-4, atol=1e-3)
    for order in ORDERS:
        with Programs(cuda_host(*order)) as host:
            found = ran(lambda program, arrays, host=host: host.run(host.compile(program), arrays))
        np.testing.assert_allclose(found, interpreted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("arch", "shape"),
    across(["sm_80", "sm_89", "sm_90a"], [(128, 4096, 4096), (64, 1024, 16384)]),
)
def test_what_gpus_split_compiles_to_products_and_wide_sums(
    arch: str, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    """The parts of four results are read in loads of 16 bytes, all in flight."""
    try:
        version()
    except DeviceError as error:
        pytest.skip(str(error))
    kernel, device = gemm(*shape), absent(arch)
    variant = expected(kernel, device.target)
    counts = []
    for part in parts_of(kernel, variant if variant != "direct" else "split_k4"):
        lowered = device.lower(default(part, device.target))
        built = build(lowered.text, lowered.entry, arch)
        assert (built.warnings, built.spilled_bytes, built.stack_bytes) == ("", 0, 0)
        counts.append(instructions(built.image, tmp_path))
    product, finish = counts
    assert product["HMMA"] > 0
    assert product["LDSM"] > 0
    assert product["LDGSTS"] > 0
    assert (finish["STG"], finish["BAR"], finish["LDS"]) == (1, 0, 0)
    assert finish["LDG"] in (2, 4, 8, 16)
