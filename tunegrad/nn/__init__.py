"""``torch.nn`` by its names: ``import tunegrad.nn as nn``. The layers are in ``frontend/nn``."""

from __future__ import annotations

from typing import Any

from tunegrad.frontend import nn as _layers

from . import functional

__all__ = ["functional"]


def __getattr__(name: str) -> Any:
    return getattr(_layers, name)


def __dir__() -> list[str]:
    return dir(_layers)
