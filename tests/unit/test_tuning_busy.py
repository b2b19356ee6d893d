"""How many CPUs others use, and when that is worth a word."""

from __future__ import annotations

import os
import time

import pytest

from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.host.facts import host_target
from tunegrad.tuning.machine import (
    CpuUse,
    busy_text,
    cpu_use,
    lacking_cpus,
    others_cpus,
    probed,
)

pytestmark = pytest.mark.timing


def test_others_are_what_processors_did_beside_us() -> None:
    before, after = CpuUse(10.0, 500.0, 20.0), CpuUse(14.0, 507.0, 23.0)
    assert others_cpus(before, after) == 1.0
    assert others_cpus(after, after) == 0.0
    assert others_cpus(CpuUse(0.0, 0.0, 0.0), CpuUse(1.0, 0.5, 0.9)) == 0.0  # ticks are coarse


def test_probe_looks_twice() -> None:
    moments = iter([CpuUse(0.0, 0.0, 0.0), CpuUse(0.5, 0.75, 0.0)])
    slept: list[float] = []
    assert probed(0.5, slept.append, lambda: next(moments)) == 1.5
    assert slept == [0.5]


@pytest.mark.parametrize(
    ("others", "threads", "cpus", "said"),
    [
        (0.1, 2, 2, ""),
        (1.4, 2, 2, "other processes use 1.4 of the 2 CPUs"),
        (0.9, 1, 2, ""),
        (1.9, 1, 2, "other processes use 1.9 of the 2 CPUs"),
        (9.0, 4, 64, ""),
        (0.5, 1000, 2, "other processes use 0.5 of the 2 CPUs"),
    ],
)
def test_machine_is_busy_where_others_leave_too_few_cpus(
    others: float, threads: int, cpus: int, said: str
) -> None:
    assert busy_text(others, threads, cpus) == said


def test_a_run_on_a_gpu_lacks_what_its_one_thread_lacks() -> None:
    gpu, cpu = typical("sm_80"), host_target(4)
    assert [lacking_cpus(2.0, t.host_threads, cpus=4) for t in (gpu, cpu)] == [0.0, 2.0]
    assert lacking_cpus(4.0, gpu.host_threads, cpus=4) == 1.0


def test_own_work_is_not_that_of_others() -> None:
    before, until_s = cpu_use(), time.process_time() + 0.2
    while time.process_time() < until_s:
        os.getpid()
    after = cpu_use()
    assert after.own_s - before.own_s > 0.05
    assert after.all_s - before.all_s >= 0.05
