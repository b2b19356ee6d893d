"""Notation of the tables of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunegrad.errors import ModelError

Operator = Callable[..., Any]


def entries(operator: Operator, *names: str) -> dict[str, Operator]:
    """Several overloads of one meaning: ``"add.Tensor"``, ``"add.Scalar"``."""
    return dict.fromkeys(names, operator)


def overloads(kinds: str, *operators: Operator) -> dict[str, Operator]:
    """Operations that have ATen's name and arguments, under these kinds of overload."""
    return {f"{o.__name__}.{kind}": o for o in operators for kind in kinds.split()}


def unsupported(operator: str, why: str) -> ModelError:
    """An operator that is known, with arguments that are not."""
    return ModelError(f"aten.{operator}: {why} is not supported")
