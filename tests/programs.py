"""Single programs on a device, with arrays in and out: what tests, references and tools need of
one.

with Programs(device) as programs:
    made = programs.compile(program)
    programs.run(made, {"x": x, "y": y})        y is written
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from tunegrad.devices.device import Device, Engine, Launch, Memory
from tunegrad.devices.job import Lowered
from tunegrad.errors import DeviceError, ShapeError
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target

__all__ = ["Buffers", "Compiled", "Programs"]

Buffers = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, its text in the device's language, and its image."""

    program: Program
    lowered: Lowered
    image: bytes

    @property
    def source(self) -> str:
        return self.lowered.text


class Programs:
    """Compiles, runs and times programs, one at a time.

    The device is opened when the first one runs.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._engine: Engine | None = None

    @property
    def name(self) -> str:
        """The device's."""
        return self.device.name

    @property
    def target(self) -> Target:
        """The device's."""
        return self.device.target

    @property
    def runs(self) -> bool:
        """True when ``run`` and ``time`` work."""
        return self.device.runs

    def compile(self, program: Program) -> Compiled:
        """The program for this device; equal programs give equal results. Raises CompileFailure."""
        lowered = self.device.lower(program)
        return Compiled(program, lowered, self.device.compile(lowered))

    def run(self, compiled: Compiled, buffers: Buffers) -> None:
        """Run once and wait. Writes the outputs; missing packs are filled first.

        Buffers are flat and contiguous, by parameter name. Raises ShapeError for one that is
        missing or does not fit, DeviceError on a device that runs nothing.
        """
        self.time(compiled, buffers, 1)

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:
        """Seconds of each of ``samples`` runs by the device's own clock.

        Writes the outputs, raises as ``run`` does.
        """
        if not self.runs:
            raise DeviceError(
                f"device {self.name} ({self.target.name}): it runs nothing, not "
                f"{compiled.program.name}"
            )
        full = checked_buffers(compiled, buffers)
        if self._engine is None:
            self._engine = self.device.open()
        engine, io = self._engine, compiled.lowered.io
        memories = [engine.allocate(p.nbytes) for p in io.params]
        for p, memory in zip(io.params, memories, strict=True):
            engine.write(memory, full[p.name])
        seconds = engine.time(self._launch(engine, compiled, memories), samples)
        for p, memory in zip(io.params, memories, strict=True):
            if damage := memory.damage():
                raise DeviceError(f"program {compiled.program.name}: {p.name}: {damage}")
            if p.role in ("out", "inout"):
                full[p.name][:] = memory.read(p.dtype)[: p.elements]
        return seconds

    def close(self) -> None:
        """Give the device back; calling it again does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self, engine: Engine, compiled: Compiled, memories: list[Memory]) -> Launch:
        scratch = [engine.allocate(n) for n in compiled.lowered.scratch_bytes]
        return engine.launch(engine.load(compiled.lowered, compiled.image), memories, scratch)


def checked_buffers(compiled: Compiled, buffers: Buffers) -> dict[str, NDArray[Any]]:
    """A buffer for every parameter: the caller's, and packs filled from their sources.

    Raises ShapeError, naming the buffer, for one that is missing or has another dtype, size or
    rank.
    """
    full, name = dict(buffers), compiled.program.name
    packs = {k.name for k in compiled.program.packs}
    for p in compiled.lowered.io.params:
        given, dtype = full.get(p.name), buffer_dtype(p.dtype).numpy
        if given is None and p.name in packs:
            continue
        if given is None:
            raise ShapeError(f"program {name}: no buffer {p.name!r} was given")
        if given.shape != (p.elements,) or given.dtype != dtype or not given.flags.c_contiguous:
            raise ShapeError(
                f"program {name}: buffer {p.name!r} is {given.dtype}{list(given.shape)}, "
                f"not flat contiguous {dtype}[{p.elements}]"
            )
    for pack in compiled.program.packs:
        if pack.name not in full:
            full[pack.name] = pack.run(full[pack.source])
    return full
