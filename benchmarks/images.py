"""A whole model with its images in each form, not tuned: every kernel with its default schedule,
the forms in turns.

    python -m benchmarks.images [MODEL] [--threads N] [--rounds N] [--direct] [--kernels]

``--direct`` leaves every kernel direct; without it each is the variant that is expected to be
fastest. ``--kernels`` lists what each kernel takes. Results of all forms are compared first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import numpy as np

from benchmarks.machine import describe
from tunegrad.config import resolve_model
from tunegrad.devices import Engine, host_device
from tunegrad.inference import LoadedModel, compiled_choice, process_compiler
from tunegrad.ir.fusion import LAST, ROWS, Fusion, LaunchPlan, blocked
from tunegrad.planning import pick_variants
from tunegrad.tuning.models import turn_order
from tunegrad.tuning.workload import Workload, workload_of_spec

__all__ = ["main"]

_TOLERANCE = 1e-3
"""Of the largest output: Winograd's error in f32 included."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when results differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images")
    parser.add_argument(
        "model", nargs="?", default="resnet18", help="a model's name (default resnet18)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of the team (default 1)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each form (default 9)")
    parser.add_argument("--direct", action="store_true", help="no variants")
    parser.add_argument("--kernels", action="store_true", help="what each kernel takes")
    options = parser.parse_args(argv)
    engine = host_device(options.threads).open()
    target = engine.device.target
    work = workload_of_spec(resolve_model(options.model))
    forms = [work.fusion.storing(images) for images in (LAST, ROWS, blocked(target.lanes(4)))]
    models = [_model(work, fusion, engine, options.direct) for fusion in forms]
    if not _agree(models):
        return 1
    samples = _in_turns(models, options.rounds)
    print(
        f"{work.name}, {options.threads} threads, "
        f"{'direct' if options.direct else 'variants'}, ms, median of turns"
    )
    for fusion, found in zip(forms, samples, strict=True):
        ratio = median(s / last for s, last in zip(found, samples[0], strict=True))
        print(
            f"{fusion.images!s:10} {median(found) * 1e3:8.3f}  {ratio:5.2f}x  "
            f"{fusion.conversions} conversions"
        )
    for fusion, model in zip(forms if options.kernels else (), models, strict=False):
        print(fusion.images)
        for name, seconds in model.profile_s():
            print(f"  {seconds * 1e6:9.1f} us  {name}")
    about = describe(("python", "-m", "benchmarks.images"), options.threads)
    print(f"{about['cpu']}, {target.arch}, {about['cores']} cores", file=sys.stderr)
    return 0


def _model(work: Workload, fusion: Fusion, engine: Engine, direct: bool) -> LoadedModel:
    here = engine.device.fingerprint()
    plan: LaunchPlan = fusion.schedule()
    if not direct:
        plan, _ = pick_variants(plan, engine.device.target, here, None, "contract")
    compiler = process_compiler()
    chosen = {
        key: compiled_choice(kernel, engine, here, None, "default", compiler)
        for key, (kernel, _) in plan.kernels().items()
    }
    return LoadedModel(work.name, work.inputs, plan, chosen, engine)


def _agree(models: Sequence[LoadedModel]) -> bool:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(i.shape, np.float32) for i in models[0].inputs]
    want, *others = [np.asarray(m(*inputs)) for m in models]
    worst = max(float(np.abs(got - want).max() / np.abs(want).max()) for got in others)
    if worst > _TOLERANCE:
        print(f"results differ by {worst:.2g} of the largest output", file=sys.stderr)
    return worst <= _TOLERANCE


def _in_turns(models: Sequence[LoadedModel], rounds: int) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in models]
    for turn in range(rounds):
        for at in turn_order(len(models), turn):
            samples[at].append(min(models[at].benchmark_s(3)[1:]))
    return samples


if __name__ == "__main__":
    sys.exit(main())
