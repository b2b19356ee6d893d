"""Memory of work-groups that run all at once: the accesses since the last barrier.

    log      the elements and the items of each access, until the barrier after it
    settle   at a barrier: two items of a group touched one element, one of them wrote it: a race,
             unless all wrote the same value and each that read it had written it before
    groups   between groups there is no barrier: what one wrote no other may touch, at any time

Most stretches between two barriers only read a buffer, or only write it: then there is little to
compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

__all__ = ["Access", "GroupMemory", "Race"]

Ints = NDArray[np.int64]
Fault = Callable[[str, int], Never]
"""Raises VerifyError for what went wrong, at a row: an item of a group."""


@dataclass(frozen=True, slots=True)
class Access:
    """Elements that rows touched at one time, both flat; the values, where they were written.

    ``when`` counts accesses: a later one has a larger number.
    """

    elements: Ints
    rows: Ints
    when: int
    fault: Fault
    values: NDArray[Any] | None = None


Race = tuple[str, Access, int]
"""In words, with the access that is at fault and its row."""

_NOBODY, _MANY = -1, -2


class GroupMemory:
    """One buffer of the groups that run together.

    ``copies`` of ``size`` elements: one a group (shared memory), one an item (``private``), or one.
    ``rows`` of ``items`` each are groups. ``checked`` says that items can race, ``between`` that
    groups can. ``flying`` are elements that an asynchronous copy is about to write.
    """

    __slots__ = (
        "_groups", "_items", "_read_by", "_reads", "_writes", "_written_by", "checked", "copies",
        "data", "flying", "name", "private", "size", "writable", "written",
    )  # fmt: skip

    def __init__(
        self, name: str, data: NDArray[Any], *, writable: bool, copies: int, items: int,
        checked: bool, between: bool, private: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.data, self.writable, self.copies = name, data, writable, copies
        self.private = private
        self.size = len(data) // copies
        self.written = np.zeros(len(data), np.bool_) if writable else None
        self.flying: NDArray[np.bool_] | None = None
        self.checked, self._items = checked, items
        self._reads: list[Access] = []
        self._writes: list[Access] = []
        self._groups = between
        self._written_by = np.full(len(data) if between else 0, _NOBODY, np.int32)
        self._read_by = np.full(len(data) if between else 0, _NOBODY, np.int32)

    def forget(self) -> None:
        """Nothing is written any more: the memory of the next groups."""
        if self.written is not None:
            self.written.fill(False)

    def note_read(self, access: Access, first_group: int) -> None:
        """Raise at once where another group wrote it; items are looked at when they meet."""
        if self.checked:
            self._reads.append(access)
        if self._groups:
            mine = access.rows // self._items + first_group
            by = self._written_by[access.elements]
            foreign = (by != _NOBODY) & (by != mine)
            if foreign.any():
                at = int(foreign.argmax())
                access.fault(f"race: reads what {_group(by[at])} wrote", int(access.rows[at]))
            self._mark(self._read_by, access.elements, mine)

    def note_write(self, access: Access, first_group: int) -> None:
        """Before the values are stored. Raise at once where another group touched it."""
        if self.checked:
            self._writes.append(access)
        if self._groups:
            mine = access.rows // self._items + first_group
            by = self._read_by[access.elements]
            foreign = (by != _NOBODY) & (by != mine)
            if foreign.any():
                at = int(foreign.argmax())
                access.fault(f"race: writes what {_group(by[at])} read", int(access.rows[at]))
            by = self._written_by[access.elements]
            values = access.values
            assert values is not None  # a write has them
            again = (by != _NOBODY) & (by != mine)
            again &= _differ(self.data[access.elements], values)
            if again.any():
                at = int(again.argmax())
                why = f"race: writes another value than {_group(by[at])} did"
                access.fault(f"{why} since the last barrier", int(access.rows[at]))
            self._mark(self._written_by, access.elements, mine)
            self._same_store(access, mine)

    def _same_store(self, access: Access, mine: NDArray[Any]) -> None:
        """Two groups may store one element at once, of one value."""
        assert access.values is not None
        shared = self._written_by[access.elements] == _MANY
        if not shared.any():
            return
        elements, values = access.elements[shared], access.values[shared]
        order = np.argsort(elements, kind="stable")
        elements, values, groups = elements[order], values[order], mine[shared][order]
        clash = (elements[1:] == elements[:-1]) & _differ(values[1:], values[:-1])
        if clash.any():
            at = int(clash.argmax())
            row = int(access.rows[shared][order][at + 1])
            why = f"race: writes another value than {_group(groups[at])} did"
            access.fault(f"{why} since the last barrier", row)

    @staticmethod
    def _mark(by: NDArray[np.int32], elements: Ints, mine: Ints) -> None:
        old = by[elements]
        new = np.where((old != _NOBODY) & (old != mine), _MANY, mine).astype(np.int32)
        by[elements] = new
        lost = by[elements] != new
        by[elements[lost]] = _MANY

    def settle(self) -> Race | None:
        """A race of items since the last barrier, or None; what was touched is forgotten."""
        reads, writes = self._reads, self._writes
        if not writes:
            self._reads = []
            return None
        self._reads, self._writes = [], []
        return _between_writes(writes) or (_of_reads(reads, writes, len(self.data)))


def _group(number: int) -> str:
    return f"work-group {number}" if number >= 0 else "several others"


def _differ(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the elements whose bits differ between two arrays of one dtype."""
    kind = np.dtype(f"u{a.dtype.itemsize}")
    x, y = np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind)
    different: NDArray[np.bool_] = x != y
    return different


def _between_writes(writes: list[Access]) -> Race | None:
    """Two items that wrote another value each to one element."""
    elements = np.concatenate([w.elements for w in writes])
    rows = np.concatenate([w.rows for w in writes])
    values = np.concatenate([w.values for w in writes if w.values is not None])
    order = np.argsort(elements, kind="stable")
    e, r, v = elements[order], rows[order], values[order]
    clash = (e[1:] == e[:-1]) & (r[1:] != r[:-1]) & _differ(v[1:], v[:-1])
    if not clash.any():
        return None
    at = int(clash.argmax())
    access = _access(writes, int(order[at + 1]))
    return f"writes another value than work-item {{{r[at]}}} did", access, int(r[at + 1])


def _of_reads(reads: list[Access], writes: list[Access], size: int) -> Race | None:
    """An item that read what another one wrote, before or after."""
    if not reads:
        return None
    owner, crowd = np.full(size, _NOBODY, np.int64), np.zeros(size, np.bool_)
    for w in writes:
        before = owner[w.elements]
        owner[w.elements] = w.rows
        others = ((before != _NOBODY) & (before != w.rows)) | (owner[w.elements] != w.rows)
        crowd[w.elements[others]] = True
    for access in reads:
        by = owner[access.elements]
        asked = (by != _NOBODY) & ((by != access.rows) | crowd[access.elements])
        for at in np.flatnonzero(asked).tolist():
            element, row = int(access.elements[at]), int(access.rows[at])
            if not _wrote(writes, element, row, access.when):
                return f"reads what work-item {{{by[at]}}} wrote", access, row
    return None


def _wrote(writes: list[Access], element: int, row: int, before: int) -> bool:
    """True if a row had written an element before a time."""
    return any(
        w.when < before and ((w.elements == element) & (w.rows == row)).any() for w in writes
    )


def _access(found: list[Access], number: int) -> Access:
    """The access that holds element ``number`` of all of them one after the other."""
    for access in found:
        if number < len(access.elements):
            return access
        number -= len(access.elements)
    raise IndexError(number)
