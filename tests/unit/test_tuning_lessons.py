"""What the rows of other kernels become: facts and slowdowns, of none that the session is to find
out itself.
"""

import math
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from kernel_corpus import corpus_kernel
from search_surface import MACHINE as HERE
from search_surface import trial_log

from tunegrad.db import key_of, open_store
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.search import Lessons, Measured, Proposal, ScheduleFeatures, tree_features
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning import searching
from tunegrad.tuning.budget.account import sessions_since
from tunegrad.tuning.budget.costs import Costs
from tunegrad.tuning.transfer import training as lessons
from tunegrad.tuning.transfer.training import Teacher

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
        log.record(
            kernel.key, kernel.text, SPACE_VERSION, Proposal(Schedule.parse(text), "hand"), measured
        )


def taught(store, session="now", resumed=(), most=600):
    return Teacher.of((GEMM, POOL), TARGET, trial_log(store, session, resumed), most=most)


def test_lessons_are_facts_and_slowdowns_of_other_kernels(store):
    add(store, "before", TEXTS)
    found = taught(store).lessons(POOL.key)
    space = Space(GEMM, TARGET)
    assert found.rows == tuple(
        ScheduleFeatures.named(tree_features(space.tree(Schedule.parse(t)))) for t in TEXTS
    )
    assert found.log_s == pytest.approx([math.log(i + 1) for i in range(4)])


def test_lessons_leave_out_the_kernel_itself(store):
    add(store, "before", TEXTS)
    assert taught(store).lessons(GEMM.key) == Lessons()


@pytest.mark.parametrize(("session", "resumed"), [("before", ()), ("now", ("before",))])
def test_lessons_leave_out_what_this_session_and_those_it_continues_measured(
    store, session, resumed
):
    add(store, "before", TEXTS)
    assert taught(store, session, resumed).lessons(POOL.key) == Lessons()


def test_lessons_have_failures_and_leave_out_what_is_no_schedule(store):
    add(store, "before", TEXTS)
    add(store, "before", ("tile(axis=b, size=2)",), status=Status.WRONG)
    add(store, "before", ("tile(axis=zz, size=4)",))
    found = taught(store).lessons(POOL.key).log_s
    assert found == pytest.approx([math.log(i + 1) for i in range(4)] + [math.inf])


def test_lessons_of_a_kernel_of_which_hardly_any_ran_are_none(store):
    add(store, "before", TEXTS[:3])
    assert taught(store).lessons(POOL.key) == Lessons()


def test_lessons_of_a_kernel_of_which_nothing_ran_are_none(store):
    add(store, "before", TEXTS, status=Status.CRASHED)
    assert taught(store).lessons(POOL.key) == Lessons()


def test_lessons_are_bounded_and_have_the_fastest(store):
    add(store, "before", TEXTS)
    found = taught(store, most=2).lessons(POOL.key)
    assert found.log_s == pytest.approx([0.0, math.log(3)])


# ---- kernels that are not searched now


def others(store):
    return dict(store.kernels())


def taught_by_all(store, kernels=(GEMM,), leave_out=(), most=600):
    return Teacher.of(kernels, TARGET, trial_log(store, "now"), others(store), leave_out, most)


def test_lessons_of_kernels_that_are_not_searched_are_those_of_kernels_that_are(store):
    add(store, "before", TEXTS)
    assert taught(store).lessons(POOL.key).rows
    assert taught_by_all(store, (POOL,)).lessons(POOL.key) == taught(store).lessons(POOL.key)


def test_lessons_come_from_the_nearest_kernels_first(store, monkeypatch):
    near, far = corpus_kernel("linear"), corpus_kernel("softmax")
    for kernel in (far, near, POOL):
        add(
            store,
            "before",
            ("", "tile(axis=a, size=2)", "tile(axis=a, size=3)", "tile(axis=a, size=4)"),
            kernel,
        )
    assert set(taught_by_all(store).known) == {near.key, far.key, POOL.key}
    monkeypatch.setattr(lessons, "MOST_KERNELS", 1)
    assert set(taught_by_all(store, (corpus_kernel("gemm_prime"),)).known) == {near.key}
    assert set(taught_by_all(store, (corpus_kernel("layer_norm"),)).known) == {far.key}


def test_lessons_stop_where_enough_was_read(store, monkeypatch):
    for kernel in (POOL, corpus_kernel("linear")):
        add(store, "before", TEXTS if kernel is POOL else TEXTS[:2] * 2 + TEXTS[1:], kernel)
    monkeypatch.setattr(lessons, "_MOST_READ", 1)
    assert len(taught_by_all(store).known) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel of nobody",
        "kernel\n  axis a:" + "9" * 5_000,
        GEMM.text.replace("row", "0 1"),
        GEMM.text + " ",
    ],
    ids=["empty", "no kernel", "huge", "other layout", "blank"],
)
def test_text_that_is_no_kernel_teaches_nothing_and_is_no_error(store, text):
    keep(
        store,
        Trial(key_of(text), text, HERE, "", "p", SPACE_VERSION, Policy(), ran(1.0), "before"),
        TEXTS,
    )
    add(store, "before", TEXTS, POOL)
    assert set(taught_by_all(store).known) == {POOL.key}


def test_kernel_with_a_fixed_schedule_teaches_nothing(store):
    add(store, "before", TEXTS, replace(GEMM, fixed="tile(axis=a, size=4)"))
    assert taught_by_all(store, (POOL,)).known == {}


def keep(store, row, texts):
    """Rows like this one, of these schedules."""
    for i, text in enumerate(texts):
        store.add(replace(row, actions=text, program_hash=f"{i}", measurement=ran(1e-3 * (i + 1))))


def ran(seconds):
    return Measurement(Status.OK, (seconds,))


ROW = Trial(POOL.key, POOL.text, HERE, "", "p", SPACE_VERSION, Policy(), ran(1.0), "before")
STRANGE = {
    "imported": replace(ROW, origin="imported:beam"),
    "of another space version": replace(ROW, space_version=SPACE_VERSION + 1),
    "of another machine": replace(ROW, fingerprint=Fingerprint((("arch", "pdp11"),))),
    "of another policy": replace(ROW, policy=Policy(cache="cold")),
    "of this session": replace(ROW, session="now"),
    "of a later session": replace(ROW, session="later"),
}


@pytest.mark.parametrize("row", STRANGE.values(), ids=STRANGE)
def test_rows_that_teach_nothing(store, row):
    keep(store, row, TEXTS)
    assert taught_by_all(store, leave_out=("later",)).known == {}


def test_rows_of_an_earlier_session_of_this_machine_teach(store):
    keep(store, ROW, TEXTS)
    assert set(taught_by_all(store, leave_out=("later",)).known) == {POOL.key}


def test_lessons_share_the_rows_among_kernels_and_those_with_few_leave_theirs(store):
    for kernel, sizes in ((POOL, range(2, 6)), (corpus_kernel("linear"), range(2, 12))):
        add(store, "before", [f"tile(axis=a, size={n})" for n in sizes], kernel)
    counts = [
        {len(found.rows) for found in taught_by_all(store, most=most).known.values()}
        for most in (12, 6, 99)
    ]
    assert counts == [{4, 8}, {3}, {4, 10}]


def test_resumed_session_is_taught_what_the_first_one_was():
    clock = count()
    with open_store(":memory:", "write", clock=lambda: float(next(clock))) as store:

        def session(name, resumed=()):
            """What it is taught, and its rows, which come after."""
            with store.session("tune", 0, {}, "0", name):
                since = sessions_since(store, frozenset({name, *resumed}))
                found = Teacher.of(
                    (GEMM,), TARGET, trial_log(store, name, resumed), others(store), since
                )
                for kernel, size in ((GEMM, 2), (POOL, 3), (corpus_kernel("linear"), 5)):
                    texts = [
                        f"tile(axis={axis}, size={size + len(name)})"
                        for axis in "abcd"[: len(kernel.axes)]
                    ]
                    add(store, name, [*texts, *(f"{t} unroll(axis=a1)" for t in texts), ""], kernel)
            return found.lessons(GEMM.key)

        assert session("old") == Lessons()
        first = session("first")
        between = session("in between")
        assert session("second", {"first"}) == first
        assert len(between.rows) > len(first.rows) > 0
        assert session("third", {"first", "second"}) == first


def test_session_is_taught_by_the_kernels_of_its_machine_and_by_no_later_session(monkeypatch):
    seen, clock = [], count()

    def of(*given):
        seen.append(given)
        raise InterruptedError  # the rest of the session is not of interest

    monkeypatch.setattr(Teacher, "of", of)
    monkeypatch.setattr(lessons, "cost_model_installed", lambda: True)
    with open_store(":memory:", "write", clock=lambda: float(next(clock))) as store:
        for name in ("before", "resumed", "between", "now"):
            with store.session("tune", 0, {}, "0", name):
                keep(store, replace(ROW, session=name), TEXTS)
        keep(store, STRANGE["of another machine"], TEXTS)
        add(store, "now", TEXTS)
        settings = SimpleNamespace(searcher="evolutionary")
        context = SimpleNamespace(
            settings=settings, here=HERE, target=TARGET, store=store, costs=Costs(),
            progress=SimpleNamespace(named={"pool": POOL}), policy=Policy(), session="now",
            resumed=frozenset({"resumed"}),
        )  # fmt: skip
        asked = searching.Searching(context)
        uses = [SimpleNamespace(name="gemm", kernel=GEMM)]
        with pytest.raises(InterruptedError):
            asked.searches(uses, seeded=True)
    ((kernels, target, log, stored, leave_out),) = seen
    assert (list(kernels), target, log.session) == ([GEMM], TARGET, "now")
    assert set(stored) == {POOL.key, GEMM.key}
    assert leave_out == {"resumed", "between", "now"}
