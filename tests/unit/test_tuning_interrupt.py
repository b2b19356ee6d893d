"""Ctrl-C is held back where something is being finished, and raised where the search only waits."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import pytest

from tunegrad.tuning.budget import Costs, Deadlines
from tunegrad.tuning.interrupt import Interrupt, OutOfTimeError
from tunegrad.tuning.questions.schedule import Schedules
from tunegrad.tuning.session import Session

pytestmark = pytest.mark.timing


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_outside_of_a_wait_it_is_noted_and_raised_at_the_next_one() -> None:
    with Interrupt() as interrupt:
        press()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt), interrupt.breakable():
            pytest.fail("entered")


def test_inside_a_wait_it_is_raised_at_once() -> None:
    with Interrupt() as interrupt:
        with pytest.raises(KeyboardInterrupt), interrupt.breakable():
            press()
        assert interrupt.requested


def test_second_one_is_raised_anywhere() -> None:
    with Interrupt() as interrupt:
        press()
        with pytest.raises(KeyboardInterrupt):
            press()
        assert interrupt.requested


def test_forgiven_one_lets_waiting_go_on_and_stays_on_record() -> None:
    with Interrupt() as interrupt:
        press()
        interrupt.forgive()
        with interrupt.breakable():
            pass
        assert interrupt.requested
        press()  # the first again: noted, not raised
        with pytest.raises(KeyboardInterrupt), interrupt.breakable():
            pytest.fail("entered")


def test_handler_is_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGHUP])
def test_what_else_ends_a_process_is_held_back_alike_and_given_back(asked: signal.Signals) -> None:
    before, told = signal.getsignal(asked), list[str]()
    with Interrupt(lambda: told.append("told")) as interrupt:
        os.kill(os.getpid(), asked)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            press()
        assert told == ["told"]
    assert signal.getsignal(asked) is before


def test_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def session_of(budget_s):
    """A session of no models, and the list of what it tells."""
    told = []
    executor = SimpleNamespace(
        measurer=SimpleNamespace(wait_idle=lambda: None), here=None, target=None, bench=None
    )
    context = SimpleNamespace(
        executor=executor, here=None, store=None, session="s", interrupt=Interrupt(), models=None,
        tell=told.append, costs=Costs(), progress=SimpleNamespace(phase=told.append),
    )  # fmt: skip
    return Session(context, [], Deadlines(budget_s, 0.0, 0.0, 0.1)), told


@pytest.mark.parametrize(("both_s", "held"), [(0.02, True), (0.05, True), (0.1, False)])
def test_schedules_are_raced_halfway_where_the_last_race_would_hold_the_least_one(
    monkeypatch, both_s, held
):
    """In a thirtieth of the budget; the last race has twice as much."""
    ends_s = []
    session, told = session_of(60.0)

    def learn(session, _):
        session.deadlines.both_s = both_s

    monkeypatch.setattr(Session, "_learn", learn)
    monkeypatch.setattr(Schedules, "promote_proved", lambda *words: ends_s.append(words[-1]))
    began_s = time.monotonic()
    session._raced_halfway((), 60.0)
    assert told == ["race", "search"] * held
    assert len(ends_s) == held
    assert all(began_s + 2.0 <= end_s <= time.monotonic() + 2.0 for end_s in ends_s)


@pytest.mark.parametrize("asked_for", [False, True])
def test_the_race_of_schedules_ends_early_only_where_the_user_asked_for_it(monkeypatch, asked_for):
    def broken_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Schedules, "promote_proved", broken_off)
    session, told = session_of(1.0)
    session.context.interrupt.requested = asked_for
    if asked_for:
        session._raced(())
        assert "interrupted before every winner was settled" in told[0].message
    else:
        with pytest.raises(KeyboardInterrupt):
            session._raced(())


def test_deadline_ends_a_wait_that_goes_on() -> None:
    """The wait would take longer than a test may."""
    began_s, limit_s = time.monotonic(), 0.05
    with (
        Interrupt() as interrupt,
        pytest.raises(OutOfTimeError),
        interrupt.until(began_s + limit_s),
        interrupt.breakable(),
    ):
        time.sleep(3600.0)
    assert time.monotonic() - began_s > 0.8 * limit_s
    assert not interrupt.requested


def test_wait_is_not_begun_once_the_deadline_has_passed_and_what_is_finished_is_left_alone() -> (
    None
):
    now_s = [5.0]
    interrupt = Interrupt(clock=lambda: now_s[0])
    with interrupt, interrupt.until(6.0), interrupt.until(100.0):  # the first one holds
        now_s[0] = 6.0
        os.kill(os.getpid(), signal.SIGURG)  # the alarm, outside of a wait
        with pytest.raises(OutOfTimeError), interrupt.breakable():
            pytest.fail("entered")
    with interrupt.breakable():
        pass


def test_deadline_of_a_search_in_another_thread_is_met_at_the_next_wait() -> None:
    interrupt = Interrupt(clock=lambda: 7.0)
    with interrupt.until(7.0), pytest.raises(OutOfTimeError), interrupt.breakable():
        pytest.fail("entered")


@pytest.mark.parametrize("left_by", [OutOfTimeError, KeyboardInterrupt])
def test_wait_that_c_code_goes_on_with_is_left_all_the_same(left_by: type[BaseException]) -> None:
    """What a handler raised is then the cause of a SystemError, as of Ray's ``wait``."""
    with Interrupt() as interrupt:
        with pytest.raises(left_by), interrupt.breakable():
            raise SystemError("wait returned a result with an exception set") from left_by()
        with pytest.raises(SystemError, match="of its own"), interrupt.breakable():
            raise SystemError("of its own")
