"""Measured machine limits are plausible and consistent."""

from __future__ import annotations

import math
import re
import timeit
from contextlib import ExitStack

import numpy as np
import pytest

from tunegrad.devices.cpu import peak
from tunegrad.devices.device import MachineLimits
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import assembly, compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Executable, Launch, Team


@pytest.fixture(scope="module")
def limits():
    team = Team(1)
    yield peak.measure_limits(host_target(1), team)
    team.close()


def test_fma_peak_counts_the_vectors_that_the_loop_multiplies():
    target = host_target(1)
    lanes, steps = target.lanes(4), 1000
    lines = assembly(peak.fma_text(lanes, steps), target).splitlines()
    fused = [line for line in lines if re.match(r"\s+(vfmadd|fmla)", line)]
    # the compiler may have unrolled the loop, and the counter then takes larger steps
    assert fused
    assert len(fused) % peak._ACCUMULATORS == 0
    widest = {16: "zmm", 8: "ymm", 4: "xmm|v"}[lanes]
    assert all(re.search(widest, line) for line in fused)


def test_fma_peak_is_of_work_that_takes_twice_as_long_when_there_is_twice_of_it(limits):
    target, team = host_target(1), Team(1)
    lanes, out = target.lanes(4), Buffer(4 * target.lanes(4))
    table = BufferTable([out.address], out)
    kernels, times = [], [math.inf, math.inf]
    with ExitStack() as stack:
        stack.callback(team.close)
        for steps in (peak._FMA_STEPS, 2 * peak._FMA_STEPS):
            image = compile_llvm(peak.fma_text(lanes, steps), target)
            kernel = stack.enter_context(Executable.load(image, "peak_fma"))
            kernels.append(Launch(kernel.address, table.address, 0, 1))
        for _ in range(
            15
        ):  # in turns, least of all: a core may have several speeds, and neighbours
            times = [min(s, *team.time(k, 5)) for s, k in zip(times, kernels, strict=True)]
    one, two = times
    assert 1.8 < two / one < 2.2
    # and the rate is that of the work over its time, as far as clock speeds stay
    assert 0.5 < limits.flops(1) * one / (2.0 * lanes * peak._ACCUMULATORS * peak._FMA_STEPS) < 2.0


def test_cache_is_not_slower_than_memory(limits):
    assert limits.read_l2[0][1] > 0.8 * limits.read_dram[0][1]


def test_memory_is_not_read_faster_than_numpy_moves_it_by_far(limits):
    """numpy's copy reads and writes: between a fifth and ten times of its bytes a second are
    read.
    """
    source, to = np.ones(1 << 24, np.float32), np.empty(1 << 24, np.float32)
    copy_s = min(timeit.repeat(lambda: np.copyto(to, source), number=1, repeat=9))
    moved = 2 * source.nbytes / copy_s
    assert 0.2 * moved < limits.read_dram[0][1] < 10 * moved


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
    limits = MachineLimits(((1, 10.0), (4, 36.0)), ((1, 1.0),), ((1, 1.0),), ((1, 1.0),))
    assert limits.flops(2) == 20.0
    assert limits.flops(4) == 36.0
    assert limits.bandwidth(3) == 3.0


def test_better_of_two_looks_is_taken_figure_by_figure():
    one = MachineLimits(((1, 10.0), (2, 11.0)), ((1, 5.0),), ((1, 1.0),), ((1, 1.0),))
    two = MachineLimits(((1, 9.0), (2, 20.0)), ((1, 6.0),), ((1, 0.5),), ((1, 1.0),))
    assert one.best(two) == MachineLimits(
        ((1, 10.0), (2, 20.0)), ((1, 6.0),), ((1, 1.0),), ((1, 1.0),)
    )
