"""An imported file is a stranger's: every field is checked, a bad row is named and left out,
nothing is executed.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from store_exports import WORLD, decision, make, promotion, trial, withdrawn
from store_trials import HERE, KEY

from tunegrad.db import Contents, Evidence, export_store, import_store, open_store, read_contents
from tunegrad.db.contents import identity
from tunegrad.db.exchange import export_lines
from tunegrad.db.exchange import importing as reading_module
from tunegrad.db.exchange.importing import MAX_LINE_BYTES, Reading, read_export
from tunegrad.db.rows import machine_id
from tunegrad.errors import StoreError

MACHINE = machine_id(HERE)


def rows() -> list[dict[str, object]]:
    """The file of WORLD as objects.

    Header, kernel, machine, session, four trials, promotion, spend, decision, latency.
    """
    return [json.loads(line) for line in export_lines(WORLD)]


def read(lines: list[object]) -> Reading:
    encoded = [
        x if isinstance(x, bytes) else (x if isinstance(x, str) else json.dumps(x)).encode()
        for x in lines
    ]
    return read_export(io.BytesIO(b"\n".join(encoded)), "x.jsonl")


def changed(line: int, **fields: object) -> Reading:
    """What is read of the file with some fields of one row changed; None removes a field."""
    found = rows()
    for name, value in fields.items():
        if value is None:
            del found[line][name]
        else:
            found[line][name] = value
    return read(list(found))


def test_import_of_an_export_into_an_empty_store_gives_an_equal_store(tmp_path):
    a, b = make(tmp_path / "a.db", WORLD), tmp_path / "b.db"
    lines = export_store(a).lines
    report = import_store(b, io.BytesIO("\n".join(lines).encode()), "x.jsonl")
    assert (report.new_trials, report.new_promotions, report.refused, report.warnings) == (
        4,
        1,
        (),
        (),
    )
    assert export_store(b).lines == lines


def test_export_is_the_same_bytes_each_time_and_has_a_versioned_header(tmp_path):
    path = make(tmp_path / "a.db", WORLD)
    lines = export_store(path).lines
    assert lines == export_store(path).lines
    assert json.loads(lines[0]) == {
        "format": "tunegrad-store", "version": 4,
        "rows": {
            "kernel": 1, "machine": 1, "session": 1, "trial": 4, "promotion": 1, "spend": 1,
            "withdrawal": 0,
            "decision": 1, "latency": 1,
        },
    }  # fmt: skip


def test_export_of_winners_is_their_trials_and_evidence_only(tmp_path):
    found = [json.loads(x) for x in export_store(make(tmp_path / "a.db", WORLD), best=True).lines]
    assert [(r["row"], r.get("actions")) for r in found[4:]] == [
        ("trial", "tile(axis=m, size=2)"), ("promotion", "tile(axis=m, size=2)"),
        ("decision", None),
    ]  # fmt: skip


def test_export_of_a_kernel_is_found_by_name_and_by_the_start_of_its_key(tmp_path):
    path = make(tmp_path / "a.db", WORLD)
    assert export_store(path, "matmul_64").lines == export_store(path, KEY[:6]).lines
    with pytest.raises(
        StoreError, match=r"kernel 'matmul_65': unknown to this store: .* nearest names: matmul_64"
    ):
        export_store(path, "matmul_65")


@pytest.mark.parametrize("name", ["attempts", "reference_samples_s"])
def test_import_refuses_a_trial_that_lacks_what_its_version_has(name):
    (refusal,) = [r for r in changed(5, **{name: None}).refusals if r.row == "trial"]
    assert refusal.rule == f"must have {name}"


def test_import_never_withdraws_what_was_measured_here(tmp_path):
    file = replace(WORLD, withdrawals=(withdrawn(trial(2)), withdrawn(trial(0))))
    lines = "\n".join(export_lines(file)).encode()
    path = make(tmp_path / "b.db", Contents(trials=(trial(2),), promotions=(promotion(trial(2)),)))
    import_store(path, io.BytesIO(lines), "x.jsonl")
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) == trial(2)
        assert [(w.trial.actions, w.reason) for w in store.withdrawals(KEY, HERE)] == [
            ("", "imported:it was wrong")
        ]


def test_import_into_an_empty_store_takes_withdrawals_and_exports_them_again(tmp_path):
    file = replace(WORLD, withdrawals=(withdrawn(trial(2)),))
    lines = tuple(export_lines(file))
    import_store(tmp_path / "b.db", io.BytesIO("\n".join(lines).encode()), "x.jsonl")
    assert export_store(tmp_path / "b.db").lines == lines
    with open_store(tmp_path / "b.db") as store:
        assert store.winner(KEY, HERE, 1) is None


def test_import_refuses_a_withdrawal_of_no_row_of_the_file():
    found = [
        json.loads(line)
        for line in export_lines(replace(WORLD, withdrawals=(withdrawn(trial(2)),)))
    ]
    (row,) = [r for r in found if r.get("row") == "withdrawal"]
    row["actions"] = "tile(axis=m, size=99)"
    (refusal,) = read(list(found)).refusals
    assert (refusal.row, refusal.field, refusal.rule) == (
        "withdrawal",
        "actions",
        "must be those of a trial above",
    )


def test_import_marks_what_it_takes(tmp_path):
    import_store(tmp_path / "b.db", io.BytesIO("\n".join(export_lines(WORLD)).encode()), "x.jsonl")
    contents, _ = read_contents(tmp_path / "b.db")
    assert {t.origin for t in contents.trials} == {"imported:beam"}
    assert [p.evidence.test for p in contents.promotions] == ["imported:mannwhitneyu"]
    assert [d.evidence.test for d in contents.decisions] == ["imported:sign"]
    assert [x.imported for x in contents.latencies] == [True]


def test_import_never_decides_what_was_decided_here(tmp_path):
    mine = decision("direct", at=1.0)
    path = make(tmp_path / "b.db", Contents(decisions=(mine,)))
    report = import_store(path, io.BytesIO("\n".join(export_lines(WORLD)).encode()), "x.jsonl")
    assert (report.new_decisions, report.new_latencies) == (1, 1)
    with open_store(path) as store:
        assert store.decision("variant", KEY, HERE, 1) == mine
        assert [d.choice for d in store.decisions()] == ["direct", "winograd2"]


def test_import_again_takes_no_decision_and_no_latency_twice(tmp_path):
    path, lines = tmp_path / "b.db", "\n".join(export_lines(WORLD)).encode()
    import_store(path, io.BytesIO(lines), "x.jsonl")
    again = import_store(path, io.BytesIO(lines), "x.jsonl")
    assert (again.new_trials, again.new_decisions, again.new_latencies) == (0, 0, 0)


def test_import_as_a_dry_run_writes_nothing(tmp_path):
    report = import_store(
        tmp_path / "b.db",
        io.BytesIO("\n".join(export_lines(WORLD)).encode()),
        "x.jsonl",
        dry_run=True,
    )
    assert (report.new_trials, report.imported_winners) == (4, 1)
    assert list(tmp_path.iterdir()) == []


def test_import_does_not_overrule_the_fastest_that_was_measured_here(tmp_path):
    path = make(tmp_path / "b.db", Contents(trials=(trial(9), trial(1))))
    lie = Contents(
        WORLD.kernels, WORLD.sessions, (trial(5, seconds=1e-9),), (promotion(trial(5), 1e-9),)
    )
    report = import_store(path, io.BytesIO("\n".join(export_lines(lie)).encode()), "x.jsonl")
    assert (report.held, report.imported_winners, report.new_trials) == (1, 0, 1)
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) == trial(1)
        assert [e.test for _, e in store.promotions(KEY, HERE)] == ["imported:mannwhitneyu", "held"]


def test_import_stands_before_promotions_of_its_own(tmp_path):
    path = make(tmp_path / "b.db", Contents(trials=(trial(1),), promotions=(promotion(trial(1)),)))
    lie = Contents(
        WORLD.kernels, WORLD.sessions, (trial(5, seconds=1e-9),), (promotion(trial(5), 1e-9),)
    )
    report = import_store(path, io.BytesIO("\n".join(export_lines(lie)).encode()), "x.jsonl")
    assert report.held == 0
    with open_store(path) as store:
        assert [t.actions for t, _ in store.promotions(KEY, HERE)] == [
            "tile(axis=m, size=5)",
            "tile(axis=m, size=1)",
        ]


def test_import_wins_once_it_is_measured_and_promoted_here(tmp_path):
    path = make(tmp_path / "b.db", Contents(trials=(trial(9),)))
    file = Contents(WORLD.kernels, WORLD.sessions, (trial(5),), (promotion(trial(5)),))
    import_store(path, io.BytesIO("\n".join(export_lines(file)).encode()), "x.jsonl")
    with open_store(path, "write") as store:
        store.promote(
            store.id_of(trial(5)), Evidence("mannwhitneyu", 0.001, (2e-3,), (1e-3,), cold=True)
        )
        assert store.winner(KEY, HERE, 1).actions == "tile(axis=m, size=5)"


def test_import_does_not_spend_the_budget_of_a_store_that_has_trials(tmp_path):
    path = make(tmp_path / "b.db", Contents(trials=(trial(9),)))
    import_store(path, io.BytesIO("\n".join(export_lines(WORLD)).encode()), "x.jsonl")
    with open_store(path) as store:
        assert store.spent("mlp", HERE, "beam") == 0.0


@pytest.mark.parametrize(
    ("line", "fields", "message"),
    [
        (1, {"key": "0" * 32}, (f"line 2: kernel row: key is '{'0' * 32}': must be the hash of "
                               "the kernel's text")),
        (1, {"text": 7}, "line 2: kernel row: text is 7: must be a string"),
        (1, {"name": "\x1b]0;x\x07"}, (r"line 2: kernel row: name is '\x1b]0;x\x07': must be "
                                      r"printable text")),
        (1, {"name": "x" * 5000}, (f"line 2: kernel row: name is '{'x' * 60}'... [5000 "
                                  "characters]: must be printable text of at most 4000")),
        (2, {"fields": [["b", "1"], ["a", "2"]]}, ("line 3: machine row: fields is a list of 2: "
                                                  "must be sorted by name")),
        (2, {"fields": [["a"]]}, "line 3: machine row: fields[0] is a list of 1: must be a pair"),
        (2, {"id": "f" * 16}, ("line 3: machine row: id is 'ffffffffffffffff': must be the hash "
                              "of the fields")),
        (3, {"settings": "[1]"}, ("line 4: session row: settings is '[1]': must be the text of "
                                 "a JSON object")),
        (3, {"seed": 2**63}, "line 4: session row: seed is 9223372036854775808: must be from"),
        (4, {"space_version": 1.5}, "line 5: trial row: space_version is 1.5: must be an integer"),
        (4, {"space_version": True}, ("line 5: trial row: space_version is True: must be an "
                                     "integer")),
        (4, {"samples_s": [1e-3, -1]}, ("line 5: trial row: samples_s[1] is -1: must be a "
                                       "finite number from 0")),
        (4, {"samples_s": "fast"}, "line 5: trial row: samples_s is 'fast': must be a list"),
        (4, {"compile_s": 1e300}, ("line 5: trial row: compile_s is 1e+300: must be a finite "
                                  "number")),
        (4, {"status": "good"}, "line 5: trial row: status is 'good': must be one of ok, wrong"),
        (4, {"status": "wrong"}, ("line 5: trial row: samples_s is a list of 3: must be empty "
                                 "where status is wrong")),
        (4, {"max_error": "big"}, "line 5: trial row: max_error is 'big': must be one of inf, nan"),
        (4, {"origin": None}, "line 5: trial row: row is an object of 22: must have origin"),
        (4, {"run": "x"}, "line 5: trial row: row is 'run': no such field; valid: kernel, machine"),
        (4, {"policy": {}}, "line 5: trial row: policy is an object of 0: must have budget_s"),
        (4, {"kernel": "0" * 32}, ("line 5: trial row: kernel is "
                                  "'00000000000000000000000000000000': must be the key")),
        (4, {"machine": "0" * 16}, ("line 5: trial row: machine is '0000000000000000': must be "
                                   "the id of a machine row")),
        (4, {"session": "s2"}, ("line 5: trial row: session is 's2': must be the id of a "
                               "session row above")),
        (4, {"actions": "__import__('os')"}, ('line 5: trial row: actions is '
                                             '"__import__(\'os\')": must be a list of')),
        (4, {"actions": "tile(axis=m, size=4"}, ("line 5: trial row: actions is 'tile(axis=m, "
                                                "size=4': must be a list")),
        (4, {"actions": f"tile(axis=m, size={'9' * 5000})"},
            ("line 5: trial row: actions is 'tile(axis=m, "
            "size=999")),
        (4, {"actions": "plan(a;b)"}, ("line 5: trial row: actions is 'plan(a;b)': must be a "
                                      "list of actions")),
        (5, {"actions": "", "created_s": 1000.0}, ("trial row: actions is '': must not repeat "
                                                  "that of a row above")),
        (8, {"actions": "unroll(axis=m)"}, ("line 9: promotion row: actions is "
                                           "'unroll(axis=m)': must be those of a")),
        (8, {"actions": "tile(axis=m, size=3)"}, ("must be those of a trial above that is ok "
                                                 "and has samples")),
        (9, {"seconds": [1]}, "line 10: spend row: seconds is a list of 1: must be a number"),
        (10, {"kind": "taste"}, ("line 11: decision row: kind is 'taste': must be one of "
                                "images, cut, variant")),
        (10, {"choice": "a b"}, ("line 11: decision row: choice is 'a b': must be a name: "
                                "letters, digits and _")),
        (10, {"choice": ""}, "line 11: decision row: choice is '': must be a name"),
        (10, {"chosen": 1}, "line 11: decision row: chosen is 1: must be true or false"),
        (10, {"status": "wrong"}, ("line 11: decision row: chosen is True: must be false where "
                                  "status is wrong")),
        (10, {"kernel": "0" * 32}, ("line 11: decision row: kernel is "
                                   "'00000000000000000000000000000000': must be the")),
        (10, {"session": "s2"}, ("line 11: decision row: session is 's2': must be the id of a "
                                "session row above")),
        (10, {"evidence": {}}, ("line 11: decision row: evidence is an object of 0: must have "
                               "challenger_samples_s")),
        (11, {"samples_s": []}, ("line 12: latency row: samples_s is a list of 0: must have a "
                                "sample")),
        (11, {"default_samples_s": [1.0]}, ("default_samples_s is a list of 1: must be empty, "
                                           "or as many as samples_s")),
        (11, {"kind": "best"}, ("line 12: latency row: kind is 'best': must be one of tuned, "
                               "default")),
        (11, {"state": {"b": 1, "a": 2}}, ("line 12: latency row: state is an object of 2: must "
                                          "be sorted by name")),
        (11, {"state": {"load": [1]}}, ("line 12: latency row: state.load is a list of 1: must "
                                       "be a number")),
        (11, {"versions": {"x" * 300: "1"}}, "line 12: latency row: versions is"),
        (11, {"model": "\x1b[2J"}, (r"line 12: latency row: model is '\x1b[2J': must be "
                                   r"printable text")),
        (4, {"reference_samples_s": [1.0]}, ("reference_samples_s is a list of 1: must be "
                                            "empty, or as many as")),
        (4, {"facts": {"spills": [0]}}, "trial row: facts.spills is a list of 1: must be a number"),
        (4, {"state": {"b": 1, "a": 2}}, "trial row: state is an object of 2: must be sorted"),
        (8, {"measured_by": "s2"}, ("line 9: promotion row: actions is 'tile(axis=m, size=2)': "
                                   "must be those of a")),
        (9, {"row": "drop"}, "line 10: row: row is 'drop': must be one of kernel, machine"),
    ],
)  # fmt: skip
def test_import_names_a_bad_row_and_takes_the_others(line, fields, message):
    found = changed(line, **fields)
    assert any(message in str(r) for r in found.refusals), list(map(str, found.refusals))
    # Rows above are taken, and those below that do not name it.
    assert len(found.contents.kernels) == (line != 1)
    if line >= 4:
        assert len(found.contents.trials) >= 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe{}", "must be UTF-8"),
        ("[" * 100_000, "must be JSON (RecursionError)"),
        ("{}", "row is None: must be one of kernel"),
        ("[1]", "line is a list of 1: must be a JSON object"),
        ('{"row": "spend", "seconds": NaN}', "line is 'NaN': numbers must be finite"),
        ('{"row": "spend", "seconds": 1e999}', "must have machine, model, settings"),
        ('{"row": "spend", "row": "trial"}', "line is 'row': a field may be named once"),
        (
            "{" + ", ".join(f'"k{i % 99_999}": 1' for i in range(100_000)) + "}",
            "line is 'k0': a field may be named once",
        ),
        (f'{{"row": {"1" * 5000}}}', "must be JSON (ValueError)"),
        (
            '{"row": "kernel", "key": "x", "text": "\\ud800", "name": ""}',
            "32 lower-case hexadecimal digits",
        ),
        (
            b'{"row": "' + b"x" * (MAX_LINE_BYTES + 10) + b'"}',
            f"must have at most {MAX_LINE_BYTES} bytes",
        ),
    ],
)
def test_import_survives_a_line_that_is_no_row(line, message):
    found = read([*rows()[:4], line, *rows()[4:]])
    assert [r.line for r in found.refusals] == [5]
    assert message in str(found.refusals[0])
    assert found.contents == read(list(rows())).contents


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "file x.jsonl: is not an export of a store"),
        ("SQLite format 3\x00", "file x.jsonl: is not an export of a store"),
        ('{"format": "t4"}', "file x.jsonl: is not an export of a store"),
        (
            '{"format": "tunegrad-store", "version": 5, "rows": {}}',
            "version 5 of the format is not 4, the one known",
        ),
        (
            '{"format": "tunegrad-store", "version": 3, "rows": {}}',
            "version 3 of the format is not 4, the one known; export it again by this tunegrad",
        ),
        (
            '{"format": "tunegrad-store", "version": 4, "rows": {}}',
            "line 1: rows is an object of 0: must have kernel",
        ),
    ],
)
def test_import_refuses_a_file_that_is_no_export(header, message):
    with pytest.raises(StoreError, match=r".*") as caught:
        read([header, *rows()[1:]])
    assert message in str(caught.value)


def test_import_says_that_a_file_is_cut_short():
    found = read(list(rows()[:6]))
    (warning,) = found.warnings
    assert warning == (
        "file x.jsonl: is cut short: it has 2 of 4 trial rows, 0 of 1 promotion rows, 0 of 1 "
        "spend rows,"
        " 0 of 1 decision rows, 0 of 1 latency rows"
    )
    assert len(found.contents.trials) == 2


def test_import_ends_at_too_many_rows(monkeypatch):
    monkeypatch.setattr(reading_module, "MAX_ROWS", 5)
    header = json.dumps(rows()[0])
    with pytest.raises(StoreError, match="more than 5 lines; split it by kernel"):
        read([header, *rows()[1:]])


def test_import_into_a_damaged_store_changes_nothing(tmp_path):
    path = make(tmp_path / "a.db", WORLD)
    with open_store(path, "write") as store:
        store._db.connection.execute("UPDATE trials SET samples_s = '[1e-9]' WHERE id = 1")
    before = export_store(path)
    assert len(before.problems) == 1
    with pytest.raises(
        StoreError, match=r"is damaged .*so it is not rewritten; copy what is sound with"
    ):
        import_store(path, io.BytesIO("\n".join(export_lines(WORLD)).encode()), "x.jsonl")
    assert export_store(path) == before


# --------------------------------------------------------------------------------------------------
# Fuzzed rows

VALUES: tuple[object, ...] = (
    None, True, 0, -1, 2**70, 1.5, 1e308, -0.0, "", "x" * 5000, "\ud800", "\x00",
    ("'; DROP TABLE trials; "
        "--"), [], {},
    [[]], "../../etc/passwd", "!!python/object/apply:os.system ['true']",
    "__import__('os').system('true')", "0" * 32,
)  # fmt: skip


def _any_value(draw: random.Random, row: dict[str, object]) -> None:
    row[draw.choice(list(row))] = draw.choice(VALUES)


def _nested(draw: random.Random, row: dict[str, object]) -> None:
    inner = [v for v in row.values() if isinstance(v, dict | list) and v]
    if inner:
        target = draw.choice(inner)
        at = draw.choice(list(target)) if isinstance(target, dict) else draw.randrange(len(target))
        target[at] = draw.choice(VALUES)


def _removed(draw: random.Random, row: dict[str, object]) -> None:
    del row[draw.choice(list(row))]


def _added(draw: random.Random, row: dict[str, object]) -> None:
    row[draw.choice(["__class__", "id", "py/object", ""])] = draw.choice(VALUES)


MUTATIONS: tuple[Callable[[random.Random, dict[str, object]], None], ...] = (
    _any_value,
    _nested,
    _removed,
    _added,
)


def fuzzed(draw: random.Random) -> bytes:
    """A row of WORLD with a field, a nested value or some of its bytes changed."""
    row = json.loads(json.dumps(draw.choice(rows()[1:])))
    draw.choice(MUTATIONS)(draw, row)
    line = bytearray(json.dumps(row).encode())
    if draw.random() < 0.3:
        for _ in range(draw.randrange(1, 4)):
            line[draw.randrange(len(line))] = draw.randrange(256)
    return bytes(line).replace(b"\n", b" ")


def check_fuzzed(path, seed: int, count: int, monkeypatch) -> None:
    """Fuzzed rows between sound ones: each is taken or named, what is taken keeps every rule,
    nothing is executed.
    """
    draw = random.Random(seed)
    lines = [*map(str.encode, export_lines(WORLD)), *(fuzzed(draw) for _ in range(count))]

    def forbidden(*_: object) -> None:
        raise AssertionError("something of the file was executed")

    for name in ("system", "popen", "fork", "posix_spawn", "execv"):
        monkeypatch.setattr(os, name, forbidden)
    report = import_store(path, io.BytesIO(b"\n".join(lines)), "x.jsonl")
    contents, problems = read_contents(path)
    assert problems == ()
    assert {identity(t) for t in WORLD.trials} <= {identity(t) for t in contents.trials}
    assert len(report.refused) > 0.8 * count
    assert all(
        "\n" not in str(r) and str(r).isascii() and len(str(r)) < 1000 for r in report.refused
    )
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) is not None


@pytest.mark.parametrize("seed", range(3))
def test_import_of_fuzzed_rows_takes_the_sound_ones_and_names_the_others(
    tmp_path, monkeypatch, seed
):
    check_fuzzed(tmp_path / "t.db", seed, 200, monkeypatch)


@pytest.mark.slow
def test_import_of_ten_thousand_fuzzed_rows_takes_the_sound_ones_and_names_the_others(
    tmp_path, monkeypatch
):
    check_fuzzed(tmp_path / "t.db", 99, 10_000, monkeypatch)


class Endless(io.RawIOBase):
    """A file without an end and without a line end after its first lines."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def readline(self, size: int | None = -1) -> bytes:
        head, _, self._head = self._head.partition(b"\n")
        return head + b"\n" if head else bytes(size or 0)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "file zero: is not an export of a store"),
        ((json.dumps(rows()[0]) + "\n").encode(), "file zero: line 2 has more than"),
    ],
)
def test_import_of_a_file_without_an_end_is_refused(head, message):
    with pytest.raises(StoreError, match=message):
        read_export(Endless(head), "zero")
