"""On simulated nights, of which it is known what happened, sweeps say that and little else."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
import pytest

from tests.simulated_nights import MODEL, World, busy
from tunegrad.regress.changes import LEARNING
from tunegrad.regress.nights import Blessed, Night
from tunegrad.regress.report import Finding
from tunegrad.regress.verdict import Judged, judge_nights


def judged(nights: Sequence[Night], blessed: Sequence[Blessed] = ()) -> Judged:
    return judge_nights(nights, blessed, nights[-1].sweep)


def slower(nights: Sequence[Night]) -> dict[str, Finding]:
    """Regressions by series, as the last of the nights has to say them."""
    return {f.series: f for f in judged(nights).findings if f.kind == "regression"}


def of(kernel: int) -> str:
    return f"{MODEL}: k{kernel}"


def step_of(seed: int, ratio: float) -> tuple[World, int, int]:
    """A world with a step, its night and its kernel, that ends at the third night of it."""
    rng = np.random.default_rng(seed)
    night, kernel = int(rng.integers(LEARNING + 3, 57)), int(rng.integers(20))
    return World(nights=night + 3, step=(night, kernel, ratio)), night, kernel


def test_a_step_is_found_with_its_kernel_night_size_and_revision() -> None:
    nights = World(nights=33, step=(30, 4, 1.08)).run(1)
    (found,) = slower(nights).values()
    assert (found.series, found.key, found.since, found.nights) == (of(4), "key4", "night30", 3)
    assert found.interval is not None
    assert found.interval[0] < 1.08 < found.interval[1]
    assert found.changed == ("revision: aaaa -> bbbb",)
    assert found.before_ms
    assert found.now_ms
    assert not slower(nights[:30])


def test_one_bad_night_is_no_change() -> None:
    nights = World(nights=30).run(2)
    bad = World(nights=30, step=(20, 4, 1.5)).run(2)[20]
    assert not slower([*nights[:20], bad])
    assert not slower([*nights[:20], bad, *nights[21:]])


def test_nights_in_which_others_took_the_processors_accuse_nobody() -> None:
    nights = World(nights=33, step=(30, 4, 2.8)).run(1)
    assert of(4) in slower(nights)
    found = judged([*nights[:30], *map(busy, nights[30:])])
    assert not found.findings
    (said,) = found.uncounted
    assert said.startswith(f"{MODEL} on cpu: other processes used 1.0 CPUs while it was timed")
    (row,) = [r for r in found.rows if r.series == of(4)]
    assert row.nights == 30
    assert row.ms == pytest.approx(1e3 * nights[-1].rows[of(4), "key4"].seconds)


def test_what_is_slower_stays_so_through_a_busy_night_and_nothing_is_found_twice() -> None:
    nights = World(nights=37, step=(30, 4, 1.08)).run(1)
    (found,) = slower([*nights[:36], busy(nights[36])]).values()
    assert (found.since, found.nights) == ("night30", 6)
    moved = World(nights=45, machine=(40, 1.15)).run(3)
    said = next(n for n in range(41, 46) if judged(moved[:n]).findings)
    assert not judged([*moved[:said], busy(moved[said])]).findings


def test_a_first_night_that_is_busy_has_rows_and_no_level() -> None:
    (night,) = World(nights=1, kernels=3).run(1)
    found = judged([busy(night)])
    assert len(found.rows) == len(judged([night]).rows) == 5
    assert {(r.nights, r.noise) for r in found.rows} == {(0, None)}


def test_the_baseline_of_a_busy_night_is_that_of_a_quiet_one() -> None:
    """Of both the nights before, all of them."""
    *before, night = World(nights=4, kernels=3).run(1)
    for last in (night, busy(night)):
        for row in judged([*before, last]).rows:
            took = [n.rows[row.series, row.key].seconds for n in before]
            assert row.baseline_ms == pytest.approx(1e3 * median(took))


def test_a_change_of_the_machine_is_reported_as_such() -> None:
    nights = World(nights=45, machine=(40, 1.15)).run(3)
    findings = [f for n in range(41, 46) for f in judged(nights[:n]).findings]
    assert {f.kind for f in findings} == {"machine"}
    assert {f"{MODEL}: yardstick stream", f"{MODEL}: yardstick product"} <= {
        f.series for f in findings
    }


def test_what_slows_every_kernel_and_no_yardstick_is_a_regression_of_the_model() -> None:
    found = slower(World(nights=43, everything=(40, 1.10)).run(4))
    assert {f.since for f in found.values()} == {"night40"}
    assert f"{MODEL}: default schedules" in found
    assert found[MODEL].ratio == pytest.approx(1.10, abs=0.03)
    assert found[MODEL].changed == ("revision: aaaa -> bbbb",)


def test_a_step_stays_open_until_it_is_blessed() -> None:
    nights = World(nights=50, step=(30, 4, 1.08)).run(5)
    found = (of(4), "key4", "night30")
    assert found in judged(nights).levels
    assert found not in judged(nights, [Blessed("meant", (found,))]).levels


def test_a_blessed_level_is_watched_like_any_other() -> None:
    first, again = World(nights=50, step=(30, 4, 1.08)), World(nights=50, step=(30, 4, 1.17))
    nights = [*first.run(16)[:45], *again.run(16)[45:]]
    blessed = [Blessed("meant", ((of(4), "key4", "night30"),))]
    assert of(4) not in {series for series, _, _ in judged(nights[:45], blessed).levels}
    assert (of(4), "key4", "night45") in judged(nights, blessed).levels


def test_a_step_that_goes_away_is_said_to_have() -> None:
    slow, fast = World(nights=50, step=(30, 4, 1.08)).run(7), World(nights=50).run(7)
    nights = [*slow[:40], *fast[40:]]
    kinds = [{f.kind for f in judged(nights[:n]).findings} for n in range(40, 47)]
    assert kinds[0] == {"regression"}
    assert {"recovered"} in kinds
    assert kinds[-1] == set()


def test_what_got_faster_is_the_level_since() -> None:
    fast = World(nights=50, step=(20, 4, 0.9)).run(8)
    nights = [*fast[:40], *World(nights=50).run(8)[40:]]
    assert {f.kind for f in judged(fast[:23]).findings} == {"improvement"}
    assert list(slower(nights[:43])) == [of(4)]


def test_no_night_is_judged_before_enough_of_them_are_known() -> None:
    nights = World(nights=LEARNING, step=(3, 4, 3.0)).run(9)
    found = judged(nights)
    assert found.findings == ()
    assert all(row.noise is None and row.sure_from is None for row in found.rows)


def test_rows_say_which_step_would_be_seen() -> None:
    rows = judged(World(nights=30).run(10)).rows
    assert len(rows) == 22
    assert all(row.sure_from is not None and 1.01 < row.sure_from < 1.08 for row in rows)


def few_or(many: int, few: int) -> pytest.MarkDecorator:
    """So many worlds, and in a slow test ``many``."""
    slow = [pytest.mark.slow, pytest.mark.timeout(900)]
    return pytest.mark.parametrize("worlds", [few, pytest.param(many, marks=slow)])


@few_or(100, 8)
def test_steps_of_five_per_cent_are_found_within_three_nights(worlds: int) -> None:
    found = 0
    for seed in range(worlds):
        world, _, kernel = step_of(1000 + seed, 1.05)
        found += of(kernel) in slower(world.run(1000 + seed))
    assert found >= worlds * 0.95


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fewer_than_one_false_alarm_in_sixty_nights_of_twenty_kernels() -> None:
    """Every night is judged by what was known then; an alarm counts once a series and beginning."""
    worlds, alarms = 12, 0
    for seed in range(worlds):
        nights = World().run(2000 + seed)
        found = {
            (f.series, f.since) for n in range(LEARNING, 61) for f in slower(nights[:n]).values()
        }
        alarms += len(found)
    assert alarms < worlds


@few_or(20, 2)
def test_a_slow_drift_of_ten_per_cent_is_found(worlds: int) -> None:
    for seed in range(worlds):
        assert of(7) in slower(World(drift=(7, 1.10)).run(3000 + seed)), seed


@few_or(20, 2)
def test_changes_of_the_machine_are_no_regressions(worlds: int) -> None:
    """Of a tenth and more: in twenty worlds of 22 series at most one alarm in all. A
    drift the other way may hide one of them.
    """
    told, alarms = 0, 0
    for seed in range(worlds):
        nights = World(nights=46, machine=(40, 1.15)).run(4000 + seed)
        findings = [f for n in range(41, 47) for f in judged(nights[:n]).findings]
        told += any(f.kind == "machine" and "yardstick" in f.series for f in findings)
        alarms += len({f.series for f in findings if f.kind == "regression"})
    assert told >= worlds * 0.95
    assert alarms <= 1
