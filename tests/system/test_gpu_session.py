"""The steps for a day with a GPU, rehearsed on cuda-host: every row is there, and sound."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cuda_host import cuda_host
from tools.gpu_session import STEPS, _Clock, _ran, _record, _varied, main
from tunegrad.devices.cuda.absent import absent
from tunegrad.errors import DeviceError
from tunegrad.opts import Space
from tunegrad.tuning.points import points_of


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


NEEDS_TORCH = ("tensors", "peers")
SLOW = ("corpus", "hostile", "tune")
"""Steps of many rows, each of which other tests have: of cuda-host, by other words."""


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=[pytest.mark.slow] * (s in SLOW)) for s in STEPS]
)
def test_step_runs_without_a_gpu(tmp_path, step):
    cuda_host()
    if step in NEEDS_TORCH:
        pytest.importorskip("torch")
    words = [step, "--device", "cuda-host", "--small", "--out", str(tmp_path)]
    assert main(words) == 0
    found = rows(tmp_path / f"{step}.jsonl")
    assert found
    assert [r for r in found if "error" in r] == []


def test_step_goes_on_where_it_stopped(tmp_path, monkeypatch):
    cuda_host()
    words = ["units", "--device", "cuda-host", "--small", "--out", str(tmp_path)]
    assert main(words) == 0
    path = tmp_path / "units.jsonl"
    kept = path.read_text().splitlines()
    path.write_text(kept[0] + "\n")
    assert main(words) == 0
    assert [r["name"] for r in rows(path)] == [json.loads(line)["name"] for line in kept]
    assert path.read_text().splitlines()[0] == kept[0], "what was there is not made again"


def test_a_row_that_is_unfinished_is_made_again(tmp_path):
    rows = [("whole", {"n": 1}), ("part", {"n": 2, "unfinished": True})]

    def step(made):
        return ((name, lambda name=name, row=row: made.append(name) or row) for name, row in rows)

    first, second = [], []
    assert _ran("x", step(first), tmp_path, _Clock(60.0)) == 0
    assert _ran("x", step(second), tmp_path, _Clock(60.0)) == 0
    assert (first, second) == (["whole", "part"], ["part"])


def test_a_step_stops_when_its_time_is_over_and_goes_on(tmp_path, capsys):
    def step():
        return ((name, lambda: time.sleep(0.05) or {}) for name in "abc")

    assert _ran("x", step(), tmp_path, _Clock(0.01)) == 2
    assert "x: stopped" in capsys.readouterr().out
    assert [r["name"] for r in rows(tmp_path / "x.jsonl")] == ["a"]
    assert _ran("x", step(), tmp_path, _Clock(60.0)) == 0
    assert [r["name"] for r in rows(tmp_path / "x.jsonl")] == ["a", "b", "c"]


def test_no_row_begins_that_would_end_too_late(tmp_path):
    """A model is tuned for minutes: after some of them it waits for the next command, which makes
    it first.
    """
    made = []

    def step():
        return ((name, lambda name=name: made.append(name) or {}) for name in "ab")

    clock = _Clock(60.0)
    assert _ran("units", step(), tmp_path, clock) == 0
    assert (_ran("tune", step(), tmp_path, clock), clock.over) == (2, True)
    assert _ran("tune", step(), tmp_path, _Clock(60.0)) == 2
    assert made == ["a", "b", "a"]


def test_what_is_missing_is_one_line(tmp_path, capsys, monkeypatch):
    def missing(name):
        raise DeviceError("device cuda: no NVIDIA driver was found on this machine")

    monkeypatch.setattr("tools.gpu_session.devices.running", missing)
    assert main(["probe", "--out", str(tmp_path)]) == 1
    found = capsys.readouterr().err
    assert found == "gpu_session: device cuda: no NVIDIA driver was found on this machine\n"


def test_the_session_needs_no_pytest():
    """A machine that is lent for minutes has what the package needs, and torch."""
    code = "import sys; sys.modules['pytest'] = None; import tools.gpu_session"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.slow
def test_spaces_that_are_recorded_are_eight_of_a_thousand():
    """What search can be developed on later: at the sizes of a GPU."""
    device, named = absent("sm_90a"), {}
    for name, make in _record(device, Path("nowhere"), small=False):
        _, kernel, _, blocks = make.args
        space = Space(kernel, device.target)
        named[name] = sum(1 for _ in points_of(space, _varied(space, blocks)))
    assert len(named) == 8
    assert {"gemm 4096x4096x4096", "conv 64 56", "softmax", "layer norm"} < set(named)
    assert {name: n for name, n in named.items() if not 16 <= n <= 1000} == {}
    assert sum(named.values()) > 2000


def test_a_row_that_fails_is_a_row(tmp_path, monkeypatch):
    cuda_host()
    import tools.gpu_session as session

    def broken(device, name):
        raise ValueError("no such unit")

    monkeypatch.setattr(session, "_unit", broken)
    words = ["units", "--device", "cuda-host", "--small", "--out", str(tmp_path)]
    assert main(words) == 1
    assert {r["error"] for r in rows(tmp_path / "units.jsonl")} == {"ValueError: no such unit"}
