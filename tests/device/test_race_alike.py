"""Real kernels raced against themselves: one in twenty is promoted at most on this machine."""

from __future__ import annotations

import pytest

from benchmarks import alike


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", [(), ("--in-model",)], ids=["alone", "in model"])
def test_of_races_of_a_program_against_itself_one_in_twenty_is_won_at_most_on_this_machine(
    where: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert alike.main(["--model", "resnet", "--races", "200", *where]) == 0
    assert "of 2" in capsys.readouterr().out
