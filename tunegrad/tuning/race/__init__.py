"""Races: successive halving, and a proof, over samples taken in turns with the incumbent."""

from .halving import race
from .model_track import ModelTrack
from .values import (
    AT_ONCE,
    FAULTS,
    FEWEST_TURNS,
    HEAT_TURNS,
    PROOF_TURNS,
    TOTAL,
    Choice,
    Met,
    Pair,
    Track,
)

__all__ = [
    "AT_ONCE",
    "FAULTS",
    "FEWEST_TURNS",
    "HEAT_TURNS",
    "PROOF_TURNS",
    "TOTAL",
    "Choice",
    "Met",
    "ModelTrack",
    "Pair",
    "Track",
    "race",
]
