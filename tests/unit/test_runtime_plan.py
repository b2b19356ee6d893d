"""Plans bind schedules to memory: tested with an engine whose kernels are numpy functions, no
compiler needed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest

from tunegrad.devices import BoundPlan
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.index import ALWAYS, Range, Valid, as_index, var
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.program import Pack
from tunegrad.runtime import Code, Constants, Runner, lifetimes

Array = np.ndarray[Any, Any]


Kernel = Callable[[Sequence[Array]], None]
"""What stands for a kernel's code: it is given the memory of each buffer, as bytes."""


@dataclass
class Launch:
    """A kernel with its memory, ready to run."""

    kernel: Callable[[], Kernel]
    memories: list[Array]


@dataclass
class Plan:
    """Runs each launch: calls the function that stands for its kernel on its memory."""

    launches: Sequence[Launch]
    runs: int = 0

    def point(self, step: int, argument: int, memory: Array) -> None:
        self.launches[step].memories[argument] = memory

    def run(self) -> None:
        self.runs += 1
        for launch in self.launches:
            launch.kernel()(launch.memories)

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        for _ in range(samples):
            self.run()
        return (1.0,) * samples, (1.0,) * len(self.launches) if each else ()


class Memory(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes on a page; an array as memory of the device."""

    def read(self, dtype: str) -> Array:
        return np.asarray(self).view(dtype_of(dtype).numpy)

    def damage(self) -> str:
        return ""


class Engine:
    """Memory of this process that is counted; kernels of a schedule run by the interpreter."""

    align = 64

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.kernels: list[Kernel] = []

    def allocate(self, nbytes: int, touched: bool = True) -> Memory:
        self.allocated.append(nbytes)
        whole = np.zeros(nbytes + 4096, np.uint8)
        start = -whole.ctypes.data % 4096
        return whole[start : start + nbytes].view(Memory)

    def part(self, memory: Memory, start: int, nbytes: int) -> Memory:
        assert start % self.align == 0
        return memory[start : start + nbytes]

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nbytes = prod(shape) * dtype.itemsize
        whole = np.empty(nbytes + self.align, np.uint8)
        start = -whole.ctypes.data % self.align
        return whole[start : start + nbytes].view(dtype).reshape(shape)

    def borrow(self, array: Array) -> Memory | None:
        if not array.flags.c_contiguous or array.ctypes.data % self.align:
            return None
        return array.reshape(-1).view(np.uint8).view(Memory)

    def write(self, memory: Memory, values: Array) -> None:
        memory[: values.nbytes] = values.reshape(-1).view(np.uint8)

    def fill(self, memory: Memory, byte: int) -> None:
        memory[:] = byte

    def launch(self, code: int, memories: Sequence[Memory], scratch: Sequence[Memory]) -> Launch:
        assert not scratch
        return Launch(lambda: self.kernels[code], list(memories))

    def bind(self, launches: Sequence[Launch]) -> BoundPlan:
        return Plan(launches)

    def codes(self, plan: LaunchPlan) -> dict[str, Code]:
        found = {}
        for key, (kernel, _) in plan.kernels().items():
            found[key] = Code(len(self.kernels), tuple(p.name for p in kernel.params))
            self.kernels.append(self._interpreter(kernel))
        return found

    def _interpreter(self, kernel: Any) -> Kernel:
        def run(memories: Sequence[Array]) -> None:
            memory = {
                p.name: np.asarray(given)[: p.nbytes].view(p.dtype.numpy)
                for p, given in zip(kernel.params, memories, strict=True)
            }
            results = interpret(
                kernel, {p.name: memory[p.name] for p in kernel.params if p.role != "out"}
            )
            for p in kernel.outputs:
                memory[p.name][:] = results[p.name].reshape(-1)

        return run


class FarEngine(Engine):
    """A device whose kernels can not use memory of this process."""

    def borrow(self, array: Array) -> Memory | None:
        return None


def chain(length: int) -> LaunchPlan:
    """x + w, again and again, each in a kernel of its own."""
    node, w = g.graph_input("x", (4, 16), F32), g.const(np.full((4, 16), 2, np.float32), F32, "w")
    for _ in range(length):
        node = g.contiguous(g.elementwise(Op.ADD, node, w))
    return schedule((node,))


def bound(plan: LaunchPlan, engine: Engine | None = None) -> tuple[Runner, Engine]:
    engine = engine or Engine()
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

    def watched(memories: Sequence[Array]) -> None:
        seen.append(float(np.asarray(memories[1]).view(np.float32)[0]))
        first(memories)

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


def test_memory_of_another_device_is_copied_to_and_from() -> None:
    runner, engine = bound(chain(5), FarEngine())
    (first,), (second,) = runner.run({"x": X}), runner.run({"x": X + 1})
    np.testing.assert_array_equal(first, X + 10)
    np.testing.assert_array_equal(second, X + 11)
    timer = runner.timer({"x": X + 2})
    assert len(timer(3)) == 3
    np.testing.assert_array_equal(runner.run({"x": X})[0], X + 10)
    before = len(engine.allocated)
    runner.run({"x": X})
    assert len(engine.allocated) == before, "the plan keeps memory for its inputs and outputs"


def test_what_no_kernel_wrote_shows_in_a_poisoned_run() -> None:
    runner, engine = bound(chain(1))
    np.testing.assert_array_equal(runner.run_poisoned({"x": X})[0], X + 2)
    engine.kernels[0] = lambda _: None
    assert np.isnan(runner.run_poisoned({"x": X})[0]).all()


@pytest.mark.parametrize("engine", [Engine, FarEngine])
def test_a_constant_output_is_known_and_nobody_can_change_it(engine: type[Engine]) -> None:
    x, w = g.graph_input("x", (4, 16), F32), g.const(X + 5, F32, "w")
    plan = schedule((w, g.elementwise(Op.ADD, x, w), w))
    assert len(plan.launches) == 1
    runner, device = bound(plan, engine())
    for values in (X, X + 1):
        first, total, again = runner.run({"x": values})
        np.testing.assert_array_equal(total, values + X + 5)
        for constant in (first, again):
            np.testing.assert_array_equal(constant, X + 5)
            constant[...] = 0
    runner.time({"x": X}, 1)
    device.kernels[0] = lambda _: None
    poisoned = runner.run_poisoned({"x": X})
    np.testing.assert_array_equal(poisoned[0], X + 5)
    assert np.isnan(poisoned[1]).all()
    poisoned[0][...] = 0
    more = Runner(runner.schedule, device.codes(plan), device, runner._constants)
    np.testing.assert_array_equal(more.run({"x": X})[2], X + 5)


def test_a_plan_of_constant_outputs_runs_nothing() -> None:
    runner, _ = bound(schedule((g.const(X, F32, "w"),)))
    np.testing.assert_array_equal(runner.run({})[0], X)
    assert runner.time({}, 2) == ((0.0, 0.0), ())


@pytest.fixture
def weight() -> Any:
    data = g.const(np.arange(12, dtype=np.float32).reshape(3, 4), F32, "w")
    plan = schedule((g.elementwise(Op.ADD, g.graph_input("x", (3, 4), F32), data),))
    return next(b for b in plan.buffers if b.role == "const")


def transposing(name: str) -> Pack:
    return Pack(
        name, "p1", F32, ("i", "j"), (4, 3), var("j", 3) * 4 + var("i", 4) + as_index(0), ALWAYS
    )


def test_equal_packs_are_filled_once(weight: Any) -> None:
    constants = Constants(Engine())
    first, second = (
        constants.packed(weight, transposing("a")),
        constants.packed(weight, transposing("b")),
    )
    assert first is second
    np.testing.assert_array_equal(first.read("f32"), np.arange(12).reshape(3, 4).T.reshape(-1))


def test_tail_of_many_columns_is_copied_in_parts() -> None:
    tiles, columns, rows_ = 30, 320, 1024
    column = var("i", tiles) * columns + var("j", columns)
    valid = Valid((Range(column, 0, tiles * columns - 100),))
    offset = column * rows_ + var("k", rows_)
    pack = Pack("w.p", "w", F32, ("i", "k", "j"), (tiles, rows_, columns), offset, valid)
    source = np.arange(tiles * columns * rows_, dtype=np.float32)
    copied: list[int] = []

    def assign(to: Any, values: Any) -> None:
        copied.append(values.size)
        to[...] = values

    got = pack.run(source, assign=assign).reshape(tiles, rows_, columns)
    wanted = source.reshape(tiles, columns, rows_).transpose(0, 2, 1).copy()
    wanted[-1, :, -100:] = 0
    np.testing.assert_array_equal(got, wanted)
    assert sum(copied) == source.size - 100 * rows_
    assert len(copied) < 10


def test_constants_and_packs_start_on_cache_lines(weight: Any) -> None:
    constants = Constants(Engine())
    assert constants.flat(weight).ctypes.data % 64 == 0
    assert constants.packed(weight, transposing("a")).ctypes.data % 64 == 0


def rows() -> LaunchPlan:
    """A sum that goes over the rows of an input, an output and a temporary, a kernel for each."""
    x, w = g.graph_input("x", (4, 16), F32), g.const(np.full((4, 16), 2, np.float32), F32, "w")
    y = g.contiguous(g.elementwise(Op.ADD, x, w))
    z = g.contiguous(g.elementwise(Op.ADD, y, w))
    total = g.full(0, (1, 16), F32)
    for t in range(4):
        for whole in (x, y, z):
            row = g.shrink(whole, ((t, t + 1), (0, 16)))
            total = g.contiguous(g.elementwise(Op.ADD, row, total))
    return schedule((total, y))


@pytest.mark.parametrize("engine", [Engine, FarEngine])
def test_views_of_inputs_outputs_and_temporaries_are_parts_of_them(engine: type[Engine]) -> None:
    plan = rows()
    assert len([b for b in plan.buffers if b.role == "view"]) == 12
    assert len(plan.kernels()) == 3, "all sums but the first are one kernel"
    runner, _ = bound(plan, engine())
    for x in (X, X + 1):
        total, y = runner.run({"x": x})
        np.testing.assert_array_equal(y, x + 2)
        np.testing.assert_array_equal(total[0], (3 * x + 6).sum(0))
    np.testing.assert_array_equal(runner.run_poisoned({"x": X})[0][0], (3 * X + 6).sum(0))


def test_a_buffer_lives_as_long_as_its_views() -> None:
    plan = rows()
    (z,) = {plan.memory(b.id) for b in plan.buffers if b.role == "view"} - {
        *plan.inputs, *plan.outputs,
    }  # fmt: skip
    assert lifetimes(plan)[z].last == len(plan.launches) - 1
