"""Public names are there as type checkers see them, and a misspelt one says which was meant."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tests import public_names
from tunegrad import nn

ROOT = Path(__file__).parents[2]
SOURCE = Path(public_names.__file__)
LINES = SOURCE.read_text(encoding="utf-8").splitlines()
MISSPELT = [n for n, line in enumerate(LINES, 1) if line.endswith("# type: ignore[attr-defined]")]


def used_names() -> set[str]:
    """Attributes of the package, of ``nn``, of ``optim`` and of ``functional`` in that file."""
    homes = ("tg", "nn", "F", "optim", "tg.nn", "tg.errors", "nn.functional", "nn.optim")
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in homes
    }


def test_a_hundred_names_are_used_and_twenty_misspelt() -> None:
    assert 180 <= len(LINES) <= 220
    assert len(MISSPELT) == len(public_names.MISSPELT) == 20
    assert len(used_names()) >= 120


def test_names_give_what_their_types_say() -> None:
    x, y = tg.randn(2, 3), tg.rand(2, 3)
    found = [*public_names.creating(), *public_names.computing(x, y), *public_names.layering(x)]
    for tensor in found:
        assert isinstance(tensor, tg.Tensor)
        assert (tensor.shape, tensor.dtype) == ((2, 3), tg.f32)
    assert all(isinstance(layer, nn.Module) for layer in public_names.making())
    public_names.training()
    compiled, version, _ = public_names.running("")
    assert (compiled(np.ones((2, 3), np.float32)) == 3).all()
    assert version == tg.__version__
    classifier = public_names.Classifier(4)
    classifier.load(seed=0)
    assert classifier(tg.ones(1, 3, 8, 8)).shape == (1, 4)


@pytest.mark.parametrize("n", range(20))
def test_a_misspelt_name_is_an_error(n: int) -> None:
    with pytest.raises(AttributeError) as raised:
        public_names.MISSPELT[n]()
    said = str(raised.value)
    owner = re.match(r"module 'tunegrad(\.nn)?' |Tensor ", said)
    assert not owner or re.search(r" has no attribute '\w+'; did you mean '\w+'\?$", said)


def test_a_traceback_has_one_suggestion() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tunegrad\ntunegrad.sofmax"], cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    said = "module 'tunegrad' has no attribute 'sofmax'; did you mean 'softmax'?"
    assert done.stderr.splitlines()[-1] == f"AttributeError: {said}"


def test_a_propertys_own_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: tg.Tensor) -> object:
        return object().lost  # type: ignore[attr-defined]

    monkeypatch.setattr(tg.Tensor, "broken", property(broken), raising=False)
    with pytest.raises(AttributeError, match="'object' object has no attribute 'lost'"):
        tg.zeros(2).broken  # type: ignore[attr-defined]  # noqa: B018


def test_the_name_of_a_device_is_no_dtype() -> None:
    with pytest.raises(
        tg.errors.DTypeError, match="'cuda' names a device, and a tensor is on none"
    ):
        tg.ones(2).to("cuda")


def test_an_input_has_no_extent_below_zero() -> None:
    with pytest.raises(tg.errors.ModelError, match=r"'x': shape \(1, -3\) has an extent below 0"):
        tg.InputSpec("x", (1, -3))


def without_marks(tmp_path: Path) -> Path:
    path = tmp_path / "names.py"
    path.write_text("\n".join(re.sub(r"  # type: ignore.*", "", line) for line in LINES) + "\n")
    return path


@pytest.mark.slow
def test_mypy_finds_the_misspelt_names_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", str(without_marks(tmp_path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert [int(n) for n in re.findall(r"names\.py:(\d+): error", done.stdout)] == MISSPELT


@pytest.mark.slow
def test_pyright_finds_the_misspelt_names_and_nothing_else(tmp_path: Path) -> None:
    tool = shutil.which("pyright") or shutil.which("basedpyright")
    if tool is None:
        pytest.skip("pyright is not installed")
    settings = {
        "typeCheckingMode": "standard", "include": [without_marks(tmp_path).name],
        "extraPaths": [str(ROOT)],
    }  # fmt: skip
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [tool, "--outputjson", "--pythonpath", sys.executable, "--level", "error"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert sorted(e["range"]["start"]["line"] + 1 for e in found) == MISSPELT
