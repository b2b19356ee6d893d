"""Every legal schedule computes what its kernel says: random decisions and random actions against the interpreter."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel

from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.interpret_kernel import interpret as interpret_kernel
from tunegrad.ir.interpret_program import interpret as interpret_program
from tunegrad.ir.interpret_program import pack_buffers
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import For, If, Instr, Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify_program import verify_program
from tunegrad.opts import Schedule, Space, apply_actions, lower, parse_actions, print_actions
from tunegrad.opts.actions import ACTIONS

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=3, l2_bytes=4096)
MOST_WORK = 2_000_000
GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=64)


class RandomChooser:
    """Draws every decision."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        return self.rng.randrange(len(options))


def data(dtype: DType, size: int, rng: np.random.Generator) -> np.ndarray:
    if dtype.is_float:
        return rng.standard_normal(size).astype(dtype.numpy)
    return rng.integers(-5, 6, size).astype(dtype.numpy)


def buffers_of(kernel: Kernel, program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {
        p.name: np.zeros(p.size, p.dtype.numpy) if p.role == "out" else data(p.dtype, p.size, rng)
        for p in kernel.params
    }
    return pack_buffers(program, arrays)


def assert_agrees(kernel: Kernel, program: Program, what: str, seed: int = 0) -> None:
    verify_program(program)
    if not is_small(program):
        return
    buffers = buffers_of(kernel, program, seed)
    expected = interpret_kernel(kernel, {k: v.copy() for k, v in buffers.items()})
    interpret_program(program, buffers)
    for name, want in expected.items():
        np.testing.assert_allclose(
            buffers[name].astype(np.float64), want.astype(np.float64), rtol=3e-5, atol=3e-5, err_msg=f"{kernel}\n{what}"
        )


def random_actions(kernel: Kernel, target: Target, seed: int, most: int = 10) -> str:
    """A random legal action list, grown one legal step at a time."""
    rng = random.Random(seed)
    space = Space(kernel, target)
    schedule = Schedule(())
    for _ in range(rng.randrange(1, most)):
        tree = space.tree(schedule)
        options = [a for name in rng.sample(sorted(ACTIONS), 3) for a in ACTIONS[name].options(tree)]
        rng.shuffle(options)
        for action in options[:8]:
            try:
                action.check(tree)
            except IllegalAction:
                continue
            schedule = Schedule((*schedule.actions, action))
            break
    return schedule.text


def work(body: Sequence[Instr]) -> int:
    """Instructions that one thread runs at most."""
    total = 0
    for i in body:
        if isinstance(i, For):
            total += (1 if i.kind == "local" else i.extent) * (1 + work(i.body))
        else:
            total += 1 + (work(i.body) + work(i.orelse) if isinstance(i, If) else 0)
    return total


def is_small(program: Program) -> bool:
    """Whether the interpreter is through with it in seconds; copies staged in an innermost loop can take minutes."""
    return work(program.body) * program.local < MOST_WORK


def check_random_decisions(name: str, seed: int) -> None:
    kernel, space = corpus_kernel(name), Space(corpus_kernel(name), CPU)
    try:
        schedule = space.sample(RandomChooser(seed))
        program = space.lower(schedule)
    except IllegalAction:
        return
    assert parse_actions(schedule.text) == schedule.actions
    assert_agrees(kernel, program, schedule.text, seed)


def check_random_actions(name: str, target: Target, seed: int) -> None:
    kernel = corpus_kernel(name)
    text = random_actions(kernel, target, seed)
    space = Space(kernel, target)
    program = space.lower(Schedule.parse(text))
    assert print_actions(parse_actions(text)) == text
    assert_agrees(kernel, program, text, seed)


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
    for seed in range(4):
        check_random_decisions(name, seed)


@pytest.mark.parametrize("name", NAMES)
def test_random_actions_agree_with_the_interpreter(name: str) -> None:
    for seed in range(4):
        check_random_actions(name, CPU, seed)


@pytest.mark.parametrize("name", NAMES)
def test_random_gpu_actions_agree_with_the_interpreter(name: str) -> None:
    for seed in range(2):
        check_random_actions(name, GPU, seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_schedules_agree_with_the_interpreter(name: str) -> None:
    """Some 10,000 in all over the corpus: decisions and actions, CPU and GPU."""
    for seed in range(100, 200):
        check_random_decisions(name, seed)
        check_random_actions(name, CPU, seed)
        check_random_actions(name, GPU, seed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "softmax",
            (
                "tile(axis=sa, size=4) pad(axis=a, multiple=4) keep(stage=1) thread(axis=a, count=0) "
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
    """Found by the fuzzer: lanes past the end of a row, and points past a padded axis, read what nobody wrote."""
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
