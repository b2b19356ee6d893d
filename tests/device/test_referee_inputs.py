"""The referee draws a kernel's inputs once, though it is asked to refer ahead and to prepare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fault_kernels import CASES
from tunegrad.compiling import HOOKS, Payload
from tunegrad.compiling.candidate import lower
from tunegrad.devices import Candidate
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.devices.job import Limits
from tunegrad.devices.verifying import referee
from tunegrad.devices.verifying.dataset import same_bytes
from tunegrad.devices.verifying.handover import take
from tunegrad.devices.verifying.referee import Referee

TARGET = host_target(1)


def test_referee_draws_once_for_references_and_benches(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = referee.make_dataset

    def counted(candidate: Candidate, *rest: Any) -> Any:
        made.append(candidate.kernel_key)
        return make(candidate, *rest)

    monkeypatch.setattr(referee, "make_dataset", counted)
    kernels = [CASES["last_term_lost"].kernel(number) for number in (0, 1)]
    asked = [
        (Candidate(k.key, p), lower(p).io)
        for k in kernels
        for p in [Payload(k, "", CpuDevice(TARGET))]
    ]
    memory = np.zeros(1 << 20, np.uint8)
    judge = Referee(HOOKS, Limits(), 0, Team(1), memory)
    for candidate, io in asked:
        judge.refer(candidate, io)
    for _ in range(2):
        for candidate, io in asked:
            handed = take(judge.prepare(candidate, io), memory)
            drawn = make(candidate, io, HOOKS, 0, None).sets
            for inputs, each in zip(handed, drawn, strict=True):
                assert inputs.keys() == each.inputs.keys()
                assert all(same_bytes(inputs[name], each.inputs[name]) for name in inputs)
    assert made == [k.key for k in kernels]
