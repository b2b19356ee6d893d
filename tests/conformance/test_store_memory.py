"""The store in memory keeps the contract of a store."""

import pytest
from store_suite import StoreSuite

from tunegrad.db import MEMORY, open_store


class TestStoreInMemory(StoreSuite):
    @pytest.fixture
    def opener(self):
        return lambda mode: open_store(MEMORY, mode, clock=lambda: 500.0)


def test_store_path_memory_opens_a_store_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_store(":memory:", "write") as store:
        assert store.stats().size_bytes == 0
    assert list(tmp_path.iterdir()) == []
