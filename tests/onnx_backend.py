"""Cases of ``onnx.backend.test``, ONNX's own conformance suite, through the package's backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test import BackendTest

from tunegrad.frontend.onnx.backend import TunegradBackend

__all__ = ["Outcome", "draws", "judged", "outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: it passed where ``why`` is empty.

    ``constants`` counts inputs that were constants of the program, ``kernels`` those it ran.
    """

    why: str = ""
    constants: int = 0
    kernels: int = 0


def draws(name: str) -> bool:
    """Return True for a case whose expected values are numbers that ONNX's reference drew."""
    return "bernoulli" in name or ("training_dropout" in name and "zero_ratio" not in name)


def outcome(case: Any) -> str:
    """'' where a case of the suite passes, else why not, in one line."""
    return judged(case).why


def judged(case: Any) -> Outcome:
    """A case, run, and compared as ONNX's own runner compares it."""
    constants = kernels = 0
    try:
        rep = TunegradBackend.prepare(case.model, threads=1, store=False)
        for inputs, outputs in case.data_sets:
            found = rep.run(list(inputs))
            constants, kernels = len(rep.constants), rep.kernels
            _compare(found, outputs, case.rtol, case.atol)
    except AssertionError as error:
        return Outcome(f"wrong: {_line(error)}", constants, kernels)
    except Exception as error:  # noqa: BLE001  # a failed case is one line
        return Outcome(f"{type(error).__name__}: {_line(error)}", constants, kernels)
    return Outcome("", constants, kernels)


def _compare(found: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> None:
    """Raises AssertionError where outputs differ by ONNX's own rule, which compares arrays of a
    sequence as it compares outputs.
    """
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, list | tuple):
            assert isinstance(a, list)
            _compare(a, b, rtol, atol)
        else:
            array = numpy_helper.to_array(b) if isinstance(b, TensorProto) else np.asarray(b)
            BackendTest.assert_similar_outputs([array], [a], rtol, atol)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:240]
