"""Structures of lists, tuples and dicts around leaves: batches, arguments, results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["leaves", "mapped"]


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """A list, tuple or dict of leaves, or a leaf, with a function of each."""
    if isinstance(tree, Mapping):
        return {k: mapped(v, function) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [mapped(v, function) for v in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree in order."""
    found: list[Any] = []
    mapped(tree, found.append)
    return found
