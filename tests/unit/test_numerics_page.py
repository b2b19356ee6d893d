"""Measured tables are put in their place in docs/NUMERICS.md, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import numerics_page

PAGE = "a\n<!-- begin: python -m tools.one --write -->\nold\n<!-- end -->\nb\n<!-- end -->\n"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "NUMERICS.md"
    path.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(numerics_page, "DOCUMENT", path)
    return path


def test_table_is_replaced_between_its_marks(page: Path) -> None:
    assert numerics_page.table_of("one") == "old\n"
    numerics_page.write_table("one", "new\nnewer\n")
    assert page.read_text(encoding="utf-8") == PAGE.replace("old\n", "new\nnewer\n")


def test_table_without_marks_is_refused(page: Path) -> None:
    with pytest.raises(ValueError, match=r"NUMERICS\.md: has no place for the table of two"):
        numerics_page.write_table("two", "new\n")
    assert page.read_text(encoding="utf-8") == PAGE
