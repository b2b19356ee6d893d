"""Times of a candidate between its decisions and its code in memory, stage by stage.

    python -m tools.latency [--model resnet18] [--per-kernel 8] [--repeats 3] [--json FILE]

The sample is fixed by the seed: of every distinct kernel of the model the default schedule, and
schedules that change one or two of its decisions, as a beam asks for them. One process, one
candidate after the other; of every stage of a candidate the least of ``--repeats`` runs counts, so
that a busy moment does not. ``--json`` keeps the hashes of all texts, and two such files say which
candidates a change changed (``--against FILE``).

    sample    decisions    -->  action text       parse     LLVM IR text  -->  verified IR
    actions   action text  -->  actions           passes    IR  -->  IR
    loops, schedule, lower, races, limit, render  emit      IR  -->  object
              the passes of tunegrad/opts/passes  link      object  -->  memory
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tunegrad.compiling import build
from tunegrad.config import resolve_model
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Executable
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space, TraceChooser
from tunegrad.pipeline import KERNEL_PASSES
from tunegrad.tuning.workload import workload_of_spec

__all__ = ["STAGES", "Drawn", "Timed", "draw", "main", "measured"]

_LOWER = ("actions", *(p.name for p in KERNEL_PASSES))
_COMPILE = ("parse", "passes", "emit")
STAGES = ("sample", *_LOWER, *_COMPILE, "link")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A candidate of the sample: a kernel of the model, and the decisions that give its
    schedule.
    """

    name: str
    kernel: Kernel
    choices: tuple[tuple[str, int], ...]
    actions: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of every stage of one candidate, and the identity of its IR text."""

    name: str
    actions: str
    stages_s: dict[str, float]
    text: str
    text_bytes: int


def draw(model: str, target: Target, per_kernel: int, seed: int = 0) -> tuple[Drawn, ...]:
    """The sample: ``per_kernel`` distinct schedules of every kernel, as a beam would ask for
    them.
    """
    workload = workload_of_spec(resolve_model(model), seed)
    found: list[Drawn] = []
    for use in workload.kernels:
        if not use.kernel.fixed:
            found += _of_kernel(
                use.name, use.kernel, target, per_kernel, Random(f"{seed} {use.key}")
            )
    return tuple(found)


def _of_kernel(
    name: str, kernel: Kernel, target: Target, count: int, rng: Random
) -> Iterator[Drawn]:
    """The default, and schedules that differ from it in one or two decisions."""
    space = Space(kernel, target)
    start = space.defaults()[0]
    known = {start.text}
    yield Drawn(f"{name}.0", kernel, (), start.text)
    for _ in range(50 * count):
        if len(known) == count or not start.trace:
            return
        choices = {d.name: d.choice for d in start.trace}
        for d in rng.sample(start.trace, min(len(start.trace), rng.choice((1, 1, 1, 2)))):
            choices[d.name] = rng.randrange(d.options)
        try:
            schedule = space.sample(TraceChooser(choices))
            space.lower(schedule)
        except IllegalAction:
            continue
        if schedule.text not in known:
            yield Drawn(f"{name}.{len(known)}", kernel, tuple(choices.items()), schedule.text)
            known.add(schedule.text)


def measured(drawn: Drawn, target: Target, repeats: int) -> Timed:
    """The least time of every stage over ``repeats`` runs of all of them."""
    best = dict.fromkeys(STAGES, float("inf"))
    text = ""
    for _ in range(repeats):
        stages_s, text = _once(drawn, target)
        best = {stage: min(best[stage], stages_s[stage]) for stage in STAGES}
    return Timed(
        drawn.name, drawn.actions, best, hashlib.sha256(text.encode()).hexdigest()[:32], len(text)
    )


def _once(drawn: Drawn, target: Target) -> tuple[dict[str, float], str]:
    marks = {"start": time.perf_counter()}

    def watch(stage: str) -> None:
        marks[stage] = time.perf_counter()

    device, space = CpuDevice(target), Space(drawn.kernel, target)
    space.sample(TraceChooser(dict(drawn.choices)))
    watch("sample")
    schedule = Schedule.parse(drawn.actions)
    watch("actions")
    code = build(drawn.kernel, schedule, device, lambda name, *_: watch(name))
    image = compile_llvm(code.text, target, device.opt_level, watch)
    linked = Executable.load(image, code.entry)
    watch("link")
    linked.close()
    ends = [marks[name] for name in ("start", *STAGES)]
    return {stage: b - a for stage, a, b in zip(STAGES, ends, ends[1:], strict=False)}, code.text


def _table(found: Sequence[Timed]) -> str:
    rows = [(stage, [t.stages_s[stage] for t in found]) for stage in STAGES]
    for name, stages in (
        ("actions to text", _LOWER),
        ("text to object", _COMPILE),
        ("both", _LOWER + _COMPILE),
    ):
        rows.append((name, [sum(t.stages_s[s] for s in stages) for t in found]))
    lines = [f"{len(found)} candidates, ms      median     mean      p90      max"]
    for name, values in rows:
        ordered = sorted(values)
        p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        figures = (statistics.median(values), statistics.fmean(values), p90, ordered[-1])
        lines.append(f"{name:<22}" + "".join(f"{1e3 * x:9.2f}" for x in figures))
    return "\n".join(lines)


def _against(found: Sequence[Timed], path: Path) -> str:
    before = {t["name"]: t for t in json.loads(path.read_text(encoding="utf-8"))}
    other = [t.name for t in found if before.get(t.name, {}).get("text") != t.text]
    listed = "".join(f"\n  {name}" for name in other)
    return f"{len(other)} of {len(found)} texts differ from {path.name}{listed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 3 where texts differ from those of ``--against``."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.latency", description=__doc__.splitlines()[0]
    )  # type: ignore[union-attr]
    parser.add_argument(
        "--model", default="resnet18", help="as `tunegrad tune` takes it (default resnet18)"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--per-kernel", type=int, default=8, help="schedules of each kernel (default 8)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each candidate (default 3)")
    parser.add_argument("--json", type=Path, help="write every candidate's times and hashes")
    parser.add_argument(
        "--against", type=Path, help="an earlier --json: list the candidates whose text changed"
    )
    options = parser.parse_args(argv)
    target = host_target(options.threads)
    sample = draw(options.model, target, options.per_kernel)
    measured(sample[0], target, 1)  # what a process does once
    gc.collect()
    found = [measured(d, target, options.repeats) for d in sample]
    print(_table(found))
    if options.json:
        rows = [{f: getattr(t, f) for f in Timed.__slots__} for t in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.against:
        told = _against(found, options.against)
        print(told)
        return 0 if told.startswith("0 of") else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
