"""The portfolio: who earns gets more, nobody gets nothing, all hear everything."""

from random import Random

import pytest
from search_surface import Surface, SurfaceSpace, choices_of, played, separable

from tunegrad.search import (
    BeamSearcher,
    EvolutionarySearcher,
    PortfolioSearcher,
    Proposal,
    RandomSearcher,
)
from tunegrad.trial import Measurement, Status

SPACE, SURFACE = separable(Random(5))


class Listener(RandomSearcher):
    """Random search that remembers what it was told."""

    def __init__(self, space, rng):
        super().__init__(space, rng)
        self.heard = []

    def tell(self, proposal, measurement):
        super().tell(proposal, measurement)
        self.heard.append(proposal.schedule.text)


def paid(portfolio, good, rounds=20, batch=8, best_s=1e-3):
    """Ask and tell: what ``good`` proposes is ever faster, all else slow.

    How many asks each got in the last half.
    """
    counts = {}
    for i in range(rounds):
        for p in portfolio.ask(batch):
            name = p.origin.partition(":")[2]
            best_s *= 0.98 if name == good else 1.0
            portfolio.tell(p, Measurement(Status.OK, (best_s if name == good else 1.0,)))
            if i >= rounds // 2:
                counts[name] = counts.get(name, 0) + 1
    return counts


@pytest.mark.parametrize("good", ["a", "b", "c"])
def test_portfolio_gives_most_to_who_earns(good):
    members = {name: RandomSearcher(SPACE, Random(i)) for i, name in enumerate("abc")}
    counts = paid(PortfolioSearcher(SPACE, Random(0), members), good)
    assert counts[good] >= 0.7 * sum(counts.values())


def test_portfolio_gives_everybody_the_floor():
    members = {name: RandomSearcher(SPACE, Random(i)) for i, name in enumerate("abc")}
    counts = paid(PortfolioSearcher(SPACE, Random(0), members, floor=0.1), "b", rounds=40)
    assert min(counts.get(n, 0) for n in "abc") >= 0.08 * sum(counts.values())


def test_portfolio_comes_back_to_who_earns_later():
    members = {name: RandomSearcher(SPACE, Random(i)) for i, name in enumerate("ab")}
    portfolio = PortfolioSearcher(SPACE, Random(0), members)
    paid(portfolio, "a")
    counts = paid(portfolio, "b", rounds=30, best_s=2e-5)
    assert counts["b"] > counts["a"]


def test_portfolio_shares_add_up():
    portfolio = PortfolioSearcher(SPACE, Random(0))
    assert sum(portfolio.shares.values()) == pytest.approx(1.0)
    paid(portfolio, "beam")
    assert sum(portfolio.shares.values()) == pytest.approx(1.0)
    assert min(portfolio.shares.values()) >= portfolio.floor


def test_portfolio_tells_every_member_everything():
    members = {"a": Listener(SPACE, Random(1)), "b": Listener(SPACE, Random(2))}
    portfolio = PortfolioSearcher(SPACE, Random(0), members)
    told = [SPACE.defaults()[0].text]
    portfolio.tell(Proposal(SPACE.defaults()[0], "default"), SURFACE.measure(SPACE.defaults()[0]))
    for p in portfolio.ask(12):
        portfolio.tell(p, SURFACE.measure(p.schedule))
        told.append(p.schedule.text)
    assert members["a"].heard == members["b"].heard == told


def test_portfolio_gives_no_credit_for_failures():
    members = {name: RandomSearcher(SPACE, Random(i)) for i, name in enumerate("ab")}
    portfolio = PortfolioSearcher(SPACE, Random(0), members)
    for _ in range(10):
        for p in portfolio.ask(8):
            slow = Measurement(Status.OK, (1.0,))
            portfolio.tell(p, Measurement(Status.CRASHED) if p.origin.endswith(":a") else slow)
    a, b = (portfolio._accounts[n].gain for n in "ab")
    assert a == 0.0 <= b


def test_portfolio_goes_on_when_a_member_is_dry():
    class Dry(RandomSearcher):
        def ask(self, n):
            return []

    members = {"dry": Dry(SPACE, Random(0)), "beam": BeamSearcher(SPACE, Random(1))}
    assert len(PortfolioSearcher(SPACE, Random(0), members).ask(9)) == 9


def test_portfolio_sweeps_what_its_members_leave():
    class Dry(RandomSearcher):
        def ask(self, n):
            return []

    space = SurfaceSpace({"a": 3, "b": 4})
    portfolio = PortfolioSearcher(space, Random(0), {"dry": Dry(space, Random(0))})
    found = portfolio.ask(50)
    assert len(found) == 12
    assert {p.origin for p in found} == {"portfolio:exhaustive"}
    assert portfolio.done


SLOW = SurfaceSpace({"a": 4, "b": 6, "c": 6})
"""Half of the options of ``a`` take ten times as long, whatever else is chosen."""

TEN_TIMES = Surface({("a", 2): 10.0, ("a", 3): 11.0} | {("b", i): 1.0 + 0.02 * i for i in range(6)})


def is_slow(schedule):
    return choices_of(schedule)["a"] >= 2


def random_members():
    return {
        "random": RandomSearcher(SLOW, Random(0)),
        "evolutionary": EvolutionarySearcher(SLOW, Random(1)),
    }


def test_portfolio_puts_off_what_the_cost_model_takes_to_be_hopeless():
    portfolio = PortfolioSearcher(SLOW, Random(0), random_members(), floor=0.5, alone=0)
    asked = played(portfolio, TEN_TIMES, 80)
    assert sum(map(is_slow, asked[:24])) >= 6
    assert sum(map(is_slow, asked[40:64])) <= 6  # 12 at random
    assert any(map(is_slow, asked[40:]))  # one in ten is measured all the same


def test_portfolio_asks_for_what_it_put_off_in_the_end():
    portfolio = PortfolioSearcher(SLOW, Random(0), random_members(), floor=0.5, alone=0)
    asked = played(portfolio, TEN_TIMES, 1000)
    assert len({s.text for s in asked}) == len(asked) == 4 * 6 * 6
    assert all(map(is_slow, asked[-20:]))
    assert portfolio.done


def test_portfolio_forgets_what_it_put_off_once_that_is_told():
    portfolio = PortfolioSearcher(SLOW, Random(0), random_members(), floor=0.5, alone=0)
    played(portfolio, TEN_TIMES, 64)
    off = [p.schedule for p in portfolio._put_off.values()]
    assert off
    for schedule in off:
        portfolio.tell(Proposal(schedule, "seed"), TEN_TIMES.measure(schedule))
    rest = {s.text for s in played(portfolio, TEN_TIMES, 1000)}
    assert not rest & {s.text for s in off}


def test_portfolio_names_the_member_that_proposed():
    portfolio = PortfolioSearcher(SPACE, Random(0), alone=12)
    play = [
        p
        for _ in range(6)
        for p in portfolio.ask(8)
        if portfolio.tell(p, SURFACE.measure(p.schedule)) is None
    ]
    assert {p.origin for p in play} == {
        f"portfolio:{n}" for n in ("beam", "evolutionary", "bayesian", "random")
    }


def test_portfolio_leaves_its_first_trials_to_the_first_member():
    portfolio, asked = PortfolioSearcher(SPACE, Random(0)), []
    for _ in range(8):
        for p in portfolio.ask(8):
            asked.append(p.origin)
            portfolio.tell(p, SURFACE.measure(p.schedule))
    assert set(asked[:32]) == {"portfolio:beam"}
    assert len(set(asked[32:])) >= 3


def test_portfolio_on_a_flat_surface_uses_all_members():
    portfolio = PortfolioSearcher(SPACE, Random(0))
    flat = Surface({})
    counts = {}
    for _ in range(10):
        for p in portfolio.ask(8):
            counts[p.origin] = counts.get(p.origin, 0) + 1
            portfolio.tell(p, flat.measure(p.schedule))
    assert len(counts) == 4
