"""Streaming stores: past the caches where an output is aligned, right where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import assembly
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Executable, Team
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.program import Program
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm

HOST = CpuDevice(host_target(1))
ROWS, LANES = 6, 8
STREAMED = f"tile(axis=a, size={LANES}) vectorize(axis=a1) stream(param=p0)"


def program() -> Program:
    (launch,) = schedule(((Tensor.input("x", (ROWS * LANES,)) + 1).node,)).launches
    return Space(launch.kernel, HOST.target).lower(Schedule.parse(STREAMED))


@pytest.mark.parametrize("moved", [0, 4, 8, 20, 32, 60])
def test_a_streamed_output_may_begin_at_any_element(moved: int) -> None:
    """Verification moves outputs by an element, and a part of a joined buffer begins anywhere."""
    low = HOST.lower(program())
    given = np.arange(ROWS * LANES, dtype=np.float32)
    held = {"in": Buffer(given.nbytes), "out": Buffer(given.nbytes + 64)}
    held["in"].array("f32")[:] = given
    held["out"].bytes[:] = 0x5A
    places = {"in": held["in"].address, "out": held["out"].address + moved}
    table = BufferTable([places[p.role] for p in low.io.params], list(held.values()))
    with Executable.load(HOST.compile(low), low.entry) as code:
        team = Team(1)
        team.run(code.address, table.address)
        team.close()
    written = held["out"].bytes
    np.testing.assert_array_equal(written[moved : moved + given.nbytes].view(np.float32), given + 1)
    assert (written[:moved] == 0x5A).all()
    assert (written[moved + given.nbytes :] == 0x5A).all()


def test_an_aligned_output_is_written_past_the_caches() -> None:
    assert "movnt" in assembly(render_llvm(program(), HOST.target), HOST.target)
