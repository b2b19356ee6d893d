"""One race on runs that take what the test says: who wins, who is out, who is to blame, and when
time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from tunegrad.errors import CandidateCrashed, CandidateFailure, WrongResult
from tunegrad.tuning import race as racing
from tunegrad.tuning.race import (
    AT_ONCE,
    FEWEST_TURNS,
    HEAT_TURNS,
    PROOF_TURNS,
    TOTAL,
    Choice,
    Met,
    Pair,
    race,
)

Lineup = Mapping[str, str]


@dataclass
class Track:
    """What a choice takes by what runs, 1 where nothing is said; ``later`` in processes after the
    first.

    Each turn takes as many seconds of a clock as there are runs in it. ``ran`` are the lineups of
    each call.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    later: Mapping[str, float] = field(default_factory=dict)
    bad: Mapping[str, CandidateFailure] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    hiccups: int = 0
    most: int = AT_ONCE
    noise: Callable[[], float] = lambda: 1.0
    now_s: float = 0.0
    started: int = 0
    rounds: list[int] = field(default_factory=list)
    ran: list[list[Lineup]] = field(default_factory=list)
    blamed: list[tuple[str, str, str]] = field(default_factory=list)

    def ready(self, stands: Lineup, lineups: Sequence[Lineup]) -> None:
        for running in (stands, *lineups):
            for what in running.values():
                if what in self.bad:
                    raise self.bad[what]

    def turns(
        self, stands: Lineup, lineups: Sequence[Lineup], rounds: int
    ) -> list[dict[str, Pair]]:
        if self.hiccups:
            self.hiccups -= 1
            raise CandidateCrashed("the machine's")
        self.now_s += rounds * (1 + len(lineups))
        self.rounds.append(rounds)
        self.ran.append(list(lineups))
        runs = [stands, *({**stands, **x} for x in lineups)]
        taken: list[list[dict[str, float]]] = [[] for _ in runs]
        for turn in range(rounds):
            for mine, run in zip(taken, runs, strict=True):
                slow = self.noise()
                mine.append({key: slow * self.seconds(what, turn) for key, what in run.items()})
        base = self._series(taken[0], stands)
        return [
            {
                key: (base[key], self._series(mine, stands)[key])
                for key in (*x, TOTAL)
                if x.get(key) not in self.missing
            }
            for mine, x in zip(taken[1:], lineups, strict=True)
        ]

    def seconds(self, what: str, turn: int) -> float:
        times = {**self.times, **(self.later if self.started else {})}
        return times.get(what, 1.0) * (1.0 + 1e-4 * turn)

    @staticmethod
    def _series(turns: Sequence[Mapping[str, float]], keys: Lineup) -> dict[str, list[float]]:
        return {
            **{key: [t[key] for t in turns] for key in keys},
            TOTAL: [sum(t.values()) for t in turns],
        }

    def fresh(self) -> None:
        self.started += 1

    def blame(self, key: str, alternative: str, failure: CandidateFailure) -> None:
        self.blamed.append((key, alternative, str(failure)))


MANY = tuple(f"s{i}" for i in range(40))


def choice(key: str, *others: str) -> Choice[str]:
    return Choice(key, f"{key} stands", others)


def won(found: Mapping[str, Met[str]]) -> dict[str, str]:
    return {key: met.alternative for key, met in found.items() if met.won}


def test_the_fastest_of_each_choice_wins_by_samples_of_a_fresh_process() -> None:
    track = Track({"a": 0.9, "b": 0.5, "c": 0.8}, later={"b": 0.6})
    found = race([choice("k", "a", "b"), choice("l", "c", "d")], track)
    assert won(found) == {"k": "b", "l": "c"}
    stands, mine = found["k"].samples
    assert (min(stands), min(mine), len(mine)) == (1.0, 0.6, PROOF_TURNS)
    assert found["k"].comparison.p_value < 0.05 / 3
    assert track.started == 1
    assert track.ran[-1] == [{"k": "b", "l": "c"}], "all that are ahead are proved at once"


def test_who_is_faster_in_one_process_only_does_not_win() -> None:
    found = race([choice("k", "a")], Track({"a": 0.5}, later={"a": 1.0}))
    assert won(found) == {}
    assert found["k"].comparison.ratio == pytest.approx(1.0)


def test_a_tie_needs_no_proof_and_is_told() -> None:
    track = Track()
    found = race([choice("k", "a")], track)
    assert (won(found), found["k"].alternative, track.started, track.rounds) == (
        {},
        "a",
        0,
        [HEAT_TURNS],
    )


def test_nobody_wins_where_the_whole_becomes_slower() -> None:
    class Spoilt(Track):
        """What wins makes the rest of the model slow in the proof."""

        def turns(
            self, stands: Lineup, lineups: Sequence[Lineup], rounds: int
        ) -> list[dict[str, Pair]]:
            found = super().turns(stands, lineups, rounds)
            return (
                [{**x, TOTAL: (x[TOTAL][0], [9.0 * s for s in x[TOTAL][0]])} for x in found]
                if self.started
                else found
            )

    found = race([choice("k", "a")], Spoilt({"a": 0.5}))
    assert won(found) == {}
    assert found["k"].alternative == "a"


def test_one_that_makes_the_whole_slower_does_not_take_the_wins_of_others() -> None:
    track = Track({"a": 0.5, "b": 0.9}, later={"b": 9.0})
    assert won(race([choice("k", "a"), choice("l", "b")], track)) == {"k": "a"}
    assert track.ran[-1] == [{"k": "a"}], "proved again, without the other"
    assert track.started == 2


def test_what_is_proved_wins_beside_a_large_part_that_varies() -> None:
    """Small gains of small parts: whether the whole's median is above is a toss-up."""

    class Beside(Track):
        def turns(
            self, stands: Lineup, lineups: Sequence[Lineup], rounds: int
        ) -> list[dict[str, Pair]]:
            found = super().turns(stands, lineups, rounds)
            return [{**x, TOTAL: tuple([s + rest() for s in t] for t in x[TOTAL])} for x in found]  # type: ignore[misc]

    def rest() -> float:
        return rng.uniform(90.0, 110.0)

    found = 0
    for seed in range(20):
        rng = Random(seed)
        found += won(race([choice("k", "a")], Beside({"a": 0.9}))) == {"k": "a"}
    assert found >= 18


def test_who_was_far_behind_in_the_search_wins_where_it_is_fastest() -> None:
    track = Track({"s37": 0.7, "s3": 0.8})
    assert won(race([choice("k", *MANY)], track)) == {"k": "s37"}
    assert [len(x) for x in track.ran[:7]] == [1, 2, 4, 8, 8, 8, 8]
    assert max(map(len, track.ran)) == AT_ONCE


def test_each_halving_runs_the_faster_half_again() -> None:
    times = {name: 1.0 - 0.01 * i for i, name in enumerate(MANY[:8])}
    track = Track(times)
    race([choice("k", *MANY[:8])], track)
    again = [{x["k"] for x in lineups} for lineups in track.ran if len(lineups) in (2, 4, 8)][-2:]
    assert again == [{"s4", "s5", "s6", "s7"}, {"s6", "s7"}]


def test_a_choice_with_few_alternatives_keeps_what_stands_in_the_other_runs() -> None:
    track = Track({"a": 0.9, "s5": 0.5})
    assert won(race([choice("k", *MANY[:8]), choice("l", "a")], track)) == {"k": "s5", "l": "a"}
    assert sum("l" in x for lineups in track.ran[:4] for x in lineups) == 1


def test_what_can_not_be_made_is_out_and_the_others_meet() -> None:
    found = race(
        [choice("k", "a", "b"), choice("l", "c")], Track({"b": 0.5}, missing=frozenset("ac"))
    )
    assert won(found) == {"k": "b"}
    assert "l" not in found


def test_without_alternatives_there_is_no_race() -> None:
    track = Track()
    assert race([choice("k")], track) == {}
    assert track.ran == []


# ---- time


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Track:
    track = Track({"s0": 0.9, "s1": 0.8, "s30": 0.5})
    monkeypatch.setattr(racing, "monotonic", lambda: track.now_s)
    return track


def test_without_time_the_first_alternatives_meet_and_have_one_look(clocked: Track) -> None:
    assert won(race([choice("k", *MANY)], clocked, deadline_s=0.0)) == {"k": "s0"}
    assert clocked.rounds == [HEAT_TURNS, FEWEST_TURNS]


def test_heats_are_held_while_one_more_and_a_proof_fit(clocked: Track) -> None:
    deadline_s = 4 * 2 + 4 * 3 + 2.0 * PROOF_TURNS
    assert won(race([choice("k", *MANY)], clocked, deadline_s=deadline_s)) == {"k": "s1"}
    assert clocked.rounds[-1] == PROOF_TURNS
    assert clocked.now_s <= deadline_s


@pytest.mark.parametrize("deadline_s", [50.0, 100.0, 200.0, 400.0])
def test_a_race_ends_in_time(clocked: Track, deadline_s: float) -> None:
    race([choice("k", *MANY)], clocked, deadline_s=deadline_s)
    assert clocked.now_s <= deadline_s


@dataclass
class Disturbed(Track):
    """Slow moments of the challenger's own in the first ``disturbed`` looks at a proof."""

    disturbed: int = 0

    def seconds(self, what: str, turn: int) -> float:
        taken = super().seconds(what, turn)
        looks = sum(turns in (PROOF_TURNS, FEWEST_TURNS) for turns in self.rounds)
        if not self.started or looks > self.disturbed:
            return taken
        return taken * (1.4 if what == "a" and turn % 4 == 0 else 1.0)


@pytest.mark.parametrize(
    ("disturbed", "wins", "looks"), [(0, True, 1), (1, True, 2), (9, False, 3)]
)
def test_who_is_ahead_and_not_proved_to_be_is_looked_at_again(
    disturbed: int, wins: bool, looks: int
) -> None:
    track = Disturbed({"a": 0.95}, disturbed=disturbed)
    found = race([choice("k", "a")], track)
    assert bool(won(found)) == wins
    assert track.rounds.count(PROOF_TURNS) == looks
    assert len(found["k"].samples[0]) == looks * PROOF_TURNS


def test_without_time_the_first_look_decides() -> None:
    track = Disturbed({"a": 0.95}, disturbed=9)
    assert won(race([choice("k", "a")], track, deadline_s=0.0)) == {}
    assert track.rounds[-1:] == [FEWEST_TURNS]


# ---- who ends a race


@pytest.mark.parametrize(
    "failure", [CandidateCrashed("SIGSEGV"), WrongResult("output 0[3]")], ids=["crash", "wrong"]
)
def test_who_ends_a_race_is_blamed_alone_and_the_race_goes_on(failure: CandidateFailure) -> None:
    track = Track({"s7": 0.5, "s9": 0.4, "c": 0.5}, bad={"s9": failure, "s12": failure})
    assert won(race([choice("k", *MANY[:20]), choice("l", "c")], track)) == {"k": "s7", "l": "c"}
    assert track.blamed == [("k", "s9", str(failure)), ("k", "s12", str(failure))]


def test_a_leader_that_ends_the_proof_is_blamed_and_the_others_are_proved() -> None:
    class Later(Track):
        """``a`` breaks once it runs in a fresh process."""

        def turns(
            self, stands: Lineup, lineups: Sequence[Lineup], rounds: int
        ) -> list[dict[str, Pair]]:
            if self.started and any("a" in x.values() for x in lineups):
                raise CandidateCrashed("it broke")
            return super().turns(stands, lineups, rounds)

    track = Later({"a": 0.5, "b": 0.5})
    assert won(race([choice("k", "a"), choice("l", "b")], track)) == {"l": "b"}
    assert track.blamed == [("k", "a", "it broke")]


def test_who_was_proved_faster_and_ends_the_next_look_does_not_win() -> None:
    class Later(Disturbed):
        """``b`` breaks in the second look, which ``a`` needs."""

        def turns(
            self, stands: Lineup, lineups: Sequence[Lineup], rounds: int
        ) -> list[dict[str, Pair]]:
            if PROOF_TURNS in self.rounds and any("b" in x.values() for x in lineups):
                raise CandidateCrashed("it broke")
            return super().turns(stands, lineups, rounds)

    track = Later({"a": 0.95, "b": 0.5}, disturbed=1)
    assert won(race([choice("k", "a"), choice("l", "b")], track)) == {"k": "a"}
    assert track.blamed == [("l", "b", "it broke")]


def test_a_race_that_ends_by_itself_costs_nobody_anything() -> None:
    track = Track({"s7": 0.5}, hiccups=1)
    assert won(race([choice("k", *MANY[:8])], track)) == {"k": "s7"}
    assert track.blamed == []


def test_what_stands_and_fails_ends_the_race_and_nobody_is_blamed() -> None:
    track = Track({"s7": 0.5}, bad={"k stands": CandidateCrashed("SIGSEGV")})
    with pytest.raises(CandidateCrashed, match="SIGSEGV"):
        race([choice("k", *MANY[:8])], track)
    assert track.blamed == []


# ---- equals


def steady(rng: Random) -> Callable[[], float]:
    return lambda: 1.0


def bursty(rng: Random) -> Callable[[], float]:
    """Somebody else takes the core: every 25th sample it starts, and lasts five of them."""
    busy = [False]

    def noise() -> float:
        busy[0] = rng.random() < (0.8 if busy[0] else 0.04)
        return rng.uniform(1.5, 3.0) if busy[0] else 1.0

    return noise


@dataclass
class Placed(Track):
    """Each process makes everything faster or slower by where it puts it: ``spread`` is one
    sigma.
    """

    rng: Random = field(default_factory=Random)
    spread: float = 0.0
    luck: dict[tuple[int, str], float] = field(default_factory=dict)

    def seconds(self, what: str, turn: int) -> float:
        luck = self.luck.setdefault((self.started, what), self.rng.gauss(1.0, self.spread))
        return luck * super().seconds(what, turn) * (1.0 + 0.02 * self.rng.expovariate(1.0))


TIMES = 200


@pytest.mark.parametrize("others", [1, 3, 20])
@pytest.mark.parametrize(
    ("noise", "spread", "deadline_s"),
    [(steady, 0.0, inf), (bursty, 0.0, inf), (bursty, 0.0, 0.0), (steady, 0.005, inf)],
    ids=["steady", "bursty", "bursty and late", "other in every process"],
)
def test_of_equals_one_in_twenty_wins_at_most(
    noise: Callable[[Random], Callable[[], float]], spread: float, deadline_s: float, others: int
) -> None:
    winners = 0
    for seed in range(TIMES):
        rng = Random(seed)
        track = Placed(noise=noise(rng), rng=rng, spread=spread)
        winners += bool(won(race([choice("k", *MANY[:others])], track, deadline_s)))
    assert winners <= 0.05 * TIMES


@pytest.mark.parametrize("noise", [steady, bursty])
def test_a_challenger_that_is_a_tenth_faster_wins(
    noise: Callable[[Random], Callable[[], float]],
) -> None:
    found = 0
    for seed in range(20):
        track = Placed({"a": 0.9}, noise=noise(Random(seed)), rng=Random(seed))
        found += won(race([choice("k", "a")], track)) == {"k": "a"}
    assert found >= 19
