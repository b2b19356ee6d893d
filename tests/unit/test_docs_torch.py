"""The examples of docs/TORCH.md run, in order, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

PAGE = (Path(__file__).parents[2] / "docs" / "TORCH.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_pytorch_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "none.db"))
    names: dict[str, object] = {}
    for text in EXAMPLES:
        exec(compile(text, "TORCH.md", "exec"), names)  # noqa: S102 - our own page
    expected = names["module"](names["x"]).detach().numpy()  # type: ignore[operator]
    assert abs(names["numbers"] - expected).max() < 1e-5  # type: ignore[operator]
