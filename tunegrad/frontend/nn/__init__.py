"""Layers with PyTorch's names, arguments and weights; ``functional`` is ``torch.nn.functional``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functional as functional  # PyTorch has it here, too
from . import layers, module, plain, sequences
from . import optim as optim
from .layers import *  # noqa: F403
from .module import *  # noqa: F403
from .plain import *  # noqa: F403
from .sequences import *  # noqa: F403

if not TYPE_CHECKING:  # which see the names that are imported
    __all__ = [  # noqa: PLE0604 - strings all
        *layers.__all__, *module.__all__, *plain.__all__, *sequences.__all__, "functional", "optim",
    ]  # fmt: skip
