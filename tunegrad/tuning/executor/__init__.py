"""Executors: candidates of a session measured on this machine, or on a fleet of machines."""

from .local import CandidateMeasurer, SessionMeasurer
from .references import References, standing
from .site import Site, open_site

__all__ = [
    "CandidateMeasurer",
    "References",
    "SessionMeasurer",
    "Site",
    "open_site",
    "standing",
]
