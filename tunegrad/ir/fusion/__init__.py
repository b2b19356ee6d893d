"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .plan import Buffer, BufferRole, Launch, Schedule
from .schedule import Fusion, schedule

__all__ = ["Buffer", "BufferRole", "Fusion", "Launch", "Schedule", "schedule"]
