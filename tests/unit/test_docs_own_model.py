"""The examples of docs/OWN_MODEL.md run, in order."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "OWN_MODEL.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_own_models_run():
    names: dict[str, object] = {}
    for text in EXAMPLES:
        if "import torch" in text:
            pytest.importorskip("torch", reason="PyTorch is not installed (extra `bench`)")
        exec(compile(text, "OWN_MODEL.md", "exec"), names)  # noqa: S102 - our own page
    assert names["probabilities"].shape == (8, 10)
    assert names["scores"].shape == (2, 1000)
    assert names["names"] == ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]
