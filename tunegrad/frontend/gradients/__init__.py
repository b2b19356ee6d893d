"""Gradients: a rewrite of the graph, from a function of tensors to one that gives derivatives.

reverse.py        the walk from outputs to arguments
cotangent.py      what flows, and adjoints of movements
elementwise.py    local derivatives
rules.py          folds, reads, casts
functions.py      grad, value_and_grad, vjp, checkpoint
backward.py       loss.backward(), tensors that require a gradient
"""

from __future__ import annotations

from ..nodes.tracing import no_grad
from ..vjp import custom_vjp
from .functions import checkpoint, grad, value_and_grad, vjp

__all__ = ["checkpoint", "custom_vjp", "grad", "no_grad", "value_and_grad", "vjp"]
