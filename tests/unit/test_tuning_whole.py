"""What is said of a whole model beside its figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tunegrad.errors import CandidateFailure
from tunegrad.paired import gain_interval
from tunegrad.tuning import end_to_end
from tunegrad.tuning.end_to_end import slower
from tunegrad.tuning.interrupt import Interrupt


def test_a_model_that_got_slower_says_so() -> None:
    assert slower("mlp", (0.951, 0.962)) == (
        "model mlp: its winners are slower here than its default schedules, 0.95 to 0.96x; "
        "tune it again with a longer budget, or when the machine is quiet"
    )


@pytest.mark.parametrize("interval", [None, (0.99, 1.0), (1.2, 1.3)])
def test_nothing_is_said_where_no_loss_is_shown(interval: tuple[float, float] | None) -> None:
    assert slower("mlp", interval) is None


def test_one_program_has_no_gain_whatever_its_samples_scatter_by() -> None:
    """As on a busy machine, where every kernel's winner is its default schedule."""
    slow, fast = [9e-3] * 8, [5e-3] * 8
    bench = SimpleNamespace(paired=lambda *_: (slow, fast))
    default, other = (SimpleNamespace(actions={"k": text}) for text in ("", "tile(a, 4)"))
    models: Any = SimpleNamespace(bench=bench)
    assert end_to_end._paired(models, other, default, 1.0) == (slow, fast)  # type: ignore[arg-type]
    mine, theirs = end_to_end._paired(models, default, default, 1.0)  # type: ignore[arg-type]
    assert gain_interval(theirs, mine) == (1.0, 1.0)
    assert sorted(mine) == sorted([*slow, *fast])


@pytest.mark.parametrize(("check_s", "paired_s"), [(0.0, 3.0), (1.0, 1.5), (5.0, 0.0)])
def test_a_late_check_takes_from_the_time_of_the_pairs(
    monkeypatch: pytest.MonkeyPatch, check_s: float, paired_s: float
) -> None:
    """Two checks and three quarters of what is left of four seconds then, not of four seconds:
    beside a busy process a tune's deadline fell into the pairs, and its gain stayed unknown.
    """
    clock, asked = [100.0], []

    def checked(*_: object) -> None:
        clock[0] += check_s

    def paired(_a: object, _b: object, seconds: float) -> None:
        asked.append(seconds)
        raise CandidateFailure("as planned")

    monkeypatch.setattr(end_to_end, "monotonic", lambda: clock[0])
    bench = SimpleNamespace(check=checked, paired=paired, judged=lambda _: True, renew=lambda: None)
    models: Any = SimpleNamespace(bench=bench, of=lambda *_, **__: SimpleNamespace(actions={}))
    work: Any = SimpleNamespace(kernels=(), name="mlp")
    withdrawals: Any = SimpleNamespace(actions=None, tell=lambda _: None)
    end_to_end.measured_end_to_end(work, models, withdrawals, Interrupt(), 4.0)
    assert asked == [paired_s]
