"""The Python of docs/STORE.md, SERVING.md, SEARCH_BENCH.md, GRADIENTS.md, STATE.md, DATA.md
and TRAINING.md runs as it stands.
"""

from __future__ import annotations

import re
import shutil
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


def ran(page: str) -> dict[str, object]:
    """The names that the examples of a page leave."""
    found = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )
    names: dict[str, object] = dict(GIVEN.get(page, {}))
    for text in found:
        exec(compile(text, page, "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_example_of_the_store_finds_what_it_added() -> None:
    assert ran("STORE.md")["actions"] == trial().actions


def test_example_of_serving_loads_what_it_saved() -> None:
    names = ran("SERVING.md")
    assert names["served"].inputs == names["model"].inputs  # type: ignore[attr-defined]


def test_example_of_search_bench_plays_a_recorded_space(folder: Path) -> None:
    shutil.copy(ROOT / "tests" / "data" / "spaces" / "gemm.jsonl.gz", folder)
    first, *after = ran("SEARCH_BENCH.md")["best_s"]  # type: ignore[misc]
    assert len(after) == 100
    assert after[-1] < first


def test_examples_of_gradients_train_and_take_a_rule() -> None:
    names: dict[str, Any] = ran("GRADIENTS.md")
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
    names: dict[str, Any] = ran("DATA.md")
    assert names["loader"].state()["epoch"] == 2
    assert abs(names["mean"]) < 0.1


def test_examples_of_training_train_and_go_on(folder: Path) -> None:
    names: dict[str, Any] = ran("TRAINING.md")
    assert names["losses"][-1] < 0.7 * names["losses"][0]
    assert names["right"] > 0.5
    assert names["found"] == names["wanted"]
    assert (folder / "state.safetensors").is_file()
