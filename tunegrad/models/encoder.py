"""A transformer encoder layer as in BERT (Devlin et al. 2018): post-norm, gelu by erf."""

from __future__ import annotations

import math
from functools import partial

from tunegrad.errors import ModelError
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.nn import LayerNorm, Linear, Module

from .mlp import positive


class EncoderLayer(Module):
    """Self-attention and feed-forward, each with a residual and a norm; (N, S, hidden) to same."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        self.heads = heads
        self.query, self.key, self.value = (
            Linear(hidden, hidden),
            Linear(hidden, hidden),
            Linear(hidden, hidden),
        )
        self.out = Linear(hidden, hidden)
        self.norm1 = LayerNorm(hidden)
        self.up, self.down = Linear(hidden, ffn), Linear(ffn, hidden)
        self.norm2 = LayerNorm(hidden)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.norm1(x + self.out(self.attention(x)))
        found: Tensor = self.norm2(y + self.down(self.up(y).gelu()))
        return found

    def attention(self, x: Tensor) -> Tensor:
        """softmax(q k' / sqrt(d)) v for every head, heads side by side in the last axis."""
        batch, sequence, hidden = x.shape
        width = hidden // self.heads
        q, k, v = (
            linear(x).reshape(batch, sequence, self.heads, width).permute(0, 2, 1, 3)
            for linear in (self.query, self.key, self.value)
        )
        scores = ((q @ k.transpose()) * (1 / math.sqrt(width))).softmax(-1)
        heads: Tensor = scores @ v
        return heads.permute(0, 2, 1, 3).reshape(batch, sequence, hidden)


def encoder_layer(
    batch: int = 1, sequence: int = 128, hidden: int = 768, heads: int = 12, ffn: int = 3072
) -> Model:
    """One encoder layer: (batch, sequence, hidden) to the same.

    Raises:
        ModelError: ``heads`` does not divide ``hidden``.
    """
    positive("encoder", batch=batch, sequence=sequence, hidden=hidden, heads=heads, ffn=ffn)
    if hidden % heads:
        raise ModelError(f"encoder: heads={heads} does not divide hidden={hidden}")
    return Model.of(
        "encoder",
        partial(EncoderLayer, hidden, heads, ffn),
        (InputSpec("x", (batch, sequence, hidden)),),
    )
