"""Command line over TOML over defaults, resolved once."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from tunegrad.config import TuneSettings, allowed_threads, default_store, resolve_settings
from tunegrad.config.environment import control_groups, memory_limits
from tunegrad.errors import ConfigError, ModelError

FILE = """
[model]
name = "toy"
builder = "some.place:make"
[tune]
budget = "10s"
searcher = "random"
threads = 3
seed = 7
device = "null"
"""


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    path = tmp_path / "toy.toml"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def chosen(settings: TuneSettings) -> tuple[float, str, int, int, str]:
    return settings.budget_s, settings.searcher, settings.threads, settings.seed, settings.device


def test_defaults_hold_where_nothing_is_said() -> None:
    settings = resolve_settings(
        "a:b", environ={"TUNEGRAD_STORE": "/s/t.db", "TUNEGRAD_THREADS": "1"}
    )
    assert chosen(settings) == (300.0, "portfolio", 1, 0, "cpu")
    assert settings.store == Path("/s/t.db")
    assert settings.log is None


def test_file_beats_defaults(model_file: str) -> None:
    assert chosen(resolve_settings(model_file, environ={})) == (10.0, "random", 3, 7, "null")


def test_command_line_beats_file(model_file: str) -> None:
    settings = resolve_settings(
        model_file,
        budget_s="1m",
        searcher="beam",
        threads=1,
        seed=0,
        device="cpu",
        store="x.db",
        environ={},
    )
    assert chosen(settings) == (60.0, "beam", 1, 0, "cpu")
    assert settings.store == Path("x.db")


def test_settings_are_frozen(model_file: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve_settings(model_file, environ={}).seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads 0 is not a positive whole number"),
        ({"threads": -2}, "threads -2 is not a positive whole number"),
        ({"seed": -1}, "seed -1 is negative; valid: 0, 1, 2 ..."),
        (
            {"searcher": "beem"},
            "searcher 'beem' is unknown, did you mean 'beam'?; valid: beam, random",
        ),
        (
            {"patience": -1},
            "patience -1 is negative; valid: 0 (never stop early), 1, 2 ... candidates",
        ),
        ({"target_ms": 0.0}, "target_ms 0.0 is not a positive time in milliseconds"),
        ({"target_ms": float("nan")}, "target_ms nan is not a positive time in milliseconds"),
        ({"max_trials": 0}, "max_trials 0 is not a positive whole number"),
        ({"budget_s": "-1m"}, "budget '-1m' is not a positive time"),
    ],
)
def test_bad_value_is_a_config_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_settings("a:b", environ={}, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_bad_budget_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(FILE.replace("10s", "later"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"toy\.toml: tune\.budget 'later' is not"):
        resolve_settings(str(path), environ={})


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"TUNEGRAD_STORE": "/a/b.db", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/a/b.db"),
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/tunegrad/store.db"),
        ({"HOME": "/h"}, "/h/.local/share/tunegrad/store.db"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/tunegrad/store.db"),
    ],
)
def test_default_store_follows_the_environment(environ: dict[str, str], path: str) -> None:
    assert default_store(environ) == Path(path)


def test_allowed_threads_are_the_cpus_of_this_process() -> None:
    assert allowed_threads({}) == len(os.sched_getaffinity(0))


def test_allowed_threads_are_capped_by_the_environment() -> None:
    assert allowed_threads({"TUNEGRAD_THREADS": "1"}) == 1
    assert allowed_threads({"TUNEGRAD_THREADS": "100000"}) == allowed_threads({})


@pytest.mark.parametrize("cap", ["0", "-1", "many", "1.5"])
def test_bad_thread_cap_is_a_config_error(cap: str) -> None:
    with pytest.raises(ConfigError, match="is not a positive whole number"):
        allowed_threads({"TUNEGRAD_THREADS": cap})


@pytest.mark.parametrize(
    "groups", ["0::/a/b\n", "4:cpu:/x\n3:memory,pids:/a/b\n1:name=systemd:/\n"]
)
def test_memory_is_that_of_the_container(groups: str, tmp_path: Path) -> None:
    top, name = (tmp_path, "memory.max")
    if "memory" in groups:
        top, name = tmp_path / "memory", "memory.limit_in_bytes"
    own = tmp_path / "own"
    own.write_text(groups)

    def limits() -> tuple[int, ...]:
        return memory_limits(control_groups("memory", tmp_path, own))

    assert limits() == ()
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / name).write_text("max\n")
    (top / "a" / name).write_text("1000\n")
    (top / name).write_text("3000\n")
    (tmp_path / "unrelated.max").write_text("1\n")
    assert sorted(limits()) == [1000, 3000]


def test_limits_of_a_search_come_from_the_file_and_arguments_beat_it(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(FILE + "patience = 50\ntarget_ms = 2\nmax_trials = 900\n", encoding="utf-8")
    found = resolve_settings(str(path), environ={})
    assert (found.patience, found.target_ms, found.max_trials) == (50, 2, 900)
    found = resolve_settings(str(path), patience=0, target_ms=1.5, max_trials=7, environ={})
    assert (found.patience, found.target_ms, found.max_trials) == (0, 1.5, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [("patience", "1.5"), ("patience", "true"), ("target_ms", '"soon"'), ("max_trials", "1e3")],
)
def test_limit_of_another_type_names_the_file_and_the_key(
    tmp_path: Path, key: str, value: str
) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(FILE + f"{key} = {value}", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"toy\.toml: tune\.{key} = "):
        resolve_settings(str(path), environ={})


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEGRAD_BUILDERS", "some")


def two_files(tmp_path: Path, first: str, second: str) -> list[str]:
    found = []
    for name, tune in (("a", first), ("b", second)):
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'[model]\nname = "{name}"\nbuilder = "some.place:{name}"\n[tune]\n{tune}\n',
            encoding="utf-8",
        )
        found.append(str(path))
    return found


def test_several_models_share_what_their_files_agree_on(tmp_path: Path) -> None:
    files = two_files(tmp_path, "searcher = 'random'\nthreads = 1", "searcher = 'random'\nseed = 4")
    found = resolve_settings(files, environ={})
    assert [m.name for m in found.models] == ["a", "b"]
    assert (found.searcher, found.threads, found.seed) == ("random", 1, 4)


def test_several_models_have_the_budgets_of_all_of_them(tmp_path: Path) -> None:
    files = two_files(tmp_path, 'budget = "2m"', "")
    assert resolve_settings(files, environ={}).budget_s == 120.0 + 300.0
    assert resolve_settings(files, budget_s="9s", environ={}).budget_s == 9.0


def test_several_models_that_disagree_need_an_argument(tmp_path: Path) -> None:
    files = two_files(tmp_path, "threads = 2", "threads = 1")
    with pytest.raises(
        ConfigError, match=r"threads: .*a\.toml says 2, .*b\.toml says 1; .* say which"
    ):
        resolve_settings(files, environ={})
    assert resolve_settings(files, threads=1, environ={}).threads == 1


def test_dtype_is_settled_like_the_others(tmp_path: Path) -> None:
    files = two_files(tmp_path, 'dtype = "bf16"', "")
    assert resolve_settings(files, environ={}).dtype == "bf16"
    assert resolve_settings(files, dtype="f32", environ={}).dtype == "f32"
    assert resolve_settings("a:b", environ={}).dtype == "f32"
    with pytest.raises(ConfigError, match=r"^dtype 'f8' is unknown; valid: f32, f16, bf16, int8$"):
        resolve_settings("a:b", dtype="f8", environ={})
    wrong = two_files(tmp_path, 'dtype = "i32"', "")
    with pytest.raises(ConfigError, match=r"a\.toml: tune\.dtype = 'i32'"):
        resolve_settings(wrong, environ={})


def test_several_models_have_no_one_target(tmp_path: Path) -> None:
    files = two_files(tmp_path, "", "")
    with pytest.raises(ConfigError, match="target_ms 3 is of one model, and 2 are: a, b"):
        resolve_settings(files, target_ms=3.0, environ={})


def test_model_named_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="model 'a:b' is named twice"):
        resolve_settings(["a:b", "c:d", "a:b"], environ={})


def test_a_name_that_is_no_setting_is_refused_and_the_valid_ones_are_listed() -> None:
    given: Any = {"budget": 1.0}
    with pytest.raises(TypeError, match="setting 'budget' is unknown, did you mean 'budget_s'"):
        resolve_settings("a:b", environ={}, **given)
