"""Compares budgets with the wall clock of whole commands.

    python -m benchmarks.budgets           10 s, 60 s and 5 m on mlp and resnet18, 5 times each: an
                                           hour, on a machine without other work
    python -m benchmarks.budgets --budgets 10s --models mlp --times 2

Each command is a process of its own with an empty store, and its time is that from before it is
started until after it is gone. It is in time within 5 % of its budget, or 3 s. One that stops early
because nothing more is expected is in time, too. Exits with 3 where one was not in time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tunegrad.config import parse_budget

__all__ = ["in_time", "main"]

_TREE = Path(__file__).parents[1]
_SHARE, _LEAST_S = 0.05, 3.0
_MISSED = 3


def in_time(took_s: float, budget_s: float, stopped: str) -> bool:
    """True if a command took its budget, or less because it stopped early."""
    allowed_s = max(_SHARE * budget_s, _LEAST_S)
    return took_s <= budget_s + allowed_s and (
        stopped not in ("budget", "") or took_s >= budget_s - allowed_s
    )


def _command(model: str, budget: str, device: str) -> tuple[float, dict[str, object]]:
    """Seconds of one command, and its report."""
    with tempfile.TemporaryDirectory() as place:
        words = ("tune", model, "--budget", budget, "--device", device, "--store", "s.db", "--json")
        began_s = time.monotonic()
        found = subprocess.run(
            [sys.executable, "-m", "tunegrad", *words],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(_TREE)},
        )
        took_s = time.monotonic() - began_s
    if found.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {found.returncode}\n{found.stderr}")
    report: dict[str, object] = json.loads(found.stdout)
    return took_s, report


def main(argv: list[str] | None = None) -> int:
    """Run the commands, a line each; the exit code."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--models", default="mlp,resnet18")
    options.add_argument("--budgets", default="10s,60s,5m")
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--device", default="cpu")
    chosen = options.parse_args(argv)
    late = 0
    print("model      budget   wall s   off s  off %  in time  stopped    others' CPUs  gain")
    for model in chosen.models.split(","):
        for budget in chosen.budgets.split(","):
            budget_s = parse_budget(budget)
            for _ in range(chosen.times):
                took_s, report = _command(model, budget, chosen.device)
                stopped, off_s = str(report["stopped"]), took_s - budget_s
                fine = in_time(took_s, budget_s, stopped)
                late += not fine
                print(
                    f"{model:<10} {budget:>6} {took_s:>8.1f} {off_s:>+7.1f} "
                    f"{100 * off_s / budget_s:>+6.1f}  {'yes' if fine else 'NO':<7}  {stopped:<9} "
                    f"{report['others_cpus']:>13.2f}  {_gain(report)}",
                    flush=True,
                )
    print("all in time" if not late else f"{late} not in time")
    return _MISSED if late else 0


def _gain(report: dict[str, object]) -> str:
    from tunegrad.cli.tables import gain_text

    gain, interval = report["gain"], report["interval"]
    if not isinstance(gain, float) or not isinstance(interval, list):
        return gain_text(None, None)
    return gain_text(gain, (interval[0], interval[1]))


if __name__ == "__main__":
    sys.exit(main())
