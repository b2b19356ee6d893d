"""Running what was compiled: memory, plans, arguments, and the cache of compiled objects.

Knows no device.
"""

from __future__ import annotations

from tunegrad.object_cache import ObjectCache

from .arguments import Argument, Signature
from .constants import Constants
from .engine import BoundPlan, Code, Engine, Memory
from .memory import Arena, Lifetime, lower_bound, plan_memory
from .plan import Runner, lifetimes
from .runners import Runners

__all__ = [
    "Arena",
    "Argument",
    "BoundPlan",
    "Code",
    "Constants",
    "Engine",
    "Lifetime",
    "Memory",
    "ObjectCache",
    "Runner",
    "Runners",
    "Signature",
    "lifetimes",
    "lower_bound",
    "plan_memory",
]
