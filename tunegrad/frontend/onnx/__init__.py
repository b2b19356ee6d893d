"""ONNX models: from a file to a Model.

    file  -->  nodes in order, initialisers,  -->  an operator's function of tensors, node by node;
               dimensions that are given           what is known when loaded is computed by numpy

Files are data: a damaged one, an operator that is not there, or a dimension without an extent is
one error. The package onnx reads them (``pip install 'tunegrad[onnx]'``).
"""

from __future__ import annotations

from .building import OPERATORS
from .importer import model

__all__ = ["OPERATORS", "model"]
