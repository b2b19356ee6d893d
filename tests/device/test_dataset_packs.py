"""Packed constants of one kernel: the oldest give way and their memory is used again, never that of
what runs next.
"""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices import Engine, host_device
from tunegrad.devices.job import KernelIO, Parameter
from tunegrad.devices.verifying.dataset import Dataset, DatasetCache, InputSet
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, as_index, var
from tunegrad.ir.program import Pack

N = 1000
SOURCE = np.arange(N, dtype=np.float32)


@pytest.fixture
def engine():
    with host_device(1).open() as engine:
        yield engine


def program(start: int, size: int = 16) -> KernelIO:
    """A program that packs ``size`` elements of w from ``start`` on."""
    pack = Pack("w.p", "w", F32, ("i",), (size,), as_index(start) + var("i", size), ALWAYS)
    return KernelIO(
        (Parameter("w", "f32", N, "const"), Parameter("w.p", "f32", size, "pack")), (pack,)
    )


def held(engine: Engine, dataset: Dataset, io: KernelIO):
    return dataset.buffers(io, 0, engine)[1].view("f32")[: io.params[1].elements]


def dataset() -> Dataset:
    return Dataset((InputSet({"w": SOURCE}, {}),))


def test_packs_are_made_once_and_read_only(engine, monkeypatch):
    data, io = dataset(), program(5)
    data.pack([io], engine)
    assert np.array_equal(held(engine, data, io), SOURCE[5:21])
    monkeypatch.setattr(Pack, "run", None)
    data.pack([io], engine)
    with pytest.raises(ValueError, match="read-only"):
        held(engine, data, io)[3] = -1.0


def test_packs_that_give_way_lend_their_memory_to_one_of_about_their_size(engine):
    data = dataset()
    addresses = set()
    for k in range(40):
        io = program(k, size=600 + k)
        data.pack([io], engine)
        assert np.array_equal(held(engine, data, io), SOURCE[k : k + 600 + k])
        addresses.add(held(engine, data, io).ctypes.data)
    assert len(addresses) == len(data.packs) == 16


def test_packs_of_other_sizes_give_way_too(engine):
    data = dataset()
    for k in range(40):
        data.pack([program(k, size=24 * k + 1)], engine)
    assert len(data.packs) == 16


def test_packs_of_both_of_a_pair_stay(engine):
    data, old, new = dataset(), program(0), program(100)
    data.pack([old], engine)
    for k in range(1, 16):
        data.pack([program(k)], engine)
    data.pack([old, new], engine)
    assert np.array_equal(held(engine, data, old), SOURCE[:16])
    assert np.array_equal(held(engine, data, new), SOURCE[100:116])


def test_pack_that_no_program_defines_is_a_bug(engine):
    io = KernelIO((Parameter("w", "f32", N, "const"), Parameter("w.q", "f32", 4, "pack")))
    with pytest.raises(InternalError, match=r"pack w\.q: the program has no Pack of that name"):
        dataset().pack([io], engine)


def test_inputs_of_two_sets_are_there_at_once_and_constants_once(engine):
    first, second = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    data = Dataset(
        (InputSet({"x": first, "w": SOURCE}, {}), InputSet({"x": second, "w": SOURCE}, {}))
    )
    io = KernelIO(
        (
            Parameter("x", "f32", N, "in"),
            Parameter("w", "f32", N, "const"),
            Parameter("o", "f32", N, "out"),
        )
    )
    before, after = data.buffers(io, 0, engine), data.buffers(io, 1, engine)
    assert np.array_equal(before[0].view("f32"), first)
    assert np.array_equal(after[0].view("f32"), second)
    assert before[1] is after[1]
    assert before[2].address % 64 == 0
    assert (after[0].address % 64, after[2].address % 64) == (4, 12), "as a user's may lie"
    assert data.buffers(io, 0, engine)[0] is before[0]
    kept = data.sets[0].inputs["x"]
    assert kept.ctypes.data == before[0].view("f32").ctypes.data, "what was drawn is kept once"
    assert data.nbytes == 5 * N * 4
    for buffer in (before[0], after[0], before[1]):
        assert not buffer.view("f32").flags.writeable
    assert before[2].view("f32").flags.writeable


def test_packs_and_buffers_made_after_a_kernel_came_count_against_the_caches_limit(engine):
    limit = 3 * N * 4
    cache = DatasetCache(limit)
    for k in range(40):
        for key in ("first", "second"):
            data = cache.get(key)
            if data is None:
                cache.put(key, data := dataset())
            data.pack([program(k, size=300 + k)], engine)
    kept = [data for key in ("first", "second") if (data := cache.get(key)) is not None]
    assert kept
    assert sum(data.nbytes for data in kept) <= limit
    assert any(data.packs for data in kept), "what fits stays"


def test_packs_of_one_kernel_alone_give_way_to_the_caches_limit_oldest_first(engine):
    data, limit = dataset(), 3 * N * 4
    cache = DatasetCache(limit)
    cache.put("only", data)
    ios = [program(k, size=300) for k in range(12)]
    for io in ios:
        cache.get("only")
        data.pack([io], engine)
    assert len(data.packs) < 12
    assert cache.get("only").nbytes <= limit
    assert next(reversed(data.packs)) == ios[-1].packs[0]
