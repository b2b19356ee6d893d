"""Numbers that are narrowed and stored under a mask change nothing beyond the last of them."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices import host_device
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.executable import Executable
from tunegrad.devices.host.team import BufferTable, Team
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.fusion import schedule
from tunegrad.ir.numeric import to_compute
from tunegrad.opts import Schedule, Space

HOST = host_device(1)
FILL = 0x5A


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("over", [1, 2, 3])
@pytest.mark.parametrize(
    ("source", "to"),
    [("f32", "bf16"), ("f32", "f16"), ("i64", "i32"), ("f64", "f32"), ("f32", "bool")],
)
def test_a_masked_tail_of_narrowed_numbers_ends_where_it_should(
    source: str, to: str, over: int, lanes: int
) -> None:
    """LLVM 22 stores four bytes of the one bf16 that a constant mask leaves."""
    rows, columns = 3, 2 * lanes + over
    (launch,) = schedule(
        (Tensor.input("x", (rows, columns), source).cast(to).contiguous().node,)
    ).launches
    last = launch.kernel.axes[-1].name
    text = f"tile(axis={last}, size={lanes}) vectorize(axis={last}1)"
    low = HOST.lower(Space(launch.kernel, HOST.target).lower(Schedule.parse(text)))
    given = np.arange(rows * columns).astype(dtype_of(source).numpy)
    kind = dtype_of(to)
    held = {"in": Buffer(given.nbytes), "out": Buffer(2 * rows * columns * kind.itemsize)}
    held["in"].array(source)[:] = given
    held["out"].bytes[:] = FILL
    table = BufferTable([held[p.role].address for p in low.io.params], list(held.values()))
    with Executable.load(HOST.compile(low), low.entry) as code:
        team = Team(1)
        team.run(code.address, table.address)
        team.close()
    written = held["out"].array(to)[: given.size]
    np.testing.assert_array_equal(to_compute(written, kind), given.astype(kind.compute.numpy))
    assert (held["out"].bytes[given.size * kind.itemsize :] == FILL).all()
