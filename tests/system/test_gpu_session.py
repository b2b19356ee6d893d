"""The steps for a day with a GPU, rehearsed on cuda-host: every row is there, and sound."""

import json

import pytest

from tests.cuda_host import cuda_host
from tools.gpu_session import STEPS, main


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


SLOW = ("corpus", "hostile")
"""Steps of many rows, each of which other tests have: of cuda-host, by other words."""


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=[pytest.mark.slow] * (s in SLOW)) for s in STEPS]
)
def test_step_runs_without_a_gpu(tmp_path, step):
    cuda_host()
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


def test_a_row_that_fails_is_a_row(tmp_path, monkeypatch):
    cuda_host()
    import tools.gpu_session as session

    def broken(device, name):
        raise ValueError("no such unit")

    monkeypatch.setattr(session, "_unit", broken)
    words = ["units", "--device", "cuda-host", "--small", "--out", str(tmp_path)]
    assert main(words) == 1
    assert {r["error"] for r in rows(tmp_path / "units.jsonl")} == {"ValueError: no such unit"}
