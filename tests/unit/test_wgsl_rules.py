"""What WGSL can not say, and what is over a limit of WebGPU, is refused by one line that names the
kernel, the thing and the rule. No checker is needed.
"""

from dataclasses import replace

import numpy as np
import pytest
from hand_programs import F, elementwise, group_add, loop, vector_add
from kernel_corpus import NAMES

from tests.graph_builders import run_schedule
from tests.opencl_batches import corpus_cases
from tests.wgsl import WEBGPU, render_wgsl
from tunegrad.errors import CompileFailure, OutOfResources
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BOOL, F32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import Fusion
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.program import Alloc, Buffer, Load, Number, Program, Store
from tunegrad.opts import Space

REFUSED = {
    "doubles": "parameter p0 is f64",
    "halves": "parameter p0 is f16",
    "compare": "parameter p0 is bool",
    "bytes": "parameter p0 is u8",
    "gather": "parameter p2 is i64",
    "gather_sums": "parameter p2 is u8",
    "gather_padded": "parameter p2 is i16",
    "argmax": "parameter p0 is i64",
    "argmin_columns": "parameter p0 is i64",
    "ranks": "parameter p0 is i64",
    "next_best": "parameter p0 is bool",
    "scatter": "parameter p0 is i64",
    "attention_causal": "%12 is i64",
}
"""The kernels of the corpus that WGSL can not say, and why."""


def filled(count: int = 8, value: float = 1.0, **more: object) -> Program:
    """A program of one f32 output that is filled."""
    body = (Number(1, value, F), Store("y", var("i", count), 1, F))
    return Program(
        "filled", (Buffer("y", F32, count, "out"),), (), (), (loop("i", count, *body),), **more
    )


def test_wgsl_says_all_of_the_corpus_but_what_needs_other_types():
    found = {}
    for case in corpus_cases(NAMES, WEBGPU, draws=0):
        try:
            render_wgsl(case.program)
        except CompileFailure as refusal:
            found.setdefault(case.name, str(refusal).split(": ")[1])
    assert found == REFUSED


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            elementwise(Op.ADD, I64, 1, 8),
            "kernel add_i64: parameter y is i64: memory of WGSL holds",
        ),
        (elementwise(Op.LT, F32, 1, 8), "kernel lt_f32: parameter y is bool: memory of WGSL holds"),
        (
            replace(group_add(), allocs=(Alloc("s", BOOL, 4, "shared"),)),
            "kernel group_add: scratch s is bool: memory of WGSL holds i32, u32, f32",
        ),
    ],
    ids=["i64", "bool", "scratch"],
)
def test_wgsl_refuses_memory_of_other_types(program, words):
    with pytest.raises(CompileFailure, match=words):
        render_wgsl(program)


def test_wgsl_refuses_an_index_that_passes_32_bits():
    """A sum on the way to it counts, too."""
    program = filled()
    (nest,) = program.body
    number, store = nest.body

    def at(offset: Index) -> Program:
        return replace(program, body=(replace(nest, body=(number, replace(store, offset=offset))),))

    assert "b_y[268435456 * i_i]" in render_wgsl(at(var("i", 8) * (1 << 28)))
    for far in (var("i", 8) * (1 << 29), var("i", 8) * (1 << 29) // 3):
        with pytest.raises(
            CompileFailure, match=r"kernel filled: an index of y passes 2\*\*31: ind"
        ):
            render_wgsl(at(far))


def buffers(count: int) -> Program:
    """A sum of so many inputs, less the output."""
    names = [f"x{k}" for k in range(count - 1)]
    loads = [Load(k, name, as_index(0), F) for k, name in enumerate(names)]
    params = (Buffer("y", F32, 1, "out"), *(Buffer(name, F32, 1, "in") for name in names))
    return Program("many", params, (), (), (*loads, Store("y", as_index(0), 0, F)))


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (buffers(8), buffers(9), "kernel many: 9 storage buffers, target webgpu has up to 8"),
        (
            group_add(37 << 4, 3, 256, 1),
            group_add(37 << 4, 3, 257, 1),
            "kernel group_add: 257 work-items in a group, target webgpu has up to 256",
        ),
        (
            filled(threads=65535),
            filled(threads=65536),
            "kernel filled: 65536 groups, target webgpu has up to 65535",
        ),
        (
            filled(1 << 25),
            filled((1 << 25) + 1),
            "kernel filled: 134217732 bytes of y, target webgpu has up to 134217728",
        ),
        (
            replace(group_add(), allocs=(Alloc("s", F32, 4096, "shared"),)),
            replace(group_add(), allocs=(Alloc("s", F32, 4097, "shared"),)),
            "kernel group_add: 16388 bytes of shared memory, target webgpu has up to 16384",
        ),
    ],
    ids=["buffers", "items", "groups", "bytes", "shared"],
)
def test_wgsl_refuses_what_is_over_a_limit(least, most, words):
    assert render_wgsl(least)
    with pytest.raises(OutOfResources, match=words):
        render_wgsl(most)


def test_wgsl_allows_what_its_target_allows():
    wide = replace(WEBGPU, name="wide", max_buffers=9)
    assert "@binding(8)" in render_wgsl(buffers(9), wide)


def test_wgsl_sum_of_64_inputs_is_kernels_of_eight_buffers():
    """Seven are read, and six of these are new, in each but the first and the last."""
    total = Tensor.input("x0", (4,))
    for k in range(1, 64):
        total = total + Tensor.input(f"x{k}", (4,))
    plan = Fusion.of((total.node,), max_buffers=WEBGPU.max_buffers).schedule()
    assert [len(x.kernel.params) for x in plan.launches] == [8] * 10 + [5]
    for launch in plan.launches:
        space = Space(launch.kernel, WEBGPU)
        assert render_wgsl(space.lower(space.defaults()[0]))
    values = {f"x{k}": np.full(4, k, np.float32) for k in range(64)}
    assert run_schedule(plan, values)[0].tolist() == [sum(range(64))] * 4


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300])
def test_wgsl_has_no_constant_expression_that_is_no_number(value):
    """They are errors in WGSL; a function's argument is no constant expression."""
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    assert f"let v1: f32 = tg_bits({bits:#x}u);" in render_wgsl(filled(value=value))


def test_wgsl_rounds_constants_that_f32_does_not_hold():
    assert f"let v1: f32 = {float(np.float32(0.1)).hex()}f;" in render_wgsl(filled(value=0.1))


def test_wgsl_reads_nothing_past_a_mask():
    """What ``select`` does not take is read all the same, so another place is read."""
    text = render_wgsl(vector_add(37, 8, 2))
    reads = [line for line in text.splitlines() if "b_a[" in line]
    assert len(reads) == 8
    assert all("b_a[select(0, " in line for line in reads)
