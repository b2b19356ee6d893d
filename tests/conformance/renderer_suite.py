"""What every renderer must do, as one test class: same program, same text; and the text computes
what the kernel says.

A subclass, or its module, gives the fixture ``renderer``: text of a program, and running it on flat
buffers, or a skip.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel
from numpy.typing import NDArray

from benchmarks.hand_schedules import SMALL
from benchmarks.single_kernel import draw_arrays
from tests.property.test_schedules_agree import random_actions
from tunegrad.devices.job import Reference
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.errors import IllegalAction
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser

Arrays = Mapping[str, NDArray[Any]]

ROOT = Path(__file__).parents[2]
DTYPE_NAMES = ("f32", "f64", "i32", "i64", "f16", "bf16", "bool")


class Renderer(Protocol):
    """A renderer with something that runs its text."""

    target: Target

    def text(self, program: Program) -> str: ...

    def run(self, program: Program, arrays: Arrays) -> dict[str, NDArray[Any]]: ...


def dtype_kernels(name: str) -> tuple[Kernel, ...]:
    """Elementwise work, a reduction and conversions in one dtype, at a size with tails."""
    x, y = Tensor.input("x", (5, 19), name), Tensor.input("y", (5, 19), name)
    if name == "bool":
        outputs = (x == y, x.cast("i32").sum(1), x.cast("f32") * 0.5)
    else:
        outputs = (
            x * y + x,
            (x * 2).sum(1),
            x.max(0),
            x < y,
            x.cast("f64"),
            x.cast("i32" if x.dtype.is_float else "f32"),
        )
    nodes = fold_constants(tuple(t.node for t in outputs))
    return tuple(launch.kernel for launch in fuse(tuple(nodes)).launches)


def schedules(space: Space, seed: int, decisions: int) -> Iterator[Schedule]:
    """The unscheduled kernel, the default, and random decisions that go together."""
    yield Schedule(())
    yield from space.defaults()
    chooser = RandomChooser(random.Random(seed))
    for _ in range(decisions):
        try:
            schedule = space.sample(chooser)
            space.tree(schedule)
        except IllegalAction:
            continue
        yield schedule


def small_text(renderer: Renderer, name: str) -> str:
    """The text of a small hand-written schedule."""
    entry = SMALL[name]
    return renderer.text(Space(entry.kernel, entry.target).lower(entry.schedule))


class RendererSuite:
    """Subclasses give what it runs: ``names`` of the corpus, how many random ``decisions``, and
    ``small`` hand-written schedules.
    """

    decisions = 1
    both_forms = True
    """Each kernel of each dtype as it is and by default; else in one of both, by turns, where a C
    compiler takes a tenth of a second for each.
    """
    names: tuple[str, ...] = NAMES
    small: tuple[str, ...] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for fixture, values in (("corpus_name", self.names), ("small_name", self.small)):
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(fixture, values)

    def check(self, renderer: Renderer, kernel: Kernel, schedule: Schedule, seed: int = 0) -> None:
        program = Space(kernel, renderer.target).lower(schedule)
        arrays = draw_arrays(kernel, seed)
        want = interpret(kernel, arrays, as_float64=True)
        got = renderer.run(program, arrays)
        terms = max([1, *(int(np.prod([a.extent for a in r.axes])) for r in kernel.reduces)])
        for p in kernel.outputs:
            values = want[p.name] if p.dtype.is_float else want[p.name].astype(np.int64)
            verdict = compare(got[p.name], p.dtype.name, Reference(values, terms))
            assert verdict.first < 0, f"{p.name}: {verdict}\n{kernel}\n{schedule.text}"

    def test_renderer_gives_equal_programs_equal_text(self, renderer):
        for name in self.small:
            assert small_text(renderer, name) == small_text(renderer, name)

    def test_renderer_gives_different_programs_different_text(self, renderer):
        space = Space(corpus_kernel("gemm"), renderer.target)
        found = {p.hash: renderer.text(p) for p in map(space.lower, schedules(space, 1, 4))}
        assert len(found) > 1
        assert len(set(found.values())) == len(found)

    def test_renderer_text_is_the_same_in_another_process(self, renderer):
        here = "".join(small_text(renderer, name) for name in self.small)
        assert _elsewhere(type(renderer), self.small) == here

    @pytest.mark.parametrize("dtype", DTYPE_NAMES)
    def test_renderer_computes_in_every_dtype(self, renderer, dtype):
        for i, kernel in enumerate(dtype_kernels(dtype)):
            forms = Schedule(()), Space(kernel, renderer.target).defaults()[0]
            for schedule in forms if self.both_forms else forms[i % 2 :][:1]:
                self.check(renderer, kernel, schedule)

    def test_renderer_runs_the_hand_written_schedule(self, renderer, small_name):
        self.check(renderer, SMALL[small_name].kernel, SMALL[small_name].schedule)

    def test_renderer_agrees_with_the_interpreter_on(self, renderer, corpus_name):
        kernel = corpus_kernel(corpus_name)
        for i, schedule in enumerate(schedules(Space(kernel, renderer.target), 7, self.decisions)):
            self.check(renderer, kernel, schedule, i)

    def test_renderer_agrees_after_random_actions_on(self, renderer, corpus_name):
        kernel = corpus_kernel(corpus_name)
        self.check(renderer, kernel, Schedule.parse(random_actions(kernel, renderer.target, 11)))


def _elsewhere(kind: type, names: tuple[str, ...]) -> str:
    """The texts of hand-written schedules, rendered in a process with another hash seed."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:4]\n"
        f"from {kind.__module__} import {kind.__name__} as Renderer\n"
        "from renderer_suite import small_text\n"
        "sys.stdout.write(''.join(small_text(Renderer.__new__(Renderer), name) for name in "
        f"{names!r}))\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        str(ROOT),
        str(ROOT / "tests"),
        str(ROOT / "tests" / "conformance"),
    ]
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
