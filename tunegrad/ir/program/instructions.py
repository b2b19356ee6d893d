"""Instructions that hold no others: values, memory, registers, and what items of a group do
together.

A value is an int id, defined once. Instructions of matrix units are in ``matrices``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType
from ..expr import Op
from ..index import Index, Valid

__all__ = [
    "Await", "Barrier", "Commit", "Compute", "Convert", "CopyAsync", "Fold", "Load", "Number",
    "Position", "Read", "Register", "Select", "Shuffle", "Single", "Splat", "Store", "Test",
    "VType", "Valued", "Write",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class VType:
    """A scalar type and a lane count; one lane is a scalar."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return str(self.dtype) if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


@dataclass(frozen=True, slots=True)
class Number:
    """``id`` = a constant, in every lane."""

    id: int
    value: float | int | bool
    vtype: VType


@dataclass(frozen=True, slots=True)
class Load:
    """``id`` = ``buffer[offset]``; lanes where ``mask`` (a bool value id) is false read nothing and
    give zero.

    ``prefetch`` asks for the cache line that many bytes further on; a hint without meaning.
    """

    id: int
    buffer: str
    offset: Index
    vtype: VType
    lane: str = ""
    mask: int | None = None
    prefetch: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[offset] = value`` in the lanes where ``mask`` is true.

    ``stream`` says that it is not read soon, so caches may be passed by; a hint without meaning.
    """

    buffer: str
    offset: Index
    value: int
    vtype: VType
    lane: str = ""
    mask: int | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """``id`` = ``op(args)``; arguments and result have equal lanes.

    ``FMA(a, b, c)`` is a*b + c, rounded once.
    """

    id: int
    op: Op
    args: tuple[int, ...]
    vtype: VType


@dataclass(frozen=True, slots=True)
class Convert:
    """``id`` = ``arg`` as another dtype, lanes unchanged."""

    id: int
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Splat:
    """``id`` = the scalar ``arg`` in every lane."""

    id: int
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Fold:
    """``id`` = the lanes of ``arg`` folded with ``op`` to a scalar."""

    id: int
    op: Op
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Select:
    """``id`` = ``yes`` where ``mask`` else ``no``."""

    id: int
    mask: int
    yes: int
    no: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Position:
    """``id`` = the number ``index`` (per lane when it depends on ``lane``)."""

    id: int
    index: Index
    vtype: VType
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Test:
    """``id`` = whether ``valid`` holds (per lane when it depends on ``lane``); a bool of ``lanes``
    lanes.
    """

    id: int
    valid: Valid
    lanes: int = 1
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """``id`` = ``arg`` of the work-item whose number within the warp differs in the bits of
    ``across``.

    Every item of the group runs it; ``across`` is a power of two below the warp's size.
    """

    id: int
    arg: int
    across: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class CopyAsync:
    """Starts a copy: ``buffer[into] = source[offset]``; zeros where ``mask`` (one lane) is false.

    ``vtype`` has as many lanes as it copies: 4, 8 or 16 bytes, aligned to as many on both sides.
    ``buffer`` is shared memory, ``source`` memory that the program never writes. Until the item
    that started it waits for its batch, no item may touch what it writes.
    """

    buffer: str
    into: Index
    source: str
    offset: Index
    vtype: VType
    lane: str = ""
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Ends a batch: all copies that the item started since its last one; it may be empty."""


@dataclass(frozen=True, slots=True)
class Await:
    """Waits until at most ``left`` of the item's batches, the newest, are in flight."""

    left: int


@dataclass(frozen=True, slots=True)
class Register:
    """Declares the mutable register variable ``name``; its first use writes it."""

    name: str
    vtype: VType


@dataclass(frozen=True, slots=True)
class Read:
    """``id`` = the register's value now."""

    id: int
    name: str
    vtype: VType


@dataclass(frozen=True, slots=True)
class Write:
    """The register's value from now on."""

    name: str
    value: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Barrier:
    """All actors' stores before it are seen by all actors after it."""


Valued = (
    Number | Load | Compute | Convert | Splat | Fold | Select | Position | Test | Shuffle | Read
)
"""Instructions that define one value."""

Single = Valued | Store | CopyAsync | Commit | Await | Register | Write | Barrier
"""Instructions that hold no others, those of matrix units left out."""
