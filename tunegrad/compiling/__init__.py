"""From a kernel and a schedule to code: for the workers of a search, and for loaded models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .artifact import SETTLED_NS as SETTLED_NS
    from .artifact import SUFFIX as SUFFIX
    from .artifact import Compiler as Compiler
    from .artifact import Counts as Counts
    from .artifact import KeptPlan as KeptPlan
    from .artifact import behind as behind
    from .artifact import build as build
    from .artifact import code_of as code_of
    from .artifact import graph_key as graph_key
    from .artifact import object_key as object_key
    from .candidate import HOOKS as HOOKS
    from .candidate import Payload as Payload
    from .saved import SavedKernel as SavedKernel
    from .saved import SavedModel as SavedModel
    from .saved import open_model as open_model
    from .saved import save_model as save_model
    from .saved import taken_constants as taken_constants
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "artifact": (
                "Compiler Counts KeptPlan SETTLED_NS SUFFIX behind build code_of graph_key "
                "object_key"
            ),
            "candidate": "HOOKS Payload",
            "saved": "SavedKernel SavedModel open_model save_model taken_constants",
        },
    )
