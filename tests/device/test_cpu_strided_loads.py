"""Loads a few elements apart are whole vectors and shuffles: the right elements, and none beyond
the last.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from numpy.typing import NDArray

from tunegrad.devices import host_device
from tunegrad.devices.host.team import BufferTable, Executable, Team
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Schedule, Space

HOST = host_device(1)
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


def _run(tensor: Tensor, text: str, given: NDArray[np.generic], count: int) -> NDArray[np.generic]:
    """What a schedule makes of an input that ends at a page that may not be read; its output ends
    so too.
    """
    (launch,) = schedule((tensor.node,)).launches
    low = HOST.lower(Space(launch.kernel, HOST.target).lower(Schedule.parse(text)))
    code = Executable.load(HOST.compile(low), low.entry)
    memory = {"in": _AtTheEnd(given.nbytes), "out": _AtTheEnd(count * given.dtype.itemsize)}
    memory["in"].array(given.dtype, given.size)[:] = given.reshape(-1)
    table = BufferTable([memory[p.role].address for p in low.io.params], list(memory.values()))
    team = Team(1)
    team.run(code.address, table.address)
    team.close()
    return memory["out"].array(given.dtype, count).copy()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "f16"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize(("count", "lanes"), [(32, 16), (37, 16), (5, 4), (21, 8)])
def test_elements_a_few_apart_are_read_and_nothing_beyond(
    dtype: str, step: int, count: int, lanes: int
) -> None:
    size = (count - 1) * step + 1
    kind = np.dtype({"f32": "f4", "f64": "f8", "i32": "i4", "f16": "f2"}[dtype])
    given = (np.arange(size) % 1000).astype(kind)
    x = Tensor.input("x", (size,), dtype)
    found = _run(
        x[::step] + x[::step], f"tile(axis=a, size={lanes}) vectorize(axis=a1)", given, count
    )
    np.testing.assert_array_equal(found, 2 * given[::step])


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("count", [16, 21])
def test_neighbours_in_reverse(count: int, lanes: int) -> None:
    given = np.arange(count, dtype=np.float32)
    found = _run(
        Tensor.input("x", (count,), "f32").flip(0),
        f"tile(axis=a, size={lanes}) vectorize(axis=a1)",
        given,
        count,
    )
    np.testing.assert_array_equal(found, given[::-1])


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bool"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("rows", [2, 3, 4, 7, 16])
def test_a_transpose_in_registers(dtype: str, lanes: int, rows: int) -> None:
    height, width = 24, 2 * lanes + 3
    kind = np.dtype({"f32": "f4", "f64": "f8", "f16": "f2", "bool": "?"}[dtype])
    given = (np.arange(height * width) * 37 % 251).astype(kind).reshape(width, height)
    x = Tensor.input("x", (width, height), dtype).transpose(0, 1).contiguous()
    tiled = f"tile(axis=a, size={rows}) tile(axis=b, size={lanes}) reorder(order=(a0, b0, a1, b1))"
    text = f"{tiled} upcast(axis=a1) vectorize(axis=b1)"
    found = _run(x, text, given, given.size)
    np.testing.assert_array_equal(found.reshape(height, width), given.T)


def test_a_transpose_loads_runs() -> None:
    x = Tensor.input("x", (64, 64), "f32").transpose(0, 1).contiguous()
    (launch,) = schedule((x.node,)).launches
    text = (
        "tile(axis=a, size=8) tile(axis=b, size=16) reorder(order=(a0, b0, a1, b1)) "
        "upcast(axis=a1) vectorize(axis=b1)"
    )
    ir = HOST.lower(Space(launch.kernel, HOST.target).lower(Schedule.parse(text))).text
    assert ir.count("load <8 x float>") == 16
    assert "load float" not in ir


@pytest.mark.parametrize("step", [2, 3, 4])
def test_no_lane_is_loaded_alone(step: int) -> None:
    x = Tensor.input("x", (64 * step,), "f32")
    (launch,) = schedule(((x[::step] * 2.0).node,)).launches
    actions = Schedule.parse("tile(axis=a, size=16) vectorize(axis=a1)")
    program = Space(launch.kernel, HOST.target).lower(actions)
    text = HOST.lower(program).text
    assert "shufflevector" in text
    assert "insertelement" not in text
