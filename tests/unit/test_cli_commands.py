"""The shell around the library: each command makes its one call, prints data on stdout and the rest
on stderr.

The library's calls are replaced by recorders: what is tested is what the shell passes in and makes
of what comes back.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tunegrad.cli import main
from tunegrad.cli.app import run
from tunegrad.cli.tables import tune_text
from tunegrad.config import TuneSettings
from tunegrad.errors import DeviceError, StoreError
from tunegrad.events import CandidateMeasured, Observer, SessionStarted, Warned
from tunegrad.reports import (
    CompilerRow,
    DeviceRow,
    DoctorReport,
    IsolationRow,
    LookupRow,
    PlaceRow,
    RunReport,
    ShowRow,
    TuneReport,
    TuneRow,
)
from tunegrad.trial import Status

Install = Callable[..., None]
ROW = TuneRow(
    "conv_3x3",
    "k1",
    4,
    0.75,
    2.0,
    1.0,
    91.25,
    {"ok": 10, "wrong": 2, "crashed": 0},
    "tile(a, 4)",
    "beam",
    interval=(1.9, 2.1),
    best_ms=0.9,
)
UNTUNED = TuneRow("softmax", "k2", 1, 0.25, 0.5, None, None)


def report(*, interrupted: bool = False) -> TuneReport:
    return TuneReport(
        "mlp",
        "cpu",
        2,
        "beam",
        "tuned.db",
        "s1",
        (ROW, UNTUNED),
        12.0,
        8.0,
        interrupted,
        61.0,
        12 / 61.0,
        interval=(1.45, 1.56),
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a module of this name, with these functions, in the library's place."""

    def put(name: str, **members: object) -> None:
        module = ModuleType(name)
        for key, member in members.items():
            setattr(module, key, member)
        monkeypatch.setitem(sys.modules, name, module)

    return put


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else uses the machine while a benchmark's stand-in runs."""
    monkeypatch.setattr("tunegrad.tuning.machine.others_cpus", lambda _before, _after: 0.0)


class Tuner:
    """Stands for ``tune_models``: keeps what it was given, says a few things, returns reports or
    raises.
    """

    def __init__(self, outcome: TuneReport | tuple[TuneReport, ...] | BaseException) -> None:
        self.outcome = outcome
        self.settings: TuneSettings | None = None

    def __call__(
        self, settings: TuneSettings, observers: Sequence[Observer], began_s: float
    ) -> tuple[TuneReport, ...]:
        assert began_s <= time.monotonic()
        self.settings = settings
        for observer in observers:
            observer.observe(SessionStarted("s1", "mlp", "cpu", 2, "beam", 0, 60.0, 2, "tuned.db"))
            observer.observe(
                CandidateMeasured(
                    "conv_3x3", "", Status.WRONG, float("inf"), float("inf"), 0.0, "beam"
                )
            )
            observer.observe(Warned("the clock is unsteady"))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome if isinstance(self.outcome, tuple) else (self.outcome,)


def test_tune_passes_settings_resolved_from_the_command_line(
    install: Install, tmp_path: Path
) -> None:
    tuner = Tuner(report())
    install("tunegrad.tune", tune_models=tuner)
    store = str(tmp_path / "t.db")
    words = (
        "tune mlp --threads 1 --budget 90 --searcher random --seed 3 --device opencl "
        f"--store {store}"
    ).split()
    assert run(words) == 0
    s = tuner.settings
    assert s is not None
    assert (s.model.name, s.threads, s.budget_s, s.searcher, s.seed, s.device) == (
        "mlp",
        1,
        90.0,
        "random",
        3,
        "opencl",
    )
    assert s.store == Path(store)


def test_steps_of_training_say_when_their_tuning_is_paid_for() -> None:
    step = replace(report(), training=True)  # saves 4 ms a step after 61 s
    assert step.paid_after == 15_250
    assert "the 1:01 of tuning are paid for after 15,250 steps" in tune_text(step)
    assert "paid for" not in tune_text(report())
    assert replace(step, interval=(0.9, 1.6)).paid_after is None


def test_train_asks_for_a_step_by_sgd_or_as_it_is_set(install: Install) -> None:
    for words, name in (
        ("--train", "mlp[batch=4,train=sgd]"),
        ("--train --set train=adam", "mlp[batch=4,train=adam]"),
    ):
        tuner = Tuner(report())
        install("tunegrad.tune", tune_models=tuner)
        assert run(f"tune mlp --batch 4 {words} --store tuned.db".split()) == 0
        assert tuner.settings is not None
        assert tuner.settings.model.name == name


def test_tune_prints_the_table_and_then_the_model(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    assert run(["tune", "mlp", "--store", "tuned.db"]) == 0
    out = capsys.readouterr().out
    assert out == (
        "kernel    uses  share %  default ms  tuned ms        gain (95 %)  % of peak  "
        "candidates\n"
        "--------  ----  -------  ----------  --------  -----------------  ---------  "
        "------------\n"
        "conv_3x3     4     75.0      2.0000    1.0000  2.00x (1.90-2.10)       91.2  "
        "12 (2 wrong)\n"
        "softmax      1     25.0      0.5000         -                  -          -  0\n"
        "\n"
        "mlp on cpu, 2 threads: 12.00 ms with the default schedules, 8.0000 ms tuned, "
        "gain 1.50x (1.45 to 1.56)\n"
        "these are times in the whole model, both in turns; while it searched, kernels were "
        "measured alone, and the best took 3.6000 ms together\n"
        "12 (2 wrong) candidates in 1:01, 0.2 a second; store tuned.db\n"
    )


def test_tune_says_which_winners_were_withdrawn_and_exits_with_three(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    voided = (("matmul", "upcast(axis=a, size=4)", "in the whole model: wrong: output 0[3]"),)
    install("tunegrad.tune", tune_models=Tuner(replace(report(), voided=voided)))
    assert run(["tune", "mlp", "--store", "tuned.db"]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == (
        "withdrawn: kernel matmul: upcast(axis=a, size=4): in the whole model: wrong: output 0[3]"
    )
    assert "something else than its graph says" in said.err
    install(
        "tunegrad.tune",
        tune_models=Tuner(
            replace(report(), mismatch="with default schedules: in the whole model: wrong")
        ),
    )
    assert run(["tune", "mlp", "--store", "tuned.db"]) == 3
    assert (
        capsys.readouterr().out.splitlines()[-1].startswith("wrong outputs: with default schedules")
    )


def test_tune_takes_no_seeds_where_it_is_told_so(install: Install) -> None:
    tuner = Tuner(report())
    install("tunegrad.tune", tune_models=tuner)
    assert run(["tune", "mlp", "--no-warm-start", "--store", "t.db"]) == 0
    assert tuner.settings is not None
    assert not tuner.settings.warm_start
    assert run(["tune", "mlp", "--store", "t.db"]) == 0
    assert tuner.settings.warm_start


def test_tune_passes_the_limits_of_a_search(install: Install) -> None:
    tuner = Tuner(report())
    install("tunegrad.tune", tune_models=tuner)
    assert (
        run(
            [
                "tune",
                "mlp",
                "--patience",
                "0",
                "--target-ms",
                "2.5",
                "--max-trials",
                "400",
                "--store",
                "t.db",
            ]
        )
        == 0
    )
    assert tuner.settings is not None
    assert (tuner.settings.patience, tuner.settings.target_ms, tuner.settings.max_trials) == (
        0,
        2.5,
        400,
    )


def test_tune_of_several_models_is_one_session_with_a_table_of_each(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    both = (
        report(),
        replace(report(), model="encoder", stopped="patience", saved_s=9.0, budget_s=70.0),
    )
    tuner = Tuner(both)
    install("tunegrad.tune", tune_models=tuner)
    assert run(["tune", "mlp", "encoder", "--store", "t.db"]) == 0
    assert tuner.settings is not None
    assert [m.name for m in tuner.settings.models] == ["mlp", "encoder"]
    out = capsys.readouterr().out
    assert [line.split(" on ")[0] for line in out.splitlines() if " on cpu" in line] == [
        "mlp",
        "encoder",
    ]
    assert out.count("stopped early") == 1
    assert run(["tune", "mlp", "encoder", "--store", "t.db", "--json"]) == 0
    assert [r["model"] for r in json.loads(capsys.readouterr().out)] == ["mlp", "encoder"]


def test_tune_says_its_progress_on_stderr(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    run(["tune", "mlp", "--store", "tuned.db"])
    err = capsys.readouterr().err
    assert err.splitlines() == [
        "mlp on cpu, 2 threads: 2 kernels, beam search, seed 0, budget 1:00",
        "warning: the clock is unsteady",
    ]


def test_tune_json_is_all_that_stands_on_stdout(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    assert run(["tune", "mlp", "--store", "tuned.db", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["model"], data["gain"], data["interrupted"], data["candidates"]) == (
        "mlp", 1.5, False, {"ok": 10, "wrong": 2, "crashed": 0},
    )  # fmt: skip
    assert [(row["kernel"], row["gain"], row["actions"]) for row in data["rows"]] == [
        ("conv_3x3", 2.0, "tile(a, 4)"),
        ("softmax", None, ""),
    ]


def test_interrupted_tune_prints_its_table_and_exits_130(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(report(interrupted=True)))
    assert run(["tune", "mlp", "--store", "tuned.db"]) == 130
    captured = capsys.readouterr()
    assert "conv_3x3" in captured.out
    assert captured.err.splitlines()[-1] == (
        "interrupted: the best so far is kept in tuned.db; run the same command again to go on"
    )


def test_ctrl_c_outside_of_the_search_exits_130(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(KeyboardInterrupt()))
    assert run(["tune", "mlp", "--store", "tuned.db"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "interrupted"
    assert run(["tune", "mlp", "--store", "tuned.db", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == {
        "error": {"kind": "Interrupted", "message": "interrupted"}
    }


def test_ctrl_c_before_the_command_begins_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("signal.signal", lambda _signal, _handler: None)
    monkeypatch.setattr("tunegrad.cli.app.run", interrupted)
    monkeypatch.setattr(sys, "argv", ["tunegrad", "tune", "mlp", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["kind"] == "Interrupted"
    assert captured.err == "interrupted\n"


def test_tune_log_holds_every_event_a_line_each(install: Install, tmp_path: Path) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    log = tmp_path / "search.jsonl"
    assert run(["tune", "mlp", "--store", "tuned.db", "--log", str(log)]) == 0
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [record["event"] for record in records] == [
        "SessionStarted",
        "CandidateMeasured",
        "Warned",
    ]
    assert records[1]["status"] == "wrong"
    assert records[1]["seconds"] is None
    assert all(record["time_s"] > 0 for record in records)


def test_tune_makes_the_place_of_the_default_store(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "a" / "b" / "store.db"))
    install("tunegrad.tune", tune_models=Tuner(report()))
    assert run(["tune", "mlp"]) == 0
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_tune_does_not_make_the_place_of_a_named_store(install: Install, tmp_path: Path) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    run(["tune", "mlp", "--store", str(tmp_path / "typo" / "store.db")])
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "resnt18"], "model 'resnt18' is unknown, did you mean 'resnet18'?"),
        (["tune", "mlp", "--budget", "-5m"], "budget '-5m' is not a positive time"),
        (["tune", "mlp", "--searcher", "bean"], "searcher 'bean' is unknown, did you mean 'beam'?"),
        (["tune", "mlp", "--threads", "0"], "threads 0 is not a positive whole number"),
        (["run", "mlp", "--threads", "1000000000"], "threads 1000000000: at most 1024"),
        (["compare", "a.db", "missing.db"], "store a.db: there is no such file"),
        (
            ["tune", "mlp", "--store", "s.db", "--log", "no/such/dir/x.jsonl"],
            "log no/such/dir/x.jsonl: can not be writ",
        ),
        (["run", "no.toml"], "model 'no.toml': there is no such file"),
        (["show", "a:b:c"], "model 'a:b:c' is not of the form"),
    ],
)
def test_user_error_is_one_line_and_exits_1(
    words: list[str], message: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(report()))
    assert run(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1


def test_user_error_of_the_library_is_one_line_even_if_its_message_is_not(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(DeviceError("device cuda:\n  not here")))
    assert run(["tune", "mlp", "--store", "s.db"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: device cuda: not here"


def test_internal_error_is_not_swallowed(install: Install) -> None:
    install("tunegrad.tune", tune_models=Tuner(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        run(["tune", "mlp", "--store", "s.db"])


@pytest.mark.parametrize(
    "words",
    [["tun", "mlp"], ["tune"], ["tune", "mlp", "--bugdet", "5m"],
        ["tune", "mlp", "--threads", "two"], ["store", "x"],
     ["run", "mlp", "--on-miss", "guess"]],
)  # fmt: skip
def test_usage_error_exits_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: tunegrad" in captured.err


def test_run_loads_with_the_settings_and_prints_both_latencies(
    install: Install, quiet: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given: dict[str, object] = {}
    rows = (
        LookupRow("conv", "k1", 4, "hit"),
        LookupRow("pool", "k2", 1, "near", ("threads: 1 != 2",)),
    )

    class Loaded:
        def benchmark(self) -> RunReport:
            return RunReport("mlp", "cpu", 1, "t.db", 8.0, 12.0, 20, rows, interval=(1.4, 1.6))

    def load(model: str, **options: object) -> Loaded:
        given.update(options, model=model)
        return Loaded()

    install("tunegrad.inference", load=load)
    assert (
        run(
            [
                "run",
                "mlp",
                "--threads",
                "1",
                "--store",
                "t.db",
                "--seed",
                "5",
                "--on-miss",
                "nearest",
            ]
        )
        == 0
    )
    assert given == {
        "model": "mlp", "device": "cpu", "store": Path("t.db"), "on_miss": "nearest", "threads": 1,
        "weights": None,
        "seed": 5, "numerics": "contract", "dtype": "f32",
    }  # fmt: skip
    assert capsys.readouterr().out == (
        "mlp on cpu, 1 thread: 8.0000 ms with the store, 12.00 ms with the default "
        "schedules, gain 1.50x (1.40 to 1.60) "
        "(medians of 20)\n"
        "\n"
        "kernel  uses  store  why not a hit\n"
        "------  ----  -----  ---------------\n"
        "conv       4  hit\n"
        "pool       1  near   threads: 1 != 2\n"
    )


def test_show_prints_actions_and_where_they_came_from(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ShowRow("conv", "k1", 4, "hit", "tile(a, 4) upcast(b)", "beam", "s1", 1.25),
        ShowRow("pool", "k2", 1, "miss", "", "default", differs=("arch: zen4 != zen5",)),
    ]
    install("tunegrad.tune", show=lambda _settings: rows)
    assert run(["show", "mlp", "--store", "t.db"]) == 0
    assert capsys.readouterr().out == (
        "conv  k1\n"
        "    uses 4, 1.2500 ms; hit; from beam, session s1\n"
        "    tile(a, 4) upcast(b)\n"
        "pool  k2\n"
        "    uses 1; miss (arch: zen4 != zen5); from default\n"
        "    (no actions)\n"
    )


DOCTOR = DoctorReport(
    devices=(
        DeviceRow("cpu", True, "zen4, 2 threads"),
        DeviceRow("cuda", False, "install the extra [cuda]"),
    ),
    compilers=(CompilerRow("llvm", "22.1"), CompilerRow("gcc", "")),
    versions=(CompilerRow("python", "3.11.7"),),
    threads=2,
    fma_peak_gflops=234.0,
    fma_peak_one_thread_gflops=117.0,
    bandwidth_gb_per_s=39.0,
    bandwidth_one_thread_gb_per_s=34.0,
    isolation=(
        IsolationRow("seccomp", True, "system calls"),
        IsolationRow("Landlock", False, "none"),
    ),
    places=(PlaceRow("store", "/s.db", "there is none yet"),),
    cpus=2,
    others_cpus=1.25,
    busy="other processes use 1.2 of the 2 CPUs",
    no_counters="Permission denied",
)


def test_what_a_terminal_would_act_on_is_escaped_on_both_streams(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [ShowRow("conv\x1b[2J", "k1", 1, "hit", "tile(a, 4)", "beam\u202e", "s1", 1.25)]
    install("tunegrad.tune", show=lambda _settings: rows)
    assert run(["show", "mlp"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        r"conv\x1b[2J  k1",
        r"    uses 1, 1.2500 ms; hit; from beam\u202e, session s1",
    ]

    def refused(_settings: TuneSettings) -> None:
        raise StoreError("store \x1b]0;title\x07: no")

    install("tunegrad.tune", show=refused)
    assert run(["show", "mlp"]) == 1
    assert capsys.readouterr().err == "error: store \\x1b]0;title\\x07: no\n"


def test_doctor_prints_devices_versions_and_peaks(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", doctor=lambda: DOCTOR)
    assert run(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cuda", "no", "install", "the", "extra", "[cuda]"] in lines
    assert ["gcc", "not", "installed"] in lines
    assert ["FMA", "peak,", "f32,", "GFLOP/s", "117.0", "234.0"] in lines
    assert ["seccomp", "yes", "system", "calls"] in lines
    assert ["Landlock", "no", "none"] in lines
    assert ["store", "/s.db", "there", "is", "none", "yet"] in lines
    busy = "other processes use 1.2 of 2 CPUs: the machine is busy, and the peaks are too low"
    assert busy.split() in lines
    assert ["hardware", "counters", "for", "perf:", "no", "(Permission", "denied)"] in lines


@pytest.mark.parametrize("command", ["stats", "verify"])
def test_store_that_is_not_there_is_one_line_and_exits_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["store", command, "--store", str(tmp_path / "no.db")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: store ")
    assert list(tmp_path.iterdir()) == []


def test_foreign_file_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a store " * 100, encoding="utf-8")
    assert run(["store", "stats", "--store", str(path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert path.read_text(encoding="utf-8") == "not a store " * 100


def test_store_stats_and_verify_read_a_real_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tunegrad.db import open_store

    path = tmp_path / "t.db"
    open_store(path, "write").close()
    assert run(["store", "stats", "--store", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 0
    assert run(["store", "verify", "--store", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"


def test_store_verify_exits_3_on_damage(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    class Damaged:
        def __enter__(self) -> Damaged:
            return self

        def __exit__(self, *exc: object) -> None:
            return None

        def verify(self) -> list[str]:
            return ["trial row 7: the checksum does not match"]

    install("tunegrad.db", open_store=lambda _path, _mode: Damaged(), unread_texts=lambda _: ())
    assert run(["store", "verify", "--store", "t.db"]) == 3
    assert capsys.readouterr().out == "t.db: trial row 7: the checksum does not match\n"


def test_store_error_keeps_stdout_pure_under_json(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tunegrad.tune", tune_models=Tuner(StoreError("store s.db: is held by process 7")))
    assert run(["tune", "mlp", "--store", "s.db", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "error": {"kind": "StoreError", "message": "store s.db: is held by process 7"}
    }


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tunegrad ")


def test_the_end_of_a_file_is_no_ctrl_c(install: Install) -> None:
    """Click takes it for one; a module's code that was cut off on a full disk ends so."""
    install("tunegrad.tune", tune_models=Tuner(EOFError("marshal data too short")))
    with pytest.raises(EOFError, match="marshal data too short"):
        run(["tune", "mlp", "--store", "tuned.db"])
