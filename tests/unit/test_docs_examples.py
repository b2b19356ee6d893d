"""The Python of pages of docs/ runs as it stands, in order."""

from __future__ import annotations

import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from store_exports import decision, latency, trial
from store_trials import EVIDENCE, HERE, KEY

ROOT = Path(__file__).parents[2]
GIVEN = {
    "STORE.md": {
        "trial": trial(), "evidence": EVIDENCE, "decision": decision("winograd2"),
        "latency": latency(), "kernel_key": KEY, "fingerprint": HERE, "space_version": 1,
        "default": "none",
    },
    "SERVING.md": {},
    "SEARCH_BENCH.md": {},
}  # fmt: skip
"""What the text of a page says that a caller has."""


def examples(page: str) -> list[str]:
    """The Python of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def ran(page: str) -> dict[str, Any]:
    """The names that the examples of a page leave."""
    names: dict[str, Any] = dict(GIVEN.get(page, {}))
    for text in examples(page):
        if "import torch" in text:
            pytest.importorskip("torch", reason="PyTorch is not installed (extra `bench`)")
        exec(compile(text, page, "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "none.db"))
    return tmp_path


def test_example_of_the_store_finds_what_it_added() -> None:
    assert ran("STORE.md")["actions"] == trial().actions


def test_example_of_serving_loads_what_it_saved() -> None:
    names = ran("SERVING.md")
    assert names["served"].inputs == names["model"].inputs


def test_example_of_search_bench_plays_a_recorded_space(folder: Path) -> None:
    shutil.copy(ROOT / "tests" / "data" / "spaces" / "gemm.jsonl.gz", folder)
    first, *after = ran("SEARCH_BENCH.md")["best_s"]
    assert len(after) == 100
    assert after[-1] < first


def test_examples_of_gradients_train_and_take_a_rule() -> None:
    names = ran("GRADIENTS.md")
    assert names["slope"].shape == (3, 1)
    assert names["losses"][-1] < 0.5 * names["losses"][0]
    assert names["found"].tolist() == [1, 1]


def test_examples_of_state_change_their_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    ran("STATE.md")
    said = re.findall(
        r"^# (\[.*)$", (ROOT / "docs" / "STATE.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert capsys.readouterr().out.splitlines() == said


def test_examples_of_data_go_on_in_the_second_epoch() -> None:
    names = ran("DATA.md")
    assert names["loader"].state()["epoch"] == 2
    assert abs(names["mean"]) < 0.1


def test_examples_of_training_train_and_go_on(folder: Path) -> None:
    names = ran("TRAINING.md")
    assert names["losses"][-1] < 0.7 * names["losses"][0]
    assert names["right"] > 0.5
    assert names["found"] == names["wanted"]
    assert (folder / "state.safetensors").is_file()


def test_examples_of_own_models_give_what_they_say() -> None:
    names = ran("OWN_MODEL.md")
    assert names["probabilities"].shape == (8, 10)
    assert names["scores"].shape == (2, 1000)
    assert names["names"] == ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]


def test_example_of_quantising_gives_scores() -> None:
    assert ran("QUANTISE.md")["scores"].shape == (1, 10)


def test_examples_of_pytorch_give_what_the_module_gives(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    page = types.ModuleType("page")  # a class of it can be found by its name
    monkeypatch.setitem(sys.modules, "page", page)
    names = page.__dict__
    for n, text in enumerate(examples("TORCH.md")):
        path = folder / f"example{n}.py"  # dynamo looks for the file of a method
        path.write_text(text, encoding="utf-8")
        exec(compile(text, str(path), "exec"), names)  # noqa: S102 - our own page
    expected = names["module"](names["x"]).detach().numpy()
    assert abs(names["numbers"] - expected).max() < 1e-5
