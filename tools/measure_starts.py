"""CPU time of whole processes that import numpy, make a first call, compile or load with everything
cached: the table of starts in docs/PERFORMANCE.md.

    python -m tools.measure_starts [ROUNDS]

The processes take turns; medians are in milliseconds, exit included. While a process lives, numpy's
OpenBLAS has a thread wait awake on each further core, up to some 20 ms at a time: that is measured
too, so each row is there twice, as it is and with ``OPENBLAS_NUM_THREADS=1``.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

ARRAYS = "import numpy as np\na, b = np.ones((64, 32), 'f4'), np.ones((32, 16), 'f4')\n"
PROCESSES = {
    "import numpy": "import numpy",
    "(tg.Tensor(a) @ tg.Tensor(b)).numpy()": (
        f"{ARRAYS}import tunegrad as tg\n(tg.Tensor(a) @ tg.Tensor(b)).numpy()"
    ),
    "tg.compile(lambda a, b: (a @ b).relu(), a, b) and a call": (
        f"{ARRAYS}import tunegrad as tg\n"
        "tg.compile(lambda a, b: (a @ b).relu(), a, b, store=False)(a, b)"
    ),
    'tg.load("mlp") and a call': (
        "import numpy as np\nimport tunegrad as tg\n"
        "m = tg.load('mlp', store=False)\nm(np.ones(m.inputs[0].shape, 'f4'))"
    ),
}


def cpu_ms(code: str, env: dict[str, str]) -> float:
    """CPU milliseconds of a process that runs ``code``. Raises RuntimeError where it fails."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], env)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"status {status} of a process that runs {code!r}")
    return (used.ru_utime + used.ru_stime) * 1e3


def main(rounds: int = 8) -> None:
    """Print the table."""
    shared = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    shared |= {"PYTHONPATH": str(Path(__file__).parents[1])}
    settings = shared, shared | {"OPENBLAS_NUM_THREADS": "1"}
    for code in PROCESSES.values():
        for _ in range(2):  # whatever is not cached yet
            cpu_ms(code, shared)
    turns = [
        [[cpu_ms(code, env) for env in settings] for code in PROCESSES.values()]
        for _ in range(rounds)
    ]
    print("| process | as it is | OPENBLAS_NUM_THREADS=1 |\n|---|---|---|")
    for i, name in enumerate(PROCESSES):
        each = (statistics.median(turn[i][j] for turn in turns) for j in range(len(settings)))
        print(f"| `{name}` | " + " | ".join(f"{ms:.0f}" for ms in each) + " |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
