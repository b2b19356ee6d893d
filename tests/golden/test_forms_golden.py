"""Small kernels in every form are what the golden files say."""

from __future__ import annotations

import pytest

from tools.golden import CASES, FOLDER, golden_text, main


@pytest.mark.parametrize("name", CASES)
def test_forms_are_the_golden_ones(name: str) -> None:
    assert (FOLDER / f"{name}.txt").read_text(encoding="utf-8") == golden_text(name), (
        "run: python -m tools.golden --write"
    )


def test_forms_golden_files_all_have_a_case() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == set(CASES)


def test_forms_golden_tool_shows_what_changed(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tools.golden.FOLDER", tmp_path)
    monkeypatch.setattr("tools.golden.CASES", {"add_tail": CASES["add_tail"]})
    assert main(["--write"]) == 0
    (tmp_path / "left_over.txt").write_text("")
    assert main([]) == 3
    assert "no case for left_over.txt" in capsys.readouterr().err
    assert main(["--write"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["add_tail.txt"]
    assert main([]) == 0
    path = tmp_path / "add_tail.txt"
    path.write_text(path.read_text().replace("tile(axis=b, size=4)", "tile(axis=b, size=8)"))
    assert main([]) == 3
    assert "-tile(axis=b, size=8)\n+tile(axis=b, size=4)\n" in capsys.readouterr().out
