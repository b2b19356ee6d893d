"""Stages end so that a command takes its budget, whatever it is and however slow the models are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegrad.config import resolve_settings
from tunegrad.tuning.budget import Deadlines
from tunegrad.tuning.race import data_s
from tunegrad.tuning.workload import workload_of_spec

pytestmark = pytest.mark.timing

BUDGETS = (3.0, 10.0, 60.0, 300.0, 3600.0)


def deadlines(budget_s: float, start_s: float = 2.0, both_s: float = 0.0) -> Deadlines:
    """Of a command that began at 100, with workers that were ready so much later."""
    return Deadlines(budget_s, 100.0, 100.0 + start_s, 0.1, both_s)


@pytest.mark.parametrize("budget_s", BUDGETS)
@pytest.mark.parametrize("both_s", [0.0, 1e-4, 0.05, 0.7, 20.0])
def test_stages_end_one_after_the_other_within_the_budget(budget_s: float, both_s: float) -> None:
    e = deadlines(budget_s, min(2.0, budget_s / 4), both_s)
    assert e.ready_s < e.plans_s < e.evaluated_s < e.over_s == 100.0 + budget_s
    assert e.search_s < e.race_s < e.whole_s < e.over_s
    assert e.search_s - e.ready_s >= 0.2 * budget_s - 0.3


@given(st.floats(1.0, 4000.0), st.floats(0.0, 8.0), st.floats(0.0, 100.0))
def test_waits_are_given_up_within_5_percent_or_3_seconds(
    budget_s: float, start_s: float, both_s: float
) -> None:
    e = deadlines(budget_s, start_s, both_s)
    late_s = e.over_s + max(3.0, 0.05 * budget_s) - 0.3  # to close, and to print
    for end_s in (e.plans_s, e.search_s, e.race_s):
        assert e.given_up(end_s) < late_s
    assert e.whole_given_up(e.whole_s, interrupted=False) < late_s
    assert e.race_given_up(e.search_s, interrupted=False) < late_s


@pytest.mark.parametrize("budget_s", [2.0, *BUDGETS])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_model_that_loads_slowly_takes_no_more_than_the_budget(
    budget_s: float, share: float
) -> None:
    start_s = share * budget_s
    e = deadlines(budget_s, start_s, both_s=0.02)
    assert e.over_s == pytest.approx(100.0 + budget_s)
    assert e.search_s - e.ready_s >= 0.5 * (budget_s - start_s) - 0.3 - 1e-9


def test_a_model_that_loads_for_longer_than_its_budget_has_a_tenth_of_it_then() -> None:
    assert deadlines(10.0, 20.0).over_s == 121.0
    assert deadlines(2.0, 2.0).over_s == pytest.approx(102.2)


def test_a_command_whose_budget_is_spent_has_time_to_settle_what_was_left_open() -> None:
    spent = deadlines(0.0)
    assert spent.race_given_up(200.0, interrupted=False) == 211.5
    assert spent.race_given_up(200.0, interrupted=True) == 203.0


def test_slow_models_have_more_reserved_for_their_race() -> None:
    quick, slow = deadlines(60.0, both_s=0.02), deadlines(60.0, both_s=0.3)
    assert slow.race_s - slow.search_s > quick.race_s - quick.search_s == pytest.approx(6.0)
    assert slow.whole_s - slow.race_s >= 5.0


def test_no_more_is_reserved_for_a_comparison_than_it_can_use() -> None:
    tiny, quick = deadlines(100.0, both_s=1e-4), deadlines(100.0, both_s=0.02)
    assert tiny.whole_s - tiny.race_s < 1.0
    assert quick.whole_s - quick.race_s == pytest.approx(0.5 + 6 * 0.02 + 6.0 + 12 * 3 * 0.02)
    assert tiny.search_s - quick.search_s > 2.5


def test_a_comparison_of_a_large_state_has_the_time_to_draw_and_to_send_it() -> None:
    """As of a step of training: its new weights are compared twice as its old ones are drawn."""
    small, large = deadlines(150.0, both_s=0.3), deadlines(150.0, both_s=0.3)
    large.data_s = 7.0
    assert large.whole_s - large.race_s >= small.whole_s - small.race_s + 10.0
    assert large.race_s - large.search_s > small.race_s - small.search_s
    unknown = deadlines(150.0)
    unknown.data_s = 7.0
    assert unknown.whole_s - unknown.race_s >= 20.0


def test_the_data_of_a_step_are_its_whole_state(tmp_path: Path) -> None:
    text = """
[model]
name = "wide"
builder = "tunegrad.models.mlp:mlp"
[model.args]
sizes = [64, 512, 512, 8]
"""
    (tmp_path / "wide.toml").write_text(text, encoding="utf-8")
    found = []
    for arguments in ("[batch=2]", "[batch=2,train=sgd]"):
        settings = resolve_settings(f"{tmp_path / 'wide.toml'}{arguments}", store=":memory:")
        found.append(data_s(workload_of_spec(settings.model)))
    plain, trained = found
    assert trained > 100 * plain


def test_after_ctrl_c_nothing_is_waited_for_over_3_seconds() -> None:
    e = deadlines(3600.0)
    assert e.race_given_up(500.0, interrupted=True) == 503.0
    assert e.whole_given_up(500.0, interrupted=True) == 503.0


def test_models_of_a_spent_budget_are_measured_all_the_same() -> None:
    e = deadlines(0.0, 2.0)
    assert e.whole_given_up(102.0, interrupted=False) >= 110.0


@pytest.mark.parametrize(("both_s", "takes_s"), [(0.0, 0.0), (0.0, 1e-6), (1e-6, 0.0), (30.0, 1.0)])
def test_a_start_that_took_more_than_the_budget_leaves_no_stage_without_an_end(
    both_s: float, takes_s: float
) -> None:
    late = Deadlines(-36.0, 0.0, 40.0, race_share=0.2, both_s=both_s, data_s=takes_s)
    assert late.search_s <= late.race_s <= late.whole_s <= 40.0
    assert late.race_given_up(41.0, interrupted=False) < 60.0
    assert late.whole_given_up(41.0, interrupted=False) < 60.0
