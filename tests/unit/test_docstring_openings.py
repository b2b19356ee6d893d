"""A docstring opens with a verb, or with a noun phrase that names the thing: not with a question.

Standard library only.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTION = re.compile(r"(How|What|When|Where|Whether|Which|Who|Whom|Whose|Why)\b")
SHARE = 0.02
"""The part of all docstrings that may still open with a question word."""

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(source: str) -> list[tuple[int, str]]:
    """Line and text of each docstring in ``source``, of public and private names alike."""
    nodes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, _Documented))
    return [(n.body[0].lineno, text) for n in nodes if (text := ast.get_docstring(n))]


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        ('"""What a thing is."""', True),
        ('class A:\n    def _f(self):\n        """Whether it is so."""', True),
        ('async def f():\n    r"""\n    How many there are.\n    """', True),
        ('"""Whatever a file holds is data."""', False),
        ('def f():\n    """Return what was found."""', False),
        ('x = "What a thing is."', False),
    ],
)
def test_question_words_are_found_at_the_start_of_docstrings_alone(
    source: str, opens: bool
) -> None:
    assert any(QUESTION.match(text) for _, text in docstrings(source)) == opens


def test_docstrings_of_the_package_open_with_a_verb_or_a_noun() -> None:
    count = 0
    found: list[str] = []
    for path in sorted((ROOT / "tunegrad").rglob("*.py")):
        for line, text in docstrings(path.read_text(encoding="utf-8")):
            count += 1
            if QUESTION.match(text):
                found.append(f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}")
    assert len(found) <= SHARE * count, "\n".join(
        [f"{len(found)} of {count} docstrings open with a question word:", *found]
    )
