"""Table of the functions of tensors that stand for ATen's operators, by full name."""

from __future__ import annotations

from . import backward, contraction, elementwise, movement, normalisation, table
from .table import COMPLEX, Complex, Operator, as_complex, lifted

__all__ = ["COMPLEX", "FAMILIES", "TABLE", "Complex", "Operator", "as_complex", "lifted"]

FAMILIES: dict[str, dict[str, Operator]] = {
    "elementwise": elementwise.ELEMENTWISE,
    "lists of tensors": elementwise.FOR_EACH,
    "creation": elementwise.CREATION,
    "movement": movement.MOVEMENT,
    "indexing": movement.INDEXING,
    "reductions and scans": elementwise.REDUCTIONS,
    "products, convolutions, attention, recurrent layers": contraction.CONTRACTION,
    "normalisation, pooling, resizing": normalisation.NORMALISATION,
    "sampling": normalisation.SAMPLING,
    "encoder layers": contraction.ENCODER,
    "gradients": backward.BACKWARD,
    "complex numbers": table.COMPLEX_NUMBERS,
}
TABLE: dict[str, Operator] = {
    name: operator for family in FAMILIES.values() for name, operator in family.items()
}
"""``add.Tensor`` and so on. Arguments are those of ATen's schema, without device and layout."""
