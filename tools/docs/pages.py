"""The pages, and how their blocks are found and replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from . import (
    actions_page,
    api_page,
    architecture,
    cli_page,
    forms,
    onnx_page,
    schedules_page,
    torch_page,
)

__all__ = ["PAGES", "SLOW", "Blocks", "rewritten"]

Blocks = Mapping[str, Callable[[], str]]

PAGES: dict[str, Blocks] = {
    "docs/API.md": api_page.BLOCKS,
    "docs/ARCHITECTURE.md": architecture.BLOCKS,
    "docs/CLI.md": cli_page.BLOCKS,
    "docs/IR.md": forms.BLOCKS,
    "docs/ACTIONS.md": actions_page.BLOCKS,
    "docs/ONNX.md": onnx_page.BLOCKS,
    "docs/SCHEDULES.md": schedules_page.BLOCKS,
    "docs/TORCH.md": torch_page.BLOCKS,
}
"""Path of each page from the top of the tree, and what makes each of its blocks."""

SLOW = frozenset(["docs/ONNX.md"])
"""Pages that take minutes: they are made where they are named."""

_BLOCK = re.compile(r"<!-- run: ([\w.-]+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def rewritten(page: str, text: str) -> str:
    """``text`` with every block of ``page`` made again.

    Raises KeyError for a block that nothing makes.
    """
    blocks = PAGES[page]

    def replace(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in blocks:
            raise KeyError(f"{page}: no block {name!r}; valid: {', '.join(blocks)}")
        return f"<!-- run: {name} -->\n{blocks[name]().rstrip()}\n<!-- end -->\n"

    return _BLOCK.sub(replace, text)
