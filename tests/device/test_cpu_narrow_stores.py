"""Numbers that are narrowed and stored under a mask change nothing beyond the last of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import Programs
from tunegrad.devices import host_device
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.team import BufferTable, Executable, Team
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, dtype_of
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.numeric import to_compute, to_memory
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


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_numbers_are_rounded_to_nearest_even_in_bf16(lanes: int) -> None:
    """Ties, the ends, infinities; NaN stays NaN, and a subnormal number may become zero."""
    near = [1 + k / 512 for k in range(-3, 4)] + [1 + 2.0**-8 + 2.0**-20, -(1 + 2.0**-8)]
    ends = [3.3895314e38, 3.3961775e38, -3.4e38, np.inf, -np.inf, 0.0, -0.0, 2.0**-126]
    given = np.array([*near, *ends, np.nan, 2.0**-130, 3 * 2.0**-140], np.float32)
    given = np.resize(given, 32)
    (launch,) = schedule((Tensor.input("x", (32,)).cast("bf16").contiguous().node,)).launches
    last = launch.kernel.axes[-1].name
    text = f"tile(axis={last}, size={lanes}) vectorize(axis={last}1)" if lanes > 1 else ""
    program = Space(launch.kernel, HOST.target).lower(Schedule.parse(text))
    out = np.zeros(32, np.uint16)
    with Programs(HOST) as programs:
        names = {p.role: p.name for p in launch.kernel.params}
        programs.run(programs.compile(program), {names["in"]: given, names["out"]: out})
    want = to_memory(given, BF16)
    small = (np.abs(given) < 2.0**-126) & (given != 0)
    nan = np.isnan(given)
    np.testing.assert_array_equal(out[~small & ~nan], want[~small & ~nan])
    assert all(x in (0, w) for x, w in zip(out[small], want[small], strict=True))
    assert np.isnan(to_compute(out[nan], BF16)).all()
