"""Which combinations of parameters a test takes, where each value has to be met but a product of
all of them would assert the same thing many times over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

__all__ = ["across", "each_once"]


def each_once(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return as few tuples as meet each value of each list: the lists side by side, the shorter
    ones from their start again.
    """
    longest = max(map(len, lists))
    return [tuple(values[i % len(values)] for values in lists) for i in range(longest)]


def across(*lists: Sequence[Any]) -> list[Any]:
    """Return every combination; those that ``each_once`` does not have are slow tests.

    For compilers of GPUs that are not here: each kernel meets one architecture in every run, each
    architecture several kernels, and all of them meet where slow tests run.
    """
    kept = each_once(*map(range, map(len, lists)))
    return [
        pytest.param(*values, marks=() if at in kept else pytest.mark.slow)
        for values, at in zip(product(*lists), product(*map(range, map(len, lists))), strict=True)
    ]
