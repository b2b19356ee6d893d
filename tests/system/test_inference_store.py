"""A loaded model runs with what the store holds for this machine, and says so; it never writes
there.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program_hashes import hash_of

import tunegrad as tg
from tunegrad.compiling import Compiler, artifact
from tunegrad.db import open_store
from tunegrad.devices import host_device
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import MissError
from tunegrad.inference import loading
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.models import mlp
from tunegrad.opts import SPACE_VERSION
from tunegrad.render import llvm
from tunegrad.runtime import ObjectCache
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tune import show

MODEL = mlp(sizes=(16, 32, 32, 5))
THREADS = 1
HERE = fingerprint(host_target(THREADS))
ELSEWHERE = Fingerprint(tuple((k, "pdp11" if k == "arch" else v) for k, v in HERE.fields))
ACTIONS = "tile(axis=a, size=4)"
X = np.random.default_rng(0).standard_normal((1, 16), dtype=np.float32)


def kernels() -> list[Kernel]:
    outputs = MODEL.build(MODEL.weights())
    return [
        k for k, _ in schedule(fold_constants(tuple(t.node for t in outputs))).kernels().values()
    ]


def trial(kernel: Kernel, place: Fingerprint = HERE, actions: str = ACTIONS) -> Trial:
    return Trial(
        kernel.key, kernel.text, place, actions, hash_of(kernel, actions, host_target(THREADS)),
        SPACE_VERSION,
        Policy(), Measurement(Status.OK, (1e-6, 1e-6, 1e-6)), "s1", "beam", 1.0,
    )  # fmt: skip


def stored(path: Path, *trials: Trial) -> str:
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        for t in trials:
            store.add(t)
    return str(path)


def loaded(store: Any, **more: Any) -> tg.LoadedModel:
    model = tg.load(MODEL, store=store, threads=THREADS, **more)
    np.testing.assert_allclose(
        model(X), tg.load(MODEL, store=False, threads=THREADS)(X), rtol=1e-4, atol=1e-5
    )
    return model


def test_a_stored_winner_is_a_hit_and_is_run_with(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    rows = loaded(store).report()
    assert [(r.outcome, r.actions, r.differs) for r in rows] == [("hit", ACTIONS, ())] * 3
    assert [(r.key, r.uses) for r in rows] == [(k.key, 1) for k in kernels()]


OTHER_CODE = "program: the stored schedule lowers to other code now; tune into a new store"


def test_a_winner_that_lowers_to_other_code_now_is_a_miss_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = kernels()
    store = stored(
        tmp_path / "t.db", replace(trial(first), program_hash="0" * 32), trial(second), trial(third)
    )
    rows = loaded(store).report()
    assert [(r.outcome, r.differs) for r in rows] == [
        ("miss", (OTHER_CODE,)),
        ("hit", ()),
        ("hit", ()),
    ]
    assert rows[0].actions == tg.load(MODEL, store=False, threads=THREADS).report()[0].actions
    assert "is not 00000000000000000000000000000000, which was measured" in caplog.text


def test_a_winner_that_lowers_to_other_code_now_is_an_error_where_misses_are(
    tmp_path: Path,
) -> None:
    store = stored(
        tmp_path / "t.db", *(replace(trial(k), program_hash="0" * 32) for k in kernels())
    )
    with pytest.raises(MissError, match=f"no stored winner: {OTHER_CODE}$"):
        tg.load(MODEL, store=store, threads=THREADS, on_miss="error")


def test_show_says_that_a_winner_lowers_to_other_code_now(tmp_path: Path) -> None:
    named = mlp()
    outputs = named.build(named.weights())
    first, *_ = [
        k for k, _ in schedule(fold_constants(tuple(t.node for t in outputs))).kernels().values()
    ]
    right = trial(first)
    assert (
        show("mlp", store=stored(tmp_path / "right.db", right), threads=THREADS)[0].outcome == "hit"
    )
    forged = stored(tmp_path / "forged.db", replace(right, program_hash="0" * 32))
    assert show("mlp", store=forged, threads=THREADS)[0].differs == (OTHER_CODE,)


def test_a_winner_is_refused_once_lowering_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row stays as it was; what this version makes of its actions is another program."""
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    assert {r.outcome for r in loaded(store).report()} == {"hit"}
    render = llvm.render_llvm
    monkeypatch.setattr(llvm, "render_llvm", lambda *given: "; another release\n" + render(*given))
    fresh = artifact.Compiler()
    monkeypatch.setattr(loading, "process_compiler", lambda: fresh)
    assert {r.differs for r in loaded(store).report()} == {(OTHER_CODE,)}


@pytest.fixture
def planned(
    monkeypatch: pytest.MonkeyPatch, no_kept_plans: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """The models that were planned: each load is as in a process of its own, long after all files
    were written.
    """
    no_kept_plans.undo()
    made, plan = list[str](), loading._planned

    def counted(model: Any, *given: Any) -> Any:
        made.append(model.name)
        return plan(model, *given)

    monkeypatch.setattr(loading, "_planned", counted)
    monkeypatch.setattr(loading.compiling, "SETTLED_NS", -1 << 60)
    cache = tmp_path / "objects"
    monkeypatch.setattr(loading, "process_compiler", lambda: Compiler(ObjectCache(cache)))
    return made


def test_a_model_that_was_planned_before_is_not_planned_again(
    planned: list[str], tmp_path: Path
) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()[:2]))
    first, again = (tg.load(MODEL, store=store, threads=THREADS) for _ in range(2))
    assert len(planned) == 1
    assert again.report() == first.report()
    assert [c.outcome for c in again.choices] == ["hit", "hit", "miss"]
    np.testing.assert_array_equal(again(X), first(X))
    assert again.benchmark(budget_s=0.01).default_ms > 0  # which plans it with its constants


def test_all_that_a_plan_depends_on_has_it_made_anew(planned: list[str], tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    settings: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"numerics": "strict"}, {"threads": 2}, {"store": False}
    ]  # fmt: skip
    for more in settings * 2:
        tg.load(MODEL, **({"store": store, "threads": THREADS} | more))
    assert len(planned) == len(settings)
    with open_store(store, "write") as opened:
        opened.withdraw(1, "outputs differ by 0.3", "s1")
    for _ in range(2):
        model = tg.load(MODEL, store=store, threads=THREADS)
        assert [r.outcome for r in model.report()] == ["miss", "hit", "hit"]
    assert len(planned) == len(settings) + 1


def test_a_store_behind_a_link_is_known_by_the_log_beside_the_store(
    planned: list[str], tmp_path: Path
) -> None:
    """What a writer that is still at it has committed is in its log alone."""
    store, link = stored(tmp_path / "t.db", *map(trial, kernels())), tmp_path / "other" / "l.db"
    link.parent.mkdir()
    link.symlink_to(store)
    with open_store(store, "write") as opened:
        assert {r.outcome for r in loaded(link).report()} == {"hit"}
        opened.withdraw(1, "outputs differ by 0.3", "s1")
        assert [r.outcome for r in loaded(link).report()] == ["miss", "hit", "hit"]


def test_a_plan_whose_constants_are_computed_is_kept(planned: list[str]) -> None:
    for _ in range(2):
        tg.load(MODEL, store=False, threads=THREADS, dtype="f16")
        assert len(planned) == 1


def test_a_winner_that_is_passed_over_is_said_at_each_load(
    planned: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = stored(tmp_path / "t.db", *(replace(trial(k), program_hash="0") for k in kernels()))
    for count in (1, 2):
        tg.load(MODEL, store=store, threads=THREADS)
        assert len(planned) == count
        assert caplog.text.count("which was measured") == 3 * count


def test_a_plan_by_a_store_that_changed_just_now_is_not_kept(
    planned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.compiling, "SETTLED_NS", 1 << 60)
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    for count in (1, 2):
        tg.load(MODEL, store=store, threads=THREADS)
        assert len(planned) == count


def test_damaged_rows_are_said_at_each_load(
    planned: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    connection = sqlite3.connect(store)
    connection.execute("UPDATE trials SET origin = 'another' WHERE id = 1")  # and its checksum not
    connection.commit()
    connection.close()
    for count in (1, 2):
        tg.load(MODEL, store=store, threads=THREADS)
        assert len(planned) == count
    assert caplog.text.count("skipped") >= 2


def test_a_row_without_a_hash_of_its_program_is_a_hit(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *(replace(trial(k), program_hash="") for k in kernels()))
    assert {r.outcome for r in loaded(store).report()} == {"hit"}


def test_a_winner_that_was_withdrawn_is_a_miss_that_says_why(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    with open_store(store, "write") as opened:
        opened.withdraw(1, "outputs differ by 0.3", "s1")
    rows = loaded(store).report()
    assert [r.outcome for r in rows] == ["miss", "hit", "hit"]
    assert rows[0].differs == ("winner: withdrawn by session s1: outputs differ by 0.3",)


def test_a_model_is_lowered_once_whether_its_rows_are_checked_or_not(tmp_path: Path) -> None:
    store = open_store(stored(tmp_path / "t.db", *map(trial, kernels())))
    compiler = artifact.Compiler()
    with store:
        for k in kernels():
            loading.compiled_choice(k, host_device(THREADS).open(), HERE, store, "error", compiler)
    assert (compiler.counts.lowered, compiler.counts.compiled) == (3, 3)


def test_a_kernel_without_one_runs_with_its_default(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", trial(kernels()[0]))
    rows = loaded(store).report()
    assert [r.outcome for r in rows] == ["hit", "miss", "miss"]
    assert rows[1].differs == ("kernel: not in the store",)
    assert rows[1].actions == tg.load(MODEL, store=False, threads=THREADS).report()[1].actions


@pytest.mark.parametrize("on_miss", ["default", "nearest"])
def test_a_winner_of_another_machine_names_the_field_that_differs(
    tmp_path: Path, on_miss: str
) -> None:
    store = stored(tmp_path / "t.db", *(trial(k, ELSEWHERE) for k in kernels()))
    rows = loaded(store, on_miss=on_miss).report()
    differs = (f"arch: {dict(HERE.fields)['arch']} != pdp11",)
    assert all(r.differs == differs for r in rows)
    assert {r.outcome for r in rows} == {"near" if on_miss == "nearest" else "miss"}
    assert all((r.actions == ACTIONS) == (on_miss == "nearest") for r in rows)


def test_a_winner_of_another_number_of_threads_is_a_miss(tmp_path: Path) -> None:
    other = fingerprint(host_target(THREADS + 1))
    rows = loaded(stored(tmp_path / "t.db", *(trial(k, other) for k in kernels()))).report()
    assert all((r.outcome, r.differs) == ("miss", ("threads: 1 != 2",)) for r in rows)


def test_a_winner_of_another_space_is_no_hit(tmp_path: Path) -> None:
    old = [replace(trial(k), space_version=SPACE_VERSION + 1) for k in kernels()]
    rows = loaded(stored(tmp_path / "t.db", *old)).report()
    differs = (f"space_version: {SPACE_VERSION} != {SPACE_VERSION + 1}",)
    assert all((r.outcome, r.differs) == ("miss", differs) for r in rows)


@pytest.mark.parametrize(
    "actions",
    [
        "tile(axis=nowhere, size=4)",
        "tile(axis=a, size=",
        "conjure(axis=a)",
        "thread(axis=a, count=64)",
    ],
    ids=["illegal", "cut", "unknown", "too many threads"],
)
@pytest.mark.parametrize("place", [HERE, ELSEWHERE], ids=["hit", "near"])
def test_stored_actions_that_are_not_legal_here_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, actions: str, place: Fingerprint
) -> None:
    store = stored(tmp_path / "t.db", *(trial(k, place, actions) for k in kernels()))
    rows = loaded(store, on_miss="nearest").report()
    assert {r.outcome for r in rows} == {"miss"}
    assert "the stored schedule can not be used" in caplog.text
    if place is HERE:
        assert all(r.differs == ("actions: the stored winner is not legal here",) for r in rows)


def test_the_closest_legal_winner_is_taken(tmp_path: Path) -> None:
    further = Fingerprint(tuple((k, "1" if k in ("l1", "l2", "l3") else v) for k, v in HERE.fields))
    trials = [trial(k, ELSEWHERE, "conjure(axis=a)") for k in kernels()] + [
        trial(k, further) for k in kernels()
    ]
    rows = loaded(stored(tmp_path / "t.db", *trials), on_miss="nearest").report()
    assert all((r.outcome, r.actions, len(r.differs)) == ("near", ACTIONS, 3) for r in rows)


def test_on_miss_error_names_the_kernel_and_the_field(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *(trial(k, ELSEWHERE) for k in kernels()))
    with pytest.raises(
        MissError, match=rf"{kernels()[0].key}.*no stored winner: arch: .* != pdp11$"
    ):
        tg.load(MODEL, store=store, threads=THREADS, on_miss="error")


def test_on_miss_error_of_a_kernel_that_was_tuned_too_short_says_what_to_do(
    tmp_path: Path,
) -> None:
    crashed = (replace(trial(k), measurement=Measurement(Status.CRASHED, ())) for k in kernels())
    store = stored(tmp_path / "t.db", *crashed)
    with pytest.raises(
        MissError,
        match=r"kernel .* \(.*\): no stored winner: trials: the store knows this kernel, but has "
        r"no trial of it that was measured and right; tune it for longer$",
    ):
        tg.load(MODEL, store=store, threads=THREADS, on_miss="error")


def test_on_miss_error_is_raised_without_any_store() -> None:
    with pytest.raises(MissError, match=r"no stored winner: store: there is none$"):
        tg.load(MODEL, store=False, threads=THREADS, on_miss="error")


def test_on_miss_error_accepts_hits(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *map(trial, kernels()))
    assert {r.outcome for r in loaded(store, on_miss="error").report()} == {"hit"}


def test_loading_and_running_change_no_byte_of_the_store(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", trial(kernels()[0]))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")}
    loaded(store).benchmark(budget_s=0.01)
    assert {
        p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")
    } == before


def test_misses_are_told_once_a_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = stored(tmp_path / "t.db", trial(kernels()[0]))
    for _ in range(2):
        caplog.clear()
        tg.load(MODEL, store=store, threads=THREADS)
        (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert record.getMessage().startswith(
            f"model mlp: 2 of 3 kernels have no winner in store {store} and run with"
        )


def test_hits_are_not_worth_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tg.load(MODEL, store=stored(tmp_path / "t.db", *map(trial, kernels())), threads=THREADS)
    assert caplog.records == []


def test_without_a_store_there_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    tg.load(MODEL, store=False, threads=THREADS)
    tg.load(MODEL, store="", threads=THREADS)
    tg.compile(lambda x: x + 1, X)
    assert caplog.records == []


def test_the_default_store_is_read_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "t.db"))
    tg.load(MODEL, threads=THREADS)
    assert "3 of 3 kernels have no winner in store" in caplog.text
    stored(tmp_path / "t.db", *map(trial, kernels()))
    assert {r.outcome for r in tg.load(MODEL, threads=THREADS).report()} == {"hit"}


def test_functions_find_their_winners_too(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return x.exp()

    (row,) = tg.compile(function, X, store=False, threads=THREADS).report()
    x = tg.Tensor.input("x", X.shape)
    (kernel,) = (k for k, _ in schedule((function(x).node,)).kernels().values())
    assert row.key == kernel.key
    store = stored(tmp_path / "t.db", trial(kernel))
    (row,) = tg.compile(function, X, store=store, threads=THREADS).report()
    assert (row.outcome, row.actions) == ("hit", ACTIONS)


def test_the_benchmark_compares_winners_with_defaults(tmp_path: Path) -> None:
    store = stored(tmp_path / "t.db", *(trial(k, actions="") for k in kernels()))
    model = loaded(store)
    report = model.benchmark(budget_s=0.05)
    assert (report.model, report.device, report.threads, report.store) == (
        "mlp",
        "cpu",
        THREADS,
        store,
    )
    assert report.rows == model.report()
    assert report.repeats >= 3
    assert min(report.stored_ms, report.default_ms) > 0
    np.testing.assert_allclose(model(X), tg.load(MODEL, store=False)(X), rtol=1e-4, atol=1e-5)


def test_a_benchmark_says_nan_of_any_float_and_takes_indices_out_of_range() -> None:
    x, at = np.ones((1, 4), np.float32), np.zeros(3, np.int64)
    for kind in (tg.bf16, tg.f32, tg.i32):
        model = tg.compile(lambda x, kind=kind: (x * np.nan).cast(kind), x)
        assert model.benchmark(budget_s=0.01).nan == kind.is_float
    table = tg.compile(lambda at, x: x[at * 3 + 2], at, x)
    with pytest.raises(tg.errors.IndexOutOfRange):
        table(at, x)
    assert not table.benchmark(budget_s=0.01).nan


def test_winners_that_are_the_default_schedules_have_no_gain(tmp_path: Path) -> None:
    """They are one program, whatever its samples scatter by."""
    defaults = {r.key: r.actions for r in loaded(False).report()}
    store = stored(tmp_path / "t.db", *(trial(k, actions=defaults[k.key]) for k in kernels()))
    model = loaded(store)
    assert {r.outcome for r in model.report()} == {"hit"}
    report = model.benchmark(budget_s=0.05)
    assert report.interval == (1.0, 1.0)
    assert report.gain == 1.0
    assert report.stored_ms == report.default_ms > 0


def test_samples_are_positive_seconds_and_as_many_as_asked_for() -> None:
    model = tg.load(MODEL, store=False, threads=THREADS)
    assert len(model.benchmark_s(7)) == 7
    assert all(0 < s < 10 for s in model.benchmark_s(7))
    timer = model.timer(X)
    assert [len(timer(n)) for n in (1, 4)] == [1, 4]
    assert all(0 < s < 10 for s in timer(4))
    assert [name for name, _ in model.profile_s(2)] == [k.name for k in kernels()]


def test_a_profile_is_not_of_the_one_run_that_another_process_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, seen = tg.load(MODEL, store=False, threads=THREADS), 0
    launches = len(kernels())

    def time(_: object, samples: int, each: bool = False) -> tuple[list[float], tuple[float, ...]]:
        nonlocal seen
        runs = range(seen, seen := seen + samples)
        seconds = [4e-3 if run == 1 else 1e-6 for run in runs]
        return seconds, (sum(seconds) / samples,) * launches if each else ()

    monkeypatch.setattr(model._runner, "time", time)
    assert [s for _, s in model.profile_s(5)] == [1e-6] * launches
