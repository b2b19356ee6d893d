"""Layers with PyTorch's names, arguments and weights; ``functional`` is ``torch.nn.functional``."""

from __future__ import annotations

from typing import Any

from .. import functional as functional  # PyTorch has it here, too
from .containers import Identity, ModuleDict, ModuleList, Sequential
from .layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Bilinear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    Linear,
    PReLU,
    RMSNorm,
    conv_norm,
)
from .module import Module, Parameter
from .plain import PLAIN
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .transformer import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "GRU",
    "LSTM",
    "PLAIN",
    "RNN",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "PReLU",
    "Parameter",
    "RMSNorm",
    "RNNCell",
    "Sequential",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "conv_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in PLAIN:
        return PLAIN[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *PLAIN})
