"""Models of PyTorch: its graphs of ATen operators as graphs of tensors.

    torch.nn.Module  --torch.export-->       FX graph of ATen  --aten/ (a table)-->  Tensor graph
    torch.compile    --aot_autograd-->       FX graph of ATen  --the same table-->   Tensor graph

PyTorch is optional (``pip install tunegrad[torch]``) and is imported where it is first needed.
"""

from __future__ import annotations

from .exported import from_torch

__all__ = ["from_torch"]
