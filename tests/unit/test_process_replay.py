"""Process replay finds what changed, and nothing where nothing did."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools import process_replay
from tools.process_replay import capture, differences, load, main, save

ROOT = Path(__file__).parents[2]
SOME = ("gemm_square", "softmax", "pad")


@pytest.fixture(scope="module")
def before():
    return capture(1, SOME)


def test_process_replay_of_the_same_code_differs_nowhere(before):
    assert len(before) >= 3 * 3 * 3
    assert differences(before, capture(1, SOME)) == []


def test_process_replay_does_not_depend_on_the_hash_seed(before, tmp_path):
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests']\n"
        "from pathlib import Path; from tools.process_replay import capture, save\n"
        f"save(capture(1, {SOME!r}), Path(sys.argv[2]))\n"
    )
    file = tmp_path / "other.json"
    env = {**os.environ, "PYTHONHASHSEED": "4242"}
    subprocess.run([sys.executable, "-c", code, str(ROOT), str(file)], env=env, check=True)
    assert differences(before, load(file)) == []


def test_process_replay_sees_a_changed_lowering(before, monkeypatch):
    from tunegrad.ir.program import Barrier, Program
    from tunegrad.opts import Space

    real = Space.lower

    def lower(self: Space, schedule: object) -> Program:
        program = real(self, schedule)
        changed = "max" in self.kernel.text and self.target.kind == "cpu"
        return replace(program, body=(*program.body, Barrier())) if changed else program

    monkeypatch.setattr(Space, "lower", lower)
    found = differences(before, capture(1, SOME))
    assert found
    assert all(line.startswith("softmax.0.") for line in found)
    assert found[0].endswith("program, text changed")


def test_process_replay_sees_a_changed_renderer(before, monkeypatch):
    machine, render = process_replay._TARGETS["sse"]
    monkeypatch.setitem(process_replay._TARGETS, "sse", (machine, lambda p: render(p) + "; more\n"))
    found = differences(before, capture(1, SOME))
    assert len(found) == sum(c.target == "sse" for c in before)
    assert all(line.endswith(": text changed") for line in found)


def test_process_replay_command_line(before, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(process_replay, "capture", lambda decisions: before)
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert main(["capture", str(old)]) == 0
    assert main(["compare", str(old)]) == 0
    save([replace(before[0], program="x"), *before[1:]], new)
    assert main(["compare", str(old), str(new)]) == 3
    assert (
        f"{before[0].name}: program changed\n1 of {len(before)} cases differ"
        in capsys.readouterr().out
    )
