"""Prints what validating a plan costs of loading a model whose plan and code are in no cache.

    python -m tools.validation_cost                  resnet50, seven processes, one thread
    python -m tools.validation_cost encoder --runs 3

Seconds are CPU time of the thread that loads. Keys of kernels, which a plan needs anyway, are not
counted as validation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import Any

__all__ = ["main"]


def _load(name: str) -> tuple[float, float, float]:
    """Seconds of a load, of validating the graph's rewrites, and its plan."""
    import tunegrad as tg
    from tunegrad import pipeline

    spent = [0.0, 0.0]

    def timed(at: int, validate: Callable[..., Any]) -> Callable[..., Any]:
        def run(made: Any, *more: Any, **named: Any) -> Any:
            for launch in getattr(made, "launches", ()):
                launch.kernel.key  # noqa: B018  # so that it is known
            began_s = thread_time()
            try:
                return validate(made, *more, **named)
            finally:
                spent[at] += thread_time() - began_s

        return run

    for at, validation in enumerate(("validated_rewrite", "validated")):
        setattr(pipeline, validation, timed(at, getattr(pipeline, validation)))
    began_s = thread_time()
    tg.load(name, store=False, threads=1)
    return thread_time() - began_s, spent[0], spent[1]


def _apart(name: str) -> list[float]:
    with tempfile.TemporaryDirectory() as empty:
        env = os.environ | {"XDG_CACHE_HOME": empty, "XDG_DATA_HOME": empty}
        command = [sys.executable, "-m", "tools.validation_cost", name, "--runs", "0"]
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return list(map(float, done.stdout.split()))


def main(arguments: Sequence[str]) -> int:
    """Print a line a process, and the medians; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.validation_cost", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("model", nargs="?", default="resnet50")
    parser.add_argument("--runs", type=int, default=7, help="processes; 0: this one, bare numbers")
    given = parser.parse_args(arguments)
    if not given.runs:
        print(*_load(given.model))
        return 0
    shares = []
    for _ in range(given.runs):
        load_s, rewrites_s, plan_s = _apart(given.model)
        shares.append((rewrites_s + plan_s) / load_s)
        print(
            f"load {1e3 * load_s:7.1f} ms   rewrites {1e3 * rewrites_s:5.1f}   "
            f"plan {1e3 * plan_s:5.1f}   validation {shares[-1]:.2%}",
            flush=True,
        )
    print(
        f"{given.model}: validation is {min(shares):.2%} to {max(shares):.2%} of a load, "
        f"median {median(shares):.2%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
