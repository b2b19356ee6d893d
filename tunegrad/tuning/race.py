"""One race: which of several alternatives takes least, by samples that were taken in turns with
the incumbent.

    choices  the incumbent, and its alternatives, best first: schedules of kernels, variants,
             layouts, cuts
    heats    1, 2, 4, then 8 alternatives at a time beside the incumbent, while there is time
    halving  the slower half leaves, the others run again, until one of each choice is left
    proof    a fresh process: the incumbent against those that are left; one test, at most three
             looks --> the winners, with their evidence; elsewhere the incumbent stays

One run is about all choices at once: a model runs some alternative of each of them. The challengers
of the proof were chosen by samples of the heats; the evidence is of the proof alone. A challenger
that ends the process, hangs or spoils results is found by halves, blamed, and out; the race goes
on. The clock tells what something takes: a heat is held where one like the last one, and a proof,
still fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tunegrad.errors import CandidateCrashed, CandidateFailure, CandidateTimeout, WrongResult
from tunegrad.search import LEAST_EFFECT, LOOKS, Comparison, decide, fastest_ratio

from .models import ModelBench, Turns, WholeModel, culprit
from .models.work import MOST_BYTES, MOST_TURNS, RUNS, SETS
from .workload import Workload

A = TypeVar("A")

A_co = TypeVar("A_co", covariant=True)

A_contra = TypeVar("A_contra", contravariant=True)

AT_ONCE = 8
"""Alternatives in a heat: more of them are seconds apart from what stands beside them."""

HEAT_TURNS, PROOF_TURNS, FEWEST_TURNS = 4, 12, 5
"""Turns of a heat, of one look at a proof, and of the only look where there is no time for more: at
least 9 are needed to be sure at one of three looks, 5 at the only one.
"""

TOTAL = ""
"""The key of what a whole run takes, where a track says it."""

FAULTS = (CandidateCrashed, CandidateTimeout, WrongResult)
"""Failures of what compiled: its process ends, it hangs, or computes something else."""

Pair = tuple[Sequence[float], Sequence[float]]
"""Seconds, turn by turn, of what stands and of an alternative."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[A]):
    """An incumbent, and the alternatives that may take its place, most hopeful first."""

    key: str
    stands: A
    others: tuple[A, ...]


@dataclass(frozen=True, slots=True)
class Met(Generic[A_co]):
    """The alternative that came nearest, and what was found; it wins if ``promoted``."""

    alternative: A_co
    comparison: Comparison
    samples: Pair

    @property
    def won(self) -> bool:
        """True when it is proved to be faster."""
        return self.comparison.promoted


class Track(Protocol[A_contra]):
    """The place where alternatives run: whole models, or kernels alone.

    ``most`` run at once, what stands not counted.
    """

    @property
    def most(self) -> int:
        """See the class."""

    def ready(
        self, stands: Mapping[str, A_contra], lineups: Sequence[Mapping[str, A_contra]]
    ) -> None:
        """Make what ``turns`` will run. Raises as that does."""

    def turns(
        self, stands: Mapping[str, A_contra], lineups: Sequence[Mapping[str, A_contra]], rounds: int
    ) -> list[dict[str, Pair]]:
        """Seconds of each alternative of each lineup, by choice (and ``TOTAL``), beside those of
        the incumbent in the same turns.

        Without those that can not be made. Raises one of ``FAULTS`` for what one of them did, and
        CandidateFailure where what stands can not be made.
        """

    def fresh(self) -> None:
        """Run in a fresh process from now on: other memory, code at other addresses."""

    def blame(self, key: str, alternative: A_contra, failure: CandidateFailure) -> None:
        """An alternative ended a race, alone and twice."""


_LEAST_S = 0.5
"""A race of models starts a process, compiles, and checks what models compute: about so long."""

_CHECKS, _PAIRED = 6, 4
"""Runs of a model that check it, and its fewest turns."""

_DATA_BYTES_PER_S = 50e6
"""Speed of drawing and binding inputs, sending and comparing outputs: half an idle core's."""

PAIRED_S = 6.0
"""Seconds in which two models are compared in the end, and their kernels, at most: on a machine
whose speed changes from turn to turn 20 pairs leave a gain of 1.07 open.
"""

_RACE_LOOKS, _WHOLE_LOOKS = 2, 3
"""Times that this is done to race models, and to compare two in the end."""

Blamed = Callable[[str, A, CandidateFailure], None]
"""Is told which alternative, of which choice, ended a race, and how."""

Places = Mapping[str, Sequence[slice]]
"""Places of the launches of each choice in a model, use by use."""


def most_at_once(work: Workload) -> int:
    """Number of models that run beside the first, by memory of constants; at least one."""
    constants = sum(b.nbytes for b in work.plan.buffers if b.role == "const")
    return max(1, min(AT_ONCE, MOST_BYTES // max(1, constants) - 1))


def data_s(work: Workload) -> float:
    """Seconds that the inputs and outputs of a model take beside its runs, about, on all sets: of
    a step of training they are its whole state.
    """
    ends = (*work.plan.inputs, *work.plan.outputs)
    return SETS * sum(work.plan.buffers[i].nbytes for i in ends) / _DATA_BYTES_PER_S


def least_s(both_s: float, data_s: float = 0.0) -> float:
    """Seconds that the least race of models takes, about: one heat and one look at a proof of two
    models, which are expected to take ``both_s`` together, and ``data_s`` as above.
    """
    return _LEAST_S + _RACE_LOOKS * data_s + (HEAT_TURNS + PROOF_TURNS) * RUNS * both_s


def compared_s(both_s: float, data_s: float = 0.0) -> float:
    """Seconds that it takes to check two models and to compare them in the fewest turns, about."""
    return _LEAST_S + _WHOLE_LOOKS * data_s + (_CHECKS + _PAIRED * RUNS) * both_s


def most_compared_s(both_s: float) -> float:
    """Seconds of the most turns, about: what is reserved beyond is lost to the search."""
    turns = MOST_TURNS, PROOF_TURNS  # of both in turns, and of their kernels
    taken_s = sum(min(PAIRED_S, n * RUNS * both_s) for n in turns)
    return _LEAST_S + _CHECKS * both_s + taken_s


@dataclass(slots=True)
class ModelTrack(Generic[A]):
    """Models in turns.

    ``made`` makes those of lineups, None for one that can not be made; ``places`` is where.

    ``blamed`` is called with the alternative that ended a race. Mutable: it keeps
    the models of the latest lineups.
    """

    bench: ModelBench
    made: Callable[[Sequence[Mapping[str, A]]], Sequence[WholeModel | None]]
    places: Callable[[Mapping[str, A]], Places]
    blamed: Blamed[A]
    most: int = AT_ONCE
    _models: list[WholeModel | None] = field(default_factory=list)

    def ready(self, stands: Mapping[str, A], lineups: Sequence[Mapping[str, A]]) -> None:
        self._models = list(self.made([stands, *({**stands, **x} for x in lineups)]))
        if self._models[0] is None:
            raise CandidateFailure("what stands does not compile")
        self.bench.check([m for m in self._models if m is not None])

    def turns(
        self, stands: Mapping[str, A], lineups: Sequence[Mapping[str, A]], rounds: int
    ) -> list[dict[str, Pair]]:
        """See ``Track``; ``ready`` was called with the same lineups."""
        runs = iter(self.bench.profiled([m for m in self._models if m is not None], rounds))
        base = self._seconds(stands, next(runs))
        found: list[dict[str, Pair]] = []
        for model, lineup in zip(self._models[1:], lineups, strict=True):
            mine = {} if model is None else self._seconds({**stands, **lineup}, next(runs))
            found.append({key: (base[key], mine[key]) for key in (*lineup, TOTAL) if key in mine})
        return found

    def fresh(self) -> None:
        self.bench.renew()

    def blame(self, key: str, alternative: A, failure: CandidateFailure) -> None:
        self.blamed(key, alternative, failure)

    def _seconds(self, lineup: Mapping[str, A], turns: Turns) -> dict[str, list[float]]:
        """Turn by turn, the mean over the uses of each choice, and the sum of all launches."""
        taken = {
            key: [sum(sum(turn[u]) for u in uses) / len(uses) for turn in turns]
            for key, uses in self.places(lineup).items()
        }
        return {**taken, TOTAL: [sum(turn) for turn in turns]}


def race(
    choices: Sequence[Choice[A]], track: Track[A], deadline_s: float = inf
) -> dict[str, Met[A]]:
    """The nearest alternative of each choice; nothing of one whose alternatives did not run.

    However little time there is until ``deadline_s`` (of the monotonic clock), the first
    alternatives meet what stands, and the one that is ahead then has one look of a proof. Raises
    CandidateFailure where what stands does not run.
    """
    return _Race([c for c in choices if c.others], track, deadline_s).run()


_At = tuple[str, int]
"""An alternative: its choice, and its place there."""


class _Race(Generic[A]):
    """One race while it runs. Mutable: ``left`` shrinks, samples grow."""

    def __init__(self, choices: Sequence[Choice[A]], track: Track[A], deadline_s: float) -> None:
        self._others = {c.key: c.others for c in choices}
        self._stands = {c.key: c.stands for c in choices}
        self._track, self._deadline_s = track, deadline_s
        self._left = {c.key: list(range(len(c.others))) for c in choices}
        self._samples: dict[_At, tuple[list[float], list[float]]] = {}
        self._ready_s = self._turn_s = 0.0

    def run(self) -> dict[str, Met[A]]:
        if not self._others:
            return {}
        self._heats()
        while max(map(len, self._left.values())) > 1:
            self._left = {key: self._faster(key) for key in self._left}
            if max(map(len, self._left.values())) > 1 and not self._again():
                self._left = {key: places[:1] for key, places in self._left.items()}
        return self._proved({key: places[0] for key, places in self._left.items() if places})

    # ---- heats, and halving

    def _heats(self) -> None:
        """Let as many alternatives meet what stands as there is time for: the others are out."""
        entered = {key: tuple(places) for key, places in self._left.items()}
        count, at, most = max(map(len, entered.values())), 0, 1
        while at < count and (at == 0 or self._time_for(most, HEAT_TURNS, made=False)):
            self._heat({key: places[at : at + most] for key, places in entered.items()})
            at, most = at + most, min(2 * most, AT_ONCE, self._track.most)
        self._left = {
            key: [i for i in places if (key, i) in self._samples]
            for key, places in self._left.items()
        }

    def _again(self) -> bool:
        """Run those that are left again; False where there is no time for it."""
        count = max(map(len, self._left.values()))
        if not self._time_for(count, HEAT_TURNS):
            return False
        width = min(AT_ONCE, self._track.most)
        for at in range(0, count, width):
            self._heat({key: places[at : at + width] for key, places in self._left.items()})
        return True

    def _faster(self, key: str) -> list[int]:
        """The faster half of what is left of a choice, the fastest first."""
        ranked = sorted(self._left[key], key=lambda i: fastest_ratio(*self._samples[key, i]))
        return ranked[: (len(ranked) + 1) // 2]

    def _heat(self, places: Mapping[str, Sequence[int]]) -> None:
        """One heat: the n-th lineup has the n-th of these of every choice that has so many."""
        count = max(map(len, places.values()))
        lineups = [{key: mine[n] for key, mine in places.items() if mine[n:]} for n in range(count)]
        for lineup, found in zip(lineups, self._turns(lineups, HEAT_TURNS), strict=True):
            for key, i in lineup.items():
                if key in found:
                    _extend(self._samples.setdefault((key, i), ([], [])), found[key])

    # ---- the proof

    def _proved(self, leaders: Mapping[str, int]) -> dict[str, Met[A]]:
        """Test those that are ahead, on samples of their own. Who ends a look does not win, however
        fast it was in those before.

        None of them wins where all together are proved to make the whole slower; then those that
        were faster each are tested again, without the others.
        """
        found = {key: self._met(key, i, self._samples[key, i], 0) for key, i in leaders.items()}
        least = 1.0 - LEAST_EFFECT
        ahead = {
            key: i for key, i in leaders.items() if fastest_ratio(*self._samples[key, i]) <= least
        }
        while ahead:
            self._track.fresh()
            proof, looks = self._proof(ahead)
            sound = [k for k in ahead if k in proof and ahead[k] in self._left[k]]
            met = {k: self._met(k, ahead[k], proof[k], looks) for k in sound}
            before, after = proof.get(TOTAL, ((), ()))
            if not before or not decide(after, before, looks).promoted:
                return found | met
            found |= {k: self._met(k, ahead[k], m.samples, 0) for k, m in met.items()}
            less = {k: ahead[k] for k, m in met.items() if m.won}
            ahead = less if len(less) < len(ahead) and self._time_for(1, PROOF_TURNS) else {}
        return found

    def _proof(self, ahead: Mapping[str, int]) -> tuple[dict[str, Pair], int]:
        """Samples of all of these at once beside what stands, of each and of the whole; and how
        many looks they may have.
        """
        proof: dict[str, tuple[list[float], list[float]]] = {}
        looks, turns = self._looks()
        for _ in range(looks):
            (taken,) = self._turns([ahead], turns)
            for key, pair in taken.items():
                _extend(proof.setdefault(key, ([], [])), pair)
            if not any(decide(*proof[key], looks).undecided for key in ahead if key in taken):
                break
        return dict(proof), looks

    def _looks(self) -> tuple[int, int]:
        """As many looks at a proof as there is time for, and the turns of each, said first."""
        left_s = self._deadline_s - monotonic()
        look_s = 2 * PROOF_TURNS * self._turn_s
        fit = int(min(LOOKS, max(0.0, left_s) / look_s)) if look_s > 0.0 else LOOKS
        return (fit, PROOF_TURNS) if fit else (1, FEWEST_TURNS)

    def _met(self, key: str, i: int, samples: Pair, looks: int) -> Met[A]:
        """Test samples, at one of so many looks; 0: they prove nothing."""
        found = decide(*samples, looks or 1)
        if not looks:
            found = replace(found, promoted=False, undecided=False)
        return Met(self._others[key][i], found, (tuple(samples[0]), tuple(samples[1])))

    # ---- turns, and their failures

    def _turns(self, lineups: Sequence[Mapping[str, int]], rounds: int) -> list[dict[str, Pair]]:
        """Turns of those that are not out.

        One that fails, and does not fail again without one of them, is run once more.
        """
        mercy = 1
        while True:
            sound = [self._sound(x) for x in lineups]
            try:
                return self._timed(sound, rounds)
            except FAULTS:
                if self._blamed(lineups, rounds):
                    continue
                if not mercy:
                    raise
                mercy -= 1
                self._track.fresh()

    def _timed(self, lineups: Sequence[Mapping[str, A]], rounds: int) -> list[dict[str, Pair]]:
        """Turns, and what one of them takes, and what making a lineup does."""
        began_s = monotonic()
        self._track.ready(self._stands, lineups)
        ready_s = monotonic()
        found = self._track.turns(self._stands, lineups, rounds)
        self._ready_s = (ready_s - began_s) / len(lineups)
        self._turn_s = (monotonic() - ready_s) / (rounds * (1 + len(lineups)))
        return found

    def _sound(self, lineup: Mapping[str, int]) -> dict[str, A]:
        return {key: self._others[key][i] for key, i in lineup.items() if i in self._left[key]}

    def _blamed(self, lineups: Sequence[Mapping[str, int]], rounds: int) -> bool:
        """Return True when one of these ended the race, alone and twice; it is out from now on."""
        suspects = [(key, i) for x in lineups for key, i in x.items() if i in self._left[key]]

        def fails(few: Sequence[_At]) -> CandidateFailure | None:
            self._track.fresh()
            kept = [{key: i for key, i in x.items() if (key, i) in few} for x in lineups]
            try:
                self._timed([self._sound(x) for x in kept if x] or [{}], rounds)
            except FAULTS as error:
                return error
            return None

        found = None if fails([]) is not None else culprit(suspects, fails)
        if found is None:
            return False
        (key, i), failure = found
        self._left[key].remove(i)
        self._track.blame(key, self._others[key][i], failure)
        return True

    def _time_for(self, others: int, rounds: int, made: bool = True) -> bool:
        """True when so many turns beside what stands, and a proof, fit into the time left."""
        took_s = self._turn_s * ((1 + others) * rounds + 2 * PROOF_TURNS) + (
            0.0 if made else others * self._ready_s
        )
        return monotonic() + took_s <= self._deadline_s


def _extend(samples: tuple[list[float], list[float]], more: Pair) -> None:
    for side, new in zip(samples, more, strict=True):
        side.extend(new)
