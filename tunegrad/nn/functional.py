"""``torch.nn.functional`` by its names: ``import tunegrad.nn.functional as F``."""

from __future__ import annotations

from tunegrad.frontend.functional import *  # noqa: F403 - the same names
