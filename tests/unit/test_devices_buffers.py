"""Buffers: alignment, touch, guard zones."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices.host.buffers import Buffer, poison
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.interpret.numeric import to_compute


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4032, 4033, 4096, 3 << 20])
def test_buffer_is_aligned_and_zero(nbytes):
    buffer = Buffer(nbytes)
    assert buffer.address % 64 == 0
    assert buffer.bytes.size == nbytes
    assert not buffer.bytes.any()
    assert buffer.check_guards() == ""


def test_large_buffer_starts_on_a_huge_page():
    assert Buffer((2 << 20) + 1).address % (2 << 20) == 0


@pytest.mark.parametrize("nbytes", [4, 4096, 5000])
def test_write_past_the_end_is_found(nbytes):
    buffer = Buffer(nbytes)
    buffer._back[0] = 0
    assert "wrote 0 bytes past its end (1 guard bytes changed" in buffer.check_guards()


def test_write_before_the_start_is_found():
    buffer = Buffer(4)
    buffer._front[-4] = 0
    assert "wrote 4 bytes before its start" in buffer.check_guards()


def test_at_least_one_page_is_guarded_at_both_ends():
    assert all(
        min(Buffer(n)._back.size, Buffer(n)._front.size) >= 4096
        for n in (1, 4031, 4032, 4095, 4096)
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_poison_of_floats_is_nan_or_huge(dtype):
    kind = buffer_dtype(dtype)
    read, written = (
        np.full(8, poison(kind, nan), np.uint8).view(kind.numpy) for nan in (True, False)
    )
    assert np.isnan(to_compute(read, kind)).all()
    assert (to_compute(written, kind) > 6e4).all()
    assert np.isfinite(to_compute(written, kind)).all()


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_poison_of_integers_is_huge(dtype):
    kind = buffer_dtype(dtype)
    for nan in (True, False):
        assert (np.full(8, poison(kind, nan), np.uint8).view(kind.numpy) > 2 << 29).all()


def test_poison_that_was_copied_from_one_guard_zone_to_another_shows():
    read, written = Buffer(100, guard=poison(buffer_dtype("f32"))), Buffer(100)
    written._back[:4] = read._back[:4]
    assert "wrote 0 bytes past its end (4 guard bytes changed" in written.check_guards()


def test_guards_can_be_reset():
    buffer = Buffer(100)
    buffer._back[:] = 0
    buffer.reset_guards()
    assert buffer.check_guards() == ""


def test_array_views_the_data():
    buffer = Buffer(10)
    buffer.array("f32")[:] = 1.0
    assert buffer.array("f32").size == 2
    assert buffer.bytes[:8].any()
    assert not buffer.bytes[8:].any()


def test_array_outlives_its_buffer():
    array = Buffer(1 << 16).array("f64")
    array[:] = 2.0
    assert array.sum() == 2.0 * (1 << 13)
