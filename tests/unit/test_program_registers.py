"""What a loop must carry in registers, and programs that no GPU can give as many, refused before
they are compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hand_programs import F, loop

from benchmarks.hand_schedules import AVX512
from tests.gpu_hand import gemm, hgemm
from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.cuda.device import AbsentGpu
from tunegrad.errors import OutOfResources
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32, F64
from tunegrad.ir.fusion import schedule
from tunegrad.ir.program import (
    Load,
    Program,
    Read,
    Register,
    VType,
    Write,
    carried_registers,
    walk,
)
from tunegrad.opts import Schedule, Space

WIDE = VType(F32, 4)


def program(*body):
    return Program("p", (), (), (), tuple(body))


def step(number, name, vtype=F):
    """One iteration reads a register and writes it."""
    return Read(number, name, vtype), Write(name, number, vtype)


def test_registers_that_an_iteration_reads_and_writes_are_carried():
    inner = loop("k", 8, *step(1, "a"), *step(2, "b", WIDE), *step(3, "c", VType(F64, 1)))
    declared = (Register("a", F), Register("b", WIDE), Register("c", VType(F64, 1)))
    assert carried_registers(program(*declared, inner)) == 1 + 4 + 2


def test_what_begins_and_ends_in_an_iteration_is_not_carried():
    own = loop("k", 8, Register("t", F), *step(1, "t"))
    read = loop("k", 8, Read(2, "a", F))
    written = loop("k", 8, Write("a", 2, F))
    for each in (own, read, written):
        assert carried_registers(program(Register("a", F), each)) == 0


def test_of_several_loops_the_greediest_counts():
    a = loop("i", 4, *step(1, "a"))
    nested = loop("j", 4, loop("k", 4, *step(2, "b"), *step(3, "c")), *step(4, "a"))
    declared = tuple(Register(n, F) for n in "abc")
    assert carried_registers(program(*declared, a, nested)) == 3


def test_a_product_by_hand_carries_its_accumulators():
    space = Space(gemm(1024, 1024, 1024), typical("sm_80"))
    lowered = space.lower(hgemm(4))
    assert carried_registers(lowered) == 128 * 128 // lowered.local


GREEDY = (
    "tile(axis=a, size=32) tile(axis=b, size=16) thread(axis=a0, count=0) thread(axis=b0, count=0) "
    "upcast(axis=a1) upcast(axis=b1)"
)


class _Uncompiled(AbsentGpu):
    def compile(self, lowered, killable=False):
        raise AssertionError("it was compiled")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_can_not_be_kept_is_refused_without_compiling(arch):
    device = _Uncompiled(typical(arch))
    space = Space(gemm(64, 64, 64, "f32"), device.target)
    with pytest.raises(
        OutOfResources, match="a loop carries 512 registers, an item of 1 has up to"
    ):
        device.lower(space.lower(Schedule.parse(GREEDY)))
    small = GREEDY.replace("size=32", "size=8")
    assert device.lower(space.lower(Schedule.parse(small))).text


def test_large_groups_have_less_each():
    from tunegrad.devices.cuda.nvrtc import _registers

    target = typical("sm_80")

    def items(n):
        return Program("p", (), (), (), (), 1, n)

    assert [_registers(items(n), target) for n in (1, 32, 256, 257, 512, 1024)] == [
        255, 255, 255, 227, 128, 64,
    ]  # fmt: skip


def test_a_refused_candidate_is_a_row_that_says_why():
    from tests.cuda_host import cuda_host
    from tunegrad.compiling import HOOKS, Payload
    from tunegrad.devices import Candidate, DeviceMeasurer
    from tunegrad.trial import Policy, Status

    device = cuda_host()
    kernel = gemm(64, 64, 64, "f32")
    with DeviceMeasurer(device, HOOKS, compile_workers=1) as measurer:
        (row,) = measurer.measure(
            [Candidate(kernel.key, Payload(kernel, GREEDY, device))], Policy(min_samples=1)
        )
        assert measurer._bench.started == 0, "nothing ran"
    assert row.measurement.status is Status.OUT_OF_RESOURCES
    assert "a loop carries 512 registers" in row.measurement.error


@pytest.mark.parametrize(
    ("read", "extent", "loads"),
    [
        (lambda x: x[:-1] + x[1:], 65, 5),
        (lambda x: x[:-2] * 0.25 + x[1:-1] * 0.5 + x[2:] * 0.25, 66, 6),
        (lambda x: x + x.flip(0) + x, 64, 8),
    ],
    ids=["neighbours", "three neighbours", "forwards and backwards"],
)
def test_outputs_in_registers_load_each_element_that_they_share_once(
    read: Callable[[Tensor], Tensor], extent: int, loads: int
) -> None:
    (launch,) = schedule((read(Tensor.input("x", (extent,))).node,)).launches
    actions = Schedule.parse("tile(axis=a, size=4) upcast(axis=a1)")
    program = Space(launch.kernel, AVX512).lower(actions)
    assert sum(isinstance(i, Load) for i in walk(program.body)) == loads
