"""Kernels of a store whose texts this version can not parse: their rows are found by key, and
reports do not say what they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.errors import KernelTextError

if TYPE_CHECKING:
    from tunegrad.db.store import Store

__all__ = ["UnreadText", "unread_texts"]


@dataclass(frozen=True, slots=True)
class UnreadText:
    """A kernel that can not be read back, and why."""

    key: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"kernel {f'{self.key} {self.name}'.strip()}: {self.reason}"


def unread_texts(store: Store) -> Iterator[UnreadText]:
    """Every kernel with trials whose text does not parse, by key.

    No damage: of another version, or by hand.
    """
    from tunegrad.ir.parse_kernel import parse_kernel

    for key, text in store.kernels():
        try:
            parse_kernel(text)
        except KernelTextError as error:
            yield UnreadText(key, store.kernel_name(key), str(error))
