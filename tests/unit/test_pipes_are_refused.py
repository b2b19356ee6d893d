"""A pipe in the place of a file is an error at once: its end never comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import tunegrad as tg
from tunegrad.cli.store.change import _opened
from tunegrad.config.tables import read_toml
from tunegrad.data import Loader
from tunegrad.errors import ConfigError, StoreError, UserError
from tunegrad.events import JsonlObserver


def imported(pipe: Path) -> None:
    with _opened(str(pipe)):
        pass


def loaded(pipe: Path) -> None:
    tg.load("mlp", store=pipe)


OPENED: dict[str, tuple[Callable[[Path], object], type[UserError], str]] = {
    "export": (imported, StoreError, "is no regular file; - reads stdin"),
    "settings": (read_toml, ConfigError, "is no regular file"),
    "store": (loaded, StoreError, "is not a regular file"),
    "rows": (lambda pipe: Loader(str(pipe), 2), ConfigError, "is no regular file"),
    "log": (lambda pipe: JsonlObserver(pipe, float), ConfigError, "can not be written: No such"),
}


@pytest.mark.parametrize("what", OPENED)
def test_a_pipe_is_refused_and_not_waited_for(what: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened, error, message = OPENED[what]
    with pytest.raises(error, match=message):
        opened(pipe)


def test_a_pipe_that_is_read_takes_a_log(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = JsonlObserver(pipe, float)
    assert os.get_blocking(log._file.fileno())
    log.close()
    os.close(reader)
