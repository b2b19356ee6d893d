"""A process that trains is killed at twenty random moments: the curve of its losses, and its last
state, are those of one that never stopped, to the bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
KILLS, BATCHES = 20, 50
PROGRAM = """
import os, signal, sys
from pathlib import Path
import numpy as np
import tunegrad as tg

path, batches, renames = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def killed(event, args):
    global renames
    if event == "os.rename" and args[1] == str(path):
        renames -= 1
        if not renames:  # written, and not in the place of the old one yet
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(killed)
nn, rng = tg.nn, np.random.default_rng(0)
x, y = rng.standard_normal((112, 64), np.float32), rng.integers(0, 10, 112)
net = nn.Sequential(
    nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 10)
)
rate = nn.optim.CosineLR(0.01, 60)
step = tg.TrainStep(
    net, nn.functional.cross_entropy, nn.optim.AdamW(rate), accumulate=2, threads=2, store=False,
    loss_scale=nn.optim.LossScale(),
)
more = step.load(path) if path.exists() else {"at": 0, "loader": None}
loader = tg.data.Loader((x, y), 16, shuffle=True, seed=5, state=more["loader"])
at = more["at"]
while at < batches:
    for batch in loader:
        at += 1
        print(at, float(step(*batch)).hex(), flush=True)
        step.save(path, {"at": at, "loader": loader.state()})
        print("saved", flush=True)
        if at == batches:
            break
"""


def trained(path: Path, moment: str = "", lines: int = -1) -> tuple[dict[int, str], bool]:
    """Losses by batch of a process that goes on from the file; and True if it came to the end.

    It is killed as it computes a batch or saves its state, after so many lines of its output, or
    in its so manyth save before the file is replaced.
    """
    renames = lines if moment == "replace" else 0
    found: dict[int, str] = {}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(BATCHES), str(renames)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line != "saved\n":
                at, loss = line.split()
                found[int(at)] = loss
            if moment in ("batch", "save") and (line == "saved\n") == (moment == "batch"):
                lines -= 1
                if not lines:
                    process.kill()  # what it printed until then is still read
    assert process.returncode in (0, -signal.SIGKILL)
    return found, process.returncode == 0


def test_a_run_that_is_killed_twenty_times_has_the_losses_of_one_that_is_not(
    tmp_path: Path,
) -> None:
    whole, path = tmp_path / "whole" / "s.safetensors", tmp_path / "killed" / "s.safetensors"
    for at in (whole, path):
        at.parent.mkdir()
    wanted, ended = trained(whole)
    assert ended
    assert len(wanted) == BATCHES
    rng, seen = Random(0), dict[int, str]()
    for _ in range(KILLS):
        found, ended = trained(path, rng.choice(("batch", "save", "replace")), rng.randint(1, 3))
        assert not ended
        assert all(wanted[at] == loss for at, loss in found.items())
        seen |= found
    found, ended = trained(path)
    assert ended
    assert {**seen, **found} == wanted
    assert path.read_bytes() == whole.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == [path.name]
