"""What is said of a whole model beside its figures."""

from __future__ import annotations

import pytest

from tunegrad.tuning.end_to_end import slower


def test_a_model_that_got_slower_says_so() -> None:
    assert slower("mlp", (0.951, 0.962)) == (
        "model mlp: its winners are slower here than its default schedules, 0.95 to 0.96x; "
        "tune it again with a longer budget, or when the machine is quiet"
    )


@pytest.mark.parametrize("interval", [None, (0.99, 1.0), (1.2, 1.3)])
def test_nothing_is_said_where_no_loss_is_shown(interval: tuple[float, float] | None) -> None:
    assert slower("mlp", interval) is None
