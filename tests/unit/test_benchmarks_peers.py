"""The command line: its arguments, the suites, and a run in which no peer can be imported."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from benchmarks import machine, peers
from benchmarks.workloads import KERNELS, MODELS, Workload, arrays, select


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0), ("0", 0.0)]
)
def test_parse_seconds_reads_durations(text: str, seconds: float) -> None:
    assert peers.parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-5m", "5 minutes", "m"])
def test_parse_seconds_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration such as 90, 30s, 5m or 1h"):
        peers.parse_seconds(text)


def test_select_keeps_the_order_of_the_suite() -> None:
    assert [w.name for w in select("models", ["mlp", "resnet18"])] == ["resnet18", "mlp"]


def test_select_names_the_unknown_workload() -> None:
    with pytest.raises(ValueError, match="--only 'vgg': the models suite has resnet18, resnet50, encoder, mlp"):
        select("models", ["vgg"])


def test_suites_have_distinct_names() -> None:
    names = [w.name for w in (*KERNELS, *MODELS)]
    assert len(set(names)) == len(names)


def test_arrays_are_the_same_every_time() -> None:
    workload = Workload("small", "layer_norm", ((4, 8),), ((8,), (8,)))
    (first,), constants = arrays(workload)
    arrays.cache_clear()
    (again,), _ = arrays(workload)
    assert first is not again
    assert (first == again).all()
    assert [c.shape for c in constants] == [(8,), (8,)]


def test_main_refuses_an_unknown_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        peers.main(["--suite", "models", "--peers", "torch,tvm"])
    assert exit_.value.code == 2
    assert "--peers 'tvm': the peers are torch, ort, openvino, inductor" in capsys.readouterr().err


def test_main_writes_a_row_of_reasons_when_nothing_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(machine, "prepare", lambda threads: None)
    path = tmp_path / "rows.json"
    arguments = ["--suite", "models", "--only", "mlp", "--threads", "1", "--peers", "ort", "--peers-only"]
    assert peers.main([*arguments, "--json", str(path)]) == 0
    written = json.loads(path.read_text())
    (row,) = written["rows"]
    assert (row["workload"], row["threads"], row["peers"]) == ("mlp", 1, {"ort": None})
    assert "PyTorch failed" in row["errors"]["ort"]
    assert written["machine"]["command"].startswith("python -m benchmarks.peers --suite models")
    assert "[1] ort: nothing to check against" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]


def test_bystanders_leave_out_our_own_work() -> None:
    before, after = machine.Usage(0.0, 1.0, 1.0), machine.Usage(10.0, 9.0, 7.0)
    why = "other processes used 10% of the cores meanwhile: time again when the machine is idle"
    assert machine.bystanders(before, after, processors=2) == (why,)


def test_bystanders_are_not_mentioned_on_an_idle_machine() -> None:
    before, after = machine.Usage(0.0, 1.0, 1.0), machine.Usage(10.0, 9.2, 9.0)
    assert machine.bystanders(before, after, processors=2) == ()
