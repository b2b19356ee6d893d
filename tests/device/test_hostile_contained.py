"""Whatever a candidate tries, it costs its own row: nothing outside its process changes, and the
next one is ok.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import hostile
import pytest
from hostile_programs import PROGRAMS, Victims, planted, unguarded

from tunegrad.devices.job import Hooks, Limits
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Policy, Status

POLICY = Policy(min_samples=3, max_samples=5, budget_s=0.02, timeout_s=0.5)
PATIENT = replace(POLICY, timeout_s=20.0)
"""For a candidate that ends by itself, on a machine as busy as it is."""
AFTER = [0, pytest.param(2, marks=pytest.mark.slow)]
"""The first launch is the one that is verified; the later ones are timed."""


@pytest.fixture(scope="module")
def measurer() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(
        unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=1
    ) as measurer:
        measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
        yield measurer


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile_candidate_harms_nothing_outside_its_process(measurer, tmp_path, name, after):
    row, victims = PROGRAMS[name], Victims.make(tmp_path / "victims")
    processes = hostile.children()
    bad = hostile.candidate(planted(hostile.GOOD, "k", row.body(victims), after))
    good = hostile.candidate(hostile.GOOD.replace("@k(", "@innocent("), "innocent")
    policy = POLICY if row.status is Status.TIMED_OUT else PATIENT
    (ended, innocent) = measurer.measure([bad, good], policy)
    assert victims.unharmed()
    assert (ended.measurement.status, ended.measurement.error[: len(row.error)]) == (
        row.status,
        row.error,
    )
    assert ended.measurement.attempts == (2 if row.status is not Status.OK else 1)
    assert (innocent.measurement.status, innocent.measurement.error) == (Status.OK, "")
    assert innocent.measurement.attempts == 1
    assert hostile.eventually(lambda: len(hostile.children()) <= len(processes)), (
        "the bench was replaced, no more"
    )
    assert os.getpid() == victims.session
