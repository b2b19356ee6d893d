"""Kernels in this process's memory: linked, called by their address, unmapped."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import barrier_address
from tunegrad.errors import InternalError

__all__ = ["Executable"]


class Executable:
    """A kernel in this process's memory.

    ``address`` is what ``Launch`` and ``Team.run`` take, until ``close``.

    It is unmapped with its last reference at the latest.
    """

    __slots__ = ("__weakref__", "_library", "name", "threads")

    def __init__(self, library: Library, name: str, threads: int = 1) -> None:
        self._library = library
        self.name = name
        self.threads = threads

    @classmethod
    def load(cls, image: bytes, name: str, threads: int = 1) -> Executable:
        """Link an object from ``compile_llvm`` that defines the kernel ``name``, which runs on so
        many threads.

        Raises CompileFailure when ``image`` is no object or lacks a symbol.
        """
        return cls(Library(image, (name,), {"tg_barrier": barrier_address()}), name, threads)

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
