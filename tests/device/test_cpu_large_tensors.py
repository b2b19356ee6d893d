"""Tensors of more than 2**31 elements: every index is right past that."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg

EXTENT = 3_200_000_000
NEAR = 3_100_000_000
PLACES = (0, (1 << 31) - 1, 1 << 31, (1 << 31) + 5, 3_000_000_001, EXTENT - 1)


@pytest.mark.slow
def test_cpu_reads_elements_past_2_31():
    x = np.zeros(EXTENT, np.bool_)  # pages that are not touched take no memory
    places = np.array([2**31 - 1, 2**31, 2**31 + 1, NEAR, EXTENT - 1])
    x[places] = True

    def parts(t: tg.Tensor) -> tuple[tg.Tensor, ...]:
        ends = t[2**31 - 2 : 2**31 + 4], t[NEAR - 3 : NEAR + 3], t[EXTENT - 4 :]
        rows = t.reshape(EXTENT // 64, 64)
        return (*(~e for e in ends), ~rows[NEAR // 64])

    found = tg.compile(parts, x)(x)
    row = NEAR // 64 * 64
    expected = x[2**31 - 2 : 2**31 + 4], x[NEAR - 3 : NEAR + 3], x[EXTENT - 4 :], x[row : row + 64]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, ~b)


@pytest.fixture(scope="module")
def long_tensor() -> tg.Tensor:
    """3.2e9 bytes of a file's kind: pages that were never written take no memory."""
    try:
        values = np.zeros(EXTENT, np.uint8)
    except MemoryError:
        pytest.skip("this system has no 3.2 GB of addresses to give")
    for number, place in enumerate(PLACES):
        values[place] = number + 1
    values.flags.writeable = False
    return tg.Tensor(values)


@pytest.mark.parametrize("place", PLACES)
def test_slice_of_a_tensor_of_more_than_two_to_the_31_bytes(
    long_tensor: tg.Tensor, place: int
) -> None:
    first = min(max(place - 3, 0), EXTENT - 8)
    want = np.zeros(8, np.uint8)
    want[[p - first for p in PLACES if first <= p < first + 8]] = [
        n + 1 for n, p in enumerate(PLACES) if first <= p < first + 8
    ]
    found = (long_tensor[first : first + 8].cast("i32") * 2).numpy()
    np.testing.assert_array_equal(found, want.astype(np.int32) * 2)


def test_positions_past_two_to_the_31_are_read(long_tensor: tg.Tensor) -> None:
    found = long_tensor[tg.Tensor(np.array(PLACES, np.int64))].numpy()
    np.testing.assert_array_equal(found, np.arange(1, len(PLACES) + 1, dtype=np.uint8))


def test_strided_rows_past_two_to_the_31_are_read(long_tensor: tg.Tensor) -> None:
    rows = long_tensor.reshape(32, EXTENT // 32)
    found = rows[:, :: EXTENT // 64].cast("i64").sum(1).numpy()
    want = np.zeros(32, np.int64)
    for number, place in enumerate(PLACES):
        if place % (EXTENT // 32) % (EXTENT // 64) == 0:
            want[place // (EXTENT // 32)] += number + 1
    np.testing.assert_array_equal(found, want)
