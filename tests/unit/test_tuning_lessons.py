"""What the rows of other kernels become: facts and slowdowns, of none that the session is to find out itself."""

import math
from types import SimpleNamespace

import pytest
from kernel_corpus import corpus_kernel
from search_surface import trial_log

from tunegrad.db import open_store
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.search import Facts, Lessons, Measured, Proposal, tree_features
from tunegrad.trial import Measurement, Status
from tunegrad.tuning import session as sessions
from tunegrad.tuning.costs import Costs
from tunegrad.tuning.lessons import Teacher

TARGET = Target("cpu", "cpu", "generic", vector_bytes=64, registers=32, threads=2)
GEMM, POOL = corpus_kernel("gemm_square"), corpus_kernel("max_pool")
TEXTS = ("", "tile(axis=a, size=4)", "vectorize(axis=b)", "tile(axis=a, size=2)")


@pytest.fixture
def store():
    with open_store(":memory:", "write") as opened:
        yield opened


def add(store, session, texts, kernel=GEMM, status=Status.OK):
    log = trial_log(store, session)
    for i, text in enumerate(texts):
        seconds = (1e-3 * (i + 1),) if status is Status.OK else ()
        measured = Measured(f"{kernel.key[:4]}{text}", Measurement(status, seconds))
        log.record(kernel.key, kernel.text, SPACE_VERSION, Proposal(Schedule.parse(text), "hand"), measured)


def taught(store, session="now", resumed=(), most=600):
    return Teacher.of((GEMM, POOL), TARGET, trial_log(store, session, resumed), most)


def test_lessons_are_facts_and_slowdowns_of_other_kernels(store):
    add(store, "before", TEXTS)
    found = taught(store).lessons(POOL.key)
    space = Space(GEMM, TARGET)
    assert found.rows == tuple(Facts.named(tree_features(space.tree(Schedule.parse(t)))) for t in TEXTS)
    assert found.log_s == pytest.approx([math.log(i + 1) for i in range(4)])


def test_lessons_leave_out_the_kernel_itself(store):
    add(store, "before", TEXTS)
    assert taught(store).lessons(GEMM.key) == Lessons()


@pytest.mark.parametrize(("session", "resumed"), [("before", ()), ("now", ("before",))])
def test_lessons_leave_out_what_this_session_and_those_it_continues_measured(store, session, resumed):
    add(store, "before", TEXTS)
    assert taught(store, session, resumed).lessons(POOL.key) == Lessons()


def test_lessons_have_failures_and_leave_out_what_is_no_schedule(store):
    add(store, "before", TEXTS[:1])
    add(store, "before", TEXTS[1:2], status=Status.WRONG)
    add(store, "before", ("tile(axis=zz, size=4)",))
    assert taught(store).lessons(POOL.key).log_s == (0.0, math.inf)


def test_lessons_of_a_kernel_of_which_nothing_ran_are_none(store):
    add(store, "before", TEXTS, status=Status.CRASHED)
    assert taught(store).lessons(POOL.key) == Lessons()


def test_lessons_are_bounded_and_have_the_fastest(store):
    add(store, "before", TEXTS)
    found = taught(store, most=2).lessons(POOL.key)
    assert found.log_s == pytest.approx([0.0, math.log(3)])


def test_lessons_are_of_the_kernels_that_are_searched_and_not_of_those_that_the_plan_tried(store, monkeypatch):
    seen = []

    def of(kernels, *_):
        seen.extend(kernels)
        raise InterruptedError  # the rest of the session is not of interest

    monkeypatch.setattr(sessions, "Teacher", SimpleNamespace(of=of))
    monkeypatch.setattr(sessions, "cost_model_installed", lambda: True)
    settings = SimpleNamespace(searcher="evolutionary")
    session = SimpleNamespace(
        store=store, here=None, resumed=frozenset(), id="now", costs=Costs(), settings=settings, named={"pool": POOL},
        target=TARGET, policy=None,
    )  # fmt: skip
    uses = [SimpleNamespace(name="gemm", kernel=GEMM)]
    with pytest.raises(InterruptedError):
        sessions._Session._searches(session, None, uses, seeded=True)
    assert seen == [GEMM]
