"""The examples of docs/QUANTISE.md run, and its options are those of the command and function."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tunegrad as tg
from tunegrad.cli.tune import tune

PAGE = (Path(__file__).parents[2] / "docs" / "QUANTISE.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "t.db"))
    names: dict[str, object] = {}
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(text, "QUANTISE.md", "exec"), names)  # noqa: S102 - our own page
    assert names["scores"].shape == (1, 10)


def test_every_option_of_the_page_is_there() -> None:
    options = {o for p in tune.params for o in p.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options
    assert set(re.findall(r"`(\w+)=[\w\[\"]", PAGE)) - {"dtype"} <= set(
        inspect.signature(tg.quantize).parameters
    )
