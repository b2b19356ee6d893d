"""Trials, children and files for the tests of the store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tunegrad.db
from tunegrad.db import Evidence, key_of
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

HERE = Fingerprint((("arch", "znver4"), ("device", "cpu")))
KERNEL = "kernel(m 64, n 64, k 64)"
KEY = key_of(KERNEL)
EVIDENCE = Evidence("mannwhitneyu", 0.001, (2e-3,), (1e-3,), cold=True)


def numbered(n: int, text: str = KERNEL, status: Status = Status.OK) -> Trial:
    """Trial ``n``: its actions name it, its times follow from it."""
    samples = (1e-3 * (n + 1), 1e-3 * (n + 2), 1e-3 * (n + 3)) if status is Status.OK else ()
    return Trial(
        kernel_key=key_of(text),
        kernel_text=text,
        fingerprint=HERE,
        actions=f"unroll(by={n})",
        program_hash=f"{n:032x}",
        space_version=1,
        policy=Policy(),
        measurement=Measurement(status, samples),
        session="s1",
        origin="beam",
        created_s=1000.0 + n,
    )


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process running ``code`` with this tunegrad and this module; its output is read line
    by line.
    """
    roots = [str(Path(tunegrad.db.__file__).parents[2]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
