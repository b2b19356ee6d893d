# mypy: implicit-reexport
"""From a kernel and a schedule to code: for the workers of a search, and for loaded models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .artifact import (
        SETTLED_NS, SUFFIX, Compiler, Counts, KeptPlan, behind, build, code_of, graph_key,
        object_key,
    )  # fmt: skip
    from .candidate import HOOKS, Payload
    from .saved import SavedKernel, SavedModel, open_model, save_model, taken_constants
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
