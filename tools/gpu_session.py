"""Work for the minutes with a GPU: steps that check, time and tune, and keep every row.

    python -m tools.gpu_session all --out results       all steps
    python -m tools.gpu_session gemm --out results      one of them; it goes on where it stopped
    python -m tools.gpu_session tune --model resnet18 --seconds 300
    python -m tools.gpu_session all --device cuda-host --small     a rehearsal without a GPU

A step is a list of named rows, a line of JSON each in ``OUT/GPU/STEP.jsonl`` as soon as it is
there; the folder is named by what the GPU is, so that another one has its own. Rows are made in a
process of their own, which has a deadline: one that faults or hangs costs its row. A row that is
done is not made again. What failed, or was cut off, is made once more by a later command, after all
rows that were never made; what hung is not. A command begins no row that would end after
``--minutes``; the exit code is then 2, and the same command goes on. Nothing needs a network, or
pytest; torch is compared with where it sees the GPU.

probe     device, compiler, versions, peaks, clocks and power, what a launch costs
wrappers  every function of inline PTX alone, against numpy and the CPU's twin, bit by bit
units     every matrix unit alone, element by element
corpus    small kernels, default and random schedules, against the interpreter
tiled     products by matrix units, default, random, split and by hand, against float64
hostile   kernels that write where they may not, never end, leave the address space, want too much
tensors   torch's tensors in and out of a model, where they lie
gemm      products by their default schedules and by hand, TFLOP/s; cuBLAS
convs     f16 convolutions of channels-last images, TFLOP/s; cuDNN
rows      a copy; softmax, layer norm, sums, additions as shares of it, GB/s; torch and Triton
search    a product of f16 and one of f32, tuned
tune      ResNet-50 at batch 32 and the encoder, in f16
peers     both models beside PyTorch under CUDA graphs
record    spaces of ten kernels, a file each, ``--turn`` seconds at a time, until all is measured
compiled  both models beside torch.compile
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tools.gpu_child import Asked, Child, rows_of
from tools.gpu_journal import Journal, State
from tools.gpu_steps import STEPS, TUNED, Step
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import InternalError, UserError

__all__ = ["folder_of", "main", "ran"]

_STOPPED = 2
_GRACE_S = 30.0
"""Time after ``--minutes`` for which a row may go on that was begun before."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps that the words name; 1 where a row failed, 2 where time was over."""
    parser = argparse.ArgumentParser(
        prog="tools.gpu_session", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("step", choices=(*STEPS, "all"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_session"))
    parser.add_argument("--small", action="store_true", help="sizes that a CPU runs in seconds")
    parser.add_argument("--model", help="tune this one alone")
    parser.add_argument("--dtype", default="f16", choices=("f32", "f16", "bf16"))
    parser.add_argument("--seconds", type=float, default=240.0, help="of --model")
    parser.add_argument("--turn", type=float, default=60.0, help="seconds of a space at a time")
    parser.add_argument("--minutes", type=float, default=9.0, help="when the command stops")
    given = parser.parse_args(words)
    try:
        device = devices.running(given.device)
        device.compiler()
    except UserError as error:
        print(f"gpu_session: {error}", file=sys.stderr)
        return 1
    folder = folder_of(given.out, device)
    print(f"{device.describe()}: rows go to {folder}", flush=True)
    tuned = {f"{m}[batch=32]" if m == "resnet50" else m: s for m, s in TUNED.items()}
    models = {given.model: given.seconds} if given.model else {"mlp": 1.0} if given.small else tuned
    dtype = "f32" if given.small and not given.model else given.dtype
    asked = Asked(given.device, str(folder.resolve()), given.small, models, dtype, given.turn)
    steps = {s: STEPS[s] for s in (STEPS if given.step == "all" else (given.step,))}
    try:
        return ran(steps, asked, Clock(60 * given.minutes))
    except InternalError as error:
        print(f"gpu_session: {error}", file=sys.stderr)
        return 1


def folder_of(out: Path, device: Device) -> Path:
    """Folder of a device's rows: its name, and a digest of its fingerprint."""
    found = device.fingerprint()
    name = re.sub(r"[^a-z0-9]+", "-", dict(found.fields).get("cuda_name", device.name).lower())
    return out / f"{name}-{hashlib.sha256(found.text.encode()).hexdigest()[:8]}"


class Clock:
    """The time of one command, by ``now`` in seconds. ``over``: a row was left for the next one."""

    def __init__(self, limit_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.limit_s, self.over = limit_s, False
        self._now, self._began_s, self._rows = now, now(), 0

    def allows(self, takes_s: float) -> bool:
        """True if a row that takes so long may begin; the first one always may."""
        self.over = bool(self._rows) and self.passed_s + takes_s > self.limit_s
        self._rows += 1
        return not self.over

    @property
    def passed_s(self) -> float:
        """Since the command began."""
        return self._now() - self._began_s


def ran(steps: dict[str, Step], asked: Asked, clock: Clock) -> int:
    """Make rows that were never made, step by step, then those that are to be made again; 1 where
    one failed, 2 where time is over. Raises InternalError where a process can not be ended.
    """
    journal = Journal(Path(asked.out))
    states: dict[tuple[str, str], State] = {
        (step, name): journal.state(step, name)
        for step in steps
        for name, _ in rows_of(step, asked)
    }
    for (step, name), state in states.items():
        if state in ("hung", "failed"):
            why = "it hung before" if state == "hung" else "it failed twice"
            print(f"{step}: {name} is left out: {why}", flush=True)
    with closing(Child(asked, Path(asked.out) / "child.log")) as child:
        for wanted in ("new", "again"):
            for (step, name), state in states.items():
                if state != wanted:
                    continue
                if not clock.allows(steps[step].takes_s):
                    print(
                        f"{step}: stopped, {clock.limit_s / 60:g} minutes; the same again goes on"
                    )
                    return _STOPPED
                _made(step, name, steps[step].limit_s, child, journal, clock)
    return int(any(journal.failing(step) for step in steps))


def _made(
    step: str, name: str, limit_s: float, child: Child, journal: Journal, clock: Clock
) -> None:
    """One row. Where the command ends before the row's own deadline it is cut off, and no hang."""
    start, left_s = time.monotonic(), max(1.0, clock.limit_s + _GRACE_S - clock.passed_s)
    journal.begin(step, name)
    row = child.make(step, name, min(limit_s, left_s))
    if left_s < limit_s and row.pop("hung", False):
        row["error"] = f"cut off at the end of the command, {left_s:.0f} s after it began"
    row = {"name": name, "took_s": round(time.monotonic() - start, 3), **row}
    journal.end(step, row)
    print(f"{step}: {json.dumps(row, default=str)[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
