"""Notation of the tables of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunegrad.errors import ModelError

from ...tensor import Tensor

__all__ = ["Operator", "entries", "methods", "unsupported"]

Operator = Callable[..., Any]


def entries(operator: Operator, *names: str) -> dict[str, Operator]:
    """Several overloads of one meaning: ``"add.Tensor"``, ``"add.Scalar"``."""
    return dict.fromkeys(names, operator)


def methods(names: str, overloads: str = "default") -> dict[str, Operator]:
    """Methods of a tensor that have ATen's name and arguments."""
    return {
        f"{name}.{overload}": getattr(Tensor, name)
        for name in names.split()
        for overload in overloads.split()
    }


def unsupported(operator: str, why: str) -> ModelError:
    """An operator that is known, with arguments that are not."""
    return ModelError(f"aten.{operator}: {why} is not supported")
