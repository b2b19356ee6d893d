"""Rights of a device's worker processes: a value that devices declare; ``confine`` sees to it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Confinement"]


@dataclass(frozen=True, slots=True)
class Confinement:
    """The rights that a process keeps.

    ``reads``: open files for reading, for one that runs no candidate.

    ``threads``: start further ones. ``memory_bytes``: address space that it may take beyond what it
    has when it is confined; 0: as much as there is. ``driver``: it loads a driver that opens files,
    starts programs and takes address space as it likes: it is cut off from its session, dies with
    its parent, and keeps the limits of time.
    """

    driver: bool = False
    reads: bool = False
    threads: bool = True
    memory_bytes: int = 0
