"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .plan import Buffer, BufferRole, Launch, Schedule
from .schedule import schedule

__all__ = ["Buffer", "BufferRole", "Launch", "Schedule", "schedule"]
