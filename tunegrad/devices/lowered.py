"""A program lowered for a device, and the facts that launching its compiled code needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.layout import Pack
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.ir.program import Program

_NUMBERED = re.compile(r"[:(](\d+)[:)]")

_WHOLE, _NEAR, _MOST_LINES = 24, 2, 60
"""Lines of a text that is short enough to be shown whole; those on each side of one that is named;
and the most that are shown."""

_MOST_LETTERS = 4000
"""Of a compiler's message: a compiler that has lost its way says as much as it was given."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One entry of a kernel's buffer table: ``elements`` of ``dtype`` (a name of ``ir.dtypes``).

    Inputs and constants must come back unchanged; outputs are poisoned before each run; an
    ``inout`` is drawn like an input and compared like an output; a ``pack`` is filled from the
    ``Pack`` of the same name. ``bound`` is for integers used as indices: values are drawn from 0 to
    ``bound`` - 1, in sets of special values beyond both ends as well (0: small integers of both
    signs). An output ``over`` an input may be that input's memory: it is run so, too.
    """

    name: str
    dtype: str
    elements: int
    role: Literal["in", "const", "out", "inout", "pack"]
    bound: int = 0
    over: str = ""

    @property
    def nbytes(self) -> int:
        return self.elements * buffer_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class KernelIO:
    """Every buffer of a program in table order, and how its packed constants are made.

    ``unread`` are constants that nothing but their packs is read of: their elements need no memory.
    """

    params: tuple[Parameter, ...]
    packs: tuple[Pack, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def overwritten(self) -> dict[str, str]:
        """Outputs that may be the memory of an input, by the name of that input."""
        return {p.over: p.name for p in self.params if p.over}


def io_of(program: Program) -> KernelIO:
    """The buffers of a program, in its own order."""
    from tunegrad.ir.program import indexed

    extents = indexed(program)
    params = (
        Parameter(b.name, b.dtype.name, b.size, b.role, extents.get(b.name, 0), b.over)
        for b in program.params
    )
    return KernelIO(tuple(params), program.packs, unread(program))


def unread(program: Program) -> tuple[str, ...]:
    """See ``KernelIO``."""
    from tunegrad.ir.program import CopyAsync, Load, MatLoad, Store, TileLoad, indexed, walk

    if not program.packs:
        return ()
    touched = set(indexed(program))
    for i in walk(program.body):
        if isinstance(i, (Load, Store, MatLoad, TileLoad)):
            touched.add(i.buffer)
        elif isinstance(i, CopyAsync):
            touched.add(i.source)
    sources = {pack.source for pack in program.packs}
    return tuple(b.name for b in program.params if b.name in sources - touched)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The launch of a program: so many groups that run in any order, each of so many items.

    A group is a thread of a CPU, where it has one item, or a work-group of a GPU. It shares
    ``shared_bytes`` beyond what the kernel declares by itself.
    """

    groups: int = 1
    items: int = 1
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program in a device's own language, and all that a launch needs beside it.

    ``entry`` is the name of the kernel in ``text``. ``scratch_bytes`` are memory that it takes
    after the buffers of ``io``, one entry an argument, with any content.
    """

    text: str
    entry: str
    io: KernelIO
    scratch_bytes: tuple[int, ...] = ()
    geometry: Geometry = Geometry()


def with_source(words: str, text: str) -> str:
    """A compiler's message, and the numbered lines of ``text`` that it is about.

    Those are the lines that the message gives the numbers of, or quotes, with their neighbours. Of
    a message that does neither, the first lines are shown. A long message is cut.
    """
    if len(words) > _MOST_LETTERS:
        words = f"{words[:_MOST_LETTERS]} ... ({len(words)} characters)"
    lines = text.splitlines()
    named = {int(n) - 1 for n in _NUMBERED.findall(words)}
    quoted = {line.strip() for line in words.splitlines() if len(line.strip()) > _WHOLE // 2}
    named |= {at for at, line in enumerate(lines) if line.strip() in quoted}
    shown = {at + by for at in named for by in range(-_NEAR, _NEAR + 1)} & set(range(len(lines)))
    if not shown or len(lines) <= _WHOLE:
        shown = set(range(min(len(lines), _WHOLE)))
    some = sorted(shown)[:_MOST_LINES]
    width = len(str(len(lines)))
    parts = [f"{at + 1:{width}} | {lines[at][:200]}" for at in some]
    return "\n".join([words, f"source, {len(some)} of {len(lines)} lines:", *parts])


# ---- digests
#
# Digests that tell two generated programs, and two contents of memory, apart: the one definition
# for workers, stored rows, and models that are loaded.


def program_hash(lowered: Lowered) -> str:
    """32 hex digits of the BLAKE2 hash of the text and of all that a launch needs beside it.

    The machine and the compiler are not in it: rows of a store have them in their fingerprint,
    objects in their key.
    """
    import hashlib

    g, scratch = lowered.geometry, lowered.scratch_bytes
    words: list[object] = [lowered.entry, sum(scratch), g.groups]
    if g.items > 1 or len(scratch) > 1:
        words += [g.items, *scratch]
    if g.shared_bytes:
        words.append(f"shared {g.shared_bytes}")
    text = f"{' '.join(map(str, words))} {lowered.io.packs}\n{lowered.text}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def contents_digest(contents: Iterable[NDArray[np.uint8]]) -> str:
    """32 hex digits of the BLAKE2 hash of bytes, array by array, each after its size."""
    import hashlib

    whole = hashlib.blake2b(digest_size=16)
    for data in contents:
        whole.update(f"{data.nbytes} ".encode())
        whole.update(data.tobytes())
    return whole.hexdigest()
