"""Plans bind schedules to memory: tested with an engine whose kernels are numpy functions, no compiler needed."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import Schedule, schedule
from tunegrad.ir.index import ALWAYS, as_index, var
from tunegrad.ir.interpret_kernel import interpret
from tunegrad.ir.program import Pack
from tunegrad.runtime import BoundPlan, Code, Constants, Entry, Runner

Array = np.ndarray[Any, Any]


@dataclass
class Plan:
    """Runs each launch by calling the function that stands for its kernel on the memory its table points at."""

    entries: Sequence[Entry]
    kernels: Sequence[Callable[[Sequence[int], int], None]]
    runs: int = 0

    def run(self) -> None:
        self.runs += 1
        for e in self.entries:
            self.kernels[e.address]([e.table], e.workspace)

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        for _ in range(samples):
            self.run()
        return (1.0,) * samples, (1.0,) * len(self.entries) if each else ()


class Engine:
    """Memory that is counted; kernels of a schedule run by the interpreter."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.kernels: list[Callable[[Sequence[int], int], None]] = []

    def allocate(self, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        self.allocated.append(nbytes)
        whole = np.zeros(nbytes + 4096, np.uint8)
        start = -whole.ctypes.data % 4096
        return whole[start : start + nbytes]

    def bind(self, entries: Sequence[Entry]) -> BoundPlan:
        return Plan(entries, self.kernels)

    def codes(self, plan: Schedule) -> dict[str, Code]:
        found = {}
        for key, (kernel, _) in plan.kernels().items():
            found[key] = Code(len(self.kernels), tuple(p.name for p in kernel.params))
            self.kernels.append(self._interpreter(kernel))
        return found

    def _interpreter(self, kernel: Any) -> Callable[[Sequence[int], int], None]:
        def run(tables: Sequence[int], _workspace: int) -> None:
            words = (ctypes.c_uint64 * len(kernel.params)).from_address(tables[0])
            memory = {
                p.name: np.frombuffer((ctypes.c_uint8 * p.nbytes).from_address(word), p.dtype.numpy)
                for p, word in zip(kernel.params, words, strict=True)
            }
            results = interpret(kernel, {p.name: memory[p.name] for p in kernel.params if p.role != "out"})
            for p in kernel.outputs:
                memory[p.name][:] = results[p.name].reshape(-1)

        return run


def chain(length: int) -> Schedule:
    """x + w, again and again, each in a kernel of its own."""
    node, w = g.graph_input("x", (4, 16), F32), g.const(np.full((4, 16), 2, np.float32), F32, "w")
    for _ in range(length):
        node = g.contiguous(g.elementwise(Op.ADD, node, w))
    return schedule((node,))


def bound(plan: Schedule) -> tuple[Runner, Engine]:
    engine = Engine()
    return Runner(plan, engine.codes(plan), engine), engine


X = np.arange(64, dtype=np.float32).reshape(4, 16)


def test_a_chain_runs_in_order() -> None:
    runner, _ = bound(chain(5))
    (y,) = runner.run({"x": X})
    np.testing.assert_array_equal(y, X + 10)


def test_a_chain_of_any_length_needs_two_buffers() -> None:
    assert bound(chain(9))[0].arena_bytes == 2 * X.nbytes


def test_equal_constants_are_in_memory_once() -> None:
    runner, engine = bound(chain(5))
    before = len(engine.allocated)
    for _ in range(3):
        runner.run({"x": X})
    assert runner.memory_bytes < runner.arena_bytes + 3 * X.nbytes
    assert len(engine.allocated) <= before + 1  # a copy of the input, where its address is not fit


def test_each_run_gets_fresh_outputs() -> None:
    runner, _ = bound(chain(2))
    (first,), (second,) = runner.run({"x": X}), runner.run({"x": X + 1})
    np.testing.assert_array_equal(first, X + 4)
    np.testing.assert_array_equal(second, X + 5)


def test_timing_leaves_no_trace_in_results() -> None:
    runner, _ = bound(chain(2))
    (first,) = runner.run({"x": X})
    seconds, parts = runner.time({"x": X + 9}, 3, each=True)
    assert (len(seconds), len(parts)) == (3, 2)
    np.testing.assert_array_equal(first, X + 4)
    np.testing.assert_array_equal(runner.run({"x": X})[0], X + 4)


def test_timer_copies_its_inputs_once_and_again_after_another_run() -> None:
    runner, engine = bound(chain(1))
    seen: list[float] = []
    first = engine.kernels[0]

    def watched(tables: Sequence[int], workspace: int) -> None:
        place = ctypes.c_uint64.from_address(tables[0] + 8).value
        seen.append(ctypes.c_float.from_address(place).value)
        first(tables, workspace)

    engine.kernels[0] = watched
    x, y = X + 7, X + 9
    timer = runner.timer({"x": x})
    assert len(timer(2)) == 2
    x += 1  # what is timed is what was copied
    timer(1)
    assert seen == [X.flat[0] + 7] * 4, "one run after the copy is not timed"
    runner.time({"x": y}, 1)
    timer(1)
    assert seen[4:] == [X.flat[0] + 9, X.flat[0] + 8, X.flat[0] + 8]
    np.testing.assert_array_equal(runner.run({"x": X})[0], X + 2)


def test_timer_does_not_keep_the_runner_alive() -> None:
    runner, _ = bound(chain(2))
    runner.timer({"x": X})(1)
    gone = weakref.ref(runner)
    del runner
    assert gone() is None


def test_every_output_starts_on_a_cache_line() -> None:
    runner, _ = bound(chain(1))
    assert all(runner.run({"x": X})[0].ctypes.data % 64 == 0 for _ in range(8))


@pytest.fixture
def weight() -> Any:
    data = g.const(np.arange(12, dtype=np.float32).reshape(3, 4), F32, "w")
    plan = schedule((g.elementwise(Op.ADD, g.graph_input("x", (3, 4), F32), data),))
    return next(b for b in plan.buffers if b.role == "const")


def transposing(name: str) -> Pack:
    return Pack(name, "p1", F32, ("i", "j"), (4, 3), var("j", 3) * 4 + var("i", 4) + as_index(0), ALWAYS)


def test_equal_packs_are_filled_once(weight: Any) -> None:
    constants = Constants(Engine().allocate)
    first, second = constants.packed(weight, transposing("a")), constants.packed(weight, transposing("b"))
    assert first is second
    np.testing.assert_array_equal(first, np.arange(12).reshape(3, 4).T.reshape(-1))


def test_a_constant_that_is_only_packed_is_not_copied(weight: Any) -> None:
    constants = Constants(Engine().allocate)
    assert np.shares_memory(constants.flat(weight, in_place=True), weight.data.array)
    assert constants.nbytes == 0


def test_constants_and_packs_start_on_cache_lines(weight: Any) -> None:
    constants = Constants(Engine().allocate)
    assert constants.flat(weight).ctypes.data % 64 == 0
    assert constants.packed(weight, transposing("a")).ctypes.data % 64 == 0
