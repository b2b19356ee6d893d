"""How the samples of decisions were taken, as their rows say it."""

from __future__ import annotations

from tunegrad.trial import Policy

from .race import PROOF_TURNS

__all__ = ["CONTEST_POLICY", "PARTS_POLICY"]

CONTEST_POLICY = Policy(cache="warm", min_samples=PROOF_TURNS, max_samples=PROOF_TURNS)
"""In turns, in whole models."""

PARTS_POLICY = Policy(cache="warm", min_samples=1, max_samples=1, statistic="median")
"""Of what stands and met nobody: the sum of its parts."""
