"""Whole models of a session: their values, the process that runs them, and the check of their
outputs.

WholeModel   plan, inputs, a schedule for every kernel       a value
Models       a workload and the store, to such values        compiles in the compile workers
ModelBench   runs them in a process that can be killed       samples, outputs; or a CandidateFailure
Expected     an independent evaluation of the graph          what outputs are held to
culprit      which of several challengers ended a race
"""

from __future__ import annotations

from .bench import LocalBench, ModelBench, Turns, per_launch
from .expected import Expected, Judge, expected_of
from .making import Compiled, Models, WholeModel, culprit
from .work import turn_order

__all__ = [
    "Compiled", "Expected", "Judge", "LocalBench", "ModelBench", "Models", "Turns",
    "WholeModel", "culprit", "expected_of", "per_launch", "turn_order",
]  # fmt: skip
