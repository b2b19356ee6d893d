"""Decisions for tests that need a store which has decided something."""

from __future__ import annotations

from tunegrad.db import IMPORTED, Decision, Evidence, Question
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint

__all__ = ["decided"]


def decided(
    kind: Question, text: str, choice: str, here: Fingerprint, *, claimed: bool = False
) -> Decision:
    """A choice that stands, by samples of its own, or as a file claims."""
    test = f"{IMPORTED}welch" if claimed else "welch"
    evidence = Evidence(test, 0.001, (2e-6,) * 3, (1e-6,) * 3, cold=False)
    return Decision(kind, text, choice, True, evidence, here, SPACE_VERSION, "s1", 1.0)
