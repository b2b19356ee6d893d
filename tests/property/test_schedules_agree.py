"""Every legal schedule computes what its kernel says: random decisions and random actions against
the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kernel_corpus import NAMES, corpus_kernel

from tests.schedule_checks import COMPILED, TOO_LARGE, assert_agrees, check
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space, apply_actions, lower, parse_actions, print_actions
from tunegrad.opts.actions import ACTIONS

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=3, l2_bytes=4096)
TWO = replace(CPU, threads=2)
GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=64)
WARPS = replace(GPU, max_local=256, warp=32, copies_ahead=True, loads_matrices=True)
"""The same with warps, whose work-items exchange shares, and copies that nobody waits for."""


class RandomChooser:
    """Draws every decision."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        return self.rng.randrange(len(options))


def random_actions(kernel: Kernel, target: Target, seed: int, most: int = 10) -> str:
    """A random legal action list, grown one legal step at a time."""
    rng = random.Random(seed)
    space = Space(kernel, target)
    schedule = Schedule(())
    known = sorted(set(ACTIONS) - (set() if target.units else {"tensorcore"}))
    for _ in range(rng.randrange(1, most)):
        tree = space.tree(schedule)
        options = [a for name in rng.sample(known, 3) for a in ACTIONS[name].options(tree)]
        rng.shuffle(options)
        for action in options[:8]:
            try:
                action.check(tree)
            except IllegalAction:
                continue
            schedule = Schedule((*schedule.actions, action))
            break
    return schedule.text


def check_random_decisions(name: str, seed: int) -> bool:
    """Whether the draw is a legal schedule; it is compared then."""
    space = Space(corpus_kernel(name), CPU)
    try:
        schedule = space.sample(RandomChooser(seed))
    except IllegalAction:
        return False
    assert parse_actions(schedule.text) == schedule.actions
    assert_agrees(space.kernel, space.lower(schedule), schedule.text, seed)
    return True


def check_random_actions(name: str, target: Target, seed: int) -> bool:
    """Whether the program of a random list is proved free of races, and was compared."""
    kernel = corpus_kernel(name)
    text = random_actions(kernel, target, seed)
    assert print_actions(parse_actions(text)) == text
    try:
        program = Space(kernel, target).lower(Schedule.parse(text))
    except IllegalAction:
        return False
    return check(kernel, program, text, seed) != (TOO_LARGE,)


@pytest.mark.parametrize("name", NAMES)
def test_default_schedule_agrees_with_the_interpreter(name: str) -> None:
    kernel, space = corpus_kernel(name), Space(corpus_kernel(name), CPU)
    for schedule in space.defaults():
        assert_agrees(kernel, space.lower(schedule), schedule.text)


@pytest.mark.parametrize("name", NAMES)
def test_unscheduled_kernel_agrees_with_the_interpreter(name: str) -> None:
    kernel = corpus_kernel(name)
    assert_agrees(kernel, Space(kernel, CPU).lower(Schedule(())), "unscheduled")


@pytest.mark.parametrize("name", NAMES)
def test_random_decisions_agree_with_the_interpreter(name: str) -> None:
    assert all(check_random_decisions(name, seed) for seed in range(2))


@pytest.mark.parametrize("name", NAMES)
def test_random_actions_agree_with_the_interpreter(name: str) -> None:
    assert all(check_random_actions(name, CPU, seed) for seed in range(2))


@pytest.mark.parametrize("name", NAMES)
def test_random_gpu_actions_agree_with_the_interpreter(name: str) -> None:
    drawn = [(target, seed) for seed, target in enumerate((GPU, WARPS))]
    assert all(check_random_actions(name, *each) for each in drawn)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_schedules_agree_with_the_interpreter(name: str) -> None:
    """Some 10,000 in all over the corpus: decisions and actions, CPU and GPU; 95 of 100 of each are
    compared, by count.

    Fifty more for each kernel are compiled, and run on two threads.
    """
    seeds = range(100, 200)
    assert sum(check_random_decisions(name, seed) for seed in seeds) >= 95
    assert sum(check_random_actions(name, CPU, seed) for seed in seeds) >= 98
    for target in (GPU, WARPS):
        assert sum(check_random_actions(name, target, seed) for seed in seeds) >= 95
    kernel, space = corpus_kernel(name), Space(corpus_kernel(name), TWO)
    compiled = 0
    for seed in range(200, 250):
        text = random_actions(kernel, TWO, seed)
        try:
            program = space.lower(Schedule.parse(text))
        except IllegalAction:
            continue
        compiled += COMPILED in check(kernel, program, text, seed, compiled=True)
    assert compiled >= 48


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "softmax",
            (
                "tile(axis=sa, size=4) pad(axis=a, multiple=4) keep(stage=1) thread(axis=a, "
                "count=0) "
                "unroll(axis=sa0) tile(axis=ra, size=12) upcast(axis=ra1)"
            ),
        ),
        (
            "softmax_columns",
            (
                "pad(axis=sa, multiple=4) stage(param=p1, at=a, layout=()) thread(axis=a, count=0) "
                "keep(stage=1) pad(axis=ra, multiple=4)"
            ),
        ),
    ],
)
def test_kept_values_are_read_where_they_were_written(name: str, text: str) -> None:
    """Found by the fuzzer: lanes past the end of a row, and points past a padded axis, read what
    nobody wrote.
    """
    kernel = corpus_kernel(name)
    assert_agrees(kernel, Space(kernel, CPU).lower(Schedule.parse(text)), text)


def test_apply_leaves_the_tree_untouched() -> None:
    kernel = corpus_kernel("gemm")
    space = Space(kernel, CPU)
    tree = space.tree(Schedule(()))
    before = str(tree)
    apply_actions(tree, parse_actions("tile(axis=a, size=4) upcast(axis=a1)"))
    assert str(tree) == before
    assert lower(tree).text == lower(space.tree(Schedule(()))).text
