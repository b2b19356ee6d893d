"""Networks that come with tunegrad: ResNets, a transformer encoder layer, a perceptron."""

from __future__ import annotations

from .encoder import encoder_layer
from .mlp import mlp
from .resnet import resnet18, resnet50

__all__ = ["encoder_layer", "mlp", "resnet18", "resnet50"]
