"""Layers with PyTorch's names, arguments and weights; ``functional`` is ``torch.nn.functional``."""

from __future__ import annotations

from .. import functional as functional  # PyTorch has it here, too
from . import layers, module, optim, plain, sequences
from .layers import *  # noqa: F403
from .module import *  # noqa: F403
from .plain import *  # noqa: F403
from .sequences import *  # noqa: F403

__all__ = [  # noqa: PLE0604 - strings all
    *layers.__all__, *module.__all__, *plain.__all__, *sequences.__all__, "functional", "optim",
]  # fmt: skip
