"""Measured machine limits are plausible and consistent."""

from __future__ import annotations

import pytest

from tunegrad.devices import peak
from tunegrad.devices.buffers import Buffer
from tunegrad.devices.cpu import Team, host_target
from tunegrad.devices.peak import MachineLimits, measure_limits


@pytest.fixture(scope="module")
def limits():
    team = Team(1)
    yield measure_limits(host_target(1), team)
    team.close()


def test_fma_peak_is_that_of_a_core(limits):
    assert 1e9 < limits.flops(1) < 1e12


def test_cache_is_not_slower_than_memory(limits):
    assert limits.read_l2[0][1] > 0.8 * limits.read_dram[0][1] > 1e8


def test_memory_is_read_once_after_it_was_dropped_however_many_threads_share_it():
    class Watched:
        def time(self, _launch, samples, inner, dropped):
            seen.append((inner, len(dropped)))
            return [1.0] * samples

    seen, arrays = [], (Buffer(1 << 20),)
    for cold in (True, False):
        peak._stream(host_target(1), Watched(), 64, "read", arrays, 1 << 14, cold)
    assert seen == [(1, 1), (64, 0)]


def test_unmeasured_counts_scale_from_the_one_below():
    limits = MachineLimits(((1, 10.0), (4, 36.0)), ((1, 1.0),), ((1, 1.0),), ((1, 1.0),), ((1, 1.0),))
    assert limits.flops(2) == 20.0
    assert limits.flops(4) == 36.0
    assert limits.bandwidth(3) == 3.0


def test_better_of_two_looks_is_taken_figure_by_figure():
    one = MachineLimits(((1, 10.0), (2, 11.0)), ((1, 5.0),), ((1, 1.0),), ((1, 1.0),), ((1, 1.0),))
    two = MachineLimits(((1, 9.0), (2, 20.0)), ((1, 6.0),), ((1, 0.5),), ((1, 1.0),), ((1, 1.0),))
    assert one.best(two) == MachineLimits(((1, 10.0), (2, 20.0)), ((1, 6.0),), ((1, 1.0),), ((1, 1.0),), ((1, 1.0),))
