"""The latency tool draws the same sample every time, and says which texts changed."""

from __future__ import annotations

import json

import pytest

from benchmarks.hand_schedules import AVX512
from tools.latency import draw, main


@pytest.fixture(scope="module")
def sample():
    return draw("mlp", AVX512, 3)


def test_latency_sample_is_fixed(sample):
    assert sample == draw("mlp", AVX512, 3)
    assert len({(d.kernel.key, d.actions) for d in sample}) == len(sample)


def test_latency_names_the_texts_that_changed(tmp_path, capsys):
    file = tmp_path / "before.json"
    asked = ["--model", "mlp", "--threads", "1", "--per-kernel", "1", "--repeats", "1"]
    assert main([*asked, "--json", str(file)]) == 0
    assert main([*asked, "--against", str(file)]) == 0
    rows = json.loads(file.read_text())
    rows[0]["text"] = "another"
    file.write_text(json.dumps(rows))
    assert main([*asked, "--against", str(file)]) == 3
    assert capsys.readouterr().out.endswith(
        f"1 of {len(rows)} texts differ from before.json\n  {rows[0]['name']}\n"
    )
