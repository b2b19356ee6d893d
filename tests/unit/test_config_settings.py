"""Command line over TOML over defaults, resolved once."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tunegrad.config import TuneSettings, default_store, default_threads, resolve_settings
from tunegrad.errors import ConfigError

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
    settings = resolve_settings("a:b", environ={"TUNEGRAD_STORE": "/s/t.db", "TUNEGRAD_THREADS": "1"})
    assert chosen(settings) == (300.0, "beam", 1, 0, "cpu")
    assert settings.store == Path("/s/t.db")
    assert settings.log is None


def test_file_beats_defaults(model_file: str) -> None:
    assert chosen(resolve_settings(model_file, environ={})) == (10.0, "random", 3, 7, "null")


def test_command_line_beats_file(model_file: str) -> None:
    settings = resolve_settings(
        model_file, budget="1m", searcher="beam", threads=1, seed=0, device="cpu", store="x.db", environ={}
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
        ({"searcher": "beem"}, "searcher 'beem' is unknown, did you mean 'beam'?; valid: beam, random"),
        ({"budget": "-1m"}, "budget '-1m' is not a positive time"),
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


def test_default_threads_are_the_cpus_of_this_process() -> None:
    assert default_threads({}) == len(os.sched_getaffinity(0))


def test_default_threads_are_capped_by_the_environment() -> None:
    assert default_threads({"TUNEGRAD_THREADS": "1"}) == 1
    assert default_threads({"TUNEGRAD_THREADS": "100000"}) == default_threads({})


@pytest.mark.parametrize("cap", ["0", "-1", "many", "1.5"])
def test_bad_thread_cap_is_a_config_error(cap: str) -> None:
    with pytest.raises(ConfigError, match="is not a positive whole number"):
        default_threads({"TUNEGRAD_THREADS": cap})
