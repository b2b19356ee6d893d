"""The last round of the finals: the best schedules of every kernel in the whole model, launch by launch, in turns.

    heats: up to 40 others of a kernel, the fastest in the search first, eight at a time
    model 0   every kernel as its winner   \\
    model 1   every kernel as its next      >  6 turns  -->  by what they take of the winner's time there:
    ...                                    /                the 8 fastest of each kernel
    final: model 0 and those 8                 12 turns -->  whose launches are proved faster than the winner's
    model 0 against the model of those                  -->  proved once more, and the whole is not slower: promoted

In a model a kernel finds what the kernels before it left in the caches of each core, and leaves it to the next one. No
measurement of a kernel alone shows that. And a search compares times that are minutes apart: where the machine is a
fifth slower for a while, the fastest few of the search are those of a fast moment. One run of a model tries a schedule
of every kernel at once, so many can be tried (decision 0028). Models run in a process that can be killed: a challenger
that ends it, hangs or spoils what the model computes is found, withdrawn, and the race goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from time import monotonic

from tunegrad.db import Evidence
from tunegrad.errors import CandidateFailure
from tunegrad.search import Verdict, decide
from tunegrad.trial import Trial

from .contest import FAULTS, ROUNDS, by_kernel, profiled_s
from .decisions import evidence_of
from .finals import AGAIN, CONFIRMED, NOTABLE, PROVED, Contestant, worth_more
from .models import Models, Turns, WholeModel, culprit
from .workload import Workload

__all__ = ["settle_in_model"]

_COMPILE_S = 0.03
"""Of one schedule, on one core; assumed (0.02 was measured)."""

_HEAT, _HEAT_TURNS = 8, 6
"""Others of a kernel in one heat, and its turns."""

_FEW = 3
"""Where no kernel has more others than that, there are no heats."""

_HEAVY = 0.04
"""Kernels that take this part of a model have all their others in the heats; lighter ones a part of them, or eight."""

_LEAST_SHARE = 0.002
"""Kernels that take less of a model are left as they are."""

_MOST_BYTES = 4 << 30
"""Of the constants of all models together; the worker keeps as much."""

Proved = Mapping[str, tuple[Trial, Evidence]]
"""New winners by kernel key."""

Void = Callable[[Trial, CandidateFailure], None]
"""Withdraws a trial, for what it did in the whole model."""

_Lineup = Mapping[str, Trial]
"""What every kernel of a model runs as."""

_Met = tuple[Trial, Verdict, tuple[Sequence[float], Sequence[float]]]
"""A challenger, what a test says of it, and the samples: of the winner and of the challenger."""


def settle_in_model(
    work: Workload, contestants: Sequence[Contestant], models: Models, void: Void, deadline_s: float = inf
) -> Proved:
    """Who beats the winners of a model's kernels in the model, by two proofs; nothing where time does not suffice.

    Kernels without contestants run as the store or their defaults have them. ``void`` is told of every challenger
    that ended a race, alone and twice.
    """
    final = _Final(work, _worthwhile(work, contestants), models, void, deadline_s)
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
    models: Models
    void: Void
    deadline_s: float
    compiled: set[tuple[str, str]] = field(default_factory=set)
    out: set[tuple[str, str]] = field(default_factory=set)
    """Kernels and actions that ended a race."""

    def run(self) -> Proved:
        """Heats and both rounds. Raises CandidateFailure where the winners themselves do not run in the model."""
        return replace(self, contestants=tuple(c for c in self.qualified() if c.others)).settle()

    @property
    def winners(self) -> dict[str, Trial]:
        return {c.key: c.winner for c in self.contestants}

    def qualified(self) -> tuple[Contestant, ...]:
        """The contestants with those others first that took least in the heats, eight at most; as they are without."""
        fields = self._fields()
        most = max(map(len, fields.values()), default=0)
        if most <= _FEW or self._models(2) < 2:
            return self.contestants
        run_s = self._run_s()
        final_s = profiled_s([run_s] * (_HEAT + 3))
        took: dict[str, dict[str, float]] = {key: {} for key in fields}
        for start in range(0, most, _HEAT):
            heat = {key: trials[start : start + _HEAT] for key, trials in fields.items() if trials[start:]}
            count = self._models(1 + max(map(len, heat.values())))
            heat_s = self._compile_s(heat, count - 1) + profiled_s([run_s] * count, _HEAT_TURNS)
            if count < 2 or monotonic() + heat_s + final_s > self.deadline_s:
                break
            for key, ratios in self._heat(heat, count - 1).items():
                took[key].update(ratios)
        return tuple(replace(c, others=_fastest(c.others, took[c.key])) for c in self.contestants)

    def _heat(self, heat: Mapping[str, Sequence[Trial]], count: int) -> dict[str, dict[str, float]]:
        """By kernel and actions, the part that each of the first ``count`` took of the winner's time, turn by turn.

        Infinity for those of a model that can not be made, and for who ended the race.
        """
        found: dict[str, dict[str, float]] = {key: {} for key in heat}
        self._prepare(heat, count)
        tried = list[dict[str, Trial]]()
        for i in range(count):
            others = {key: trials[i] for key, trials in heat.items() if i < len(trials)}
            try:
                self._model(others)
            except CandidateFailure:  # one of them does not compile here: none of them is tried
                for key, trial in others.items():
                    found[key][trial.actions] = inf
                continue
            tried.append(others)
        base, *others_s = [self._by_kernel(turns) for turns in self._race(tried, _HEAT_TURNS)]
        for trials, taken in zip(tried, others_s, strict=True):
            for key, trial in trials.items():
                ratio = median(b / a for a, b in zip(base[key], taken[key], strict=True))
                found[key][trial.actions] = inf if (key, trial.actions) in self.out else ratio
        return found

    # ---- races, and who ended them

    def _race(self, others: Sequence[_Lineup], rounds: int) -> list[Turns]:
        """Turns of the winners' model, then of one for each lineup of others.

        Who ends the race, alone and twice, is out: the winner runs in its place. One race that fails, and in which
        nobody does so again, is run once more. Raises CandidateFailure where the winners alone fail, or it goes on.
        """
        mercy = 1
        while True:
            sound = [{key: t for key, t in x.items() if (key, t.actions) not in self.out} for x in others]
            try:
                return self.models.bench.profiled([self._model({}), *map(self._model, sound)], rounds)
            except FAULTS as error:
                if self._blamed(sound, rounds):
                    continue
                if not mercy:
                    raise error
                mercy -= 1

    def _blamed(self, others: Sequence[_Lineup], rounds: int) -> bool:
        """Whether one of the others ended the race; it is out from now on."""
        suspects = list(
            {(key, t.actions): (key, t) for x in others for key, t in x.items() if self._other(key, t)}.values()
        )

        def fails(few: Sequence[tuple[str, Trial]]) -> CandidateFailure | None:
            wanted = {(key, t.actions) for key, t in few}
            lineups = [{key: t for key, t in x.items() if (key, t.actions) in wanted} for x in others]
            self.models.bench.renew()
            try:
                self.models.bench.profiled([self._model({}), *(self._model(x) for x in lineups if x)], rounds)
            except FAULTS as error:
                return error
            return None

        found = None if fails([]) is not None else culprit(suspects, fails)
        if found is None:
            return False
        (key, trial), failure = found
        self.out.add((key, trial.actions))
        self.void(trial, failure)
        return True

    def _other(self, key: str, trial: Trial) -> bool:
        return trial.actions != self.winners[key].actions

    def _fields(self) -> dict[str, tuple[Trial, ...]]:
        """The others of each kernel that run in the heats: the more, the more of the model the kernel takes."""
        uses = {u.key: u.uses for u in self.work.kernels}
        took_s = {c.key: uses[c.key] * c.winner.measurement.seconds for c in self.contestants}
        parts = {key: min(1.0, s / (_HEAVY * sum(took_s.values()))) for key, s in took_s.items()}
        return {c.key: c.others[: max(_HEAT, round(parts[c.key] * len(c.others)))] for c in self.contestants}

    def _models(self, wanted: int) -> int:
        """How many models may be there at once, for the memory of their constants."""
        constants = sum(b.nbytes for b in self.work.plan.buffers if b.role == "const")
        return min(wanted, _MOST_BYTES // max(1, constants))

    def settle(self) -> Proved:
        """Both rounds. Raises CandidateFailure where a schedule does not compile here."""
        most = max((len(c.others) for c in self.contestants), default=0)
        count = self._models(1 + most)
        fields = {c.key: c.field for c in self.contestants}
        while count > 1 and monotonic() + self._compile_s(fields, count) > self.deadline_s:
            count -= 1
        if count < 2:
            return {}
        self._prepare(fields, count)
        lineups = [{c.key: c.others[i] for c in self.contestants if c.others[i:]} for i in range(count - 1)]
        for lineup in lineups:
            self._model(lineup)
        run_s = self._run_s()
        while count > 1 and self._late([run_s] * (count + 2)):
            count -= 1
        if count < 2:
            return {}
        _, met = self.sampled(lineups[: count - 1], run_s, PROVED)
        ahead = {key: trial for key, (trial, verdict, _) in met.items() if verdict.promoted}
        return self._proved(ahead, run_s) if ahead else {}

    def _late(self, models_s: Sequence[float]) -> bool:
        return monotonic() + profiled_s(models_s) > self.deadline_s

    def sampled(self, others: Sequence[_Lineup], run_s: float, alpha: float) -> tuple[list[Turns], dict[str, _Met]]:
        """Turns of each model, and what they say of each kernel.

        There are more of them while somebody is well ahead, not proved to be, and there is time.
        """
        found = self._race(others, ROUNDS)
        met = self._met(found, others, alpha)
        for _ in range(AGAIN):
            # as many more have to be left for the second proof
            if not any(worth_more(v) for _, v, _ in met.values()) or self._late([run_s] * (len(others) + 3)):
                break
            found = [(*before, *more) for before, more in zip(found, self._race(others, ROUNDS), strict=True)]
            met = self._met(found, others, alpha)
        return found, met

    def _met(self, turns: Sequence[Turns], others: Sequence[_Lineup], alpha: float) -> dict[str, _Met]:
        """By kernel, who took least of those that came behind the first, and what a test says of the two."""
        base, *samples = [self._by_kernel(t) for t in turns]
        found: dict[str, _Met] = {}
        for c in self.contestants:
            taken = {
                i: s[c.key]
                for i, (x, s) in enumerate(zip(others, samples, strict=True))
                if c.key in x and (c.key, x[c.key].actions) not in self.out
            }
            if taken:
                best = min(taken, key=lambda i: median(taken[i]))  # called at once
                pair = base[c.key], taken[best]
                found[c.key] = others[best][c.key], decide(*pair, alpha=alpha, least_effect=NOTABLE), pair
        return found

    def _compile_s(self, fields: Mapping[str, Sequence[Trial]], count: int) -> float:
        """Seconds that compiling the first ``count`` of each kernel takes, about, but for what is compiled."""
        wanted = {(key, t.actions) for key, trials in fields.items() for t in trials[:count]}
        return _COMPILE_S * len(wanted - self.compiled)

    def _prepare(self, fields: Mapping[str, Sequence[Trial]], count: int) -> None:
        """Compile the first ``count`` of each kernel, on all cores."""
        kernels = {u.key: u.kernel for u in self.work.kernels}
        self.models.prepare([(kernels[key], t.actions) for key, trials in fields.items() for t in trials[:count]])

    def _proved(self, ahead: Mapping[str, Trial], run_s: float) -> Proved:
        """Those that are faster once more, in a fresh process; nobody where the whole model became slower."""
        second = replace(self, contestants=tuple(replace(c, others=()) for c in self.contestants))
        self.models.bench.renew()
        alpha = CONFIRMED / (1 + AGAIN)
        turns, met = second.sampled([ahead], run_s, alpha)
        old, new = (median(sum(turn) for turn in side) for side in turns)
        if new > old:
            return {}
        return {
            key: (ahead[key], evidence_of(verdict, pair)) for key, (_, verdict, pair) in met.items() if verdict.promoted
        }

    def _run_s(self) -> float:
        """Seconds that a run of the winners' model takes."""
        return min(self.models.bench.latencies(self._model({}), 2))

    def _model(self, others: _Lineup) -> WholeModel:
        """The winners' model, with some kernels as others."""
        chosen = {**self.winners, **others}
        self.compiled.update((key, t.actions) for key, t in chosen.items())
        return self.models.of_trials(self.work, chosen)

    def _by_kernel(self, turns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
        """Turn by turn, the mean over the launches of each kernel."""
        places: dict[str, list[slice]] = {c.key: [] for c in self.contestants}
        for i, launch in enumerate(self.work.plan.launches):
            if launch.kernel.key in places:
                places[launch.kernel.key].append(slice(i, i + 1))
        return by_kernel(turns, places)


def _fastest(others: tuple[Trial, ...], took: Mapping[str, float]) -> tuple[Trial, ...]:
    """The few that took least of the winner's time; who was not tried counts as equal to it, in the order that was."""
    ran = [t for t in others if took.get(t.actions, 1.0) < inf]
    return tuple(sorted(ran, key=lambda t: took.get(t.actions, 1.0))[:_HEAT])
