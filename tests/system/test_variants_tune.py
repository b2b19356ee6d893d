"""Tuning settles variants: rows, promotions, what is not measured twice, and what strict leaves
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from pathlib import Path
from re import search
from time import monotonic
from types import SimpleNamespace
from typing import Any

import numpy as np
import planted_variants
import pytest
from small_models import THREADS, Listener, bench_here
from stored_decisions import decided

import tunegrad as tg
from tunegrad.config import ModelSpec, Numerics, TuneSettings
from tunegrad.db import Decision, Evidence, Store, open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import CandidateTimeout
from tunegrad.events import CandidateMeasured, WinnerPromoted
from tunegrad.explain import Asked, explain
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LAST
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import DIRECT, parts_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import allowed
from tunegrad.reports import TuneReport
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.models import Models
from tunegrad.tuning.questions import plan as deciding
from tunegrad.tuning.questions import variant as choosing
from tunegrad.tuning.questions.variant import candidates_of, choose_variants
from tunegrad.tuning.race import Pair
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import Workload, workload_of_function

pytestmark = pytest.mark.timing

TRIALS = 16
"""All parts of all variants have a default by then."""
RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 14, 14, 32), dtype=np.float32)
"""Winograd is 2.5 times faster here; on images of 8 channels it wins by a tenth, which is no
ground for a test.
"""
W = [RNG.standard_normal((32, 32, 3, 3), dtype=np.float32) / 16 for _ in range(2)]


def two(x: Tensor) -> Tensor:
    """Two convolutions of equal products and other epilogues, channels last: of the same
    variants.
    """
    y = x.permute(0, 3, 1, 2).conv2d(Tensor.constant(W[0]), padding=1).relu()
    return (y.conv2d(Tensor.constant(W[1]), padding=1) + y).permute(0, 2, 3, 1)


def workload() -> Workload:
    return workload_of_function(two, (X,))


def convolutions() -> list[Kernel]:
    return [u.kernel for u in workload().kernels if len(variants_of(u.kernel)) > 1]


def here(numerics: Numerics = "contract") -> Fingerprint:
    return fingerprint(host_target(THREADS), numerics)


def settings_of(
    store: Path, max_trials: int = TRIALS, numerics: Numerics = "contract"
) -> TuneSettings:
    spec = ModelSpec("two", f"kernels:{workload().key}", source="a function")
    return TuneSettings(
        spec, "cpu", THREADS, 600.0, "beam", store, 3, numerics=numerics, max_trials=max_trials
    )


def variant_rows(store: Store, place: Fingerprint | None = None) -> list[Decision]:
    place = here() if place is None else place
    return [d for k in convolutions() for d in store.decisions(k.key, place, "variant")]


# ---- a session


@pytest.fixture(scope="module", autouse=True)
def _variants_alone() -> Iterator[None]:
    """Images and cuts stay: what is measured to be faster there would be other convolutions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "choose_images", lambda *_: LAST)
        patch.setattr(deciding, "choose_cuts", lambda *_: frozenset())
        yield


@dataclass(frozen=True)
class Tuned:
    store: Path
    report: TuneReport
    listener: Listener


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, places: dict[str, str]) -> Tuned:
    store, listener = tmp_path_factory.mktemp("variants") / "v.db", Listener()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places.items():
            patch.setenv(name, value)
        report = run_session(settings_of(store), workload(), [listener], planted_variants.NO_DIRECT)
    return Tuned(store, report, listener)


def test_each_convolution_has_the_row_of_what_stands_and_of_what_came_nearest(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        for kernel in convolutions():
            rows = [d for d in variant_rows(store) if d.key == kernel.key]
            assert {d.choice for d in rows} <= set(variants_of(kernel)) - {DIRECT}
            assert {(d.session, d.status) for d in rows} == {(tuned.report.session, Status.OK)}
            first, *later = [d for d in rows if d.chosen]
            alone = first.evidence
            assert (alone.test, alone.incumbent_samples_s) == ("standing", ()), (
                "no direct kernel ran"
            )
            assert all(d.evidence.incumbent_samples_s for d in later), (
                "it was beaten in whole models"
            )
            assert store.promotions(kernel.key, here()) == []


def _chosen(store: Store, kernel: Kernel) -> str:
    return [d.choice for d in variant_rows(store) if d.key == kernel.key and d.chosen][-1]


def test_convolutions_of_equal_products_run_as_one_variant(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        assert len({_chosen(store, k) for k in convolutions()}) == 1


def test_the_variant_s_kernels_were_searched_and_reported(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        variant = _chosen(store, convolutions()[0])
    parts = {p.key for k in convolutions() for p in parts_of(k, variant)}
    assert parts == {row.key for row in tuned.report.rows}
    assert all(row.tuned_ms is not None for row in tuned.report.rows)
    assert tuned.report.tuned_ms is not None


def test_the_tuned_model_loads_its_variants_and_computes_the_same(tuned: Tuned) -> None:
    model = tg.compile(two, X, store=tuned.store, threads=THREADS, on_miss="error")
    assert {r.key for r in model.report()} == {r.key for r in tuned.report.rows}
    strict = tg.compile(two, X, store=False, threads=THREADS, numerics="strict")
    np.testing.assert_allclose(model(X), strict(X), rtol=0, atol=2e-5 * abs(strict(X)).max())


def test_the_same_again_measures_nothing_and_adds_no_row(tuned: Tuned, tmp_path: Path) -> None:
    path, listener = tmp_path / "again.db", Listener()
    path.write_bytes(tuned.store.read_bytes())
    with open_store(path) as store:
        before = store.stats().trials
    report = run_session(settings_of(path), workload(), [listener], planted_variants.NO_DIRECT)
    assert not listener.of(CandidateMeasured)
    promoted = {e.key: e.actions for e in listener.of(WinnerPromoted)}  # left unsettled before
    old = {r.key: r.actions for r in tuned.report.rows}
    wanted = {key: promoted.get(key, actions) for key, actions in old.items()}
    assert {r.key: r.actions for r in report.rows} == wanted
    with open_store(path) as store:
        assert store.stats().trials == before


def test_a_larger_budget_settles_nothing_again(tuned: Tuned, tmp_path: Path) -> None:
    path, listener = tmp_path / "more.db", Listener()
    path.write_bytes(tuned.store.read_bytes())
    larger = settings_of(path, TRIALS + 4)
    run_session(larger, workload(), [listener], planted_variants.NO_DIRECT)
    assert len(listener.of(CandidateMeasured)) == 4
    with open_store(path) as store, open_store(tuned.store) as old:
        rows = [(t.kernel_key, t.actions) for key, _ in store.kernels() for t in store.trials(key)]
        assert len(set(rows)) == len(rows), "a candidate was measured twice"
        assert variant_rows(store) == variant_rows(old)
        for kernel in convolutions():
            assert store.promotions(kernel.key, here()) == old.promotions(kernel.key, here())


def test_strict_tuning_knows_no_variant(tmp_path: Path) -> None:
    path, listener = tmp_path / "strict.db", Listener()
    report = run_session(settings_of(path, 2, "strict"), workload(), [listener])
    assert [row.kernel.split()[0] for row in report.rows] == ["conv3x3"] * len(convolutions())
    with open_store(path) as store:
        assert variant_rows(store, here("strict")) == variant_rows(store) == []
        parts = {
            p.key
            for k in convolutions()
            for v in ("winograd2", "winograd4")
            for p in parts_of(k, v)
        }
        assert not [key for key in parts if store.knows(key)]


# ---- the decision, on seconds that the test makes up

Measure = Callable[[Sequence[Kernel]], dict[str, float]]


def seconds(**by_variant: float) -> Measure:
    """Times in which every variant's parts add up to the given seconds."""

    def measure(kernels: Sequence[Kernel]) -> dict[str, float]:
        found = dict.fromkeys((k.key for k in kernels), 0.0)
        for k in convolutions():
            for variant, s in by_variant.items():
                for part in parts_of(k, variant):
                    found[part.key] = s / len(parts_of(k, variant))
        return found

    return measure


def never(kernels: Sequence[Kernel]) -> dict[str, float]:
    raise AssertionError(f"measured again: {[k.name for k in kernels]}")


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


@dataclass
class MadeUp:
    """A ``race.Track`` on which a group's variants take the seconds that the test makes up."""

    seconds: dict[str, dict[str, float]]
    most: int = 8

    def ready(self, *_: object) -> None:
        pass

    def turns(
        self, stands: Mapping[str, str], lineups: Sequence[Mapping[str, str]], rounds: int
    ) -> list[dict[str, Pair]]:
        def pair(key: str, variant: str) -> Pair:
            return tuple([self.seconds[key][v]] * rounds for v in (stands[key], variant))

        pairs = [{key: pair(key, variant) for key, variant in x.items()} for x in lineups]
        return [{key: p for key, p in x.items() if inf not in (*p[0], *p[1])} for x in pairs]

    def fresh(self) -> None:
        pass

    def blame(self, *_: object) -> None:
        raise AssertionError("no variant failed")


class NothingRuns(MadeUp):
    """One on which a busy machine ends every model."""

    def ready(self, *_: object) -> None:
        raise CandidateTimeout("over 10 s")


def settled(
    store: Store, measure: Measure, kind: type[MadeUp] = MadeUp, **more: Any
) -> dict[str, str]:
    candidates = candidates_of(workload(), here(), store, measure)
    track = kind({g.keys[0]: candidates.seconds(g) for g in candidates.groups})
    models: Any = SimpleNamespace(store=store, here=here())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "_track", lambda *_: track)
        return choose_variants(candidates, {}, models, "s1", **more)


@pytest.mark.parametrize("best", ["direct", "winograd2", "winograd4"])
def test_the_fastest_sum_of_parts_is_picked(store: Store, best: str) -> None:
    times = {v: 1e-3 if v == best else 1e-2 for v in ("direct", "winograd2", "winograd4")}
    assert settled(store, seconds(**times)) == {k.key: best for k in convolutions()}
    wanted = [] if best == DIRECT else [best] * 2
    assert [d.choice for d in variant_rows(store)] == wanted


def test_a_variant_of_which_a_part_does_not_run_is_not_picked(store: Store) -> None:
    picks = settled(store, seconds(direct=1e-2, winograd2=inf, winograd4=inf))
    assert set(picks.values()) == {DIRECT}


def test_whole_models_that_take_longer_than_there_is_time_for_are_not_run(store: Store) -> None:
    """A direct kernel of half a second, 36 times: the sums decide, and nothing is settled."""
    measure = seconds(direct=0.5, winograd2=1e-3, winograd4=1e-2)
    picks = settled(store, measure, deadline_s=monotonic() + 5)
    assert picks == {k.key: "winograd2" for k in convolutions()}
    assert variant_rows(store) == []


def test_a_variant_that_met_nothing_since_no_model_ran_is_not_picked(store: Store) -> None:
    measure = seconds(direct=1e-2, winograd2=1e-3, winograd4=1e-2)
    assert set(settled(store, measure, NothingRuns).values()) == {DIRECT}
    assert variant_rows(store) == []


def test_ties_keep_the_direct_kernel(store: Store) -> None:
    picks = settled(store, seconds(direct=inf, winograd2=inf, winograd4=inf))
    assert set(picks.values()) == {DIRECT}


def test_what_is_settled_is_not_measured(store: Store) -> None:
    first = settled(store, seconds(direct=1e-2, winograd2=1e-3, winograd4=1e-2))
    assert settled(store, never) == first
    assert len(variant_rows(store)) == 2


def test_a_promoted_direct_schedule_is_settled_and_an_unpromoted_one_is_not(store: Store) -> None:
    ok, quick = (Measurement(Status.OK, (s,) * 3) for s in (1e-3, 1e-4))
    rows = {}
    for k in convolutions():
        trial = Trial(
            k.key, k.text, here(), "", "", SPACE_VERSION, Policy(), ok, "s1", "default", 1.0
        )
        rows[k.key] = store.add(trial)
    with pytest.raises(AssertionError, match="measured again"):
        settled(store, never)
    for row_id in rows.values():
        store.promote(row_id, Evidence("first", 1.0, (), (1e-3,), cold=False))
    assert set(settled(store, never).values()) == {DIRECT}
    for k in convolutions():  # faster alone, never raced
        for p in parts_of(k, "winograd2"):
            store.add(replace(trial, kernel_key=p.key, kernel_text=p.text, measurement=quick))
    with pytest.raises(AssertionError, match="measured again"):
        settled(store, never)


def test_what_a_file_promoted_is_measured_here_before_it_is_settled(store: Store) -> None:
    for k in convolutions():
        store.record_decision(decided("variant", k.text, "winograd4", here(), claimed=True))
    with pytest.raises(AssertionError, match="measured again"):
        settled(store, never)
    picks = settled(store, seconds(direct=1e-2, winograd2=1e-3, winograd4=1e-1))
    assert set(picks.values()) == {"winograd2"}
    assert settled(store, never) == picks


def test_what_a_file_tried_and_did_not_choose_is_not_settled_either(store: Store) -> None:
    for k in convolutions():
        claim = decided("variant", k.text, "winograd4", here(), claimed=True)
        store.record_decision(replace(claim, chosen=False))
    with pytest.raises(AssertionError, match="measured again"):
        settled(store, never)


def test_a_settled_name_that_is_no_variant_is_direct(store: Store) -> None:
    first = settled(store, seconds(direct=1e-2, winograd2=1e-3, winograd4=1e-2))
    for row in variant_rows(store):
        store.record_decision(replace(row, choice="winograd64"))
    assert settled(store, never) == dict.fromkeys(first, DIRECT)


def test_parts_that_variants_share_are_measured_once(store: Store) -> None:
    asked: list[Any] = []

    def measure(kernels: Sequence[Kernel]) -> dict[str, float]:
        asked.extend(k.key for k in kernels)
        return seconds(direct=1e-3, winograd2=1.0, winograd4=1.0)(kernels)

    settled(store, measure)
    assert len(set(asked)) == len(asked)
    wanted = {p.key for k in convolutions() for v in variants_of(k) for p in parts_of(k, v)}
    assert set(asked) == wanted


# ---- a convolution of the caller's tensors

ROWS = RNG.standard_normal((1, 32, 14, 14), dtype=np.float32)


@pytest.mark.parametrize(
    ("numerics", "best"),
    [
        ("contract", "channels_last"), ("contract", "channels_last_winograd2"),
        ("contract", "channels_last_winograd4"),
        ("strict", "channels_last"),
    ],
)  # fmt: skip
def test_the_fastest_of_a_row_major_convolution_s_variants_is_measured_alone_and_recorded(
    store: Store, numerics: Numerics, best: str
) -> None:
    """Only the parts that no other variant has take time."""
    work = workload_of_function(
        lambda x: x.conv2d(Tensor.constant(W[0]), padding=1).relu(), (ROWS,)
    )
    (kernel,) = (u.kernel for u in work.kernels)
    names = allowed(kernel, numerics)
    parts = {v: {p.key for p in parts_of(kernel, v)} for v in names}
    own = {
        v: min(keys.difference(*(parts[o] for o in names if o != v))) for v, keys in parts.items()
    }

    def measure(kernels: Sequence[Kernel]) -> dict[str, float]:
        assert {k.key for k in kernels} == set().union(*parts.values())
        return dict.fromkeys((k.key for k in kernels), 0.0) | {
            k: 1e-3 if v == best else 1e-2 for v, k in own.items()
        }

    place = here(numerics)
    candidates = candidates_of(work, place, store, measure, numerics)
    with bench_here() as bench:
        picks = choose_variants(
            candidates, {}, Models(store, host_target(THREADS), place, bench), "s1"
        )
    (row,) = store.decisions(kernel.key, place)
    assert (row.choice, row.kind, row.status) == (best, "variant", Status.OK)
    assert store.trials(kernel.key) == []
    assert (picks, row.chosen) in (({kernel.key: best}, True), ({kernel.key: DIRECT}, False))


# ---- a convolution of bytes


def in_bytes(x: Tensor) -> Tensor:
    """A quantised convolution of channels-last bytes, and what makes bytes of it again."""
    image = (x.permute(0, 3, 1, 2).cast("f32") - Tensor.constant(np.uint8(3)).cast("f32")) * 0.25
    weights = Tensor.constant((64 * W[0]).clip(-127, 127).astype(np.int8)).cast("f32") * 0.5
    steps = (image.conv2d(weights, padding=1) / 8.0).round() + 7.0
    return steps.clamp(0.0, 255.0).cast("u8").permute(0, 2, 3, 1)


BYTES = RNG.integers(0, 256, (1, 14, 14, 32), np.uint8)


@pytest.mark.skipif(not host_target(1).multiplies_bytes, reason="it multiplies no bytes")
def test_bytes_and_floats_of_a_quantised_layer_are_raced_and_explain_says_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever takes least here, the nearest runs in whole models beside bytes."""
    for module in ("tunegrad.planning.expected", "tunegrad.tuning.questions.variant"):
        monkeypatch.setattr(import_module(module), "NEAR", inf)
    monkeypatch.setattr(import_module("tunegrad.planning.expected"), "_FAR", inf)
    monkeypatch.setattr(choosing, "CONTENDING", inf)
    work = workload_of_function(in_bytes, (BYTES,))
    (kernel,) = (u.kernel for u in work.kernels if "dot4" in u.kernel.text)
    path = tmp_path / "bytes.db"
    spec = ModelSpec("bytes", f"kernels:{work.key}", source="a function")
    settings = TuneSettings(spec, "cpu", THREADS, 600.0, "beam", path, 3, max_trials=TRIALS)
    run_session(settings, work, [])
    with open_store(path) as store:
        rows = store.decisions(kernel.key, here(), "variant")
    raced = {d.choice for d in rows if d.evidence.incumbent_samples_s}
    assert raced
    assert all(name.startswith(("floats", "exact_winograd", "windows")) for name in raced)
    said = explain(settings, lambda _: None, Asked(budget_s=0.0, top=0), made=work)
    (layer,) = said.quantised
    chosen = [d.choice for d in rows if d.chosen]
    assert layer.runs in (chosen[-1:] or (DIRECT, "windows"))
    for name in raced:
        assert search(rf"{name} \S+ ms measured", layer.why)
    assert search(r"bytes \S+ ms measured", layer.why)
