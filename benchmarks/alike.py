"""A program against itself: how often does a race say that one of two equals is faster?

    python -m benchmarks.alike --model resnet18 --races 200 --threads 2
    python -m benchmarks.alike --model resnet18 --races 200 --threads 2 --in-model

Every kernel of the model is raced as its default schedule against the same program three times,
loaded anew; again and again, until there were so many races. In the model all kernels race at once,
else each in its first launch alone.
More than one in twenty is too many.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

from tunegrad.compiling import HOOKS
from tunegrad.config import resolve_model
from tunegrad.db import open_store
from tunegrad.devices import DeviceMeasurer, Limits, host_device
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.search import LOOKS
from tunegrad.trial import Fingerprint, Measurement, Status, Trial
from tunegrad.tuning.interrupt import Interrupt
from tunegrad.tuning.models import LocalBench, Models, expected_of
from tunegrad.tuning.questions.schedule import track_of
from tunegrad.tuning.race import Choice, race
from tunegrad.tuning.session import search_policy
from tunegrad.tuning.workload import Workload, only, workload_of_spec

__all__ = ["main"]

_MOST = 0.05
_TOO_MANY = 3
_OTHERS = 3


def _trials(work: Workload, here: Fingerprint, device: DeviceMeasurer) -> dict[str, Trial]:
    """The default schedule of every kernel, as if it had been measured."""
    policy, found = search_policy([work], device.device.target), {}
    for use in work.kernels:
        actions = Space(use.kernel, device.device.target).defaults()[0].text
        measured = Measurement(Status.OK, (1.0,))
        found[use.key] = Trial(
            use.key,
            use.kernel.text,
            here,
            actions,
            "",
            SPACE_VERSION,
            policy,
            measured,
            "alike",
            "default",
        )
    return found


def _never(trial: Trial, failure: CandidateFailure) -> None:
    raise InternalError(f"kernel {trial.kernel_key}: {failure}")


def _raced(
    works: Sequence[Workload], trials: Mapping[str, Trial], device: DeviceMeasurer, races: int
) -> tuple[int, int]:
    """Races won by an equal, and all races, in models of each work in turn."""
    evaluate = partial(expected_of, device)
    bench = LocalBench(device.device, device.compile, evaluate, Limits(), Interrupt())
    store = open_store(":memory:", "write")
    models = Models(store, device.device.target, next(iter(trials.values())).fingerprint, bench)
    won = held = 0
    try:
        for work in cycle(works):
            made = bench.compile([(u.kernel, trials[u.key].actions) for u in work.kernels])
            mine = [
                replace(trials[u.key], program_hash=code.program)
                for u, code in zip(work.kernels, made, strict=True)
            ]
            choices = [Choice(t.kernel_key, t, (t,) * _OTHERS) for t in mine]
            found = race(choices, track_of(models, work, _never))
            won, held = won + sum(met.won for met in found.values()), held + len(found)
            if held >= races:
                break
    finally:
        bench.close()
    return won, held


def main(arguments: Sequence[str] | None = None) -> int:
    """Race and print how many were promoted; 3 where they are more than one in twenty."""
    parser = argparse.ArgumentParser(prog="benchmarks.alike")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--in-model", action="store_true")
    asked = parser.parse_args(arguments)
    here, began_s = host_device(asked.threads), time.monotonic()
    work = workload_of_spec(resolve_model(asked.model))
    with DeviceMeasurer(here, HOOKS) as device:
        trials = _trials(work, here.fingerprint(), device)
        works = [work] if asked.in_model else [only(work, u.key) for u in work.kernels]
        won, held = _raced(works, trials, device, asked.races)
    where = "in models" if asked.in_model else "alone"
    took_s = time.monotonic() - began_s
    sys.stdout.write(
        f"{where}: {won} of {held} races of equals were won, {LOOKS} looks each, {took_s:.0f} s\n"
    )
    return _TOO_MANY if won > _MOST * held else 0


if __name__ == "__main__":
    sys.exit(main())
