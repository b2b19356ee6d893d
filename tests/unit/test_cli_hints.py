"""What a command line says to somebody who is nearly right, and how soon."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tunegrad.cli.app import run
from tunegrad.cli.options import with_arguments
from tunegrad.cli.tables import run_text
from tunegrad.config import parse_duration
from tunegrad.reports import LookupRow, RunReport


def test_command_of_a_near_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tuen", "mlp"]) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'tune'?" in said
    assert "store, models, cache, doctor" in said


@pytest.mark.parametrize(
    ("group", "name", "near"), [("store", "exprot", "export"), ("store", "mrege", "merge")]
)
def test_near_name_within_a_group_is_named(
    group: str, name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([group, name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"Error: No such command {name!r}. Did you mean {near!r}? Commands: " in said


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400.0), ("2d", 172_800.0), ("1.5h", 5400.0), ("90", 90.0)]
)
def test_duration_is_one_language(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1h30", "30m1", "-5s", "0s", "1e9", "nan", "5 m"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None


def test_error_is_also_json_where_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "no_such_model", "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)["error"]
    assert found["kind"] == "ModelError"
    assert captured.err.strip() == f"error: {found['message']}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tune --json", "Missing argument 'MODEL...'."),
        ("tune mlp --batch x --json", "Invalid value for '--batch': 'x' is not a valid integer"),
        ("frobnicate --json", "No such command 'frobnicate'. Commands: tune, run"),
    ],
)
def test_usage_error_is_also_json_where_that_was_asked_for(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    captured = capsys.readouterr()
    found = json.loads(captured.out)["error"]
    assert found["kind"] == "UsageError"
    assert found["message"].startswith(message)
    assert message in captured.err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--store", "/no_such_directory/x.db", "directory /no_such_directory does not exist"),
        ("--device", "cudda", "device 'cudda' is unknown"),
    ],
)
def test_bad_place_is_told_before_a_model_is_built(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delitem(sys.modules, "tunegrad.tuning.session", raising=False)
    assert run(["tune", "mlp", "--store", ":memory:", option, value]) == 1
    assert message in capsys.readouterr().err
    assert "tunegrad.tuning.session" not in sys.modules


def test_batch_and_settings_are_part_of_the_name() -> None:
    assert with_arguments("mlp", None, ()) == "mlp"
    assert with_arguments("mlp", 8, ("sizes=[8,4]",)) == "mlp[batch=8,sizes=[8,4]]"
    assert with_arguments("mlp[batch=8]", None, ("sizes=[8,4]",)) == "mlp[batch=8,sizes=[8,4]]"


def report(outcome: str, interval: tuple[float, float]) -> RunReport:
    rows = (LookupRow("k", "0" * 32, 1, outcome),)  # type: ignore[arg-type]
    return RunReport("m", "cpu", 1, "s.db", 1.0, 1.2, 9, rows, interval=interval)


def test_run_without_a_winner_has_nothing_to_compare() -> None:
    text = run_text(report("miss", (1.1, 1.3)))
    assert "there is nothing to compare" in text
    assert "gain" not in text
    assert report("miss", (1.1, 1.3)).gain is None


def test_gain_has_its_interval_and_one_that_holds_1_is_no_difference() -> None:
    assert "gain 1.20x (1.10 to 1.30)" in run_text(report("hit", (1.1, 1.3)))
    assert "no difference (0.97 to 1.30)" in run_text(report("hit", (0.97, 1.3)))


@pytest.mark.parametrize("threads", [2.0, "2", True, 0])
def test_threads_that_are_no_number_of_threads_are_refused(threads: object) -> None:
    import tunegrad as tg
    from tunegrad.errors import UserError

    for call in (tg.load, tg.tune):
        with pytest.raises(UserError) as caught:
            call("mlp", threads=threads, store=":memory:" if call is tg.tune else False)
        assert f"threads {threads!r} is not a " in str(caught.value)
        assert "whole number" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("um.py", "; a function of that file is um:function; valid: "),
        ("net.pt", "; a function package.module:function may load it, and give its torch.nn"),
        ("mlp[batch=2", ": the bracket of its arguments is not closed"),
        ("resnet19", ", did you mean 'resnet18'?; valid: "),
    ],
)
def test_a_model_that_is_nearly_right_is_told_how(
    model: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", model]) == 1
    assert hint in capsys.readouterr().err


def test_a_device_in_another_case_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "mlp", "--device", "CPU"]) == 1
    assert "device 'CPU' is unknown, did you mean 'cpu'?" in capsys.readouterr().err


def test_error_within_a_function_that_is_traced_has_the_line_that_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import numpy as np\ndef net():\n    return twice, [np.ones((3, 4), np.float32)]\n"
    (tmp_path / "traced_net.py").write_text(f"{text}def twice(x):\n    return x @ x\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["show", "traced_net:net"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: matmul: shapes (3, 4) and (3, 4)")
    assert said[1] == f'  File "{tmp_path / "traced_net.py"}", line 5, in twice'
    assert said[2:3] == ["    return x @ x"]
    assert not any("tunegrad/" in line for line in said)
