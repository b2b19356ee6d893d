"""Reads a text from left to right.

A missing token is a KernelTextError, which says what stands there instead, and where.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tunegrad.errors import KernelTextError

__all__ = ["LARGEST", "Scanner"]

LARGEST = 1 << 40
"""No number of a text is larger: extents, strides and limits of conditions are far below."""

_SHOWN = 24
_INTEGER = re.compile(r"-?[0-9]{1,14}(?![0-9])")


class Scanner:
    """A text and a place in it. Mutable."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        """Raise KernelTextError for what stands here, or at ``at``."""
        at = self.at if at is None else at
        rest = self.text[at : at + _SHOWN].split("\n", 1)[0]
        found = ascii(rest) if rest else "the end of a line" if at < len(self.text) else "the end"
        raise KernelTextError(at, found, expected)

    def sees(self, token: str) -> bool:
        """True if the text goes on with ``token``."""
        return self.text.startswith(token, self.at)

    def skips(self, token: str) -> bool:
        """Go past ``token`` if the text goes on with it; True if so."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def take(self, token: str) -> None:
        """Go past ``token``, which must stand here."""
        if not self.skips(token):
            self.fail(ascii(token))

    def find(self, pattern: re.Pattern[str]) -> str:
        """The match of the pattern here, or ''. Goes nowhere."""
        m = pattern.match(self.text, self.at)
        return m.group() if m else ""

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Go past what the pattern matches here; it must match."""
        found = self.find(pattern)
        if not found:
            self.fail(expected)
        self.at += len(found)
        return found

    def integer(self, low: int = -LARGEST) -> int:
        """An integer from ``low`` to ``LARGEST``."""
        at = self.at
        value = int(self.match(_INTEGER, f"an integer of at most {LARGEST}"))
        if not low <= value <= LARGEST:
            self.fail(f"an integer from {low} to {LARGEST}", at)
        return value
