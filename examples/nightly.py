"""A nightly sweep: time the winners again, and show two nights side by side.

Every night, from cron: ``tunegrad regress nightly.toml --store example.db --markdown nightly.md``.
"""

import subprocess
import sys
from pathlib import Path

import tunegrad as tg

STORE = "example.db"
SWEEP = """\
[regress]
models = ["mlp"]
turns = 8
quiet = "warn"  # "require" measures nothing on a busy machine
"""


def tunegrad(*words):
    """Run a command of tunegrad and return its exit code."""
    return subprocess.run([sys.executable, "-m", "tunegrad", *words], check=False).returncode


def main(budget_s):
    """Tune once, sweep twice, compare the two sweeps."""
    tg.tune("mlp", budget_s=budget_s, max_trials=20, store=STORE)
    Path("nightly.toml").write_text(SWEEP, encoding="utf-8")
    for _ in range(2):  # two nights; --fresh, since a second run within 12 hours goes on
        code = tunegrad("regress", "nightly.toml", "--store", STORE, "--fresh")
        print("exit code", code)  # 0; 3: something got slower; 1: something was not measured
    tunegrad("compare", "last~1", "last", "--store", STORE)


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
