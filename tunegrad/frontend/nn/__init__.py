"""Layers with PyTorch's names, arguments and weights; ``functional`` is ``torch.nn.functional``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tunegrad.lazy import unknown

from .. import functional as functional  # PyTorch has it here, too
from . import layers, module, plain, sequences
from .layers import *  # noqa: F403
from .module import *  # noqa: F403
from .plain import *  # noqa: F403
from .sequences import *  # noqa: F403

if TYPE_CHECKING:
    from . import optim as optim
else:
    __all__ = [  # noqa: PLE0604 - strings all
        *layers.__all__, *module.__all__, *plain.__all__, *sequences.__all__, "functional", "optim",
    ]  # fmt: skip

    def __getattr__(name):
        if name == "optim":  # running a model needs no optimiser
            return import_module(f"{__name__}.optim")
        raise unknown(f"module {__name__!r}", name, lambda: __all__)
