"""Surfaces like those of real kernels, seeded: separable ones, interacting ones, and ones where
some schedules fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from search_surface import Surface, SurfaceSpace, choices_of

from tunegrad.opts import Schedule
from tunegrad.search import Proposal, Searcher, SearchSpace
from tunegrad.trial import Status

Make = Callable[[SearchSpace, Random], Searcher]

KINDS = ("separable", "interacting", "infeasible")


@dataclass(frozen=True)
class Landscape(Surface):
    """``pairs`` of decisions have a table of factors of their own, by both choices."""

    pairs: tuple[tuple[str, str, tuple[float, ...]], ...] = ()

    def seconds(self, schedule: Schedule) -> float:
        taken = choices_of(schedule)
        found = Surface.seconds(self, schedule)
        for a, b, table in self.pairs:
            found *= table[(31 * taken[a] + 17 * taken[b]) % len(table)]
        return found


def landscape(seed: int) -> tuple[SurfaceSpace, Landscape]:
    """Seeds take turns among the kinds.

    About ten decisions, of 2 to 54 options; the default is fair, not best.

    Most decisions are ordered, with one best option; a third are not. In "interacting", three pairs
    of decisions act together; in "infeasible", a third of the options of three decisions fail
    besides, and four pairs are illegal.
    """
    rng = Random(f"landscape {seed}")
    sizes = {f"d{i}": rng.choice((2, 3, 4, 5, 7, 11)) for i in range(rng.randrange(7, 12))}
    sizes["d1"] = rng.choice((18, 30, 54))
    names = list(sizes)
    factors = {}
    for name, options in sizes.items():
        best, slope = min(rng.randrange(options) for _ in range(3)), rng.uniform(0.01, 0.3)
        ordered = rng.random() < 0.7
        for choice in range(options):
            factors[name, choice] = 1.0 + slope * (
                abs(choice - best) if ordered else rng.uniform(0.0, 3.0)
            )
    # The default is 1.1 to 2 times slower than the best, as in the recorded spaces.
    far = math.prod(factors[n, 0] / min(factors[n, c] for c in range(k)) for n, k in sizes.items())
    power = math.log(rng.uniform(1.1, 2.0)) / math.log(max(1.01, far))
    factors = {point: factor**power for point, factor in factors.items()}
    pairs: tuple[tuple[str, str, tuple[float, ...]], ...] = ()
    if KINDS[seed % 3] != "separable":
        tables = [tuple(rng.uniform(1.0, 1.3) for _ in range(23)) for _ in range(3)]
        pairs = tuple((rng.choice(names[:4]), rng.choice(names[4:]), table) for table in tables)
    fails: dict[tuple[str, int], Status] = {}
    illegal: tuple[tuple[tuple[str, int], tuple[str, int]], ...] = ()
    if KINDS[seed % 3] == "infeasible":
        for name in rng.sample(names, 3):
            for choice in rng.sample(range(1, sizes[name]), max(1, sizes[name] // 3)):
                fails[name, choice] = rng.choice(
                    (Status.WRONG, Status.TIMED_OUT, Status.OUT_OF_RESOURCES)
                )
        clashes = [rng.sample(names, 2) for _ in range(4)]
        illegal = tuple(
            ((a, rng.randrange(1, sizes[a])), (b, rng.randrange(sizes[b]))) for a, b in clashes
        )
    return SurfaceSpace(sizes, illegal), Landscape(factors, fails=fails, pairs=pairs)


def area(make: Make, seed: int, draw: int, trials: int, batch: int = 8) -> float:
    """Mean of the log of the best time so far over the trials of one search of
    ``landscape(seed)``.
    """
    space, surface = landscape(seed)
    searcher = make(space, Random(draw))
    default = space.defaults()[0]
    best_s, total = surface.seconds(default), 0.0
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    done = 0
    while done < trials and (found := searcher.ask(min(batch, trials - done))):
        for proposal in found:
            measurement = surface.measure(proposal.schedule)
            searcher.tell(proposal, measurement)
            best_s = min(best_s, measurement.seconds)
            total += math.log(best_s)
            done += 1
    return (total + (trials - done) * math.log(best_s)) / trials
