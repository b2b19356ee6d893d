"""Code of the corpus is what its space version says: a change of lowering or rendering raises
SPACE_VERSION.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools import lowered as tool
from tunegrad.opts import SPACE_VERSION
from tunegrad.render import llvm


@pytest.fixture(scope="module")
def golden() -> tool.Golden:
    return tool.read()


def test_code_of_the_corpus_is_that_of_this_space_version(golden):
    changed, stale = tool.compare(golden)
    assert changed == [], "raise SPACE_VERSION, then python -m tools.lowered --write"
    assert stale == [], "python -m tools.lowered --write"
    assert golden.version == SPACE_VERSION


def test_code_of_every_kernel_of_the_corpus_is_held_on_both_targets(golden):
    held = {(c.kernel, c.target) for c in golden.cases}
    assert held == {(name, target) for name in tool.kernels() for target in tool.TARGETS}
    assert len(golden.cases) >= 3 * len(held) / 2


@pytest.fixture
def small(golden, tmp_path) -> Path:
    """A file with the cases of one kernel; the others have none, which is stale, and no other
    code.
    """
    path = tmp_path / "lowered.jsonl"
    tool.write(
        replace(golden, cases=tuple(c for c in golden.cases if c.kernel == "row_sum.0")), path
    )
    return path


def other_code(monkeypatch) -> None:
    render = llvm.render_llvm
    monkeypatch.setattr(llvm, "render_llvm", lambda *given: render(*given).replace("fadd", "fsub"))


def few_kernels(monkeypatch) -> None:
    kernel = tool.kernels()["row_sum.0"]
    monkeypatch.setattr(tool, "kernels", lambda: {"row_sum.0": kernel})


def test_other_code_is_found(golden, monkeypatch):
    few_kernels(monkeypatch)
    mine = replace(golden, cases=tuple(c for c in golden.cases if c.kernel == "row_sum.0"))
    assert tool.compare(mine) == ([], [])
    other_code(monkeypatch)
    changed, stale = tool.compare(mine)
    assert (len(changed), stale) == (len(mine.cases), [])


def test_other_code_is_not_written_under_the_same_version(small, monkeypatch, capsys):
    few_kernels(monkeypatch)
    other_code(monkeypatch)
    before = small.read_bytes()
    assert tool.main(["--write"], small) == 3
    assert small.read_bytes() == before
    assert (
        "are other code (row_sum.0 on avx512: (no actions)), and SPACE_VERSION is still "
        f"{SPACE_VERSION}" in (capsys.readouterr().err)
    )


@pytest.mark.parametrize(
    "arguments", [["--write"], ["--write", "--unreleased"]], ids=["raised", "unreleased"]
)
def test_other_code_is_written_under_a_raised_or_unreleased_version(small, monkeypatch, arguments):
    few_kernels(monkeypatch)
    other_code(monkeypatch)
    version = SPACE_VERSION if "--unreleased" in arguments else SPACE_VERSION + 1
    monkeypatch.setattr(tool, "SPACE_VERSION", version)
    assert tool.main(arguments, small) == 0
    assert tool.read(small).version == version
    assert tool.compare(tool.read(small)) == ([], [])


def test_a_case_that_is_not_legal_any_more_is_stale_and_needs_no_version(small, monkeypatch):
    few_kernels(monkeypatch)
    golden = tool.read(small)
    tool.write(
        replace(
            golden, cases=(*golden.cases, replace(golden.cases[0], actions="tile(axis=z, size=2)"))
        ),
        small,
    )
    changed, stale = tool.compare(tool.read(small))
    assert (changed, stale) == ([], ["row_sum.0 on avx512: tile(axis=z, size=2)"])
    assert tool.main(["--write"], small) == 0
    assert tool.compare(tool.read(small)) == ([], [])
