"""The package's names are all there, and loading it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tunegrad import devices


@pytest.mark.parametrize("name", devices.__all__)
def test_every_public_name_resolves(name):
    assert getattr(getattr(devices, name), "__name__", name) == name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        devices.nothing  # noqa: B018


def test_import_loads_no_compiler():
    code = (
        "import sys, tunegrad.devices; print(sorted({'llvmlite', 'numpy', 'pebble'} & "
        "sys.modules.keys()))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert shown.strip() == "[]"
