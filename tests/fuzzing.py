"""Seeds and counts of fuzzers.

The seed of a run comes from ``TUNEGRAD_FUZZ_SEED``; without it, from the tree of the checkout's
commit, or from the day where there is no commit. So each change and each night draws other
programs, a failing run can be repeated, and a tree that is committed again (rebased, squashed)
draws what it drew before. The header of the test run prints the seed.

``TUNEGRAD_FUZZ`` multiplies how many programs each fuzzer draws. ``.ci/run`` sets it. With
``TUNEGRAD_FUZZ_ANEW=1`` Hypothesis draws other examples in every run, too.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
from pathlib import Path

__all__ = ["count", "fix_seed", "rng", "seed"]

_SEED = "TUNEGRAD_FUZZ_SEED"
_TIMES = "TUNEGRAD_FUZZ"


def fix_seed() -> int:
    """Choose the seed of this run, and hand it to the processes that run its tests."""
    os.environ.setdefault(_SEED, _tree() or f"{dt.datetime.now(dt.UTC):%Y%m%d}")
    return seed()


def seed() -> int:
    """Return the seed of this run.

    Raises ValueError where ``TUNEGRAD_FUZZ_SEED`` is not a decimal number.
    """
    text = os.environ.get(_SEED, "0")
    if not text.isdecimal():
        raise ValueError(f"{_SEED}={text}: a seed is a decimal number")
    return int(text)


def rng(fuzzer: str, case: int) -> random.Random:
    """Return the random numbers of one case of one fuzzer in this run."""
    return random.Random(f"{seed()} {fuzzer} {case}")


def count(default: int, most: int | None = None) -> int:
    """Return how many cases a fuzzer draws: its default times ``TUNEGRAD_FUZZ``, one at least.

    ``most`` bounds what is drawn beside the programs that a run is asked for.
    """
    drawn = max(1, round(default * float(os.environ.get(_TIMES, "1"))))
    return drawn if most is None else min(drawn, most)


def _tree() -> str:
    """Return the tree of the checkout's commit as a decimal number, empty where there is none."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=root, capture_output=True, text=True, check=False
    )
    return str(int(head.stdout[:8], 16)) if head.returncode == 0 else ""
