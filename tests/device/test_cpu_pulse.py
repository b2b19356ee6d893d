"""The pulse of the cores: 1 where nothing disturbs it, more where another program runs on one of them."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator

import pytest

from tunegrad.devices.cpu.pulse import Pulse
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team


@pytest.fixture(autouse=True)
def _unpinned() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


def _spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def test_one_beat_in_ten_is_undisturbed_by_definition():
    team = Team(1, pin_caller=True)
    pulse = Pulse(host_target(1), team)
    found = sorted(pulse.slowness() for _ in range(1000))
    team.close()
    assert found[0] > 0.3
    assert found[len(found) // 20] < 1.1


def test_another_program_on_the_core_is_noticed():
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    team = Team(1, pin_caller=True)
    pulse = Pulse(host_target(1), team)
    hog = multiprocessing.get_context("spawn").Process(target=_spin, args=(cpu,), daemon=True)
    hog.start()
    try:
        end_s = time.monotonic() + 20.0
        worst = 0.0
        while worst < 5.0 and time.monotonic() < end_s:  # a slice of the scheduler is a hundred beats
            worst = max(worst, pulse.slowness())
        assert worst >= 5.0
    finally:
        hog.kill()
        hog.join()
        team.close()
