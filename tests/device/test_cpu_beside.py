"""Candidates timed in turns with a sound program of their kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hostile
import numpy as np
import pytest
from local_bench import LocalBench
from test_cpu_measurer import HALVES, PACKED, PACKED_IO

from tunegrad.devices import (
    Beside,
    Candidate,
    CompiledCandidate,
    DeviceMeasurer,
    Geometry,
    Hooks,
    examine,
    host_device,
    worker,
)
from tunegrad.devices.bench import Bench
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.processes.channel import Ending
from tunegrad.ir.index import as_index
from tunegrad.trial import Policy, Status

POLICY = Policy(min_samples=3, max_samples=5, budget_s=0.1, timeout_s=10.0)


@pytest.fixture(autouse=True)
def _unpinned() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)  # a Bench pins its process
    yield
    os.sched_setaffinity(0, allowed)


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(host_device(2), Hooks(reference="hostile:reference")) as measurer:
        yield measurer


def _compiled(device: DeviceMeasurer, *candidates: Candidate) -> list[CompiledCandidate]:
    made = device.compile(candidates)
    return [code for code in made if isinstance(code, CompiledCandidate)]


def test_row_keeps_what_was_taken_beside_it(device):
    good, halves = hostile.candidate(hostile.GOOD), hostile.candidate(HALVES, threads=2)
    one, two = _compiled(device, good, halves)
    row = device.measure_compiled(halves, two, POLICY, beside=Beside(one, 1.0))
    assert row.status is Status.OK
    assert len(row.reference_samples_s) == len(row.samples_s) >= 3
    assert (row.reference_program, row.reference_s) == (one.program_hash, 1.0)
    assert row.seconds == row.ratio, "the program beside it stands for a second"


def test_first_candidate_has_nothing_beside_it(device):
    good = hostile.candidate(hostile.GOOD)
    (one,) = _compiled(device, good)
    row = device.measure_compiled(good, one, POLICY)
    assert (row.reference_samples_s, row.reference_program, row.reference_s) == ((), "", 0.0)


def test_wrong_candidate_is_wrong_though_a_right_one_runs_beside_it(device):
    good, silent = hostile.candidate(hostile.GOOD), hostile.candidate(HALVES, threads=1)
    one, half = _compiled(device, good, silent)
    row = device.measure_compiled(silent, half, POLICY, beside=Beside(one, 1.0))
    assert row.status is Status.WRONG
    assert row.reference_samples_s == ()


def test_program_beside_candidates_is_loaded_once_and_keeps_its_packed_constants():
    kernel, beside, (pack,) = Candidate("kernel", None), _code("beside"), PACKED_IO.packs
    with LocalBench("test_cpu_measurer:reversed_reference") as local:
        local.prepare(kernel, PACKED_IO)
        assert local.bench.load("kernel", _code("first"), beside).state == "ran"
        there = local.bench._beside
        assert there is not None
        packed = there.buffers[0][2].array("f32")
        before = packed.copy()
        for n in range(12):  # packs come and go
            io = replace(PACKED_IO, packs=(replace(pack, offset=as_index(n)),))
            assert local.bench.load("kernel", replace(_code(f"{n}"), io=io), beside).state == "ran"
            assert local.bench._beside is there
        np.testing.assert_array_equal(packed, before)


class SlowToPack(LocalBench):
    """Packing takes longer than a candidate may run; ``limits_s`` are what each call was given."""

    limits_s: dict[str, float]

    def call(self, function: Any, *arguments: object, limit_s: float, reply_type: Any) -> Ending:
        method = arguments[0] if function is worker.on_bench else function
        self.limits_s[getattr(method, "__name__", "")] = limit_s
        if method is Bench.pack:
            time.sleep(0.3)
        return super().call(function, *arguments, limit_s=limit_s, reply_type=reply_type)


def test_time_in_which_constants_are_packed_is_not_the_candidate_s(monkeypatch):
    """154 MB of a vocabulary are packed in longer than a fast kernel is given."""
    monkeypatch.setattr(examine, "_PACKED_PER_S", 1.0)
    policy = replace(POLICY, timeout_s=0.2)
    kernel = Candidate("kernel", None)
    with SlowToPack("test_cpu_measurer:reversed_reference") as local:
        local.limits_s = {}
        local.prepare(kernel, PACKED_IO)
        assert local.measure(kernel, _code("one"), policy).status is Status.OK
    assert local.limits_s["pack"] > 1.0
    assert 0.1 < local.limits_s["load"] <= 0.2


def _code(program: str) -> CompiledCandidate:
    return CompiledCandidate(
        compile_llvm(PACKED, host_target(2)), "k", PACKED_IO, (), Geometry(), program
    )
