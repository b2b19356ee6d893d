"""Answers of a space's questions, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

__all__ = ["RandomChooser"]


class RandomChooser:
    """Draws each decision uniformly, or takes its default with probability ``default_share``."""

    def __init__(self, rng: Random, default_share: float = 0.0) -> None:
        self.rng, self.default_share = rng, default_share

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the Chooser protocol
        if self.default_share and self.rng.random() < self.default_share:
            return default
        return self.rng.randrange(len(options))
