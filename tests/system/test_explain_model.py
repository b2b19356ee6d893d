"""A model explained from end to end: real times, machine code, and a store that is only read."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import PRODUCTS, THREADS, model_file, settings_of, workload_in

import tunegrad as tg
from tunegrad import tune as tune_model
from tunegrad.errors import ConfigError, DeviceError, StoreError
from tunegrad.opts import Schedule
from tunegrad.tune import show


def test_tuned_model_is_explained_and_its_store_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "tuned.db"
    settings = replace(settings_of(tmp_path, 600.0, store), max_trials=30)
    tune_model(settings, [])
    before = store.read_bytes()
    report = tg.explain(settings, store=store, budget_s=600.0, asm=True)
    assert store.read_bytes() == before
    shown = show(settings)
    assert [(r.key, r.uses, r.actions, r.outcome) for r in report.rows] == [
        (r.key, r.uses, r.actions, r.outcome) for r in shown
    ]
    assert [r.layers for r in report.rows] == [r.layers for r in shown]
    assert [r.operations for r in report.rows] == [r.operations for r in shown]
    assert sum(r.share or 0.0 for r in report.rows) == pytest.approx(1.0)
    for row in report.rows:
        assert row.outcome == "hit"
        assert row.promotion is not None
        assert row.ms is not None
        assert row.ms > 0
        assert [step.action for step in row.steps] == [
            str(a) for a in Schedule.parse(row.actions).actions
        ]
        assert row.steps[-1].after.ms == row.ms  # one program, timed once
        assert row.layers
        assert row.neighbours
        assert all(n.ms for n in row.neighbours if n.kind == "tried")
        assert row.executed_flops is not None  # fewer than flops where a stage keeps a producer
        if platform.machine() in ("x86_64", "AMD64"):
            assert row.code is not None
            assert row.code.instructions > 0
    assert sum(row.executed_flops or 0 for row in report.rows) >= PRODUCTS
    assert report.wall_ms is not None


def test_one_kernel_is_explained_alone_without_any_store(tmp_path: Path) -> None:
    path = str(model_file(tmp_path))
    name = workload_in(tmp_path).kernels[0].name
    report = tg.explain(path, store=False, threads=THREADS, kernel=name, budget_s=600.0, asm=True)
    (row,) = report.rows
    assert (row.kernel, row.outcome, row.origin, row.share) == (name, "miss", "default", None)
    assert report.store == ""
    assert row.steps
    if platform.machine() in ("x86_64", "AMD64"):
        assert row.code is not None
        assert row.hot_loop


def test_every_form_of_what_is_explained_is_dumped(tmp_path: Path) -> None:
    path, forms = str(model_file(tmp_path)), tmp_path / "forms"
    report = tg.explain(path, store=False, threads=THREADS, budget_s=0.01, dump=forms)
    assert {p.name for p in forms.iterdir()} == {row.key[:12] for row in report.rows}
    files = ("0-kernel", "1-loops", "2-schedule", "3-lower", "6-render", "actions")
    for row in report.rows:
        own = forms / row.key[:12]
        assert sorted(p.stem for p in own.iterdir()) == list(files)
        assert (own / "actions.txt").read_text() == f"# {row.kernel}\n{row.actions}".rstrip() + "\n"


def test_a_dump_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    path = str(model_file(tmp_path))
    with pytest.raises(ConfigError, match=r"dump .*taken"):
        tg.explain(path, store=False, threads=THREADS, budget_s=0.01, dump=tmp_path / "taken")


def test_unknown_kernel_store_and_device_are_errors(tmp_path: Path) -> None:
    path = str(model_file(tmp_path))
    with pytest.raises(
        ConfigError, match=r"kernel 'conv' is not one of model small; valid: 'matmul"
    ):
        tg.explain(path, store=False, threads=THREADS, kernel="conv")
    with pytest.raises(StoreError, match=r"none\.db"):
        tg.explain(path, store=tmp_path / "none.db", threads=THREADS)
    with pytest.raises(DeviceError, match="device 'abacus' is unknown"):
        tg.explain(path, store=False, device="abacus")
