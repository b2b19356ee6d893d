"""The last round of the finals: the best schedules of every kernel in the whole model, launch by launch, in turns.

    model 0   every kernel as its winner   \\
    model 1   every kernel as its next      >  in turns  -->  whose launches are proved faster than the winner's there
    model 2   ...                          /
    model 0 against the model of those     -->  proved once more, and the whole is not slower: promoted

In a model a kernel finds what the kernels before it left in the caches of each core, and leaves it to the next one. No
measurement of a kernel alone shows that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from time import monotonic

from tunegrad.db import Evidence, Store
from tunegrad.errors import CandidateFailure
from tunegrad.inference import LoadedModel
from tunegrad.ir.target import Target
from tunegrad.search import Verdict, decide
from tunegrad.trial import Fingerprint, Trial

from .contest import by_kernel, profiled, profiled_s
from .decisions import evidence_of
from .finals import AGAIN, CONFIRMED, NOTABLE, PROVED, Contestant, worth_more
from .whole import model_of
from .workload import Workload

__all__ = ["settle_in_model"]

_COMPILE_S = 0.06
"""Of one schedule, in this process; assumed."""

_LEAST_SHARE = 0.002
"""Kernels that take less of a model are left as they are."""

_MOST_BYTES = 4 << 30
"""Of the constants of all models together."""

Proved = Mapping[str, tuple[Trial, Evidence]]
"""New winners by kernel key."""

_Turns = list[tuple[float, ...]]
"""Seconds of every launch of a model, turn by turn."""

_Met = tuple[Trial, Verdict, tuple[Sequence[float], Sequence[float]]]
"""A challenger, what a test says of it, and the samples: of the winner and of the challenger."""


def settle_in_model(
    work: Workload,
    contestants: Sequence[Contestant],
    store: Store,
    target: Target,
    here: Fingerprint,
    deadline_s: float = inf,
) -> Proved:
    """Who beats the winners of a model's kernels in the model, by two proofs; nothing where time does not suffice.

    Kernels without contestants run as the store or their defaults have them.
    """
    final = _Final(work, _worthwhile(work, contestants), store, target, here, deadline_s)
    try:
        return final.run()
    except CandidateFailure:
        return {}


def _worthwhile(work: Workload, contestants: Sequence[Contestant]) -> tuple[Contestant, ...]:
    """The contestants of this model whose kernels take a part of it that counts."""
    uses = {u.key: u.uses for u in work.kernels}
    mine = [c for c in contestants if c.key in uses]
    took_s = {c.key: uses[c.key] * c.winner.measurement.seconds for c in mine}
    least_s = _LEAST_SHARE * sum(took_s.values())
    return tuple(c for c in mine if c.others and took_s[c.key] >= least_s)


@dataclass(frozen=True, slots=True)
class _Final:
    work: Workload
    contestants: tuple[Contestant, ...]
    store: Store
    target: Target
    here: Fingerprint
    deadline_s: float

    def run(self) -> Proved:
        """Both rounds. Raises CandidateFailure where a schedule does not compile in this process."""
        constants = sum(b.nbytes for b in self.work.plan.buffers if b.role == "const")
        most = max((len(c.others) for c in self.contestants), default=0)
        count = min(1 + most, _MOST_BYTES // max(1, constants))
        while count > 1 and monotonic() + self._compile_s(count) > self.deadline_s:
            count -= 1
        if count < 2:
            return {}
        models = [self._model({c.key: c.field[min(i, len(c.others))] for c in self.contestants}) for i in range(count)]
        run_s = min(models[0].benchmark_s(3))
        if self._late([run_s] * (count + 2)):
            return {}
        _, met = self.sampled(models, run_s, PROVED)
        ahead = {key: trial for key, (trial, verdict, _) in met.items() if verdict.promoted}
        return self._proved(models[0], ahead, run_s) if ahead else {}

    def _late(self, models_s: Sequence[float]) -> bool:
        return monotonic() + profiled_s(models_s) > self.deadline_s

    def sampled(
        self, models: Sequence[LoadedModel], run_s: float, alpha: float
    ) -> tuple[list[_Turns], dict[str, _Met]]:
        """Turns of each model, and what they say of each kernel.

        There are more of them while somebody is well ahead, not proved to be, and there is time.
        """
        found: list[_Turns] = profiled(models)
        met = self._met(found, alpha)
        for _ in range(AGAIN):
            # as many more have to be left for the second proof
            if not any(worth_more(v) for _, v, _ in met.values()) or self._late([run_s] * (len(models) + 2)):
                break
            found = [[*before, *more] for before, more in zip(found, profiled(models), strict=True)]
            met = self._met(found, alpha)
        return found, met

    def _met(self, turns: Sequence[_Turns], alpha: float) -> dict[str, _Met]:
        """By kernel, who took least of those that came behind the first, and what a test says of the two."""
        samples = [self._by_kernel(t) for t in turns]
        found: dict[str, _Met] = {}
        for c in self.contestants:
            taken = [s[c.key] for s in samples[: 1 + len(c.others)]]
            best = min(range(1, len(taken)), key=lambda i: median(taken[i]))
            pair = taken[0], taken[best]
            found[c.key] = c.field[best], decide(*pair, alpha=alpha, least_effect=NOTABLE), pair
        return found

    def _compile_s(self, count: int) -> float:
        """Seconds that compiling so many models takes, about."""
        return _COMPILE_S * sum(min(count, 1 + len(c.others)) for c in self.contestants)

    def _proved(self, before: LoadedModel, ahead: Mapping[str, Trial], run_s: float) -> Proved:
        """Those that are faster once more; nobody where the whole model became slower."""
        after = self._model({c.key: ahead.get(c.key, c.winner) for c in self.contestants})
        second = replace(self, contestants=tuple(c for c in self.contestants if c.key in ahead))
        alpha = CONFIRMED / (1 + AGAIN)
        turns, met = second.sampled([before, after], run_s, alpha)
        old, new = (median(sum(turn) for turn in side) for side in turns)
        if new > old:
            return {}
        return {
            key: (ahead[key], evidence_of(verdict, pair)) for key, (_, verdict, pair) in met.items() if verdict.promoted
        }

    def _model(self, chosen: Mapping[str, Trial]) -> LoadedModel:
        actions = {key: trial.actions for key, trial in chosen.items()}
        return model_of(self.work, actions, self.store, self.target, self.here)

    def _by_kernel(self, turns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
        """Turn by turn, the mean over the launches of each kernel."""
        places: dict[str, list[slice]] = {c.key: [] for c in self.contestants}
        for i, launch in enumerate(self.work.plan.launches):
            if launch.kernel.key in places:
                places[launch.kernel.key].append(slice(i, i + 1))
        return by_kernel(turns, places)
