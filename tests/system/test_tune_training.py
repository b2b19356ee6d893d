"""A step of training is tuned, verified and stored as any model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from small_models import THREADS

import tunegrad as tg
from tests.fault_kernels import TARGET, measured_as
from tests.faults import HOOKS
from tunegrad.compiling.candidate import Payload, inputs, lower, reference
from tunegrad.config import resolve_model
from tunegrad.devices import DeviceMeasurer, host_device
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.frontend import model_of_spec
from tunegrad.ir.fusion import LAST, Alternatives
from tunegrad.nn import optim
from tunegrad.planning import planned_as
from tunegrad.trial import Status
from tunegrad.tuning import workload_of_spec
from tunegrad.tuning.models.work import drawn
from tunegrad.tuning.workload import with_toggles

F = tg.nn.functional
MODEL = "mlp[batch=4,sizes=[6,5,3],train=adam]"


def test_a_model_s_name_may_ask_for_a_step_of_its_training() -> None:
    model = model_of_spec(resolve_model(MODEL))
    names = [i.name for i in model.inputs]
    assert model.name == MODEL
    assert names[:3] == ["x", "target", "lr"]
    assert (model.inputs[1].shape, model.inputs[1].dtype.name) == ((4,), "i64")
    assert set(model.donated) == {*names[3:]} - {"draws"}
    numbers = model_of_spec(resolve_model("encoder[batch=1,sequence=4,hidden=8,heads=2,train=sgd]"))
    assert (numbers.inputs[1].shape, numbers.inputs[1].dtype.name) == ((1, 4, 8), "f32")


@pytest.mark.parametrize("number", [0, 1])
def test_inputs_that_are_drawn_for_a_step_are_such_as_occur(number: int) -> None:
    work = workload_of_spec(resolve_model(MODEL))
    arrays = drawn(work.inputs, number)
    assert set(arrays["target"]) <= {0, 1, 2}
    assert arrays["lr"] == np.float32(0.01)
    assert arrays["step"] in (0, 1)
    for name, values in arrays.items():
        if name.startswith("optimizer.square."):
            assert (values > 0).all()
            assert (values < 0.1).all()
    model = tg.load(replace(model_of_spec(resolve_model(MODEL)), donated=()), store=False)
    assert all(np.isfinite(out).all() for out in model(**arrays))


def test_a_step_runs_with_the_winners_of_its_tune(tmp_path: Path) -> None:
    store, net = tmp_path / "t.db", tg.nn.Linear(6, 3)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 6)).astype(np.float32), rng.integers(0, 3, 8)

    def made(store: Path | Literal[False]) -> tg.TrainStep:
        return tg.TrainStep(net, F.cross_entropy, optim.SGD(0.1), store=store, threads=THREADS)

    plain = made(False)
    report = tg.tune(
        plain.step_model(x, y), store=store, threads=THREADS, budget_s=600.0, max_trials=20
    )
    assert report.training
    assert not report.mismatch
    assert not report.uncompared
    assert not report.voided
    tuned = made(store)
    choices = tuned.program(x, y).choices
    assert {c.outcome for c in choices} == {"hit"}
    assert any(c.kernel.overwritten for c in choices)
    for _ in range(5):
        assert tuned(x, y) == pytest.approx(plain(x, y), rel=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lamb", "rmsprop"])
def test_every_kernel_of_a_step_has_a_reference_of_numbers(optimizer: str) -> None:
    """A kernel whose results are NaN on what is drawn for it can not be verified."""
    text = f"mlp[batch=4,sizes=[6,5,3],train={optimizer}]"
    for use in workload_of_spec(resolve_model(text)).kernels:
        payload = Payload(use.kernel, "", host_device())
        given = inputs(payload, lower(payload).io, 0, "ordinary")
        for found in reference(payload, given).values():
            values = np.asarray(found.values)
            assert values.dtype.kind != "f" or np.isfinite(values).mean() > 0.5, use.name


LOST = "one_term_of_a_weight_gradient_lost"


@pytest.mark.slow
def test_one_lost_term_of_any_sum_of_a_step_is_seen() -> None:
    """Gradients of weights, statistics of a batch and their gradients. A sum that a label picks one
    term of is none.
    """
    work = workload_of_spec(resolve_model("resnet18[batch=2,image=32,train=sgd]"))
    kernels = [u.kernel for u in work.kernels if " = add over " in u.kernel.text]
    kernels = [k for k in kernels if ": where(eq(p1[a], i64(ra))" not in k.text]
    assert len(kernels) > 80
    with DeviceMeasurer(CpuDevice(TARGET), HOOKS, compile_workers=1) as device:
        found = {k.text: measured_as(device, k, f"{LOST}|") for k in kernels}
    passed = [text for text, m in found.items() if m.status is not Status.WRONG]
    assert not passed, "\n".join(passed)


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_what_a_tune_races_is_what_runs(optimizer: str) -> None:
    """With another cut as well: in the order in which it runs, with new values over old ones."""
    spec = resolve_model(f"mlp[batch=4,sizes=[6,5,3],train={optimizer}]")
    work = workload_of_spec(spec)
    target = host_device().target
    news = work.fusion.news
    runs = planned_as(work.graph, frozenset(), {}, LAST, target, news)
    assert work.plan.over
    assert str(work.plan) == str(runs)
    edge = Alternatives(work.fusion).edges()[0]
    toggles = Alternatives(work.fusion).toggles([edge])
    other = with_toggles(work, toggles).plan
    assert str(other) == str(planned_as(work.graph, toggles, {}, LAST, target, news))
    assert str(other) == str(work.fusion.toggled(toggles).as_run())
    assert str(other) != str(runs)
