"""Packed constants of one kernel: the oldest give way and their memory is used again, never that of what runs next."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices import Team
from tunegrad.devices.bulk import Bulk
from tunegrad.devices.dataset import Dataset, InputSet
from tunegrad.devices.job import KernelIO, Parameter
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
    return dataset.buffer(io.params[1], io).array("f32"), dataset.pristine(io.params[1], io).view(np.float32)


def dataset() -> Dataset:
    return Dataset((InputSet({"w": SOURCE}, {}),), loaded=0)


def test_packs_are_made_once_and_held_twice(bulk):
    data, io = dataset(), program(5)
    data.pack([io], bulk)
    working, pristine = held(data, io)
    assert np.array_equal(working, SOURCE[5:21])
    working[3] = -1.0
    assert pristine[3] == 8.0
    data.pack([io], bulk)
    assert held(data, io)[0][3] == -1.0


def test_packs_that_give_way_lend_their_memory_to_one_of_their_size(bulk):
    data = dataset()
    ios = [program(k) for k in range(40)]
    addresses = set()
    for k, io in enumerate(ios):
        data.pack([io], bulk)
        assert np.array_equal(held(data, io)[0], SOURCE[k : k + 16])
        assert np.array_equal(held(data, io)[1], SOURCE[k : k + 16])
        addresses.add(held(data, io)[0].ctypes.data)
    assert len(addresses) == len(data.packs) == 8


def test_packs_of_other_sizes_give_way_too(bulk):
    data = dataset()
    for k in range(40):
        data.pack([program(k, size=k + 1)], bulk)
    assert len(data.packs) == 8


def test_packs_of_both_of_a_pair_stay(bulk):
    data, old, new = dataset(), program(0), program(100)
    data.pack([old], bulk)
    for k in range(1, 8):
        data.pack([program(k)], bulk)
    data.pack([old, new], bulk)
    assert np.array_equal(held(data, old)[0], SOURCE[:16])
    assert np.array_equal(held(data, new)[0], SOURCE[100:116])


def test_pack_that_no_program_defines_is_a_bug(bulk):
    io = KernelIO((Parameter("w", "f32", N, "const"), Parameter("w.q", "f32", 4, "pack")))
    with pytest.raises(InternalError, match=r"pack w\.q: the program has no Pack of that name"):
        dataset().pack([io], bulk)
