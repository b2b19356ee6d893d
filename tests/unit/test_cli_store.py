"""``tunegrad store ...`` on real files: data on stdout, notes on stderr, exit codes as
documented.
"""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from dataclasses import replace

import pytest
from kernel_corpus import corpus_kernel
from store_exports import WORLD, latency, make, trial
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.cli.app import run
from tunegrad.cli.tables import plain
from tunegrad.db import Contents, key_of, open_store
from tunegrad.db.exchange.export import export_lines
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.opts import SPACE_VERSION


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "a.db", WORLD)


@pytest.fixture
def out(capsys):
    def read() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    return read


def test_store_export_prints_lines_that_import_takes_back(path, tmp_path, out):
    assert run(["store", "export", "--store", str(path)]) == 0
    lines, _ = out()
    assert lines.splitlines() == list(export_lines(WORLD))
    (tmp_path / "a.jsonl").write_text(lines)
    assert (
        run(["store", "import", str(tmp_path / "a.jsonl"), "--store", str(tmp_path / "b.db")]) == 0
    )
    assert out()[0].splitlines()[:2] == [
        f"imported {tmp_path / 'a.jsonl'} into {tmp_path / 'b.db'}",
        "  new trials                       4",
    ]
    assert run(["store", "diff", str(path), str(tmp_path / "b.db")]) == 0
    assert out()[0].splitlines() == [
        "latency of mlp, tuned, the newest: a 2.0000 ms, b 2.0000 ms, a / b 1.00",
        "1 winners are the same, 0 differ",
    ]


def test_store_import_reads_stdin(tmp_path, monkeypatch, out):
    class Stdin:
        buffer = io.BytesIO("\n".join(export_lines(WORLD)).encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert run(["store", "import", "-", "--store", str(tmp_path / "b.db"), "--json"]) == 0
    assert json.loads(out()[0])["new_trials"] == 4


def test_store_import_names_refused_rows_and_exits_3(tmp_path, out):
    lines = [*export_lines(WORLD), '{"row": "spend", "model": "\x1b[2J"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert (
        run(
            [
                "store",
                "import",
                str(tmp_path / "a.jsonl"),
                "--store",
                str(tmp_path / "b.db"),
                "--json",
            ]
        )
        == 3
    )
    data, notes = out()
    assert "\x1b" not in notes
    assert notes.startswith(f"refused: {tmp_path / 'a.jsonl'} line 13: row: line is ")
    (refused,) = json.loads(data)["refused"]
    assert (refused["line"], refused["field"], refused["rule"]) == (
        13,
        "line",
        "must be JSON (JSONDecodeError)",
    )


def test_store_import_refuses_illegal_schedules_of_this_machine(tmp_path, out):
    kernel = corpus_kernel("gemm_square")
    here = fingerprint(host_target(2))
    texts = ("", "tile(axis=nowhere, size=4)", "tile(axis=a, size=4)")
    trials = tuple(
        replace(
            trial(0),
            kernel_text=kernel.text,
            kernel_key=kernel.key,
            fingerprint=machine,
            actions=text,
            space_version=SPACE_VERSION,
        )
        for machine in (here, HERE)
        for text in texts
    )
    file = Contents(kernels=((kernel.text, "k"),), sessions=WORLD.sessions, trials=trials)
    (tmp_path / "a.jsonl").write_text("\n".join(export_lines(file)))
    words = ["store", "import", str(tmp_path / "a.jsonl"), "--store", str(tmp_path / "b.db")]
    assert run([*words, "--json", "--dry-run"]) == 3
    data = json.loads(out()[0])
    assert (data["new_trials"], data["unchecked_trials"], data["unchecked"]) == (
        5,
        3,
        {"of another machine": 3},
    )
    assert run(words) == 3
    text, notes = out()
    rule = "must be legal here: tile(axis=nowhere, size=4): no loop 'nowhere'"
    assert notes.count("refused: ") == notes.count(rule) == 1
    assert "  trials not checked for legality  3\n    of another machine             3" in text
    with open_store(tmp_path / "b.db") as store:
        assert sorted(t.actions for t in store.trials(kernel.key, here)) == sorted(texts[::2])


def test_store_import_makes_the_place_of_the_default_store_only(tmp_path, monkeypatch, out):
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "x" / "store.db"))
    (tmp_path / "a.jsonl").write_text("\n".join(export_lines(WORLD)))
    assert run(["store", "import", str(tmp_path / "a.jsonl"), "--dry-run"]) == 0
    assert not (tmp_path / "x").exists()
    assert run(["store", "import", str(tmp_path / "a.jsonl")]) == 0
    assert (
        run(["store", "import", str(tmp_path / "a.jsonl"), "--store", str(tmp_path / "y" / "s.db")])
        == 1
    )
    assert not (tmp_path / "y").exists()


def test_store_import_of_no_file_is_one_line(tmp_path, out):
    assert (
        run(["store", "import", str(tmp_path / "no.jsonl"), "--store", str(tmp_path / "b.db")]) == 1
    )
    assert (
        out()[1]
        == f"error: file {tmp_path / 'no.jsonl'}: can not be read: No such file or directory\n"
    )
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to remove: --keep-best, --older-than or --space-version"),
        (["--older-than", "soon"], "'soon' is not an age such as 12h, 30d or 8w"),
        (["--keep-best", "-1"], "-1 is not in the range x>=0"),
    ],
)
def test_store_prune_without_a_rule_is_a_usage_error(path, out, words, message):
    assert run(["store", "prune", "--store", str(path), *words]) == 2
    assert message in out()[1]


def test_store_prune_says_rows_and_bytes(path, out):
    assert run(["store", "prune", "--store", str(path), "--older-than", "1d", "--dry-run"]) == 0
    # The promoted trial and the fastest stay whatever their age.
    assert out()[0].startswith(f"{path}: would remove 2 trials and 0 kernels, 2 trials stay; ")
    assert run(["store", "prune", "--store", str(path), "--keep-best", "1", "--json"]) == 0
    data = json.loads(out()[0])
    assert data["freed_bytes"] == data["bytes_before"] - data["bytes_after"]


def test_store_diff_exits_3_and_shows_times_and_evidence(path, tmp_path, out):
    other = make(tmp_path / "b.db", Contents(trials=(trial(1),)))
    assert run(["store", "diff", str(path), str(other)]) == 3
    assert out()[0].splitlines()[:3] == [
        f"matmul_64  {KEY}  a / b 0.50",
        "    a: 1.0000 ms (mannwhitneyu p=0.001, 1 samples)  tile(axis=m, size=2)",
        "    b: 2.0000 ms (fastest, no promotion, 3 samples)  tile(axis=m, size=1)",
    ]


def test_store_history_of_a_model_is_its_latencies_with_what_changed(tmp_path, out):
    eight = {"samples_s": (4e-3,) * 8, "default_samples_s": (8e-3,) * 8}
    rows = latency(2e-3, at=6000.0), replace(latency(4e-3, at=7000.0), **eight)
    path = make(tmp_path / "a.db", replace(WORLD, latencies=rows))
    assert run(["store", "history", "mlp", "--store", str(path)]) == 0
    lines = out()[0].splitlines()
    assert lines[0] == "mlp"
    assert [line.split()[2:7] for line in lines[4:]] == [
        ["tuned", "2.0000", "-", "4.0000", "-"],  # two pairs do not say how sure a gain is
        ["tuned", "4.0000", "2.00x", "8.0000", "2.00x"],
    ]
    assert "2.00x (2.00-2.00)" in lines[5]
    assert lines[4].endswith("governor performance; load_1m 0.5; compiler llvmlite 0.44")
    assert lines[5].endswith("governor performance; load_1m 0.5"), "the compiler is as before"


def test_store_history_of_a_kernel_is_what_won_and_what_was_decided(path, out):
    assert run(["store", "history", "matmul_64", "--store", str(path), "--json"]) == 0
    data = json.loads(out()[0])
    assert [(m["actions"], m["promoted"], m["status"]) for m in data["measurements"]] == [
        ("tile(axis=m, size=2)", True, "ok"),
    ]  # fmt: skip
    assert (data["key"], data["left_out"], data["latencies"]) == (KEY, 3, [])
    (decided,) = data["decisions"]
    assert (decided["kind"], decided["choice"], decided["chosen"]) == ("variant", "winograd2", True)
    assert (decided["incumbent_ms"], decided["challenger_ms"], decided["p_value"]) == (
        3.5,
        1.5,
        0.01,
    )
    assert run(["store", "history", KEY[:6], "--store", str(path), "--all"]) == 0
    text = out()[0]
    assert [line.split()[2] for line in text.splitlines()[4:8]] == ["ok", "ok", "wrong", "crashed"]
    assert "variant   winograd2  stands since  sign  0.01" in text


def test_store_history_shows_a_schedule_that_was_measured_again(tmp_path, out):
    again = replace(trial(0, seconds=5e-3), session="s2", created_s=9000.0)
    path = make(tmp_path / "a.db", Contents(trials=(trial(0), trial(3), again)))
    assert run(["store", "history", KEY, "--store", str(path), "--json"]) == 0
    data = json.loads(out()[0])
    assert [(m["time_ms"], m["session"]) for m in data["measurements"]] == [
        (1.0, "s1"),
        (5.0, "s2"),
    ]


def test_store_why_shows_every_field_and_the_evidence(path, out):
    assert run(["store", "why", "matmul_64", "--store", str(path), "--threads", "1"]) == 0
    text, _ = out()
    lines = text.splitlines()
    assert lines[0] == f"matmul_64  {KEY}"
    assert lines[1].startswith("miss: ")
    for field, _value in HERE.fields:
        assert any(line.startswith(f"{field} ") for line in lines)
    assert "nearest winner: 1.0000 ms, promoted last" in lines
    assert any("mannwhitneyu  0.001     2.0000    1.0000" in line for line in lines)
    assert (
        "  candidates: 2 ok, 1 wrong, 1 crashed; the fastest took 1.0000 ms when it was searched"
        in lines
    )


def test_store_verify_salvages_what_is_sound(tmp_path, out):
    path = tmp_path / "a.db"
    with open_store(path, "write") as store:
        store.add(numbered(1))
        store.promote(store.add(numbered(2)), EVIDENCE)
        store.name_kernel(KERNEL, "mm")
        store._db.connection.execute("UPDATE trials SET samples_s = '[' WHERE id = 1")
    assert (
        run(["store", "verify", "--store", str(path), "--salvage", str(tmp_path / "new.db")]) == 3
    )
    assert out()[1] == f"{tmp_path / 'new.db'}: 1 trials and 1 promotions saved\n"
    assert run(["store", "verify", "--store", str(tmp_path / "new.db")]) == 0


def test_store_verify_names_kernels_that_are_not_read_back_and_calls_them_no_damage(tmp_path, out):
    path = tmp_path / "a.db"
    kernel = corpus_kernel("gemm")
    with open_store(path, "write") as store:
        store.add(replace(numbered(1), kernel_key=kernel.key, kernel_text=kernel.text))
    assert run(["store", "verify", "--store", str(path)]) == 0
    assert out()[1] == ""
    with open_store(path, "write") as store:
        store.add(numbered(2))
        store.name_kernel(KERNEL, "mm\x1b[2J")
    assert run(["store", "verify", "--store", str(path)]) == 0
    (line,) = out()[1].splitlines()
    assert line.startswith(
        f"{path}: no damage, but no kernel to this version: kernel {KEY} mm\\x1b[2J: kernel "
        "text, at "
    )
    with open_store(path, "write") as store:
        for i in range(9):
            text = f"kernel {i}"
            store.add(replace(numbered(3), kernel_key=key_of(text), kernel_text=text))
    assert run(["store", "verify", "--store", str(path)]) == 0
    assert (len(lines := out()[1].splitlines()), lines[-1]) == (9, f"{path}: and 2 more")


def test_store_text_is_escaped_before_it_reaches_a_terminal():
    assert plain("a\x1b[2J\nb\u202e") == r"a\x1b[2J\nb\u202e"


@pytest.mark.parametrize("words", [["why", "matmul"], ["history", "matmul"], ["export"]])
def test_store_of_many_bad_rows_is_said_in_few_lines(path, out, words):
    raw = sqlite3.connect(path)
    with raw:
        raw.executemany(
            "INSERT INTO kernels (key, text, name) VALUES (?, 'no kernel', '')",
            [(str(i),) for i in range(1000)],
        )
    raw.close()
    run(["store", *words, "--store", str(path)])
    left_out = [line for line in out()[1].splitlines() if "left out" in line]
    assert len(left_out) == 9
    assert left_out[-1].endswith("992 more; `tunegrad store verify` lists all")
