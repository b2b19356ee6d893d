"""Table of the functions of tensors that stand for operators of ATen, by the operator's full
name.
"""

from __future__ import annotations

from . import (
    complexes,
    contraction,
    creation,
    elementwise,
    encoder,
    indexing,
    movement,
    normalisation,
    reduction,
    sampling,
)
from .complexes import COMPLEX, Complex, lifted
from .table import Operator

__all__ = ["COMPLEX", "FAMILIES", "TABLE", "Complex", "Operator", "lifted"]

FAMILIES: dict[str, dict[str, Operator]] = {
    "elementwise": elementwise.TABLE,
    "creation": creation.TABLE,
    "movement": movement.TABLE,
    "indexing": indexing.TABLE,
    "reductions and scans": reduction.TABLE,
    "products, convolutions, attention, recurrent layers": contraction.TABLE,
    "normalisation, pooling, resizing": normalisation.TABLE,
    "sampling": sampling.TABLE,
    "encoder layers": encoder.TABLE,
    "complex numbers": complexes.TABLE,
}
TABLE: dict[str, Operator] = {
    name: operator for family in FAMILIES.values() for name, operator in family.items()
}
"""``add.Tensor`` and so on. Arguments are those of ATen's schema, without device and layout."""
