"""What a schedule is worth on every machine that a store knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from store_trials import HERE, KERNEL, KEY, numbered

from tunegrad.cli.app import run
from tunegrad.db import Contents, Portability, open_store, portability
from tunegrad.errors import StoreError
from tunegrad.trial import Fingerprint, Measurement, Status, Trial

THERE = Fingerprint((("arch", "skylake"), ("device", "cpu"), ("threads", "8")))
ONE, TWO = "unroll(by=1)", "unroll(by=2)"


def took(place: Fingerprint, actions: str, ms: float, status: Status = Status.OK) -> Trial:
    samples = (1e-3 * ms,) * 3 if status is Status.OK else ()
    return replace(
        numbered(1), fingerprint=place, actions=actions, measurement=Measurement(status, samples)
    )


def of(*trials: Trial) -> Portability:
    return portability(Contents(kernels=((KERNEL, "mm"),), trials=trials), KEY)


def test_a_winner_of_one_machine_has_its_part_of_the_best_on_another() -> None:
    found = of(
        took(HERE, ONE, 1.0), took(HERE, TWO, 2.0), took(THERE, ONE, 5.0), took(THERE, TWO, 4.0)
    )
    here, there = (m.id for m in found.machines)
    assert [m.best_ms for m in found.machines] == pytest.approx([1.0, 4.0])
    assert [m.about for m in found.machines] == ["cpu, znver4", "cpu, skylake, 8 threads"]
    first, second = found.rows
    assert (first.actions, first.wins) == (ONE, (here,))
    assert first.parts == pytest.approx({here: 1.0, there: 0.8})
    assert first.portability == pytest.approx(2 / (1 / 1.0 + 1 / 0.8))
    assert (second.actions, second.wins) == (TWO, (there,))
    assert second.parts == pytest.approx({here: 0.5, there: 1.0})


def test_what_was_not_measured_is_not_known_and_what_failed_is_worth_nothing() -> None:
    wrong = took(THERE, ONE, 0.0, Status.WRONG)
    (first, second) = of(took(HERE, ONE, 1.0), took(THERE, TWO, 4.0), wrong).rows
    assert list(first.parts.values()) == [1.0, 0.0]
    assert first.portability == 0.0
    assert list(second.parts.values()) == [None, 1.0]
    assert second.portability is None


def test_a_kernel_without_a_winner_is_an_error() -> None:
    with pytest.raises(StoreError, match="no machine has a winner of it"):
        of(took(HERE, ONE, 0.0, Status.WRONG))


def test_the_command_prints_parts_of_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path / "a.db", "write") as store:
        for trial in (took(HERE, ONE, 1.0), took(HERE, TWO, 2.0), took(THERE, TWO, 4.0)):
            store.add(trial)
    command = ["store", "portability", KEY, "--store", str(tmp_path / "a.db")]
    assert run(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=3) for line in lines[-2:]] == [
        ["0.50", "1.00", "0.67", TWO],
        ["1.00", "-", "-", ONE],
    ]
    assert run([*command, "--json", "--actions", TWO]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["portability"] == pytest.approx(2 / 3)
    assert run([*command, "--actions", "unroll(by=9)"]) == 1
    assert "was measured nowhere" in capsys.readouterr().err
