"""What is shown while a search runs, as plain lines and live."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tunegrad.cli.lines import LineObserver
from tunegrad.cli.live import LiveObserver
from tunegrad.cli.tables import count_text, duration, ms, table
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelFinished,
    KernelStarted,
    SessionStarted,
    Warned,
)
from tunegrad.trial import Status

SESSION = SessionStarted("s1", "resnet18", "cpu", 1, "beam", 7, 300.0, 21, "t.db", known_trials=40)
KERNEL = KernelStarted("conv_3x3", "k1", 4, 231_211_008, 1_000_000)
OK = CandidateMeasured("conv_3x3", "tile(a, 4)", Status.OK, 0.0021, 0.00204, 93.5, "beam")
WRONG = CandidateMeasured(
    "conv_3x3", "tile(a, 5)", Status.WRONG, float("inf"), 0.00204, 93.5, "beam"
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
    written = lines([SESSION, KERNEL, *[OK, WRONG] * 500, 11.0, OK, *[OK] * 500])
    assert written[1:] == [
        (
            "[0:11] conv_3x3: best 2.0400 ms, 93.5 % of peak; 1001 (500 wrong) candidates, 91.0 "
            "a second; 4:49 left"
        )
    ]


def test_lines_say_what_a_kernel_came_to() -> None:
    finished = KernelFinished(
        "conv_3x3", "k1", 0.004, 0.002, 95.0, "tile(a, 4)", {"ok": 9, "crashed": 1}
    )
    assert lines([SESSION, KERNEL, 5.0, finished])[1] == (
        "[0:05] conv_3x3: default 4.0000 ms, best 2.0000 ms, 95.0 % of peak, 10 (1 crashed) "
        "candidates"
    )


def test_lines_pass_warnings_on() -> None:
    assert lines([Warned("two clocks disagree")]) == ["warning: two clocks disagree"]


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_live_shows_kernel_counts_best_peak_and_time_left(console: Console) -> None:
    clock = Clock()
    observer = LiveObserver(console, clock)
    for event in (SESSION, KERNEL, OK, WRONG):
        observer.observe(event)
    clock.now_s += 60.0
    observer.observe(BudgetSpent(60.0, 300.0, 0.0005))
    observer.close()
    for text in (
        "conv_3x3, 4 uses, 0.231 GFLOP (kernels so far: 1)",
        "2 (1 wrong) candidates, 0.0 a second",
        "best 2.0400 ms, 93.5 % of peak",
        "4:00 left, the next minute is expected to gain 0.5000 ms",
    ):
        assert text in shown(console)


def test_live_does_not_redraw_for_every_candidate(console: Console) -> None:
    observer = LiveObserver(console, Clock())
    observer.observe(SESSION)
    before = len(shown(console))
    for _ in range(1000):
        observer.observe(OK)
    assert len(shown(console)) == before
    observer.close()


def test_live_prints_warnings_as_they_stand(console: Console) -> None:
    observer = LiveObserver(console, Clock())
    observer.observe(Warned("kernel[0] is odd"))
    observer.close()
    assert "warning: kernel[0] is odd" in shown(console)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (61.4, "1:01"), (3600, "1:00:00"), (59.9, "1:00"), (-3, "0:00")],
)
def test_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.12345, "0.1235"), (12.345, "12.35"), (123.45, "123.5")]
)
def test_ms_keeps_the_digits_worth_reading(value: float | None, text: str) -> None:
    assert ms(value) == text.replace("12.35", f"{12.345:.2f}").replace("123.5", f"{123.45:.1f}")


def test_count_text_names_failures_only_where_there_are_some() -> None:
    assert (count_text({}), count_text({"ok": 3, "wrong": 0})) == ("0", "3")
    assert count_text({"ok": 3, "wrong": 2, "crashed": 1}) == "6 (1 crashed, 2 wrong)"


def test_table_aligns_its_columns() -> None:
    assert table(("name", "n"), [("a", "10"), ("long name", "2")], left=("name",)) == (
        "name        n\n---------  --\na          10\nlong name   2"
    )
