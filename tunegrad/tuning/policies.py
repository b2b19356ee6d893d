"""Policies by which the candidates of a session are timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunegrad.ir.target import Target
from tunegrad.trial import Policy

from .workload import Workload

__all__ = ["SEARCH_POLICY", "search_policy"]

SEARCH_POLICY = Policy(
    cache="warm", min_samples=3, max_samples=10, tolerance=0.03, budget_s=0.01, timeout_s=10.0
)
"""The policy for timing candidates of small models during a search; finalists are raced in whole
models.
"""


def search_policy(workloads: Sequence[Workload], target: Target) -> Policy:
    """Policy for timing candidates of these models: constants are evicted where the cores' own
    caches do not hold them all.

    Between two runs of a kernel a model reads all its other constants, so that what one kernel that
    runs alone has in its caches says little of it: see decision 0020.
    """
    held = target.threads * target.l2_bytes
    constants = sum(b.nbytes for w in workloads for b in w.plan.buffers if b.role == "const")
    return replace(SEARCH_POLICY, cache="constants") if constants > held else SEARCH_POLICY
