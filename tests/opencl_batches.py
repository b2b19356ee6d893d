"""Many programs built as one: a driver takes longer to begin than to compile a small kernel.

Straight through pyopencl, so that what is asked is the text of the renderer and nothing of the
device. Outputs begin as 0x7E bytes, and every buffer is followed by a guard that nobody may touch.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.kernel_corpus import kernels_of
from tests.schedule_checks import Arrays, assert_close, buffers_of, expected
from tunegrad.devices import Device
from tunegrad.devices.opencl.device import OpenClDevice, opened
from tunegrad.errors import IllegalAction
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Barrier, Program, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.c_family import arguments, kernel_name
from tunegrad.render.opencl import render_opencl
from tunegrad.search import RandomChooser

__all__ = [
    "EXTRA",
    "Case",
    "Platform",
    "check_cases",
    "corpus_cases",
    "has_barriers",
    "platform",
    "platform_of",
    "uses_shared",
]

GUARD = 64
"""Bytes behind every buffer that must stay as they are."""
BATCH = 24
"""Programs a build."""
POISON = 0x7E


def _magnitudes() -> tuple[Kernel, ...]:
    """Of integers: compilers make an intrinsic of it that simulators do not have."""
    x = Tensor.input("x", (5, 19), "i32")
    return tuple(launch.kernel for launch in schedule(((x - 3).abs().node,)).launches)


EXTRA: dict[str, Callable[[], tuple[Kernel, ...]]] = {"magnitudes": _magnitudes}
"""Kernels beside the corpus, for what drivers lack."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel under a schedule."""

    name: str
    kernel: Kernel
    schedule: Schedule
    program: Program


def corpus_cases(
    names: Sequence[str], target: Target, draws: int, first: int = 0
) -> Iterator[Case]:  # fmt: skip
    """Every kernel of the entries, by default (where ``first`` is 0) and under drawn schedules."""
    for name in names:
        for at, kernel in enumerate(EXTRA[name]() if name in EXTRA else kernels_of(name)):
            space = Space(kernel, target)
            found = {s.text: s for s in (space.defaults() if first == 0 else ())}
            chooser = RandomChooser(random.Random(f"{name} {at} {first}"))
            for _ in range(draws):
                try:
                    drawn = space.sample(chooser)
                    space.lower(drawn)
                except IllegalAction:
                    continue
                found.setdefault(drawn.text, drawn)
            for i, drawn in enumerate(found.values()):
                word = re.sub(r"\W", "_", f"{name}_{at}_{first}_{i}")
                yield Case(name, kernel, drawn, replace(space.lower(drawn), name=word))


def uses_shared(program: Program) -> bool:
    """Whether it has shared memory."""
    return any(a.space == "shared" for a in program.allocs)


def has_barriers(program: Program) -> bool:
    """Whether its work-items wait for each other."""
    return any(isinstance(i, Barrier) for i in walk(program.body))


@dataclass(slots=True)
class Platform:
    """One OpenCL device of a platform, with a queue."""

    cl: Any
    context: Any
    queue: Any
    options: tuple[str, ...] = ("-cl-std=CL1.2",)

    def build(self, programs: Sequence[Program]) -> dict[str, Any]:
        """The kernels of some programs, by name."""
        found: dict[str, Any] = {}
        texts = [(p, render_opencl(p)) for p in programs]
        for narrow in (True, False):  # helpers differ with the type of indices
            mine = [(p, s) for p, s in texts if ("const int group" in s) is narrow]
            for at in range(0, len(mine), BATCH):
                some = mine[at : at + BATCH]
                built = self.cl.Program(self.context, _joined([s for _, s in some]))
                built = built.build(options=list(self.options), cache_dir=False)
                found |= {p.name: self.cl.Kernel(built, kernel_name(p)) for p, _ in some}
        return found

    def run(self, program: Program, kernel: Any, given: Arrays) -> Arrays:
        """The outputs of a run. AssertionError where something beside a buffer changed."""
        cl, flags = self.cl, self.cl.mem_flags
        memory: list[tuple[Any, np.ndarray, Any]] = []
        for a in arguments(program):
            host = np.full(a.size * a.dtype.numpy.itemsize + GUARD, POISON, np.uint8)
            if getattr(a, "role", "") not in ("", "out"):
                host[:-GUARD] = np.ascontiguousarray(given[a.name]).view(np.uint8).reshape(-1)
            buffer = cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=host)
            memory.append((a, host, buffer))
        size = program.threads * program.local
        kernel(self.queue, (size,), (program.local,), *(m for _, _, m in memory))
        outputs: Arrays = {}
        for a, host, buffer in memory:
            cl.enqueue_copy(self.queue, host, buffer)
            assert (host[-GUARD:] == POISON).all(), f"{program.name}: written behind {a.name}"
            if getattr(a, "role", "") == "out":
                outputs[a.name] = host[:-GUARD].view(a.dtype.numpy)
        return outputs


def _joined(texts: Sequence[str]) -> str:
    """One translation unit: each line before a kernel once."""
    head: dict[str, None] = {}
    kernels = []
    for text in texts:
        at = text.index("__kernel")
        head |= dict.fromkeys(text[:at].splitlines())
        kernels.append(text[at:])
    return "\n".join([*head, *kernels])


def platform(word: str) -> Platform | None:
    """The first device of the platform with ``word`` in its name; None where there is none."""
    try:
        import pyopencl as cl
    except ImportError:
        return None
    try:
        found = [p for p in cl.get_platforms() if word in p.name]
    except cl.LogicError:
        return None
    if not found:
        return None
    context = cl.Context([found[0].get_devices()[0]])
    return Platform(cl, context, cl.CommandQueue(context))


def platform_of(device: Device) -> Platform:
    """A device of OpenCL, open here."""
    assert isinstance(device, OpenClDevice)
    here = opened(device)
    return Platform(here.cl, here.context, here.cl.CommandQueue(here.context))


def check_cases(on: Platform, cases: Sequence[Case]) -> None:
    """Every case gives what its kernel says."""
    kernels = on.build([c.program for c in cases])
    for c in cases:
        given = buffers_of(c.kernel, c.program, 0)
        got = on.run(c.program, kernels[c.program.name], given)
        assert_close(got, expected(c.kernel, given), f"{c.kernel}\n{c.schedule.text}")
