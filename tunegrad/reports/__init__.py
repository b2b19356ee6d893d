"""Results of commands: one frozen record each, in plain numbers and text, and their form as JSON.

A report holds no behaviour and no formatting. Times that a reader compares are in milliseconds
(``_ms``), shares and per cents as their names say; ``None`` stands for "not measured".
"""

from __future__ import annotations

from .as_json import Json, to_json
from .code import CodeFacts, CompiledReport, CompiledRow, KernelResources
from .explained import (
    ExplainReport,
    ExplainRow,
    ExplainStep,
    Neighbour,
    Promotion,
    StepTime,
    VariantOption,
    VariantRow,
)
from .machine import CompilerRow, DeviceRow, DoctorReport, IsolationRow, PlaceRow
from .models import Deviation, LookupRow, Outcome, RunReport, ShowRow, TuneReport, TuneRow

__all__ = [
    "CodeFacts",
    "CompiledReport",
    "CompiledRow",
    "CompilerRow",
    "Deviation",
    "DeviceRow",
    "DoctorReport",
    "ExplainReport",
    "ExplainRow",
    "ExplainStep",
    "IsolationRow",
    "Json",
    "KernelResources",
    "LookupRow",
    "Neighbour",
    "Outcome",
    "PlaceRow",
    "Promotion",
    "RunReport",
    "ShowRow",
    "StepTime",
    "TuneReport",
    "TuneRow",
    "VariantOption",
    "VariantRow",
    "to_json",
]
