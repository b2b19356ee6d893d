"""Whole models in a worker: what is sent, what comes back, and what a model that dies, hangs or
lies costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import planted_in_model
import planted_variants
import pytest
from hostile_programs import unguarded
from small_models import THREADS, bench_here, here, workload_in
from test_models_sound import other_schedules
from test_variants_tune import convolutions, seconds, workload

from tunegrad.config import resolve_settings
from tunegrad.db import Store, open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CandidateCrashed, CandidateFailure, WrongResult
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Measurement, Policy, Status, Trial
from tunegrad.tuning.models import LocalBench, Models
from tunegrad.tuning.models import bench as bench_module
from tunegrad.tuning.models.expected import Evaluation
from tunegrad.tuning.questions.schedule import Schedules, track_of
from tunegrad.tuning.questions.variant import candidates_of, choose_variants
from tunegrad.tuning.race import Choice, race
from tunegrad.tuning.workload import KernelUse, Workload, only, workload_of_spec

TARGET = host_target(THREADS)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


def trial(models: Models, use: KernelUse, actions: str, seconds: float = 1e-5) -> Trial:
    (compiled,) = models.bench.compile([(use.kernel, actions)])
    assert not compiled.error
    ok = Measurement(Status.OK, (seconds,) * 3)
    return Trial(
        use.key,
        use.kernel.text,
        here(),
        actions,
        compiled.program,
        SPACE_VERSION,
        Policy(),
        ok,
        "s1",
        "beam",
        1.0,
    )


def asked(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that reach the worker from now on."""
    names: list[str] = []
    answer = bench._answer

    def spy(function: Any, *arguments: object, **limits: float) -> Any:
        names.append(function.__name__)
        return answer(function, *arguments, **limits)

    monkeypatch.setattr(bench, "_answer", spy)
    return names


def test_parts_are_sent_once_and_again_to_a_fresh_worker(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = workload_in(tmp_path)
    with bench_here() as bench:
        names = asked(bench, monkeypatch)
        model = Models(store, TARGET, here(), bench).of(work)
        (turns,) = bench.profiled([model], 4)
        assert [len(turn) for turn in turns] == [len(work.plan.launches)] * 4
        assert min(s for turn in turns for s in turn) > 0.0
        # the plan and the code, then the constants that the plan names; checked, then timed
        assert names == ["check", "put", "check", "put", "check", "turns"]
        names.clear()
        assert len(bench.latencies(model, 5)) == 5
        assert [len(side) for side in bench.profiled([model, model], 3)] == [3, 3]
        assert names == ["runs", "turns"]
        names.clear()
        bench.renew()
        bench.latencies(model, 1)
        assert names == ["check", "put", "check", "put", "check", "runs"]


def test_outputs_may_be_longer_than_all_else_that_a_worker_answers(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "_REPLY_BYTES", 64 << 10)
    file = tmp_path / "wide.toml"
    file.write_text(
        '[model]\nname = "wide"\nbuilder = "tunegrad.models.mlp:mlp"\n'
        "[model.args]\nsizes = [4, 32768]\n",
        encoding="utf-8",
    )
    work = workload_of_spec(resolve_settings(str(file), threads=THREADS).model)
    with bench_here() as bench:
        model = Models(store, TARGET, here(), bench).of(work)
        assert model.output_bytes > 64 << 10
        assert len(bench.latencies(model, 3)) == 3


def test_each_kernel_of_a_model_runs_in_its_first_launch_alone(
    store: Store, tmp_path: Path
) -> None:
    work = workload_in(tmp_path)
    with bench_here() as bench:
        models = Models(store, TARGET, here(), bench)
        for use in work.kernels:
            alone = only(work, use.key)
            alone.plan.verify()
            model = models.of(alone)
            (turns,) = bench.profiled([model], 2)
            assert [len(turn) for turn in turns] == [1, 1]
            assert min(s for turn in turns for s in turn) > 0.0
            assert not bench.judged(model)
        assert bench.judged(models.of(work))


def evaluations(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> list[Evaluation]:
    """What is begun to be evaluated from now on."""
    begun: list[Evaluation] = []
    evaluate = bench._evaluate

    def spy(models: Any) -> Evaluation:
        begun.append(evaluate(models))
        return begun[-1]

    monkeypatch.setattr(bench, "_evaluate", spy)
    return begun


def test_a_graph_is_evaluated_once_when_it_is_expected(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = workload_in(tmp_path)
    with bench_here() as bench:
        begun = evaluations(bench, monkeypatch)
        bench.expect([(work.graph, work.inputs)])
        model = Models(store, TARGET, here(), bench).of(work)
        for _ in range(2):
            bench.check([model])
            assert bench.judged(model)
            bench.renew()
        bench.expect([(work.graph, work.inputs)])
    assert len(begun) == 1


def test_an_evaluation_that_was_given_up_is_begun_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = workload_in(tmp_path)
    with bench_here() as bench:
        begun = evaluations(bench, monkeypatch)
        bench.expect([(work.graph, work.inputs)])
        begun[0].calls.close()
        assert begun[0].calls.lost
        assert bench.judged(Models(store, TARGET, here(), bench).of(work))
    assert len(begun) == 2


def test_a_schedule_that_lowers_to_another_program_than_the_verified_one_is_refused(
    store: Store, tmp_path: Path
) -> None:
    work = workload_in(tmp_path)
    use = work.kernels[0]
    with bench_here() as bench:
        models = Models(store, TARGET, here(), bench)
        verified = trial(models, use, other_schedules(use, True, 1)[0])
        models.of_trials(work, {use.key: verified})
        with pytest.raises(CandidateFailure, match="was verified"):
            models.of_trials(work, {use.key: replace(verified, program_hash="another")})


@pytest.mark.parametrize(("kind", "failure"), [("crash", CandidateCrashed), ("wrong", WrongResult)])
def test_a_model_that_fails_costs_its_comparison_and_nothing_else(
    store: Store, tmp_path: Path, kind: str, failure: type[CandidateFailure]
) -> None:
    work = workload_in(tmp_path)
    use = work.kernels[1]
    with bench_here(planted_in_model.hooks(kind)) as bench:
        models = Models(store, TARGET, here(), bench)
        good, bad = models.of(work), models.of(work, {use.key: other_schedules(use, True, 1)[0]})
        for _ in range(2):
            with pytest.raises(failure):
                bench.profiled([good, bad], 3)
            assert len(bench.profiled([good], 3)[0]) == 3


@pytest.mark.parametrize(
    "kind",
    [
        k if k in ("wrong", "crash") else pytest.param(k, marks=pytest.mark.slow)
        for k in planted_in_model.BODIES
    ],
)
def test_an_evil_challenger_of_a_race_is_withdrawn_and_the_others_go_on(
    store: Store, tmp_path: Path, kind: str
) -> None:
    work, voided = workload_in(tmp_path), list[Trial]()
    first, second = work.kernels
    with bench_here(planted_in_model.hooks(kind), of=unguarded) as bench:
        models = Models(store, TARGET, here(), bench)
        good = {
            u.key: [trial(models, u, a) for a in other_schedules(u, False, 3)] for u in work.kernels
        }
        evil = trial(models, second, other_schedules(second, True, 1)[0])
        choices = [
            Choice(first.key, good[first.key][0], tuple(good[first.key][1:])),
            Choice(
                second.key, good[second.key][0], (good[second.key][1], evil, good[second.key][2])
            ),
        ]
        nothing = cast(Any, None)
        schedules = Schedules(
            nothing, models, store, here(), lambda t, _: voided.append(t), nothing
        )
        found = race(choices, track_of(models, work, schedules.void))
    assert voided == [evil]
    assert evil not in [met.alternative for met in found.values()]


def test_a_variant_that_ends_its_models_has_one_row_that_says_so(store: Store) -> None:
    candidates = candidates_of(
        workload(), here(), store, seconds(direct=1e-2, winograd2=1e-3, winograd4=1.1e-3)
    )
    with bench_here(planted_variants.HOOKS) as bench:
        picks = choose_variants(candidates, {}, Models(store, TARGET, here(), bench), "s1")
    assert "winograd2" not in picks.values()
    rows = [d for k in convolutions() for d in store.decisions(k.key, here(), "variant")]
    failed = [d for d in rows if d.status is not Status.OK]
    assert [(d.choice, d.status, d.chosen) for d in failed] == [
        ("winograd2", Status.CRASHED, False)
    ]
    assert "in the whole model: crashed" in failed[0].error
    assert "winograd2" not in [d.choice for d in rows if d.status is Status.OK]


def test_a_variant_whose_schedule_ends_the_race_is_out_and_says_so(store: Store) -> None:
    work: Workload = workload()
    candidates = candidates_of(
        work, here(), store, seconds(direct=1e-2, winograd2=1e-3, winograd4=1.1e-3)
    )
    use = next(u for u in candidates.kernels if u.key in planted_variants.parts("winograd2"))
    (actions,) = planted_variants.other(use.kernel, TARGET, 1)
    with bench_here(planted_variants.OTHERS) as bench:
        models = Models(store, TARGET, here(), bench)
        picks = choose_variants(candidates, {use.key: actions}, models, "s1")
    assert "winograd2" not in picks.values()
    rows = [d for k in convolutions() for d in store.decisions(k.key, here(), "variant")]
    failed = {(d.choice, d.status, d.chosen) for d in rows if d.status is not Status.OK}
    assert failed == {("winograd2", Status.CRASHED, False)}
