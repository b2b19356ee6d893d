"""The documents hold what the code prints today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs import PAGES, SLOW, rewritten
from tools.docs.actions_page import EXAMPLES, signature
from tunegrad.opts.actions import ACTIONS

ROOT = Path(__file__).parents[2]
UNMENTIONED = {"py.typed", "__init__.py", "__pycache__"}


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in PAGES]
)
def test_docs_page_is_what_the_code_prints(name: str) -> None:
    if name == "docs/ONNX.md":
        onnx = pytest.importorskip("onnx", reason="onnx is not installed")
        if f"onnx {onnx.__version__}:" not in page(name):
            pytest.skip(f"the page is of another onnx than {onnx.__version__}")
    assert page(name) == rewritten(name, page(name)), "run: python -m tools.docs"


def test_docs_actions_page_has_every_action() -> None:
    text = page("docs/ACTIONS.md")
    assert sorted(EXAMPLES) == sorted(ACTIONS)
    for name, action in ACTIONS.items():
        assert f"\n### {name}\n" in text
        assert signature(action) in text


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_docs_action_docstring_shows_its_rewrite(name: str) -> None:
    text = ACTIONS[name].__doc__ or ""
    block = text.split(f"rewrite:  {name}(", 1)
    assert len(block) == 2, f"{name}: the docstring has no block `rewrite:  {name}(...)`"
    assert "-->" in block[1]


def test_docs_architecture_names_every_module_at_the_top() -> None:
    text = page("docs/ARCHITECTURE.md")
    for path in (ROOT / "tunegrad").iterdir():
        if path.name not in UNMENTIONED:
            assert f"`{path.name}{'/' if path.is_dir() else ''}`" in text, path.name
