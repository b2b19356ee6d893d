"""Loads a few elements apart are whole vectors and shuffles: the right elements, and none beyond the last."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from numpy.typing import NDArray

from tunegrad.artifact import lowered
from tunegrad.devices.cpu import BufferTable, Executable, Team, compile_llvm, host_target
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Schedule, Space

TARGET = host_target(1)
_PAGE = mmap.PAGESIZE


class _AtTheEnd:
    """Memory whose last byte is followed by a page that may not be read."""

    def __init__(self, nbytes: int) -> None:
        pages = -(-nbytes // _PAGE) + 1
        self.map = mmap.mmap(-1, pages * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = base + (pages - 1) * _PAGE - nbytes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(base + (pages - 1) * _PAGE), _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, dtype: np.dtype[np.generic], count: int) -> NDArray[np.generic]:
        raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(self.address)
        return np.frombuffer(raw, dtype)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "f16"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize(("count", "lanes"), [(32, 16), (37, 16), (5, 4), (21, 8)])
def test_elements_a_few_apart_are_read_and_nothing_beyond(dtype: str, step: int, count: int, lanes: int) -> None:
    size = (count - 1) * step + 1
    x = Tensor.input("x", (size,), dtype)
    (launch,) = schedule(((x[::step] + x[::step]).node,)).launches
    text = f"tile(axis=a, size={lanes}) vectorize(axis=a1)"
    low = lowered(Space(launch.kernel, TARGET).lower(Schedule.parse(text)), TARGET)
    code = Executable.load(compile_llvm(low.text, TARGET), low.name)
    kind = np.dtype({"f32": "f4", "f64": "f8", "i32": "i4", "f16": "f2"}[dtype])
    memory = {"in": _AtTheEnd(size * kind.itemsize), "out": _AtTheEnd(count * kind.itemsize)}
    given = memory["in"].array(kind, size)
    given[:] = np.arange(size) % 1000
    addresses = [memory[p.role].address for p in low.io.params]
    table = BufferTable(addresses, list(memory.values()))
    team = Team(1)
    team.run(code.address, table.address)
    team.close()
    np.testing.assert_array_equal(memory["out"].array(kind, count), 2 * given[::step])


@pytest.mark.parametrize("step", [2, 3, 4])
def test_no_lane_is_loaded_alone(step: int) -> None:
    x = Tensor.input("x", (64 * step,), "f32")
    (launch,) = schedule(((x[::step] * 2.0).node,)).launches
    program = Space(launch.kernel, TARGET).lower(Schedule.parse("tile(axis=a, size=16) vectorize(axis=a1)"))
    text = lowered(program, TARGET).text
    assert "shufflevector" in text
    assert "insertelement" not in text
