"""The interpreter of programs: the oracle of every schedule and renderer."""

from __future__ import annotations

from tests.interpreter.program import Execution, interpret, pack_buffers

__all__ = ["Execution", "interpret", "pack_buffers"]
