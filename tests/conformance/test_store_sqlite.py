"""The store in a SQLite file keeps the contract of a store, and what it keeps is there when it is
opened again.
"""

import itertools
import random
from dataclasses import replace

import pytest
from store_suite import COLD, EVIDENCE, MATMUL, SKY, ZEN, StoreSuite, decision, latency, trial

from tunegrad.db import key_of, open_store, read_contents
from tunegrad.db.contents import Place, identity, standing, subject, winners
from tunegrad.trial import Policy, Status


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def opener(self, tmp_path):
        # Every character that means something in a URI or in SQL.
        path = tmp_path / "a store's ?mode=ro&x#%20.db"
        return lambda mode: open_store(path, mode, clock=lambda: 500.0)

    def test_store_file_holds_everything_when_opened_again(self, opener):
        with opener("write") as store:
            store.add(trial("slow", 2e-3))
            store.promote(store.add(trial("best", 3e-3)), EVIDENCE)
            store.add_spend("model", ZEN, "beam", 4.0)
            store.name_kernel(MATMUL, "matmul_64")
            store.record_decision(decision("keep"))
            store.record_latency(latency())
            before = store.sessions()
        with opener("read") as store:
            assert store.trials(key_of(MATMUL)) == [trial("slow", 2e-3), trial("best", 3e-3)]
            assert store.winner(key_of(MATMUL), ZEN, 1) == trial("best", 3e-3)
            assert store.promotions(key_of(MATMUL), ZEN) == [(trial("best", 3e-3), EVIDENCE)]
            assert store.spent("model", ZEN, "beam") == 4.0
            assert store.kernel_name(key_of(MATMUL)) == "matmul_64"
            assert store.decisions() == [decision("keep")]
            assert store.latencies() == [latency()]
            assert store.sessions() == before

    def test_store_file_goes_on_numbering_when_opened_again(self, opener):
        with opener("write") as store:
            first = store.add(trial("a"))
        with opener("write") as store:
            assert store.add(trial("a")) == first
            assert store.add(trial("b")) > first


def _random_trial(draw):
    return trial(
        f"unroll(by={draw.randrange(12)})",
        draw.choice((1e-3, 2e-3, 3e-3)),
        status=draw.choice((Status.OK, Status.OK, Status.OK, Status.WRONG, Status.CRASHED)),
        text=draw.choice((MATMUL, "kernel(other)")),
        fingerprint=draw.choice((ZEN, SKY)),
        space_version=draw.choice((1, 2)),
        policy=draw.choice((Policy(), COLD)),
        session=draw.choice(("s1", "s2")),
    )


def _seen(t, withdrawn):
    """A trial as readers see it: wrong where it was withdrawn."""
    wrong = replace(t.measurement, status=Status.WRONG, samples_s=())
    return replace(t, measurement=wrong) if subject(t) in withdrawn else t


@pytest.mark.parametrize("seed", range(5))
def test_store_answers_as_the_rules_say_of_everything_that_it_holds(tmp_path, seed):
    """SQL picks the winners of a store, and plain Python those of its contents: they agree."""
    draw = random.Random(seed)
    with open_store(tmp_path / "t.db", "write") as store:
        for _ in range(80):
            given = _random_trial(draw)
            row = store.add(given)
            stands = [t for t in store.trials(given.kernel_key) if store.id_of(t) == row]
            if draw.random() < 0.2 and stands and stands[0].measurement.status is Status.OK:
                store.promote(row, EVIDENCE)
        contents, problems = read_contents(tmp_path / "t.db")
        won = winners(contents)
        assert problems == ()
        for text in (MATMUL, "kernel(other)", "kernel(unknown)"):
            key = key_of(text)
            assert store.history(key) == [t for t in contents.trials if t.kernel_key == key]
            seen = [_seen(t, contents.withdrawn) for t in store.history(key)]
            told = [(identity(t), t.measurement.status) for t in store.trials(key)]
            assert told == [(identity(t), t.measurement.status) for t in standing(seen)]
            for place in itertools.product((key,), (ZEN, SKY), (1, 2, 3)):
                winner = won.get(Place(*place))
                assert store.winner(*place) == (winner and winner.trial)


@pytest.mark.parametrize("seed", range(3))
def test_store_view_of_winners_agrees_with_the_winner(tmp_path, seed):
    draw = random.Random(seed)
    with open_store(tmp_path / "t.db", "write") as store:
        for _ in range(60):
            given = _random_trial(draw)
            row = store.add(given)
            if draw.random() < 0.15 and store.winner(
                given.kernel_key, given.fingerprint, given.space_version
            ):
                winner = store.winner(given.kernel_key, given.fingerprint, given.space_version)
                store.promote(store.id_of(winner), EVIDENCE)
            assert row
        for text in (MATMUL, "kernel(other)"):
            for machine in (ZEN, SKY):
                for space in (1, 2):
                    rows = store._db.select(
                        "SELECT trial FROM winners WHERE kernel_key = ? AND fingerprint LIKE ? "
                        "AND space_version = ?"
                        " ORDER BY promotion IS NULL, promotion DESC, newest_trial DESC LIMIT 1",
                        (key_of(text), f"%{dict(machine.fields)['arch']}%", space),
                    )
                    winner = store.winner(key_of(text), machine, space)
                    assert [r[0] for r in rows] == ([store.id_of(winner)] if winner else [])
