"""Executors: candidates of a session measured on this machine, or on a fleet of machines."""

from .executor import Executor, open_executor
from .local import CandidateMeasurer, References, SessionMeasurer, standing

__all__ = [
    "CandidateMeasurer",
    "Executor",
    "References",
    "SessionMeasurer",
    "open_executor",
    "standing",
]
