"""Tuning decides how a graph stores its images: the fastest form, its rows, nothing twice, loading
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from compared import raced_as, track_of
from small_models import THREADS, here
from stored_decisions import decided

import tunegrad as tg
from tunegrad.config import ModelSpec, TuneSettings
from tunegrad.db import Store, open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CandidateFailure, WrongResult
from tunegrad.events import Event, WinnerPromoted
from tunegrad.explain import one_kernel as showing
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LAST, ROWS, Images, LaunchPlan, blocked
from tunegrad.planning import image_forms, images_key, images_text, plan_launches, stored_images
from tunegrad.trial import Fingerprint, Status
from tunegrad.tuning.questions import plan as deciding
from tunegrad.tuning.questions.cut import choose_images
from tunegrad.tuning.questions.question import PlanContext
from tunegrad.tuning.questions.variant import VariantCandidates
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import workload_of_function

pytestmark = pytest.mark.timing

RNG = np.random.default_rng(8)
X = RNG.standard_normal((1, 4, 12, 12), dtype=np.float32)
TARGET = host_target(THREADS)
BLOCKS = blocked(TARGET.lanes(4))
C = 2 * TARGET.lanes(4)
WEIGHTS = [
    RNG.standard_normal(s, dtype=np.float32) / 8 for s in ((C, 4, 3, 3), (C, C, 1, 1), (C, C, 3, 3))
]
Samples = tuple[list[float], list[float]]


def function(x: Tensor) -> Tensor:
    """Convolutions with a pool between them."""
    a, b, c = (Tensor.constant(w) for w in WEIGHTS)
    return x.conv2d(a, padding=1).relu().conv2d(b).relu().max_pool2d(2).conv2d(c, stride=2)


WORK = workload_of_function(function, (X,))
FUSION = WORK.fusion
KEY = images_key(FUSION)


def plan(images: Images) -> LaunchPlan:
    return FUSION.storing(images).schedule()


def keys(p: LaunchPlan) -> set[str]:
    return {x.kernel.key for x in p.launches}


def winning(images: Images) -> Callable[[LaunchPlan, LaunchPlan], Samples]:
    """A contest that a form wins."""

    def compare(first: LaunchPlan, other: LaunchPlan) -> Samples:
        times = [1.0 if keys(p) == keys(plan(images)) else 2.0 for p in (first, other)]
        return tuple([t + 1e-6 * i for i in range(12)] for t in times)  # type: ignore[return-value]

    return compare


def never(*_: object) -> Any:
    raise AssertionError("measured again")


@pytest.fixture(autouse=True)
def _hopeful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No form is out before it is measured, whatever machine this is."""
    monkeypatch.setattr("tunegrad.tuning.questions.cut.CONTENDING", inf)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


def settled(
    store: Store,
    compare: Any,
    deadline_s: float = inf,
    tell: Any = lambda _: None,
    fusion: Any = FUSION,
) -> Images:
    context = PlanContext(TARGET, here(), store, "s1", "contract", track_of(compare), tell)
    return choose_images(fusion, context, deadline_s)


@pytest.mark.parametrize("images", [LAST, ROWS, BLOCKS], ids=str)
def test_the_fastest_measured_form_is_picked_and_found_again(store: Store, images: Images) -> None:
    assert settled(store, winning(images)) == images
    assert stored_images(FUSION, here(), store) == images
    assert settled(store, never) == images


def test_a_decision_is_rows_with_evidence_and_an_event(store: Store) -> None:
    events: list[Event] = []
    settled(store, winning(BLOCKS), tell=events.append)
    rows = store.decisions(KEY, here(), "images")
    assert {d.choice for d in rows} == {"last", str(BLOCKS)}, "what stood, and what came nearest"
    assert all((d.session, d.text) == ("s1", images_text(FUSION)) for d in rows)
    chosen = [d for d in rows if d.chosen]
    assert [d.choice for d in chosen] == ["last", str(BLOCKS)]
    assert chosen[1].evidence.p_value < 0.01
    assert (
        len(chosen[1].evidence.incumbent_samples_s)
        == len(chosen[1].evidence.challenger_samples_s)
        > 0
    )
    (event,) = [e for e in events if type(e) is WinnerPromoted]
    assert (event.key, event.actions, event.origin) == (KEY, str(BLOCKS), "images")
    assert store.verify() == []
    assert store.trials(KEY) == [], "a decision is no trial"


def test_a_form_whose_model_fails_has_one_row_that_says_so(store: Store) -> None:
    def wrong(*_: object) -> Samples:
        raise WrongResult("output 0[3]: planted")

    assert settled(store, wrong) == LAST
    rows = store.decisions(KEY, here())
    assert {d.choice for d in rows} == {str(i) for i in image_forms(TARGET) if i != LAST}
    assert len(rows) == len(image_forms(TARGET)) - 1
    assert {(d.status, d.chosen) for d in rows} == {(Status.WRONG, False)}
    assert {d.error for d in rows} == {"in the whole model: wrong: output 0[3]: planted"}
    assert store.verify() == []


def test_a_form_that_does_not_compile_loses(store: Store) -> None:
    def failing(*_: object) -> Samples:
        raise CandidateFailure("planted")

    assert settled(store, failing) == LAST


def test_hopeless_forms_are_not_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunegrad.tuning.questions.cut.CONTENDING", 0.0)
    assert settled(store, never) == LAST
    assert not store.decisions(KEY, here()), "what was not measured is no row"


def test_without_time_nothing_is_settled(store: Store) -> None:
    assert settled(store, never, deadline_s=monotonic()) == LAST
    assert not store.decisions(KEY, here())
    assert settled(store, winning(BLOCKS)) == BLOCKS


def test_graphs_without_images_have_no_question(store: Store) -> None:
    work = workload_of_function(lambda x: (x @ x).relu(), (X[0, 0],))
    assert settled(store, never, fusion=work.fusion) == LAST


def stored(path: Path, choice: str) -> Path:
    """A store that holds one decision."""
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        store.record_decision(decided("images", images_text(FUSION), choice, here()))
    return path


def test_what_a_file_claims_is_measured_here_even_where_it_is_hopeless(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunegrad.tuning.questions.cut.CONTENDING", 0.0)
    store.record_decision(decided("images", images_text(FUSION), str(ROWS), here(), claimed=True))
    assert stored_images(FUSION, here(), store) == ROWS
    assert settled(store, winning(LAST)) == LAST
    assert stored_images(FUSION, here(), store) == LAST
    assert settled(store, never) == LAST


def test_a_store_of_another_machine_decides_nothing(store: Store) -> None:
    settled(store, winning(BLOCKS))
    other = Fingerprint(tuple((k, "another" if k == "arch" else v) for k, v in here().fields))
    assert stored_images(FUSION, other, store) == LAST


# ---- loading


@pytest.mark.parametrize("images", [ROWS, BLOCKS], ids=str)
def test_a_stored_form_changes_the_kernels_of_a_loaded_model_and_not_its_results(
    tmp_path: Path, images: Images
) -> None:
    rules = tg.compile(function, X, store=False, threads=THREADS)
    path = stored(tmp_path / "i.db", str(images))
    model = tg.compile(function, X, store=path, threads=THREADS)
    assert {r.key for r in model.report()} != {r.key for r in rules.report()}
    np.testing.assert_allclose(model(X), rules(X), rtol=1e-4, atol=1e-4)
    with open_store(path) as store:
        planned = plan_launches(FUSION.drafts.targets, TARGET, here(), store, "strict")
    assert planned.images == images


@pytest.mark.parametrize("choice", ["last", "lost", "", "blocked1", "rules"])
def test_a_stored_choice_that_names_no_other_form_leaves_channels_last(
    tmp_path: Path, choice: str
) -> None:
    with open_store(stored(tmp_path / "i.db", choice)) as store:
        assert (
            plan_launches(FUSION.drafts.targets, TARGET, here(), store, "contract").images == LAST
        )


def test_show_has_the_kernels_of_the_stored_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec("images", f"kernels:{WORK.key}", source="a function")
    monkeypatch.setattr(showing.tuning, "workload_of_spec", lambda *_: WORK)
    path = stored(tmp_path / "i.db", str(BLOCKS))
    rows = showing.show(TuneSettings(spec, "cpu", THREADS, 2.0, "beam", path, 3))
    loaded = tg.compile(function, X, store=path, threads=THREADS).report()
    assert {r.key for r in rows} == {r.key for r in loaded} != keys(plan(LAST))


# ---- a session


def test_a_session_decides_images_first_and_searches_the_kernels_of_that_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec("images", f"kernels:{WORK.key}", source="a function")
    settings = TuneSettings(
        spec, "cpu", THREADS, 600.0, "beam", tmp_path / "s.db", 3, max_trials=12
    )
    monkeypatch.setattr(deciding, "choose_cuts", lambda *_: frozenset())
    monkeypatch.setattr(deciding, "candidates_of", lambda work, *_: VariantCandidates(work, {}))
    raced_as(monkeypatch, winning(BLOCKS))
    report = run_session(settings, WORK, [])
    assert {r.key for r in report.rows} == keys(plan(BLOCKS))
    with open_store(settings.store) as store:
        assert stored_images(FUSION, here(), store) == BLOCKS
    again = run_session(settings, WORK, [])
    assert {r.key for r in again.rows} == keys(plan(BLOCKS))


def test_a_small_budget_leaves_the_images_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec("images", f"kernels:{WORK.key}", source="a function")
    monkeypatch.setattr("tunegrad.tuning.questions.question.race", never)
    report = run_session(
        TuneSettings(spec, "cpu", THREADS, 0.3, "beam", tmp_path / "s.db", 3), WORK, []
    )
    assert report.rows
