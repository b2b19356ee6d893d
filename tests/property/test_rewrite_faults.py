"""Faults planted in rewrites are seen by the law of the rule that has them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite_faults import EVERY_LAW, FAULTS, Fault, changed, is_seen, planted
from tools import planted_faults
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.variants import parts_of


def test_rewrites_have_a_hundred_faults_that_differ() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 100
    assert {f.law for f in FAULTS} <= EVERY_LAW.keys()


def test_faults_have_their_places_in_the_sources() -> None:
    """A change of a function that has one fails ``./check --static``, too: this runs no law."""
    for fault in FAULTS:
        changed(fault)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_by_its_law(fault: Fault) -> None:
    assert any(is_seen(fault, case) for case in range(2))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_a_hundred_times(fault: Fault) -> None:
    missed = [case for case in range(100) if not is_seen(fault, case)]
    assert missed == []


@pytest.mark.parametrize("missed", [False, True])
def test_table_of_planted_faults_counts_what_was_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missed: bool
) -> None:
    if missed:
        monkeypatch.setattr(planted_faults, "is_seen", lambda fault, run: run != 1)
    status = planted_faults.main(["rewrites", "--runs", "2", "--only", "-0.0 is 0"])
    caught = "1/2" if missed else "2/2"
    assert (status, capsys.readouterr().out.split("\n")[:2]) == (
        int(missed),
        [
            f"rewrites        {caught}  -0.0 is 0" + missed * "  missed: 1",
            f"rewrites: {int(not missed)} of 1 faults caught each time; {caught[0]} of 2 runs",
        ],
    )


def test_what_is_found_with_a_fault_is_found_anew_without_it() -> None:
    """A variant that a planted fault had made was given to the law of another test."""
    weights = Tensor.constant(np.ones((5, 3, 3, 3), np.float32))
    image = Tensor.input("x", (1, 3, 9, 8)).conv2d(weights, padding=1)
    kernel = schedule((image.node,)).launches[-1].kernel
    with planted(next(f for f in FAULTS if f.law == "convolutions")):
        wrong = parts_of(kernel, "winograd2")
        assert parts_of(kernel, "winograd2") is wrong
    assert parts_of(kernel, "winograd2") is not wrong
