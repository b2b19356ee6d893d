"""``search-bench --device`` leaves the spaces that were recorded on one family of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recorded.bench import find_spaces
from tunegrad.errors import ConfigError

SPACES = Path(__file__).parents[1] / "data" / "spaces"


def test_spaces_of_a_family_are_left():
    every, cpu = find_spaces([SPACES]), find_spaces([SPACES], "cpu")
    assert cpu
    assert {s.name for s in cpu} == {
        s.name for s in every if ("device", "cpu") in s.recording.fingerprint.fields
    }


def test_family_that_nothing_was_recorded_on_is_named_with_those_that_there_are():
    with pytest.raises(
        ConfigError, match="device 'abacus:1': no space was recorded there, but on cpu"
    ):
        find_spaces([SPACES], "abacus:1")
