"""Methods of tensors, a family in each file, each class on top of the one before.

operators  arithmetic  comparison  trigonometry  movement  indexing  reduction  ordering
activation  linear  padding  convolution  pooling  resizing  normalisation  losses
"""

from __future__ import annotations

from .losses import Losses

__all__ = ["Losses"]
