"""The rule that every builder's sizes follow."""

from __future__ import annotations

from tunegrad.errors import ModelError


def positive(model: str, **sizes: object) -> None:
    """Every size is an integer of at least 1.

    Raises:
        ModelError: one is not.
    """
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{model}: {name}={value!r} must be an integer of at least 1")
