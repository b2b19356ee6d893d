"""Decisions and choosers: recorded, replayed, refused; single actions that may come next."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from kernel_corpus import NAMES, corpus_kernel

from benchmarks.hand_schedules import AVX512, GPU, gemm
from tunegrad.errors import IllegalAction
from tunegrad.opts import DefaultChooser, Schedule, Space, TraceChooser, parse_actions
from tunegrad.search import RandomChooser

SPACE = Space(gemm(128, 96, 300), AVX512)


class Fixed:
    """Gives one answer to everything, and remembers what was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def choose(self, name, options, default):
        self.asked.append((name, len(options), default))
        return self.answer


def test_space_trace_has_every_question_once_in_order():
    chooser = Fixed(0)
    schedule = SPACE.sample(chooser)
    assert [(d.name, d.options, d.default) for d in schedule.trace] == chooser.asked
    assert len({d.name for d in schedule.trace}) == len(schedule.trace)
    assert all(d.options > 1 for d in schedule.trace), "what has one answer is not asked"


@pytest.mark.parametrize("name", NAMES)
def test_space_defaults_are_among_the_options(name):
    schedule = Space(corpus_kernel(name), AVX512).sample(DefaultChooser())
    assert all(0 <= d.default == d.choice < d.options for d in schedule.trace)


@pytest.mark.parametrize("name", NAMES)
def test_space_trace_replays_to_the_same_schedule(name):
    space = Space(corpus_kernel(name), AVX512)
    for seed in range(3):
        try:
            schedule = space.sample(RandomChooser(random.Random(seed)))
        except IllegalAction:
            continue
        again = space.sample(TraceChooser({d.name: d.choice for d in schedule.trace}))
        assert again == schedule


def test_space_trace_of_a_changed_question_falls_back():
    schedule = SPACE.sample(DefaultChooser())
    stale = TraceChooser({d.name: 10_000 for d in schedule.trace})
    assert SPACE.sample(stale) == schedule
    fallback = Fixed(1)
    SPACE.sample(TraceChooser({}, fallback))
    assert fallback.asked


def test_space_one_changed_decision_changes_the_schedule():
    base = SPACE.sample(DefaultChooser())
    texts = {base.text}
    for d in base.trace:
        other = 1 if d.choice == 0 else 0
        try:
            texts.add(SPACE.sample(TraceChooser({d.name: other})).text)
        except IllegalAction:
            continue
    assert len(texts) > len(base.trace) // 2


@pytest.mark.parametrize("answer", [-1, 10_000])
def test_space_answer_that_is_no_option_is_refused(answer):
    with pytest.raises(
        IllegalAction, match=rf"decision \w+: choice {answer} is not one of \d+ options"
    ):
        SPACE.sample(Fixed(answer))


def test_space_same_seed_same_schedules():
    def draw(seed):
        chooser = RandomChooser(random.Random(seed))
        return [SPACE.sample(chooser).text for _ in range(5)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_space_random_schedules_of_a_gemm_are_nearly_all_legal():
    chooser, legal = RandomChooser(random.Random(0)), 0
    for _ in range(60):
        try:
            SPACE.tree(SPACE.sample(chooser))
        except IllegalAction:
            continue
        legal += 1
    assert legal >= 45


@pytest.mark.parametrize("target", [AVX512, GPU], ids=["cpu", "gpu"])
def test_space_next_actions_are_legal_and_in_a_fixed_order(target):
    space = Space(corpus_kernel("conv3x3s2"), target)
    schedule = Schedule.parse("tile(axis=a, size=4)")
    found = list(space.actions(schedule))
    assert found == list(space.actions(schedule))
    tree = space.tree(schedule)
    for action in random.Random(0).sample(found, 15):
        assert space.tree(Schedule((*schedule.actions, action))) == action.apply(tree)


def test_space_schedule_is_its_text():
    schedule = SPACE.sample(DefaultChooser())
    parsed = Schedule.parse(schedule.text)
    assert parsed.text == schedule.text
    assert parsed.actions == parse_actions(schedule.text) == schedule.actions
    assert (parsed.trace, schedule.trace != ()) == ((), True)
    assert SPACE.lower(parsed).hash == SPACE.lower(schedule).hash


def test_space_illegal_text_names_the_action():
    with pytest.raises(IllegalAction, match=r"^upcast\(axis=q\): no loop 'q'"):
        SPACE.lower(Schedule.parse("tile(axis=m, size=4) upcast(axis=q)"))


def test_space_program_depends_on_the_target():
    schedule = Schedule.parse("thread(axis=m)")
    counts = {
        SPACE_.lower(schedule).threads
        for SPACE_ in (Space(SPACE.kernel, replace(AVX512, threads=n)) for n in (2, 4))
    }
    assert counts == {2, 4}
