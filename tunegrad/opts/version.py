"""The version of the space of schedules."""

__all__ = ["SPACE_VERSION"]

SPACE_VERSION = 2
"""Raised when an action text starts to mean another program, by another space, lowering or
rendering.

It is part of the store's key. ``python -m tools.lowered`` knows the code of each version, and a
test asks it.
"""
