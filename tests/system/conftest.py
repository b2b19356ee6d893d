"""Tests of whole runs write to places of their own: no store, cache or setting of the user's is
read or touched.
"""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of an environment where nothing was ever tuned, and nothing compiled but by tests
    of this run: its processes share what they compile.
    """
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    store = tmp_path_factory.mktemp("places")
    return {"XDG_CACHE_HOME": str(run / "cache"), "XDG_DATA_HOME": str(store / "data")}


@pytest.fixture(autouse=True)
def private_places(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNEGRAD_STORE", raising=False)
    for name, value in places.items():
        monkeypatch.setenv(name, value)
