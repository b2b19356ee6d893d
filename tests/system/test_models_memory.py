"""What the model worker keeps is bounded: models give way to those that are asked for, parts to
newer ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_models import THREADS, workload_in

from tunegrad.compiling import HOOKS, Payload
from tunegrad.devices import Candidate, CompiledCandidate, DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.opts import Space
from tunegrad.tuning.models import work as worker
from tunegrad.tuning.models.work import Order, plan_blob
from tunegrad.tuning.workload import Workload

TARGET = host_target(THREADS)


def compiled(work: Workload) -> dict[str, CompiledCandidate]:
    """The default schedule of every kernel as code, by kernel key."""
    pairs = [(u.kernel, Space(u.kernel, TARGET).defaults()[0].text) for u in work.kernels]
    with DeviceMeasurer(CpuDevice(TARGET), HOOKS) as device:
        made = device.compile(
            [Candidate(k.key, Payload(k, text, CpuDevice(TARGET))) for k, text in pairs]
        )
    return {
        k.key: c for (k, _), c in zip(pairs, made, strict=True) if isinstance(c, CompiledCandidate)
    }


def orders_of(work: Workload, code: dict[str, CompiledCandidate], count: int) -> list[Order]:
    """Models that differ in their inputs' names alone, as the shelf sees them."""
    from dataclasses import replace

    digest, _ = plan_blob(work.plan)
    programs = tuple((key, c.program_hash) for key, c in code.items())
    (argument,) = work.inputs
    return [
        Order(digest, programs, (replace(argument, name=f"{argument.name}{i}"),))
        for i in range(count)
    ]


def test_models_give_way_to_those_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = workload_in(tmp_path)
    code = compiled(work)
    orders = orders_of(work, code, 6)
    allowed = os.sched_getaffinity(0)  # its team pins this process
    shelf = worker._Shelf(CpuDevice(TARGET))
    os.sched_setaffinity(0, allowed)
    digest, blob = plan_blob(work.plan)
    assert set(shelf.missing(orders[:1])) == {digest, *(c.program_hash for c in code.values())}
    arrays = {b.data.digest: b.data.array for b in work.plan.buffers if b.data}
    assert shelf.put({digest: blob}, arrays, {c.program_hash: c for c in code.values()}) == ""
    assert shelf.missing(orders) == ()
    (first,) = shelf.held(orders[:1])
    monkeypatch.setattr(worker, "MOST_BYTES", 3 * first.runner.memory_bytes)
    for order in orders:
        shelf.held([order])
    assert list(shelf._models) == orders[-3:]
    assert len(shelf.held(orders)) == 6, "those of one race are there together, whatever they take"
    shelf._clear()
    assert shelf.missing(orders[:1]) != ()
