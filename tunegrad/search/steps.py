"""Arguments and results of the search of one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tunegrad.ir.kernel import Kernel
from tunegrad.trial import Measurement, Trial

from .protocols import Proposal, Results


@dataclass(frozen=True, slots=True)
class SearchTask:
    """One kernel of a model.

    ``flops`` and ``nbytes`` are of one use; ``floor_s`` is what the machine allows at best.

    ``floor_s`` comes from FLOPs over peak and bytes over bandwidth; 0 where it is not known.
    """

    kernel: Kernel
    name: str
    key: str
    text: str
    uses: int
    flops: int
    nbytes: int
    floor_s: float = 0.0

    @property
    def guess_s(self) -> float:
        """A slow kernel for one of which nothing ran yet: a schedule that does is worth a lot."""
        return max(100.0 * self.floor_s, self.flops / 1e9, self.nbytes / 1e9, 1e-6)

    @staticmethod
    def of(
        kernel: Kernel, uses: int = 1, peak_flops_per_s: float = 0.0, bytes_per_s: float = 0.0
    ) -> SearchTask:
        """The task of a kernel that a model uses ``uses`` times, its floor from the machine's peaks
        (0: unknown).
        """
        flops, nbytes = kernel.flops, kernel.unique_bytes
        floor_s = max(
            flops / peak_flops_per_s if peak_flops_per_s else 0.0,
            nbytes / bytes_per_s if bytes_per_s else 0.0,
        )
        return SearchTask(
            kernel, kernel.name, kernel.key, kernel.text, uses, flops, nbytes, floor_s
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one proposal.

    ``measurement`` is None where its program was known; ``stored`` if a row answered.
    """

    proposal: Proposal
    measurement: Measurement | None
    stored: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One batch.

    ``cost_s`` is reckoned from the rows; ``resumed_s`` is the part that a resumed session paid.

    ``before_s`` and ``after_s`` are the best time before and after; infinity where nothing had run.
    """

    results: tuple[Result, ...]
    cost_s: float
    resumed_s: float
    before_s: float
    after_s: float

    @property
    def improvement(self) -> float:
        """The part of the time before that was saved, 0 to 1; 0 where there was none before."""
        return 1.0 - self.after_s / self.before_s if 0.0 < self.before_s < math.inf else 0.0


@dataclass(frozen=True, slots=True)
class Winner:
    """The schedule to run. Without a trial it is the default schedule, unmeasured."""

    actions: str
    origin: str
    trial: Trial | None

    @property
    def seconds(self) -> float:
        return self.trial.measurement.seconds if self.trial is not None else math.inf


@dataclass(frozen=True, slots=True)
class Begun:
    """Proposals that were asked for and handed to the measurer.

    ``fresh`` holds the texts that no row answered then.

    Unless ``repeats``, a result whose program has come to light since is left out.
    """

    proposals: tuple[Proposal, ...]
    fresh: frozenset[str]
    found: Results
    repeats: bool = False
