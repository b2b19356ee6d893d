"""``torch.nn`` by its names: ``import tunegrad.nn as nn``. The layers are in ``frontend/nn``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.frontend.nn import *  # noqa: F403
from tunegrad.lazy import unknown

if not TYPE_CHECKING:  # which see the names that are imported
    from tunegrad.frontend.nn import __all__

    from . import functional  # PyTorch's path

    def __getattr__(name):
        raise unknown(f"module {__name__!r}", name, __dir__)

    def __dir__():
        return sorted(__all__)
