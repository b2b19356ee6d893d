"""Lowering: from a loop tree to a program."""

from .lower import emit

__all__ = ["emit"]
