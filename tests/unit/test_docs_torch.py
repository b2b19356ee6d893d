"""The examples of docs/TORCH.md run, in order, as they stand."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

PAGE = (Path(__file__).parents[2] / "docs" / "TORCH.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_pytorch_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "none.db"))
    page = types.ModuleType("page")  # a class of it can be found by its name
    monkeypatch.setitem(sys.modules, "page", page)
    names = page.__dict__
    for n, text in enumerate(EXAMPLES):
        path = tmp_path / f"example{n}.py"  # dynamo looks for the file of a method
        path.write_text(text, encoding="utf-8")
        exec(compile(text, str(path), "exec"), names)  # noqa: S102 - our own page
    expected = names["module"](names["x"]).detach().numpy()
    assert abs(names["numbers"] - expected).max() < 1e-5
