"""Sums of bf16 pairs run: what the interpreter says, odd shapes, threads, OpenCL, stores of another
setting.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pair_builders import CONVS, MATMULS, Case, conv, dot_kernel, matmul, memory, paired

import tunegrad as tg
from tests.interpreter import interpret, pack_buffers
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tunegrad.compiling import Payload
from tunegrad.compiling.candidate import reference
from tunegrad.db import open_store
from tunegrad.devices.cpu.device import OPT_LEVEL, CpuDevice
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.devices.host.team import BufferTable, Executable, Team
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.errors import ConfigError
from tunegrad.frontend import Tensor, bf16_bits, bf16_values
from tunegrad.ir.fusion import schedule
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.render.llvm import render_llvm, workspace_bytes
from tunegrad.trial import Measurement, Policy, Status, Trial

TARGET = host_target(1)
GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=256)
CASES = [matmul(*shapes) for shapes in MATMULS] + [conv(*shape) for shape in CONVS]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.output))


def _buffers(program: Program, kernel_params: tuple, seed: int) -> dict[str, np.ndarray]:
    made = {p.name: memory(p.dtype, p.size, seed) for p in kernel_params}
    for p in kernel_params:
        if p.role == "out":
            made[p.name][:] = 0
    return pack_buffers(program, made)


def _run(
    program: Program, arrays: dict[str, np.ndarray], target: Target | None
) -> dict[str, np.ndarray]:
    """What compiled code makes of the buffers, on one thread."""
    held = {b.name: Buffer(b.size * b.dtype.itemsize) for b in program.params}
    for b in program.params:
        held[b.name].array(b.dtype.name)[:] = arrays[b.name]
    table = BufferTable([held[b.name].address for b in program.params], list(held.values()))
    with Executable.load(
        compile_llvm(render_llvm(program, target), TARGET, OPT_LEVEL), program.name
    ) as code:
        team, scratch = Team(1), Buffer(workspace_bytes(program) + 64)
        team.run(code.address, table.address, scratch.address)
        team.close()
    return {b.name: held[b.name].array(b.dtype.name).copy() for b in program.params}


@pytest.mark.parametrize("target", [TARGET, None], ids=["this CPU", "any CPU"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_every_width_gives_what_the_interpreter_does(lanes: int, target: Target | None) -> None:
    kernel = dot_kernel(matmul((3, 34), (34, 32)))
    text = (
        f"tile(axis=b, size={lanes}) reorder(order=(a, b0, b1, ra)) vectorize(axis=b1)"
        if lanes > 1
        else ""
    )
    program = Space(kernel, TARGET).lower(Schedule.parse(text))
    arrays = _buffers(program, kernel.params, 5)
    got = _run(program, arrays, target)
    interpret(program, arrays)
    name = kernel.outputs[0].name
    np.testing.assert_allclose(got[name], arrays[name], rtol=2e-7, atol=1e-6)


@pytest.mark.parametrize("lanes", [1, 4])
@every_case
def test_packing_kernels_keep_every_bit(case: Case, lanes: int) -> None:
    for launch in paired(case).launches[:-1]:
        k = launch.kernel
        last = k.axes[-1].name
        text = f"tile(axis={last}, size={lanes}) vectorize(axis={last}1)" if lanes > 1 else ""
        program = Space(k, TARGET).lower(Schedule.parse(text))
        arrays = _buffers(program, k.params, 6)
        got = _run(program, arrays, TARGET)
        interpret(program, arrays)
        np.testing.assert_array_equal(got[k.outputs[0].name], arrays[k.outputs[0].name])


@pytest.mark.parametrize("threads", [1, 2])
@every_case
def test_compiled_models_agree_with_float64(case: Case, threads: int) -> None:
    names = list(case.values)
    arrays = [case.values[n] for n in names]

    def function(a: Tensor, b: Tensor) -> Tensor:
        return Tensor.of(_on(case, a, b))

    model = tg.compile(
        function,
        *(Tensor(x, "bf16") for x in arrays),
        threads=threads,
        store=False,
        numerics="bf16-dot",
    )
    assert any("pair" in row.kernel for row in model.report()) == TARGET.bf16_dot
    got = model(*arrays)
    want = _on_float64(case)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _on(case: Case, a: Tensor, b: Tensor) -> object:
    """The case's graph on other inputs."""
    from tunegrad.frontend import substitute
    from tunegrad.ir.graph import GraphOp, topological

    given = {"a": a.node, "b": b.node}
    inputs = [n for n in topological((case.output.node,)) if n.op is GraphOp.INPUT]
    (root,) = substitute((case.output.node,), {n: given[str(n.arg)] for n in inputs})
    return root


def _on_float64(case: Case) -> np.ndarray:
    a, b = (Tensor(case.wide[n].astype(np.float64)) for n in "ab")
    if len(case.output.shape) == 4 and a.shape[2:] == (6, 5):
        stride = -(-6 // case.output.shape[2])
        return a.conv2d(b, stride=stride, padding=1).numpy()
    return (a @ b).numpy()


def test_reference_of_verification_accepts_the_instruction_and_finds_a_lost_pair() -> None:
    kernel = dot_kernel(matmul((17, 64), (64, 48)))
    program = Space(kernel, TARGET).lower(Space(kernel, TARGET).defaults()[0])
    arrays = _buffers(program, kernel.params, 9)
    got = _run(program, arrays, TARGET)[kernel.outputs[0].name]
    expected = reference(Payload(kernel, "", CpuDevice(TARGET)), arrays)[kernel.outputs[0].name]
    assert expected.terms == 64
    assert compare(got, "f32", expected).first == -1
    arrays[kernel.params[1].name].reshape(17, 32)[3, 7] = 0
    lost = _run(program, arrays, TARGET)[kernel.outputs[0].name]
    assert compare(lost, "f32", expected).first == 3 * 48


def test_opencl_expands_pairs() -> None:
    with Programs(opencl_device()) as device:
        for case in CASES[:6]:
            for launch in paired(case).launches:
                space = Space(launch.kernel, GPU)
                program = space.lower(space.defaults()[0])
                mine = _buffers(program, launch.kernel.params, 4)
                theirs = {name: array.copy() for name, array in mine.items()}
                interpret(program, mine)
                device.run(device.compile(program), theirs)
                name = launch.kernel.outputs[0].name
                np.testing.assert_allclose(theirs[name], mine[name], rtol=2e-7, atol=1e-6)


def _plain(a: Tensor) -> Tensor:
    return a.cast("f32").relu()


X = bf16_bits(np.random.default_rng(3).standard_normal((7, 5)))


def test_winner_of_one_setting_never_hits_under_the_other(tmp_path: Path) -> None:
    path, example = tmp_path / "s.db", Tensor(X, "bf16")
    (kernel,) = (
        launch.kernel
        for launch in schedule((_plain(Tensor.input("a", (7, 5), "bf16")).node,)).launches
    )
    ok = Measurement(Status.OK, (1e-6,) * 3)
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        here = fingerprint(TARGET, "bf16-dot")
        store.add(
            Trial(
                kernel.key,
                kernel.text,
                here,
                "",
                "",
                SPACE_VERSION,
                Policy(),
                ok,
                "s1",
                "hand",
                1.0,
            )
        )
    outcomes = {}
    for numerics in ("bf16-dot", "contract", "strict"):
        model = tg.compile(_plain, example, threads=1, store=path, numerics=numerics)
        (row,) = model.report()
        outcomes[numerics] = (row.outcome, row.differs)
    assert outcomes == {
        "bf16-dot": ("hit", ()),
        "contract": ("miss", ("numerics: contract != bf16-dot",)),
        "strict": ("miss", ("numerics: strict != bf16-dot",)),
    }


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="numerics 'bf16' is unknown; valid: contract, strict, bf16-dot"
    ):
        tg.compile(_plain, Tensor(X, "bf16"), numerics="bf16")  # type: ignore[arg-type]


@pytest.mark.parametrize("numerics", ["contract", "strict"])
def test_subnormal_products_count_without_the_setting(numerics: str) -> None:
    a, b = bf16_bits(np.full((4, 8), 2.0**-70)), bf16_bits(np.full((8, 16), 2.0**-70))
    model = tg.compile(
        lambda x, y: x.cast("f32") @ y.cast("f32"),
        Tensor(a, "bf16"), Tensor(b, "bf16"), threads=1, store=False, numerics=numerics,
        # type: ignore[arg-type]
    )  # fmt: skip
    np.testing.assert_array_equal(model(a, b), np.full((4, 16), 8 * 2.0**-140, np.float32))


def test_result_in_bf16_is_rounded_once() -> None:
    case = matmul((5, 7), (7, 3))
    a, b = (case.values[n] for n in "ab")
    model = tg.compile(
        lambda x, y: x @ y,
        Tensor(a, "bf16"),
        Tensor(b, "bf16"),
        threads=1,
        store=False,
        numerics="bf16-dot",
    )
    want = case.wide["a"].astype(np.float64) @ case.wide["b"]
    np.testing.assert_allclose(bf16_values(model(a, b)), want, rtol=2.0**-8, atol=1e-6)


W1, W2 = (
    bf16_bits(np.random.default_rng(i).standard_normal(shape) / 5)
    for i, shape in ((1, (19, 5)), (2, (8, 19)))
)


def _network(x: Tensor) -> Tensor:
    hidden = x.linear(Tensor.constant(W1, "bf16")).gelu()
    return hidden.linear(Tensor.constant(W2, "bf16")).softmax()


def _attention(x: Tensor) -> Tensor:
    heads = x.reshape(7, 1, 5).permute(1, 0, 2).expand(2, 7, 5)
    return ((heads @ heads.transpose()) * 0.3).softmax() @ heads


def _from_f32(x: Tensor) -> Tensor:
    return (x.cast("f32") * 1.3).cast("bf16") @ Tensor.constant(W1, "bf16").transpose()


@pytest.mark.parametrize(("function", "sums"), [(_network, 2), (_attention, 2), (_from_f32, 1)])
def test_networks_agree_with_f32_sums(function: object, sums: int) -> None:
    """To the rounding of bf16: a last bit of an intermediate tensor may differ."""
    results = {}
    for numerics in ("contract", "bf16-dot"):
        model = tg.compile(function, Tensor(X, "bf16"), threads=1, store=False, numerics=numerics)  # type: ignore[arg-type]
        made = numerics == "bf16-dot" and TARGET.bf16_dot
        assert sum("bf16-dot" in row.kernel for row in model.report()) == (sums if made else 0)
        results[numerics] = bf16_values(model(X))
    np.testing.assert_allclose(results["bf16-dot"], results["contract"], rtol=0.03, atol=0.01)
