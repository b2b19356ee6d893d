"""Running what was compiled: memory, plans, arguments, and the cache of compiled objects.

Knows no device.
"""

from __future__ import annotations

from tunegrad.object_cache import ObjectCache

from .arguments import Argument, Donated, Signature
from .memory import Arena, Constants, Lifetime, lower_bound, plan_memory
from .plan import Code, Runner, Runners, lifetimes, needed_bytes

__all__ = [
    "Arena", "Argument", "Code", "Constants", "Donated", "Lifetime", "ObjectCache", "Runner",
    "Runners", "Signature", "lifetimes", "lower_bound", "needed_bytes", "plan_memory",
]  # fmt: skip
