"""The actions: frozen values that print as text and rewrite a loop tree, a family in each file."""

from .base import (
    ACTIONS,
    Action,
    ActionObserver,
    action_names,
    apply_actions,
    parse_actions,
    print_actions,
)
from .copies import Epilogue, Keep, Pipeline, Prefetch, Stage, Stream
from .loops import Fuse, Group, Local, Pad, Reorder, Thread, Tile, Unroll, Upcast, Vectorize
from .tensorcore import Tensorcore

__all__ = [
    "ACTIONS", "Action", "ActionObserver", "Epilogue", "Fuse", "Group", "Keep", "Local", "Pad",
    "Pipeline", "Prefetch", "Reorder", "Stage", "Stream", "Tensorcore", "Thread", "Tile",
    "Unroll", "Upcast", "Vectorize", "action_names", "apply_actions", "parse_actions",
    "print_actions",
]  # fmt: skip
