"""Does a candidate that is measured twice, minutes apart, have one time?

Alone, and in turns with a reference.

    python -m benchmarks.repeatability --model resnet18 --kernels 4 --candidates 40 --threads 2

The same candidates of a kernel are measured four times, in two orders: alone, beside, beside,
alone. Of each way the median and the 90th percentile of |ln(first / second)| say how far two
measurements of one program are apart.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median, quantiles

from tunegrad.compiling import HOOKS, Payload
from tunegrad.config import resolve_model
from tunegrad.devices import Candidate, CompiledCandidate, DeviceMeasurer, host_device
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Space
from tunegrad.search import make_searcher
from tunegrad.tuning.executor import References
from tunegrad.tuning.session import search_policy
from tunegrad.tuning.workload import workload_of_spec

__all__ = ["Way", "main"]


@dataclass(slots=True)
class Way:
    """One way to measure: what two measurements of each candidate said, and what they took.

    Mutable.
    """

    apart: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def text(self) -> str:
        """One line: how far apart, and milliseconds a candidate."""
        ninth = quantiles(self.apart, n=10)[-1]
        each_ms = 1e3 * sum(self.took_s) / len(self.took_s)
        return f"median {median(self.apart):.3f}, ninth tenth {ninth:.3f}, {each_ms:.1f} ms each"


def _codes(
    device: DeviceMeasurer, kernel: Kernel, count: int
) -> list[tuple[Candidate, CompiledCandidate]]:
    """The default, then its neighbours: different programs."""
    space = Space(kernel, device.device.target)
    searcher = make_searcher("beam", space, Random(0))
    schedules = [space.defaults()[0], *(p.schedule for p in searcher.ask(count - 1))]
    candidates = [Candidate(kernel.key, Payload(kernel, s.text, device.device)) for s in schedules]
    made = zip(candidates, device.compile(candidates), strict=True)
    found = {
        code.program_hash: (c, code) for c, code in made if isinstance(code, CompiledCandidate)
    }
    return list(found.values())


def measured(model: str, kernels: int, candidates: int, threads: int) -> tuple[Way, Way]:
    """Alone, and beside a reference: the heaviest kernels of a model, each candidate twice each
    way.
    """
    here, (alone, beside) = host_device(threads), (Way(), Way())
    work = workload_of_spec(resolve_model(model))
    policy = search_policy([work], here.target)
    heaviest = sorted(work.kernels, key=lambda u: -u.uses * u.kernel.flops)[:kernels]
    with DeviceMeasurer(here, HOOKS) as device:
        for use in heaviest:
            codes = _codes(device, use.kernel, candidates)
            references, seen = References(), dict[tuple[bool, str], float]()
            references.learn(use.key, codes[0][1], device.measure_compiled(*codes[0], policy))
            order = list(range(1, len(codes)))
            for in_turns in (False, True, True, False):
                Random(len(seen)).shuffle(order)
                for i in order:
                    held = references.of(use.key) if in_turns else None
                    began_s = time.monotonic()
                    found = device.measure_compiled(*codes[i], policy, math.inf, held)
                    way, at = beside if in_turns else alone, (in_turns, codes[i][1].program_hash)
                    way.took_s.append(time.monotonic() - began_s)
                    if found.ran and at in seen:
                        way.apart.append(abs(math.log(found.seconds / seen[at])))
                    seen[at] = found.seconds
    return alone, beside


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a line for each way."""
    parser = argparse.ArgumentParser(prog="benchmarks.repeatability")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--kernels", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(arguments)
    alone, beside = measured(asked.model, asked.kernels, asked.candidates, asked.threads)
    sys.stdout.write(f"alone:  {alone.text()}\nbeside: {beside.text()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
