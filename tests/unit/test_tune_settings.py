"""What ``tune``, ``show`` and ``explain`` are told beside settings that are resolved already is
never ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunegrad import explain, tune, tune_callable
from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.tune import show


@pytest.fixture
def settings(tmp_path: Path) -> TuneSettings:
    return resolve_settings("mlp", budget_s=1.0, threads=1, store=tmp_path / "s.db")


@pytest.mark.parametrize("call", [tune, show, explain])
@pytest.mark.parametrize(
    "given",
    [
        {"device": "cpu"},
        {"threads": 2},
        {"numerics": "contract"},
        {"dtype": "bf16"},
        {"store": "elsewhere.db"},
    ],
)
def test_a_setting_beside_resolved_settings_is_refused(
    settings: TuneSettings, call: Callable[..., Any], given: dict[str, Any]
) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=f"^{name}: given beside resolved settings"):
        call(settings, **given)


@pytest.mark.parametrize(
    "given", [{"budget_s": 5.0}, {"seed": 0}, {"patience": 0}, {"warm_start": False}]
)
def test_tune_refuses_them_by_the_names_that_the_caller_used(
    settings: TuneSettings, given: dict[str, Any]
) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=f"^{name}: given beside resolved settings"):
        tune(settings, **given)


@pytest.mark.parametrize("call", [tune, show, explain])
def test_settings_of_several_models_are_no_settings_of_one(
    settings: TuneSettings, call: Callable[..., Any]
) -> None:
    both = replace(settings, others=(resolve_settings("encoder").model,))
    with pytest.raises(
        ConfigError, match=r"settings of 2 models \(mlp, encoder\): only tune_models takes several"
    ):
        call(both)


def test_a_name_takes_the_settings_that_are_given_with_it(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="device 'abacus' is unknown; valid: cpu, opencl"):
        tune("mlp", budget_s=1.0, device="abacus", store=tmp_path / "s.db")
    with pytest.raises(DeviceError, match="device 'abacus' is unknown"):
        show("mlp", device="abacus", store=tmp_path / "s.db")


def test_explain_takes_the_store_of_its_settings_by_name(settings: TuneSettings) -> None:
    elsewhere = replace(settings, device="abacus")  # refused before anything is measured
    with pytest.raises(DeviceError, match="device 'abacus' is unknown"):
        explain(elsewhere, store=settings.store)


@pytest.mark.parametrize(
    "given",
    [
        {"threads": 0},
        {"seed": -1},
        {"searcher": "bem"},
        {"numerics": "loose"},
        {"dtype": "f8"},
        {"patience": -1},
        {"max_trials": 0},
    ],
)
def test_a_function_is_tuned_with_settings_in_their_ranges_only(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    (name,) = given
    a = np.ones((4, 4), np.float32)
    with pytest.raises(ConfigError, match=f"^{name} "):
        tune_callable(lambda a: a @ a, a, store=tmp_path / "s.db", **given)
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("call", [show, explain])
@pytest.mark.parametrize(
    "given", [{"searcher": "random"}, {"ray": "local"}, {"patience": 3}, {"warm_start": False}]
)
def test_questions_refuse_the_settings_of_a_search(
    call: Callable[..., Any], given: dict[str, Any]
) -> None:
    (name,) = given
    with pytest.raises(TypeError, match=rf"^setting '{name}' is unknown.*; valid: device, dtype, "):
        call("mlp", **given)


def test_numerics_without_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^numerics '' is unknown; valid: contract, strict"):
        show("mlp", numerics="", store=tmp_path / "s.db")


@pytest.mark.parametrize("call", [tune, show])
@pytest.mark.parametrize("store", [False, 3, ""])
def test_a_store_that_is_no_path_is_refused(call: Callable[..., Any], store: Any) -> None:
    with pytest.raises(ConfigError, match=f"^store {store!r} is not a path; leave it out"):
        call("mlp", store=store)


@pytest.mark.parametrize("call", [tune, explain])
def test_what_is_no_observer_is_refused(settings: TuneSettings, call: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"observers\[0\] = <built-in .*: an observer has a"):
        call(settings, observers=[print])
    with pytest.raises(ConfigError, match=r"observers\[0\]"):
        tune_callable(lambda x: x + 1, np.ones(3, np.float32), observers=[print])
