"""Models of PyTorch: its graphs of ATen operators as graphs of tensors.

    torch.nn.Module  --torch.export-->       FX graph of ATen  --aten/ (a table)-->  Tensor graph
    torch.compile    --aot_autograd-->       FX graph of ATen  --the same table-->   Tensor graph

PyTorch is optional (``pip install tunegrad[torch]``) and is imported where it is first needed.
"""

from __future__ import annotations

from .aten import FAMILIES, TABLE, Complex
from .checking import Call, check_choice, fault_of
from .drawing import Draws, with_draws_as_inputs
from .exported import from_torch
from .graph import (
    array_of,
    constant_of,
    dtype_from,
    load_torch,
    missing_operators,
    run_graph,
    tensor_of,
    torch_dtype,
    value_of,
)

__all__ = [
    "FAMILIES", "TABLE", "Call", "Complex", "Draws", "array_of", "check_choice", "constant_of",
    "dtype_from", "fault_of", "from_torch", "load_torch", "missing_operators", "run_graph",
    "tensor_of", "torch_dtype", "value_of", "with_draws_as_inputs",
]  # fmt: skip
