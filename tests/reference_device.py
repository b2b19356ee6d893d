"""The reference device: the interpreter, with memory that is numpy's.

It says what programs mean, slowly.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tests.interpreter import interpret
from tests.verifiers.program import verify_program
from tunegrad.devices.device import Confinement, MachineLimits
from tunegrad.devices.job import (
    WROTE_READ_ONLY,
    Array,
    CompiledCandidate,
    Geometry,
    KernelIO,
    Lowered,
    io_of,
)
from tunegrad.devices.lowered import contents_digest
from tunegrad.errors import CompileFailure
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.layout import Pack
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Inspection

__all__ = ["ReferenceDevice"]

_TARGET = Target(name="reference", kind="cpu", arch="interpreter")


@dataclass(frozen=True, slots=True)
class ReferenceDevice:
    """Programs of any target. Its times are the interpreter's own, good for nothing but tests."""

    target: Target = _TARGET

    name = "reference"
    runs = True
    exclusive = True
    confinement = Confinement()

    def describe(self) -> str:
        return "the interpreter"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = {"device": "reference", "arch": self.target.arch, "numerics": numerics}
        return Fingerprint(tuple(sorted(fields.items())))

    def compiler(self) -> str:
        return "interpreter"

    def lower(self, program: Program) -> Lowered:
        """The program's own text.

        Raises VerifyError for a program that breaks the rules of its form.
        """
        verify_program(program)
        return Lowered(
            _text(program),
            program.name,
            io_of(program),
            (),
            Geometry(program.threads, program.local),
        )

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        return lowered.text.encode()

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return None

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        return ()

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> ReferenceEngine:
        return ReferenceEngine(self)


def _text(program: Program) -> str:
    """A program as text that comes back as the same program, in this installation alone. Equal ones
    have one text: it does not say what they share.
    """
    text = io.BytesIO()
    pickler = pickle.Pickler(text)
    pickler.fast = True
    pickler.dump(program)
    return text.getvalue().hex()


class _Forms(pickle.Unpickler):
    """Reads programs and nothing else: an image may have been kept in a file."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("tunegrad.ir.") and "." not in name:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a program")


class HostMemory:
    """An array of bytes."""

    __slots__ = ("_protected", "data", "nbytes")

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data, self.nbytes = data, data.nbytes
        self._protected = b""

    def view(self, dtype: str) -> Array:
        return self.data.view(buffer_dtype(dtype).numpy)

    read = view

    def protect(self, on: bool = True) -> None:
        self._protected = self.data.tobytes() if on else b""

    def damage(self) -> str:
        written = bool(self._protected) and self._protected != self.data.tobytes()
        return WROTE_READ_ONLY if written else ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Code:
    program: Program
    io: KernelIO

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Launch:
    code: _Code
    memories: list[HostMemory]

    def run(self) -> None:
        given = {}
        for p, m in zip(self.code.io.params, self.memories, strict=True):
            held = m.view(p.dtype)[: p.elements]  # of an unread constant nothing
            given[p.name] = np.resize(held, p.elements) if p.name in self.code.io.unread else held
        interpret(self.code.program, given)


class ReferenceEngine:
    """See ``devices.device.Engine``."""

    align, at_once = 64, 1

    def __init__(self, device: ReferenceDevice) -> None:
        self.device = device

    def allocate(
        self, nbytes: int, touched: bool = True, guard: int | None = None, shift: int = 0
    ) -> HostMemory:
        return HostMemory(np.zeros(nbytes, np.uint8))

    def part(self, memory: HostMemory, start: int, nbytes: int) -> HostMemory:
        return HostMemory(memory.data[start : start + nbytes])

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def borrow(self, array: NDArray[Any]) -> HostMemory | None:
        return None

    def write(self, memory: HostMemory, values: Array) -> None:
        memory.data[: values.nbytes] = values.reshape(-1).view(np.uint8)

    def pack(self, pack: Pack, source: Array, memory: HostMemory, rest: int = 0) -> None:
        memory.data.fill(rest)
        self.write(memory, pack.run(source))

    def fill(self, memory: HostMemory, byte: int) -> None:
        memory.data.fill(byte)

    def digest(self, memories: Sequence[HostMemory]) -> str:
        return contents_digest(m.data for m in memories)

    def watch(self, memories: Sequence[HostMemory | None]) -> None:
        """Protected memory is compared when its damage is asked for."""

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> _Code:
        try:
            program = _Forms(io.BytesIO(bytes.fromhex(image.decode()))).load()
        except (ValueError, pickle.UnpicklingError, EOFError) as error:
            raise CompileFailure(
                f"program {compiled.entry} on reference: no image: {error}"
            ) from error
        return _Code(program, compiled.io)

    def launch(
        self, code: _Code, memories: Sequence[HostMemory], scratch: Sequence[HostMemory]
    ) -> _Launch:
        return _Launch(code, list(memories))

    def bind(self, launches: Sequence[_Launch]) -> _Plan:
        return _Plan(tuple(launches))

    def time(
        self,
        launch: _Launch,
        samples: int,
        inner: int = 1,
        evicted: Sequence[HostMemory] = (),
        near: Sequence[HostMemory] = (),
    ) -> tuple[float, ...]:
        return tuple(_seconds(launch) for _ in range(samples))

    def state(self) -> Properties:
        return self.device.state()

    def disorder(self) -> str:
        return ""

    def limits(self) -> MachineLimits:
        at = ((1, 1e6),)
        return MachineLimits(at, at, at, ())

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Plan:
    launches: tuple[_Launch, ...]

    def point(self, step: int, argument: int, memory: HostMemory) -> None:
        self.launches[step].memories[argument] = memory

    def run(self) -> None:
        for launch in self.launches:
            launch.run()

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        turns = [[_seconds(launch) for launch in self.launches] for _ in range(samples)]
        means = tuple(sum(t) / len(turns) for t in zip(*turns, strict=True)) if each else ()
        return tuple(map(sum, turns)), means


def _seconds(launch: _Launch) -> float:
    start = time.perf_counter()
    launch.run()
    return time.perf_counter() - start
