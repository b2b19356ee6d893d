"""What is shown while a search runs, as plain lines and live."""

from __future__ import annotations

import io
import time
from math import inf

import pytest
from rich.console import Console

from tunegrad.cli.progress.live import LiveObserver
from tunegrad.cli.progress.plain import STOPPING, LineObserver
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelFinished,
    KernelStanding,
    KernelStarted,
    ModelEstimated,
    PhaseStarted,
    SessionStarted,
    Stopping,
)
from tunegrad.trial import Status

SESSION = SessionStarted("s1", "resnet18", "cpu", 1, "beam", 7, 300.0, 21, "t.db", known_trials=40)
KERNEL = KernelStarted("conv_3x3", "k1", 4, 231_211_008, 1_000_000)
OK = CandidateMeasured("conv_3x3", "tile(a, 4)", Status.OK, 0.0021, 0.00204, 93.5, "beam")
WRONG = CandidateMeasured(
    "conv_3x3", "tile(a, 5)", Status.WRONG, float("inf"), 0.00204, 93.5, "beam"
)
SPENT = BudgetSpent(60.0, 300.0)
ESTIMATED = ModelEstimated(
    0.018,
    0.012,
    (
        KernelStanding("conv_3x3", "k1", 4, 0.004, 0.0025, 93.5),
        KernelStanding("pool", "k2", 1, 0.002, 0.002, 7.0),
    ),
)


class Clock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines(events: list[Event | float]) -> list[str]:
    """The plain lines of a search; a number moves the clock by so many seconds."""
    clock, written = Clock(), []
    observer = LineObserver(written.append, clock)
    for event in events:
        if isinstance(event, float):
            clock.now_s += event
        else:
            observer.observe(event)
    observer.close()
    return written


def test_lines_begin_with_what_is_tuned_and_how() -> None:
    assert lines([SESSION]) == [
        "resnet18 on cpu, 1 thread: 21 kernels, beam search, seed 7, budget 5:00, 40 trials known"
    ]


def test_lines_stay_few_however_many_candidates_there_are() -> None:
    begun = [SESSION, PhaseStarted("search"), KERNEL, OK]
    written = lines([*begun, *[OK, WRONG] * 500, ESTIMATED, 11.0, OK, *[OK] * 500, SPENT])
    assert written[1:] == [
        "[0:00] search: the search",
        "[0:00] model 12.00 ms expected, default 18.00 ms: ~1.50x",
        (
            "[0:11] 4:49 left; model 12.00 ms expected, default 18.00 ms: ~1.50x; 1002 (500 wrong) "
            "candidates, 91.0 a second"
        ),
    ]


def test_the_model_s_time_is_said_at_once_and_again_when_it_is_measured() -> None:
    guess, known = (
        KernelStanding("pool", "k2", 1, seconds, seconds, measured=measured)
        for seconds, measured in ((0.001, False), (0.002, True))
    )
    heavy = KernelStanding("conv_3x3", "k1", 4, 0.004, 0.004)
    guessed, measured = (
        ModelEstimated(s, s, (heavy, k)) for s, k in ((0.017, guess), (0.018, known))
    )
    written = lines([SESSION, PhaseStarted("defaults"), guessed, 1.0, guessed, measured, measured])
    assert written[2:] == [
        "[0:00] model about 17.00 ms, 1 of 2 kernels measured",
        "[0:01] model 18.00 ms expected, default 18.00 ms: ~1.00x",
    ]


def test_lines_name_each_phase_with_stamps_that_only_grow() -> None:
    phases = [PhaseStarted("limits"), 3.0, SESSION, PhaseStarted("plans"), 4.0, SPENT, 1.0]
    written = lines([*phases, PhaseStarted("race"), 2.0, PhaseStarted("whole model")])
    assert [line.split(":", 2)[:2] for line in written if line.startswith("[")] == [
        ["[0", "00] limits"],
        ["[0", "03] plans"],
        ["[0", "08] race"],
        ["[0", "10] whole model"],
    ]


def test_lines_never_say_inf() -> None:
    unknown = KernelFinished("c", "k", inf, 0.001, 9.0, "")
    written = lines([SESSION, KernelFinished("c", "k", inf, inf, 0.0, ""), unknown, Stopping()])
    assert written[1:] == ["[0:00] c: best 1.0000 ms, 9.0 % of peak", STOPPING]
    assert "inf" not in "".join(written)


@pytest.fixture
def console() -> Console:
    return a_console(100, 40)


def a_console(width: int, height: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None
    )


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def picture(observer: LiveObserver, console: Console) -> str:
    """The picture that would be drawn now."""
    apart = a_console(console.width, console.height)
    apart.print(observer._picture())
    return shown(apart)


RUNNING = (PhaseStarted("limits"), SESSION, PhaseStarted("search"), KERNEL, OK, WRONG, ESTIMATED)


def test_live_shows_phase_clock_model_kernels_and_what_is_expected(console: Console) -> None:
    clock = Clock()
    observer = LiveObserver(console, clock, a_second=0.0)
    for event in RUNNING:
        observer.observe(event)
    clock.now_s += 60.0
    observer.observe(BudgetSpent(60.0, 300.0, 0.0005))
    found = picture(observer, console)
    observer.close()
    for text in (
        "resnet18 on cpu, 1 thread: 21 kernels",
        "search 1:00 of 5:00",
        "4:00 left",
        "model 12.00 ms expected, default 18.00 ms: ~1.50x",
        "tried 2 (1 wrong) candidates",
        "the next minute is expected to save 0.5000 ms",
    ):
        assert text in found
    heavy, light = (line.split() for line in found.splitlines() if line.startswith(("conv_", "po")))
    assert heavy == ["conv_3x3", "4", "4.0000", "2.5000", "~1.60x", "93.5"]
    assert light == ["pool", "1", "2.0000", "2.0000", "~1.00x", "7.0"]


def test_live_clock_ticks_without_events(console: Console) -> None:
    clock = Clock()
    observer = LiveObserver(console, clock, a_second=50.0)
    observer.observe(SESSION)
    clock.now_s += 71.0
    until_s = time.monotonic() + 20.0
    while "1:11 of 5:00" not in shown(console) and time.monotonic() < until_s:
        time.sleep(0.01)
    observer.close()
    assert "1:11 of 5:00" in shown(console)


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (120, 40), (20, 5)])
def test_live_picture_fits_the_terminal(width: int, height: int) -> None:
    console = a_console(width, height)
    observer = LiveObserver(console, Clock(), a_second=0.0)
    kernels = tuple(
        KernelStanding(f"conv{i} " + "x" * 60, f"k{i}", 2, 4e-3, 2e-3) for i in range(30)
    )
    for event in (*RUNNING, ModelEstimated(0.24, 0.12, kernels)):
        observer.observe(event)
    found = picture(observer, console).splitlines()
    observer.close()
    assert max(map(len, found)) <= width
    if width >= 40:
        assert any(line.endswith(("2.00x", "0.0")) for line in found)
        assert len(found) < height
        assert sum(line.startswith("conv") for line in found) == {12: 1, 24: 13, 40: 29}[height]
        assert "more kernels" in found[-1]


def test_live_says_at_once_that_it_is_stopping(console: Console) -> None:
    observer = LiveObserver(console, Clock(), a_second=0.0)
    for event in (*RUNNING, Stopping()):
        observer.observe(event)
    assert STOPPING in picture(observer, console)
    observer.close()
