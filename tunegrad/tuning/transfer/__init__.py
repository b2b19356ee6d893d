"""Transfer from other kernels of the store: seeds, and training rows of the cost model."""

from .seeding import Seeding
from .training import Teacher, features_of, learns, missing_model

__all__ = [
    "Seeding",
    "Teacher",
    "features_of",
    "learns",
    "missing_model",
]
