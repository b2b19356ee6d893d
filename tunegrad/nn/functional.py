"""``torch.nn.functional`` by its names: ``import tunegrad.nn.functional as F``."""

from __future__ import annotations

from typing import Any

from tunegrad.frontend import functional as _functions
from tunegrad.frontend.functional import *  # noqa: F403 - the same names


def __getattr__(name: str) -> Any:
    return getattr(_functions, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions.METHODS})
