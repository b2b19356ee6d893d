"""The command line: its arguments, the suites, and a run in which no peer can be imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import machine, peers
from benchmarks.workloads import (
    Workload,
    arrays,
    resnet_convolutions,
)


@pytest.mark.parametrize(
    ("depths", "bottleneck", "count"), [((2, 2, 2, 2), False, 11), ((3, 4, 6, 3), True, 23)]
)
def test_resnet_convolutions_are_the_distinct_ones(
    depths: tuple[int, ...], bottleneck: bool, count: int
) -> None:
    found = resnet_convolutions(depths, bottleneck=bottleneck)
    assert len({w.name for w in found}) == len(found) == count


def test_arrays_start_on_a_page() -> None:
    (array,), _ = arrays(Workload("aligned", "gelu", ((3, 5),)))
    assert array.ctypes.data % 4096 == 0
    assert array.std() > 0


def test_arrays_are_the_same_every_time() -> None:
    workload = Workload("small", "layer_norm", ((4, 8),), ((8,), (8,)))
    (first,), constants = arrays(workload)
    arrays.cache_clear()
    (again,), _ = arrays(workload)
    assert first is not again
    assert (first == again).all()
    assert [c.shape for c in constants] == [(8,), (8,)]


def test_main_writes_a_row_of_reasons_when_nothing_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(machine, "prepare", lambda threads, scratch: None)
    path = tmp_path / "rows.json"
    arguments = [
        "--suite",
        "models",
        "--only",
        "mlp",
        "--threads",
        "1",
        "--peers",
        "ort",
        "--peers-only",
    ]
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


def _resume(path: Path, threads: int = 1) -> int:
    arguments = [
        "--suite",
        "models",
        "--only",
        "mlp,encoder",
        "--threads",
        str(threads),
        "--peers",
        "ort",
        "--peers-only",
    ]
    return peers.main([*arguments, "--resume", str(path), "--json", str(path)])


@pytest.fixture
def half_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which the encoder has a row and the mlp has none, and a process in which nothing
    can be measured.
    """
    for name in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(machine, "prepare", lambda threads, scratch: None)
    path = tmp_path / "rows.json"
    assert _resume(path) == 0
    content = json.loads(path.read_text())
    content["rows"] = [
        {**row, "peers": {"ort": 2.5}} for row in content["rows"] if row["workload"] == "encoder"
    ]
    path.write_text(json.dumps(content))
    return path


def test_main_resumes_without_measuring_again(
    half_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _resume(half_run) == 0
    rows = {row["workload"]: row["peers"] for row in json.loads(half_run.read_text())["rows"]}
    assert rows == {"encoder": {"ort": 2.5}, "mlp": {"ort": None}}
    assert "[1/2] encoder: kept" in capsys.readouterr().err


def test_main_refuses_to_resume_under_other_settings(
    half_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _resume(half_run, threads=2)
    assert "threads was 1, now it is 2" in capsys.readouterr().err
