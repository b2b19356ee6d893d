"""The CPU device: target and fingerprint of this machine, compile, load and launch."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import assembly, compile_llvm, compiler_version
from tunegrad.devices.host.facts import default_threads, fingerprint, host_target
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import BufferTable, Launch, Plan, Team, barrier_address
from tunegrad.errors import InternalError

__all__ = [
    "Buffer",
    "BufferTable",
    "Executable",
    "Launch",
    "Plan",
    "Team",
    "asm",
    "compile_llvm",
    "compiler_version",
    "default_threads",
    "fingerprint",
    "host_target",
]

asm = assembly


class Executable:
    """A kernel in this process's memory. ``address`` is what ``Launch`` and ``Team.run`` take, until ``close``."""

    __slots__ = ("_library", "name")

    def __init__(self, library: Library, name: str) -> None:
        self._library = library
        self.name = name

    @classmethod
    def load(cls, image: bytes, name: str) -> Executable:
        """Link an object from ``compile_llvm`` that defines the kernel ``name``.

        Raises CompileFailure when ``image`` is no object or lacks a symbol.
        """
        return cls(Library(image, (name,), {"tg_barrier": barrier_address()}), name)

    @property
    def address(self) -> int:
        address = self._library.addresses.get(self.name)
        if address is None:
            raise InternalError(f"Executable {self.name}: used after close")
        return address

    def close(self) -> None:
        """Unmap the code; nothing may be running in it."""
        self._library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
