"""Lowering: from a loop tree to a program."""

from .lower import lower

__all__ = ["lower"]
