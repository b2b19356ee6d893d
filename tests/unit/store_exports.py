"""A small store that can be exported and taken back: its action texts parse, its rows keep every
rule of a file.
"""

from __future__ import annotations

import math
from pathlib import Path

from store_trials import HERE, KERNEL, KEY

from tunegrad.db import Contents, Decision, Evidence, Latency, Session, open_store
from tunegrad.db.contents import Promotion, Spend, Withdrawn, identity
from tunegrad.trial import Measurement, Policy, Status, Trial


def trial(
    n: int = 0, status: Status = Status.OK, seconds: float | None = None, origin: str = "beam"
) -> Trial:
    samples = ((seconds or 1e-3 * (n + 1)),) * 3 if status is Status.OK else ()
    error = "" if status is Status.OK else "off by\n\x1b[31m0.5"
    return Trial(
        KEY, KERNEL, HERE, "" if n == 0 else f"tile(axis=m, size={n})", "", 1, Policy(),
        Measurement(status, samples, error, max_error=math.inf if error else 0.5), "s1", origin,
        1000.0 + n,
    )  # fmt: skip


def promotion(of: Trial, *samples: float, test: str = "mannwhitneyu") -> Promotion:
    return Promotion(
        identity(of), Evidence(test, 0.001, (2e-3,), samples or (1e-3,), cold=True), 2000.0
    )


def withdrawn(of: Trial) -> Withdrawn:
    return Withdrawn(identity(of), "it was wrong", "s1", 3000.0)


def decision(
    choice: str, *, text: str = KERNEL, at: float = 4000.0, test: str = "sign"
) -> Decision:
    """A choice that stands, about the kernel of the other rows."""
    evidence = Evidence(test, 0.01, (3e-3, 4e-3), (1e-3, 2e-3), cold=False)
    return Decision(
        "variant", text, choice, True, evidence, HERE, 1, "s1", at, policy=Policy().text
    )


def latency(seconds: float = 2e-3, at: float = 5000.0) -> Latency:
    """Two turns of a model and its default schedules, which take twice as long."""
    conditions = (("compiler", "llvmlite 0.44"),), (("governor", "performance"), ("load_1m", 0.5))
    samples, default = (seconds, seconds), (2 * seconds, 2 * seconds)
    return Latency("mlp", "f" * 32, "tuned", HERE, samples, default, "s1", at, *conditions)


WORLD = Contents(
    kernels=((KERNEL, "matmul_64"),),
    sessions=(Session("s1", 2000.0, 2002.0, "tune mlp", 7, '{"threads": 2}', "0.1.0"),),
    trials=(trial(0), trial(2), trial(3, Status.WRONG), trial(4, Status.CRASHED)),
    promotions=(promotion(trial(2)),),
    spends=(Spend("mlp", HERE, "beam", 12.5),),
    decisions=(decision("winograd2"),),
    latencies=(latency(),),
)


def make(path: Path, contents: Contents) -> Path:
    """A store file with these contents."""
    with open_store(path, "write") as store:
        store.replace_contents(contents)
    return path
