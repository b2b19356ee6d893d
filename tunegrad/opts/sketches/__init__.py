"""Sketches: whole schedules from a few decisions, whose defaults are the heuristic schedules."""

from .pick import sketch

__all__ = ["sketch"]
