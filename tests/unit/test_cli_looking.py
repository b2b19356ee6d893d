"""Commands that look and change little: models, cache, stores in a folder, trials as CSV, a search
that is only planned, and levels of logs.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report_stores import store_of
from tunegrad.cli.app import run
from tunegrad.cli.tables.store import _TRIAL_COLUMNS, trials_csv
from tunegrad.config import config_names
from tunegrad.object_cache import ObjectCache


def said(line: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(line.split()) == code
    return capsys.readouterr().out


def test_models_lists_every_name_with_what_set_changes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(said("models --json", capsys))
    assert [r["name"] for r in rows] == list(config_names())
    (resnet18,) = (r for r in rows if r["name"] == "resnet18")
    assert "image=224" in resnet18["arguments"]
    assert resnet18["inputs"] == ["f32[1,3,224,224]"]
    assert [r["same_as"] for r in rows if r["name"] == "resnet"] == ["resnet50"]
    assert "mlp       f32[1,784]" in said("models", capsys)


def test_cache_counts_and_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = ObjectCache(tmp_path / "tunegrad" / "objects")
    for key in ("aa" * 32, "bb" * 32):
        kept.put(key, b"0123456789")
    found = json.loads(said("cache --json", capsys))
    assert (found["objects"], found["bytes"] > 20, found["removed"]) == (2, True, 0)
    assert "0 objects, 0.0 MB" in said("cache --clear", capsys)
    assert kept.get("aa" * 32) is None
    assert kept.usage() == (0, 0)


def test_store_list_names_stores_and_what_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "a.db", "s1")
    (tmp_path / "b.db").write_text("no store")
    first, second = json.loads(said(f"store list {tmp_path} --json", capsys))
    assert (Path(first["store"]).name, first["trials"] > 0) == ("a.db", True)
    assert "b.db" in second["problem"]
    assert "a.db" in said(f"store list {tmp_path}", capsys)
    assert said(f"store list {tmp_path / 'none'}", capsys, 1) == ""


def test_trials_as_csv_have_a_row_each_and_their_median(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.db"
    store_of(path, "s1")
    rows = list(csv.DictReader(said(f"store export --store {path} --csv", capsys).splitlines()))
    lines = [json.loads(x) for x in said(f"store export --store {path}", capsys).splitlines()]
    trials = [x for x in lines if x.get("row") == "trial"]
    assert [(r["kernel"], r["actions"]) for r in rows] == [
        (t["kernel"], t["actions"]) for t in trials
    ]
    ran = [(r, t) for r, t in zip(rows, trials, strict=True) if t["samples_s"]]
    assert ran
    for row, trial in ran:
        assert min(trial["samples_s"]) <= float(row["seconds"]) <= max(trial["samples_s"])
        assert int(row["samples"]) == len(trial["samples_s"])


def test_a_text_of_a_store_is_no_formula_of_a_spreadsheet() -> None:
    trial = {
        **dict.fromkeys(_TRIAL_COLUMNS, "-1+1"), "row": "trial", "kernel": "k",
        "samples_s": [1.0], "reference_samples_s": [], "facts": {"@f": -2.0},
    }  # fmt: skip
    lines = [json.dumps({"row": "kernel", "key": "k", "name": "=cmd|' /C calc'!A0"})]
    (row,) = csv.DictReader(trials_csv([*lines, json.dumps(trial)]).splitlines())
    assert row["name"] == "'=cmd|' /C calc'!A0"
    assert (row["error"], row["kernel"], row["'@f"]) == ("'-1+1", "k", "-2.0")


def test_a_dry_run_names_kernels_and_leaves_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.db"
    found = json.loads(said(f"tune mlp mlp[batch=4] --dry-run --store {path} --json", capsys))
    assert list(found) == ["mlp", "mlp[batch=4]"]
    assert {r["outcome"] for rows in found.values() for r in rows} == {"miss"}
    assert all(r["space"] > 1 and r["tried"] == 0 for rows in found.values() for r in rows)
    assert "6 kernels would be searched for 0:30" in said(
        f"tune mlp mlp[batch=4] --dry-run --budget 30s --store {path}", capsys
    )
    assert not path.exists()


KERNEL = ("time", "mlp", "--threads", "1", "--kernel", "matmul 10x512")


def test_a_schedule_by_hand_is_timed_in_turns_with_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run([*KERNEL, "--schedule", "tile(axis=a, size=2)", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schedule"], found["against_is"]) == ("tile(axis=a, size=2)", "miss")
    assert found["against"].startswith("tile(axis=ra,")
    assert found["turns"] >= 30
    low, high = found["interval"]
    assert 0 < low <= found["gain"] <= high
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("tile(axis=q, size=2)", "no loop 'q' in kernel matmul 10x512; its loops are a, ra"),
        ("tilt(axis=a, size=2)", "no action 'tilt'; valid: "),
    ],
)
def test_a_schedule_that_is_none_is_one_line(
    schedule: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*KERNEL, "--schedule", schedule]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("tunegrad")
    level = found.level
    yield found
    found.setLevel(level)


@pytest.mark.parametrize(
    ("option", "level"), [("-q", logging.ERROR), ("-v", logging.INFO), ("-vv", logging.DEBUG)]
)
def test_levels_of_logs(
    option: str, level: int, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    said(f"{option} models", capsys)
    assert logger.level == level


TALKATIVE = """
import tunegrad as tg
from tunegrad import nn

class Net(nn.Module):
    def __init__(self):
        print("made")
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        print("traced")
        return self.layer(x)

def model():
    return tg.Model.of("talkative", Net, [tg.InputSpec("x", (2, 8))])
"""


def test_what_a_model_prints_when_it_is_made_or_traced_is_no_part_of_json(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "talkative_model.py").write_text(TALKATIVE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["show", "talkative_model:model", "--store", ":memory:", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["uses"] for row in json.loads(out)] == [1]
    assert "made\n" in err
    assert "traced\n" in err
