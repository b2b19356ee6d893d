"""Rows of a GPU session that misbehave, for its tests; ``step`` is what they do."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.gpu_child import Asked, Named, Row
from tunegrad.compiling.candidate import reference
from tunegrad.devices.job import Reference
from tunegrad.errors import DeviceFault

__all__ = ["rows_of", "wrong_reference"]

_FAULTS: list[str] = []
"""Of this process: nothing works in it after one, as on a GPU."""


def rows_of(step: str, asked: Asked) -> Iterator[Named]:
    """A row that does it, between two good ones; each writes down that it was made."""
    made = {"good": lambda: {"n": 1}, step: _BAD.get(step, dict), "good afterwards": dict}
    for name, call in made.items():
        yield name, partial(_made, Path(asked.out) / "made", name, call)


def _made(path: Path, name: str, call: Callable[[], Row]) -> Row:
    with path.open("a") as file:
        file.write(f"{name}\n")
    if _FAULTS:
        raise DeviceFault(_FAULTS[0])
    return call()


def _killed() -> Row:
    sys.stderr.write("last words\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _hangs() -> Row:
    time.sleep(600)
    return {}


def _faults() -> Row:
    _FAULTS.append("an illegal address")
    raise DeviceFault(_FAULTS[0])


_BAD = {"killed": _killed, "hangs": _hangs, "faults": _faults}


def wrong_reference(payload: object, arrays: dict[str, Any]) -> dict[str, Reference]:
    """One more than what a kernel gives."""
    found = reference(payload, arrays)  # type: ignore[arg-type]
    return {name: replace(r, values=r.values + 1.0) for name, r in found.items()}
