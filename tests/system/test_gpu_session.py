"""The steps for a day with a GPU, rehearsed on cuda-host: every row is there, and sound; rows that
fail, hang or end their process cost no other row.
"""

import json

import pytest

from tests.cuda_host import cuda_host
from tests.nvrtc_builds import require_nvrtc
from tests.time_enough import with_time_enough
from tools.gpu_child import Asked
from tools.gpu_journal import Journal
from tools.gpu_session import Clock, folder_of, main, ran
from tools.gpu_steps import STEPS, Step
from tunegrad.devices.cuda.device import absent


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_all_steps_run_without_a_gpu(tmp_path):
    device = cuda_host()
    assert main(["all", "--device", device.name, "--small", "--out", str(tmp_path)]) == 0
    folder = folder_of(tmp_path, device)
    found = {path.stem: rows(path) for path in folder.glob("*.jsonl")}
    assert found.keys() == {*STEPS, "began"} - {"compiled"}
    assert all(found.values())
    assert [r for made in found.values() for r in made if "error" in r] == []
    began = [(r["step"], r["name"]) for r in found.pop("began")]
    assert sorted(began) == sorted((s, r["name"]) for s, made in found.items() for r in made)
    row = found["gemm"][0]
    assert row["max_error"] < 1e-4
    assert row["tflops"] == pytest.approx(2 * 64**3 / row["seconds"] / 1e12)
    assert found["peers"][0]["machine"]["compiler_version"] == device.compiler()


def test_a_wrong_result_is_not_timed(tmp_path, monkeypatch):
    """The referee compares each row's result with float64's before a sample is taken."""
    from tools import gpu_measuring
    from tunegrad.devices.job import Hooks

    wrong = Hooks(
        gpu_measuring.HOOKS.lower, gpu_measuring.HOOKS.inputs,
        "tests.gpu_rows:wrong_reference", gpu_measuring.HOOKS.kinds,
    )  # fmt: skip
    monkeypatch.setattr(gpu_measuring, "HOOKS", wrong)
    from tests.gpu_hand import gemm

    with pytest.raises(AssertionError, match=r"^wrong: "):
        gpu_measuring.measured(cuda_host(), gemm(16, 16, 16, "f32"))


# ---- rows that misbehave


def run(tmp_path, *steps, limit_s=60.0, clock=None):
    """Rows of ``tests.gpu_rows``: the exit code, rows by step, and what was made, in order."""
    cuda_host()
    asked = Asked("cuda-host", str(tmp_path), rows="tests.gpu_rows:rows_of")
    made = {step: Step(None, limit_s=limit_s) for step in steps}
    code = ran(made, asked, clock or Clock(60.0))
    path = tmp_path / "made"
    order = path.read_text().splitlines() if path.exists() else []
    path.write_text("")
    return code, {step: rows(tmp_path / f"{step}.jsonl") for step in steps}, order


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("killed", "its process died: SIGKILL"),
        ("faults", "DeviceFault: an illegal address"),
    ],
)
def test_a_row_that_fails_costs_no_other_and_is_made_once_more(tmp_path, capsys, step, told):
    names = ["good", step, "good afterwards"]
    code, found, order = run(tmp_path, step)
    assert (code, order) == (1, names)
    assert [r.get("error", "") for r in found[step]] == ["", told, ""]
    assert "last words" in found[step][1].get("printed", "last words"), "what it said is kept"
    code, found, order = run(tmp_path, step)
    assert (code, order) == (1, [step])
    code, found, order = run(tmp_path, step)
    assert (code, order, len(found[step])) == (1, [], 4)
    assert f"{step}: {step} is left out: it failed twice" in capsys.readouterr().out


def test_a_row_that_hangs_is_ended_and_not_made_again(tmp_path, capsys):
    names = ["good", "hangs", "good afterwards"]

    def hung(limit_s):
        folder = tmp_path / f"{limit_s:g}"
        folder.mkdir()
        return (limit_s, folder, *run(folder, "hangs", limit_s=limit_s))

    limit_s, folder, code, found, order = with_time_enough(hung, lambda made: made[-1] == names)
    assert (code, order) == (1, names)
    assert found["hangs"][1]["error"] == f"over {limit_s:g} s: its process was killed"
    assert "error" not in found["hangs"][2]
    code, _, order = run(folder, "hangs", limit_s=limit_s)
    assert (code, order) == (1, [])
    assert "hangs: hangs is left out: it hung before" in capsys.readouterr().out


def test_a_row_that_a_cut_left_without_an_end_is_made_once_more(tmp_path):
    journal = Journal(tmp_path)
    journal.begin("x", "good")
    journal.begin("x", "x")
    journal.begin("x", "x")
    states = [Journal(tmp_path).state("x", n) for n in ("good", "x", "good afterwards")]
    assert states == ["again", "failed", "new"]
    code, _, order = run(tmp_path, "x")
    assert order == ["good afterwards", "good"], "what was never made comes first"
    assert code == 0


def test_a_step_stops_when_its_time_is_over_and_goes_on(tmp_path, capsys):
    code, _, order = run(tmp_path, "x", clock=Clock(0.01))
    assert (code, order) == (2, ["good"])
    assert "x: stopped" in capsys.readouterr().out
    code, _, order = run(tmp_path, "x")
    assert (code, order) == (0, ["x", "good afterwards"])


# ---- what it needs, and where rows go


def test_another_gpu_has_a_folder_of_its_own(tmp_path):
    require_nvrtc()
    folders = [folder_of(tmp_path, absent(arch)) for arch in ("sm_80", "sm_90a")]
    assert folders[0] != folders[1]
    assert folder_of(tmp_path, absent("sm_80")) == folders[0]
