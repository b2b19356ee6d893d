"""Layers with PyTorch's names, arguments and weights; ``functional`` is ``torch.nn.functional``."""

from __future__ import annotations

from .. import functional as functional  # PyTorch has it here, too
from . import containers, layers, norms, plain, recurrent, transformer
from .containers import *  # noqa: F403
from .layers import *  # noqa: F403
from .module import Layer, Module, Parameter
from .norms import *  # noqa: F403
from .plain import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .transformer import *  # noqa: F403

__all__ = [  # noqa: PLE0604 - strings all
    *containers.__all__, *layers.__all__, *norms.__all__, *plain.__all__,
    *recurrent.__all__,     *transformer.__all__, "Layer", "Module", "Parameter", "functional",
]  # fmt: skip
