"""Packed constants of one kernel: the oldest give way and their memory is used again, never that of what runs next."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices import Team
from tunegrad.devices.host.bulk import Bulk
from tunegrad.devices.job import KernelIO, Parameter
from tunegrad.devices.verifying.dataset import Dataset, DatasetCache, InputSet
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, as_index, var
from tunegrad.ir.program import Pack

N = 1000
SOURCE = np.arange(N, dtype=np.float32)


@pytest.fixture
def bulk():
    team = Team(1)
    yield Bulk(team)
    team.close()


def program(start: int, size: int = 16) -> KernelIO:
    """A program that packs ``size`` elements of w from ``start`` on."""
    pack = Pack("w.p", "w", F32, ("i",), (size,), as_index(start) + var("i", size), ALWAYS)
    return KernelIO((Parameter("w", "f32", N, "const"), Parameter("w.p", "f32", size, "pack")), (pack,))


def held(dataset: Dataset, io: KernelIO):
    return dataset.buffers(io, 0)[1].array("f32")[: io.params[1].elements]


def dataset() -> Dataset:
    return Dataset((InputSet({"w": SOURCE}, {}),))


def test_packs_are_made_once_and_read_only(bulk, monkeypatch):
    data, io = dataset(), program(5)
    data.pack([io], bulk)
    assert np.array_equal(held(data, io), SOURCE[5:21])
    monkeypatch.setattr(Pack, "run", None)
    data.pack([io], bulk)
    with pytest.raises(ValueError, match="read-only"):
        held(data, io)[3] = -1.0


def test_packs_that_give_way_lend_their_memory_to_one_of_about_their_size(bulk):
    data = dataset()
    addresses = set()
    for k in range(40):
        io = program(k, size=600 + k)
        data.pack([io], bulk)
        assert np.array_equal(held(data, io), SOURCE[k : k + 600 + k])
        addresses.add(held(data, io).ctypes.data)
    assert len(addresses) == len(data.packs) == 16


def test_packs_of_other_sizes_give_way_too(bulk):
    data = dataset()
    for k in range(40):
        data.pack([program(k, size=24 * k + 1)], bulk)
    assert len(data.packs) == 16


def test_packs_of_both_of_a_pair_stay(bulk):
    data, old, new = dataset(), program(0), program(100)
    data.pack([old], bulk)
    for k in range(1, 16):
        data.pack([program(k)], bulk)
    data.pack([old, new], bulk)
    assert np.array_equal(held(data, old), SOURCE[:16])
    assert np.array_equal(held(data, new), SOURCE[100:116])


def test_pack_that_no_program_defines_is_a_bug(bulk):
    io = KernelIO((Parameter("w", "f32", N, "const"), Parameter("w.q", "f32", 4, "pack")))
    with pytest.raises(InternalError, match=r"pack w\.q: the program has no Pack of that name"):
        dataset().pack([io], bulk)


def test_inputs_of_two_sets_are_there_at_once_and_constants_once():
    first, second = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    data = Dataset((InputSet({"x": first, "w": SOURCE}, {}), InputSet({"x": second, "w": SOURCE}, {})))
    io = KernelIO((Parameter("x", "f32", N, "in"), Parameter("w", "f32", N, "const"), Parameter("o", "f32", N, "out")))
    before, after = data.buffers(io, 0), data.buffers(io, 1)
    assert np.array_equal(before[0].array("f32"), first)
    assert np.array_equal(after[0].array("f32"), second)
    assert before[1] is after[1]
    assert before[2] is after[2]
    assert data.buffers(io, 0)[0] is before[0]
    assert data.sets[0].inputs["x"].ctypes.data == before[0].address  # what was drawn is kept once
    assert data.nbytes == 4 * N * 4
    for buffer in (before[0], after[0], before[1]):
        assert not buffer.bytes.flags.writeable
    assert before[2].bytes.flags.writeable


def test_packs_and_buffers_made_after_a_kernel_came_count_against_the_caches_limit(bulk):
    limit = 3 * N * 4
    cache = DatasetCache(limit)
    for k in range(40):
        for key in ("first", "second"):
            data = cache.get(key)
            if data is None:
                cache.put(key, data := dataset())
            data.pack([program(k, size=300 + k)], bulk)
    kept = [data for key in ("first", "second") if (data := cache.get(key)) is not None]
    assert kept
    assert sum(data.nbytes for data in kept) <= limit
    assert any(data.packs for data in kept), "what fits stays"


def test_packs_of_one_kernel_alone_give_way_to_the_caches_limit_oldest_first(bulk):
    data, limit = dataset(), 3 * N * 4
    cache = DatasetCache(limit)
    cache.put("only", data)
    ios = [program(k, size=300) for k in range(12)]
    for io in ios:
        cache.get("only")
        data.pack([io], bulk)
    assert len(data.packs) < 12
    assert cache.get("only").nbytes <= limit
    assert next(reversed(data.packs)) == ios[-1].packs[0]
