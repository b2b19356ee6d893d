"""The actions: one file each, all frozen values that print as text and rewrite a loop tree."""

from .base import (
    ACTIONS,
    Action,
    ActionObserver,
    action_names,
    apply_actions,
    parse_actions,
    print_actions,
)
from .epilogue import Epilogue
from .fuse import Fuse
from .group import Group
from .keep import Keep
from .local import Local
from .pad import Pad
from .pipeline import Pipeline
from .prefetch import Prefetch
from .reorder import Reorder
from .stage import Stage
from .stream import Stream
from .tensorcore import Tensorcore
from .thread import Thread
from .tile import Tile
from .unroll import Unroll
from .upcast import Upcast
from .vectorize import Vectorize

__all__ = [
    "ACTIONS",
    "Action",
    "ActionObserver",
    "Epilogue",
    "Fuse",
    "Group",
    "Keep",
    "Local",
    "Pad",
    "Pipeline",
    "Prefetch",
    "Reorder",
    "Stage",
    "Stream",
    "Tensorcore",
    "Thread",
    "Tile",
    "Unroll",
    "Upcast",
    "Vectorize",
    "action_names",
    "apply_actions",
    "parse_actions",
    "print_actions",
]
