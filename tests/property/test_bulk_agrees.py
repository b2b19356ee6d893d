"""Native passes over whole buffers say what numpy says, whatever the values, sizes and threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegrad.devices.host.team import Bulk, Team
from tunegrad.devices.job import Reference
from tunegrad.devices.verifying.dataset import same_bytes
from tunegrad.devices.verifying.tolerance import Bar
from tunegrad.errors import InternalError

LARGE = 200_003
"""Elements of f32 that all threads share, and that are no whole number of vectors."""


@pytest.fixture(scope="module", params=[1, 2, 3])
def bulk(request):
    team = Team(request.param)
    yield Bulk(team)
    team.close()


values = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 3.4e38]),
)


@given(data=st.data())
def test_bulk_verdict_is_that_of_numpy(bulk, data):
    expected = data.draw(st.lists(values, max_size=40))
    count = len(expected)
    near = [
        e * (1 + data.draw(st.sampled_from([0.0, 0.0, 1e-7, 5e-6, 1e-5, -2e-5, 1.0])))
        for e in expected
    ]
    for at in data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=2)) if count else []:
        near[at] = data.draw(values)
    picks = (
        data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1)) if count else None
    )
    indices = None if picks is None else np.array(picks, np.int64)
    wanted = np.array(expected, np.float64)
    bar = Bar.of("f32", Reference(wanted if indices is None else wanted[indices], 9, indices))
    with np.errstate(over="ignore"):
        got = np.array(near, np.float64).astype(np.float32)
    said, oracle = bulk.judge(bar, got), bar.judge(got)
    assert repr(said) == repr(oracle)  # repr: NaN is not equal to itself


def test_bulk_asks_numpy_only_where_something_is_bad(bulk, monkeypatch):
    def judge(*_):
        raise AssertionError

    bar, got = Bar.of("f32", Reference(np.ones(20))), np.ones(20, np.float32)
    monkeypatch.setattr(Bar, "judge", judge)
    assert bulk.judge(bar, got).first == -1
    got[19] = 2.0
    with pytest.raises(AssertionError):
        bulk.judge(bar, got)


def test_bulk_judges_special_numbers_without_numpys_verdict(bulk, monkeypatch):
    def judge(*_):
        raise AssertionError

    expected = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    bar, got = Bar.of("f32", Reference(expected)), expected.astype(np.float32)
    monkeypatch.setattr(Bar, "judge", judge)
    assert bulk.judge(bar, got).first == -1
    for at, other in enumerate((np.nan, 1.0, -np.inf, np.nan, 2.1)):
        bad = got.copy()
        bad[at] = other
        with pytest.raises(AssertionError):
            bulk.judge(bar, bad)


@pytest.mark.parametrize("dtype", ["f16", "f64", "i32", "bool"])
def test_bulk_verdict_of_other_types_is_that_of_numpy(bulk, dtype):
    kind = {"f16": np.float16, "f64": np.float64, "i32": np.int32, "bool": np.uint8}[dtype]
    bar = Bar.of(
        dtype, Reference(np.array([1.0, 0.0, 1.0]) if dtype[0] == "f" else np.array([1, 0, 1]))
    )
    for third in (1, 0):
        got = np.array([1, 0, third], kind)
        assert bulk.judge(bar, got) == bar.judge(got)


def test_bulk_judges_every_element_of_a_large_output(bulk):
    rng = np.random.default_rng(5)
    expected = rng.standard_normal(LARGE)
    bar, got = Bar.of("f32", Reference(expected, 64)), expected.astype(np.float32)
    assert bulk.judge(bar, got) == bar.judge(got)
    for at in (0, 7, 8, 63, 64, LARGE // 3, LARGE // 2 - 1, LARGE // 2, LARGE - 1):
        for wrong in (np.nan, np.inf, got[at] + 1.0):
            kept, got[at] = got[at], wrong
            said = bulk.judge(bar, got)
            assert repr(said) == repr(bar.judge(got))
            assert (said.first, said.bad) == (at, 1)
            got[at] = kept


def test_bulk_judges_an_output_of_another_size_like_numpy(bulk):
    bar = Bar.of("f32", Reference(np.zeros(4)))
    assert bulk.judge(bar, np.zeros(3, np.float32)) == bar.judge(np.zeros(3, np.float32))


def test_bulk_finds_nothing_right_of_a_reference_with_a_fault(bulk):
    bar = Bar.of("f32", Reference(np.zeros(4), fault="why not"))
    assert bulk.judge(bar, np.zeros(4, np.float32)).fault == "why not"


@pytest.mark.parametrize("nbytes", [1, 63, 64, 4097, 300_000])
def test_same_bytes_sees_each_byte_that_differs(nbytes):
    a = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    b = a.copy()
    assert same_bytes(a, b)
    for at in {0, nbytes // 3, nbytes // 2, nbytes - 1}:
        b[at] ^= 1
        assert not same_bytes(a, b)
        b[at] ^= 1


@pytest.mark.parametrize("nbytes", [0, 1, 63, 65, 300_000, 1_000_001])
def test_bulk_fills_all_of_a_buffer_and_no_more(bulk, nbytes):
    room = np.full(nbytes + 2, 7, np.uint8)
    bulk.fill(room[1:-1], 0xFF)
    assert np.array_equal(room, np.concatenate([[7], np.full(nbytes, 0xFF), [7]]))


@given(data=st.data())
def test_bulk_assigns_what_numpy_assigns(bulk, data):
    """Views of any strides: transposed, cut out, broadcast, turned round."""
    kind = data.draw(st.sampled_from([np.int8, np.int16, np.float32, np.float64]))
    extents = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    extents[0] *= data.draw(st.sampled_from([1, 40_000 // max(1, math.prod(extents) // 2)])) or 1
    order = data.draw(st.permutations(range(len(extents))))
    step = data.draw(st.sampled_from([1, 2, -1]))
    whole = np.zeros([extents[d] for d in order] + [2], kind)
    whole.reshape(-1)[:] = np.arange(whole.size) % 113
    source = np.moveaxis(whole[..., 0], range(len(order)), order)
    source = source[::step] if step != 2 else np.broadcast_to(source[:1], source.shape)
    room = np.full([n + 1 for n in source.shape], 7, kind)
    to = room[tuple(slice(0, n) for n in source.shape)]
    wanted = room.copy()
    wanted[tuple(slice(0, n) for n in source.shape)] = source
    bulk.assign(to, source)
    assert np.array_equal(room, wanted)


def test_bulk_refuses_to_assign_another_shape_or_dtype(bulk):
    with pytest.raises(InternalError, match=r"assign float64 \(3,\) to float64 \(4,\)"):
        bulk.assign(np.zeros(4), np.zeros(3))
    with pytest.raises(InternalError, match="assign int64"):
        bulk.assign(np.zeros(4), np.zeros(4, np.int64))


@given(
    words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40),
    flips=st.dictionaries(
        st.integers(0, 39),
        st.sampled_from([1, 1 << 31, 1 << 63, 2**64 - 1]),
        min_size=1,
        max_size=4,
    ),
)
def test_bulk_digest_tells_apart_what_differs_in_a_bit(bulk, words, flips):
    """Also in the highest one, the sign of every second f32, in words that share a lane."""
    one = np.array(words, np.uint64)
    other = np.array([w ^ flips.get(at, 0) for at, w in enumerate(words)], np.uint64)
    assert (bulk.digest([one]) == bulk.digest([other])) == bool((one == other).all())
    assert bulk.digest([one]) == bulk.digest([one.copy()])


def test_bulk_digest_takes_in_every_byte_of_a_large_array(bulk):
    data = np.random.default_rng(7).integers(0, 256, 4 * LARGE + 3, np.uint8)
    found = {bulk.digest([data])}
    for at in (0, 1, 63, 64, 4 * LARGE // 3, 2 * LARGE - 1, 2 * LARGE, 4 * LARGE, data.size - 1):
        data[at] ^= 0x80
        found.add(bulk.digest([data]))
        data[at] ^= 0x80
    assert len(found) == 10
    assert bulk.digest([data]) in found


def test_bulk_digest_of_several_arrays_knows_where_each_ends(bulk):
    a, b = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32)[::-1].copy()
    both = [
        bulk.digest(x) for x in ([a, b], [b, a], [np.concatenate([a, b])], [a], [a, b[:0], b], [])
    ]
    assert len(set(both)) == len(both)
