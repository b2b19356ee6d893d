"""Endings of a call of a worker process: with a value, with the worker's death, or at its time
limit.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

__all__ = ["Died", "Ending", "Finished", "TimedOut"]


@dataclass(frozen=True, slots=True)
class Finished:
    """The call returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Died:
    """The worker's process ended: ``code`` is its exit code, negative for a signal.

    ``why``: for what it was ended by us, or what it failed of; empty where it ended by itself.
    """

    code: int
    why: str = ""

    @property
    def text(self) -> str:
        if self.why:
            return self.why
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call was stopped at its limit."""

    limit_s: float

    @property
    def text(self) -> str:
        return f"over {self.limit_s:g} s"


Ending = Finished | Died | TimedOut
