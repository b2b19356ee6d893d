"""Cases of ``onnx.backend.test``, ONNX's own conformance suite, through the package's backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, numpy_helper
from onnx.backend.test import BackendTest

from tunegrad.frontend.onnx.backend import TunegradBackend

__all__ = ["Outcome", "judged", "outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: it passed where ``why`` is empty.

    ``constants`` counts inputs that were constants of the program, ``kernels`` those it ran.
    """

    why: str = ""
    constants: int = 0
    kernels: int = 0


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
            wanted = [_array(x) for x in outputs]
            BackendTest.assert_similar_outputs(wanted, found, case.rtol, case.atol)
    except AssertionError as error:
        return Outcome(f"wrong: {_line(error)}", constants, kernels)
    except Exception as error:  # noqa: BLE001  # a failed case is one line
        return Outcome(f"{type(error).__name__}: {_line(error)}", constants, kernels)
    return Outcome("", constants, kernels)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:240]
