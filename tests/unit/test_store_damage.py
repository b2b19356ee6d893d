"""A damaged row is reported and skipped, a damaged file gives what can be read, and neither is ever
used silently.
"""

import logging
import random
import sqlite3
import struct
from dataclasses import replace

import pytest
from store_exports import decision, latency
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.db import key_of, open_store, salvage_store
from tunegrad.errors import StoreError
from tunegrad.trial import Status

OTHER = "kernel(other)"


@pytest.fixture
def path(tmp_path):
    """A store of three trials of one kernel: 2 is promoted, 1 is the fastest, 3 is wrong."""
    file = tmp_path / "t.db"
    with open_store(file, "write") as store:
        for trial in (numbered(1), numbered(2), numbered(3, status=Status.WRONG)):
            store.add(trial)
        store.promote(2, EVIDENCE)
        store.add_spend("model", HERE, "beam", 5.0)
        store.record_decision(decision("winograd2"))
        store.record_latency(latency())
    return file


def damage(path, sql, *values):
    raw = sqlite3.connect(path)
    with raw:
        raw.execute(sql, values)
    raw.close()


def texts(problems):
    return [str(p) for p in problems]


TRIAL_DAMAGE = {
    "bad JSON": ("samples_s", "[0.1, ", "samples_s is not JSON"),
    "a list of words": ("samples_s", '["fast"]', r"samples_s[0] is 'fast', not a number"),
    "no list": ("samples_s", "{}", "samples_s is {}, not a list"),
    "negative": ("samples_s", "[-1.0]", "samples_s[0] is -1.0, not a finite time"),
    "not finite": ("samples_s", "[NaN]", "samples_s[0] is nan, not a finite time"),
    "too large": ("samples_s", f"[1{'0' * 400}]", "int too large"),
    "too long a number": ("samples_s", f"[{'1' * 5000}]", "samples_s is not JSON"),
    "too deep": ("samples_s", "[" * 100_000, "samples_s is not JSON"),
    "other samples": ("samples_s", "[0.0031, 0.004, 0.005]", "checksum"),
    "status": ("status", "okay", "status 'okay' is none of ok, wrong"),
    "median": ("median_s", 1e-9, "median_s 1e-09 does not follow from"),
    "actions": ("actions", "unroll(by=99)", "checksum"),
    "text as bytes": ("actions", b"unroll", "actions is b'unroll', not text"),
    "text that is not UTF-8": ("origin", b"\xff\xfe", "origin is b"),
    "checksum": ("checksum", 1, "checksum 1 does not match"),
    "time": ("compile_s", "long", "compile_s is 'long', not a number"),
    "space": ("space_version", 1.5, "space_version is 1.5, not an integer"),
}


@pytest.mark.parametrize("case", TRIAL_DAMAGE)
def test_store_reports_and_skips_a_damaged_trial(path, case, caplog):
    column, value, message = TRIAL_DAMAGE[case]
    damage(path, f"UPDATE trials SET {column} = ? WHERE id = 2", value)
    with open_store(path) as store:
        assert any(t.startswith("trials row 2: ") and message in t for t in texts(store.verify()))
        with caplog.at_level(logging.WARNING, logger="tunegrad.db"):
            assert [t.actions for t in store.trials(KEY)] == ["unroll(by=1)", "unroll(by=3)"]
        assert "skipped: trials row 2: " in caplog.text
        # Its promotion is skipped with it.
        assert store.winner(KEY, HERE, 1) == numbered(1)


def test_store_reports_text_that_is_not_utf8_in_a_row_and_reads_the_others(path):
    damage(path, "UPDATE trials SET origin = CAST(x'6265ff6d' AS TEXT) WHERE id = 2")
    with open_store(path) as store:
        assert [p.row for p in store.verify()] == [2]
        assert [t.actions for t in store.trials(KEY)] == ["unroll(by=1)", "unroll(by=3)"]


def test_store_says_a_damaged_value_of_any_length_in_one_line(path):
    damage(path, "UPDATE trials SET space_version = ? WHERE id = 1", "9" * 50_000 + "x")
    damage(path, "UPDATE decisions SET session = ?", "y" * 50_000)
    with open_store(path) as store:
        found = texts(store.verify())
    cut = [line for line in found if line.endswith(" characters in all]")]
    assert {line[:18] for line in cut} == {"trials row 1: spac", "decisions row 1: o"}
    assert all("' is missing [" in line or "', not an integer [" in line for line in cut)
    assert max(map(len, found)) < 1100


def test_store_counts_an_unknown_status(path):
    damage(path, "UPDATE trials SET status = 'okay' WHERE id = 2")
    with open_store(path) as store:
        assert (store.stats().trials, store.stats().unknown_status) == (3, 1)


def test_store_replaces_a_damaged_trial_by_its_next_measurement(path):
    damage(path, "UPDATE trials SET samples_s = '[1e-9]' WHERE id = 2")
    with open_store(path, "write") as store:
        assert store.id_of(numbered(2)) is None
        assert store.add(numbered(2)) == 2
        assert store.verify() == []
        assert store.winner(KEY, HERE, 1) == numbered(2)


def test_store_reports_a_kernel_whose_text_is_not_that_of_its_key_and_uses_none_of_its_trials(path):
    damage(path, "UPDATE kernels SET text = 'kernel(forged)'")
    with open_store(path) as store:
        assert (
            f"kernels row 1: kernel key '{KEY}' is not the hash {key_of('kernel(forged)')} of "
            "its text" in texts(store.verify())
        )
        assert store.trials(KEY) == []
        assert store.winner(KEY, HERE, 1) is None


def test_store_repairs_a_damaged_kernel_text_when_the_kernel_is_measured_again(path):
    damage(path, "UPDATE kernels SET text = 'kernel(forged)'")
    with open_store(path, "write") as store:
        store.add(numbered(4))
        assert store.verify() == []
        assert len(store.trials(KEY)) == 4


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM kernels", "trials row 1: orphan: its kernel row is missing"),
        ("DELETE FROM fingerprints", "trials row 1: orphan: its fingerprint row is missing"),
        ("DELETE FROM fingerprints", "spend row 1: orphan: its fingerprint row is missing"),
        ("DELETE FROM policies", "trials row 1: orphan: its policy row is missing"),
        ("DELETE FROM sessions", "trials row 1: orphan: its session 's1' is missing"),
        ("DELETE FROM trials WHERE id = 2", "promotions row 1: orphan: its trial 2 is missing"),
        (
            "UPDATE promotions SET trial = 3",
            "promotions row 1: its trial 3 has status 'wrong', not 'ok'",
        ),
        (
            "UPDATE promotions SET kernel = 9",
            "promotions row 1: its kernel or fingerprint is not that of its trial 2",
        ),
        ("UPDATE promotions SET evidence = 'none'", "promotions row 1: evidence is not JSON"),
        (
            "UPDATE promotions SET evidence = '{}'",
            "promotions row 1: evidence does not have the fields",
        ),
        (
            "UPDATE fingerprints SET fields = '[[1]]'",
            "fingerprints row 1: fingerprint is not a list of",
        ),
        ("UPDATE policies SET fields = '{}'", "policies row 1: policy does not have the fields"),
        ("UPDATE policies SET text = 'cache=hot'", "policies row 1: policy fields say"),
        ("UPDATE sessions SET settings = '['", "sessions row 1: settings is not JSON"),
        ("UPDATE spend SET seconds = -1", "spend row 1: seconds is -1.0, not a finite time"),
        ("UPDATE decisions SET chosen = 2", "decisions row 1: chosen is 2, not 0 or 1"),
        ("UPDATE decisions SET choice = 'other'", "decisions row 1: checksum"),
        ("UPDATE decisions SET kernel = 9", "decisions row 1: orphan: its kernel row is missing"),
        (
            "UPDATE decisions SET session = 'nobody'",
            "decisions row 1: orphan: its session 'nobody' is missing",
        ),
        (
            "UPDATE decisions SET evidence = '{}'",
            "decisions row 1: evidence does not have the fields",
        ),
        ("UPDATE latencies SET samples_s = '[1e-9, 1e-9]'", "latencies row 1: checksum"),
        ("UPDATE latencies SET state = '[]'", "latencies row 1: state is '[]', not a JSON object"),
        (
            "UPDATE latencies SET fingerprint = 9",
            "latencies row 1: orphan: its fingerprint row is missing",
        ),
        (
            "UPDATE latencies SET session = 'nobody'",
            "latencies row 1: orphan: its session 'nobody' is missing",
        ),
        (
            "UPDATE sessions SET versions = '{\"a\": null}'",
            "sessions row 1: versions a is None, not a number",
        ),
    ],
)
def test_store_verify_names_every_other_damaged_row(path, sql, message):
    damage(path, sql)
    with open_store(path) as store:
        assert any(t.startswith(message) for t in texts(store.verify()))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE promotions SET evidence = 'none'",
        "UPDATE promotions SET trial = 3",
        "UPDATE promotions SET kernel = 9",
        "DELETE FROM trials WHERE id = 2",
    ],
)
def test_store_winner_without_a_sound_promotion_is_the_fastest(path, sql):
    damage(path, sql)
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store.promotions(KEY, HERE) == []


def test_store_counts_a_damaged_spend_as_none_and_goes_on_from_there(path):
    damage(path, "UPDATE spend SET seconds = 'much'")
    with open_store(path, "write") as store:
        assert store.spent("model", HERE, "beam") == 0.0
        assert store.add_spend("model", HERE, "beam", 2.0) == 2.0
        assert store.verify() == []


# --------------------------------------------------------------------------------------------------
# Damaged files


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The bytes of a store of 600 trials of two kernels, on some hundred pages."""
    file = tmp_path_factory.mktemp("store") / "many.db"
    with open_store(file, "write") as store:
        with store.session("tune mlp", 7, {}, "0.1.0", "s1"):
            for n in range(300):
                store.add(numbered(n))
                store.add(numbered(n, OTHER))
        store.promote(store.id_of(numbered(200)), EVIDENCE)
        store.add_spend("model", HERE, "beam", 5.0)
        store.name_kernel(KERNEL, "matmul_64")
    return file.read_bytes()


def true_trials():
    return {
        (key_of(text), f"unroll(by={n})"): numbered(n, text)
        for text in (KERNEL, OTHER)
        for n in range(300)
    }


def test_store_cut_short_gives_its_readable_rows_and_says_what_is_lost(tmp_path, many, caplog):
    path = tmp_path / "cut.db"
    path.write_bytes(many[: len(many) * 6 // 10])
    with caplog.at_level(logging.WARNING, logger="tunegrad.db"), open_store(path) as store:
        found = store.trials(KEY) + store.trials(key_of(OTHER))
        assert 100 < len(found) < 600
        truth = true_trials()
        assert all(t == truth[t.kernel_key, t.actions] for t in found)
        problems = store.verify()
        assert problems[0].table == "file"
        assert any("can not be read" in p.text for p in problems)
    assert "damaged" in caplog.text
    assert "reading what is left" in caplog.text


def test_store_that_is_damaged_is_not_written_to(tmp_path, many):
    path = tmp_path / "cut.db"
    path.write_bytes(many[: len(many) * 6 // 10])
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"malformed|damaged"):
        open_store(path, "write")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["cut.db"]


def test_store_damaged_in_the_middle_gives_the_rows_on_both_sides(tmp_path, many):
    path = tmp_path / "hole.db"
    page = 4096
    # The leaf page of the table (its first byte is 13; those of indexes are not) that holds trial
    # 150.
    pages = range(0, len(many), page)
    middle = next(p for p in pages if many[p] == 13 and b"unroll(by=150)" in many[p : p + page])
    path.write_bytes(many[:middle] + b"\xa5" * page + many[middle + page :])
    with open_store(path) as store:
        numbers = sorted(int(t.created_s) - 1000 for t in store.trials(KEY))
        assert numbers[0] == 0
        assert numbers[-1] == 299
        assert 150 not in numbers
        assert 250 < len(numbers) < 300
        assert store.winner(KEY, HERE, 1) == numbered(200)
        assert store.kernel_name(KEY) == "matmul_64"
        assert store.spent("model", HERE, "beam") == 5.0


def test_store_salvaged_into_a_new_one_holds_every_readable_row(tmp_path, many):
    path = tmp_path / "cut.db"
    path.write_bytes(many[: len(many) * 6 // 10])
    assert salvage_store(path, tmp_path / "new.db").problems
    with open_store(tmp_path / "new.db") as store:
        assert store.verify() == []
        with open_store(path) as damaged:
            assert store.trials(KEY) == damaged.trials(KEY) != []
            assert store.winner(KEY, HERE, 1) == damaged.winner(KEY, HERE, 1)
            assert store.sessions() == damaged.sessions()


@pytest.mark.parametrize("seed", range(12))
def test_store_with_random_damage_never_gives_a_wrong_row(tmp_path, many, seed):
    draw = random.Random(seed)
    image = bytearray(many)
    if seed % 3 == 0:  # one bit anywhere
        image[draw.randrange(len(image))] ^= 1 << draw.randrange(8)
    elif seed % 3 == 1:  # noise over a part of a page
        at = draw.randrange(len(image) - 600)
        image[at : at + 600] = draw.randbytes(600)
    else:  # cut at any byte
        del image[draw.randrange(len(image)) :]
    path = tmp_path / "t.db"
    path.write_bytes(image)
    truth = true_trials()
    try:
        with open_store(path) as store:
            for key in (KEY, key_of(OTHER)):
                found = store.trials(key)
                assert all(t == truth[key, t.actions] for t in found)
                winner = store.winner(key, HERE, 1)
                assert winner is None or winner == truth[key, winner.actions]
                store.lookup(key, HERE, 2)
            lost = 600 - len(store.trials(KEY)) - len(store.trials(key_of(OTHER)))
            assert not lost or store.verify()
            store.stats()
            store.sessions()
    except StoreError as error:
        one_line = "\n" not in str(error)
    else:
        one_line = True
    assert one_line


def test_store_whose_tables_are_unreadable_is_refused_in_one_line(tmp_path, many):
    path = tmp_path / "t.db"
    path.write_bytes(many[:100] + b"\xff" * 8000 + many[8100:])
    with pytest.raises(StoreError, match="damaged beyond reading"):
        open_store(path)


def test_store_of_a_healthy_file_is_read_without_a_warning(tmp_path, many, caplog):
    path = tmp_path / "t.db"
    path.write_bytes(many)
    with open_store(path) as store:
        assert caplog.text == ""
        assert store.verify() == []
        assert len(store.trials(KEY)) == 300


@pytest.mark.parametrize("table", ["decisions", "latencies"])
def test_store_skips_a_damaged_decision_and_latency(path, table, caplog):
    damage(path, f"UPDATE {table} SET kind = 'taste'")
    with open_store(path) as store, caplog.at_level(logging.WARNING, logger="tunegrad.db"):
        found = store.decisions() if table == "decisions" else store.latencies()
        stands = store.decision("variant", KEY, HERE, 1)
    assert (found, stands is None) == ([], table == "decisions")
    assert f"skipped: {table} row 1: kind 'taste' is none of" in caplog.text


def test_store_winner_whose_newest_measurement_is_damaged_has_the_figures_before_it(path):
    with open_store(path, "write") as store:
        store.add(replace(numbered(2), session="s2"))
    damage(path, "UPDATE trials SET samples_s = '[1e-9]' WHERE session = 's2'")
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) == numbered(2)


def test_store_fastest_whose_newest_measurement_is_damaged_is_that_before_it(path):
    with open_store(path, "write") as store:
        store._db.connection.execute("DELETE FROM promotions")
        store.add(replace(numbered(1), session="s2"))
    damage(path, "UPDATE trials SET samples_s = '[1e-9]' WHERE session = 's2'")
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)


def test_store_salvages_a_withdrawal_whose_reason_is_damaged(path, tmp_path):
    with open_store(path, "write") as store:
        store.withdraw(2, "off by 0.3", "s1")
    damage(path, "UPDATE withdrawals SET reason = x'ff'")
    salvage_store(path, tmp_path / "new.db")
    with open_store(tmp_path / "new.db") as store:
        assert store.winner(KEY, HERE, 1) is None


def test_store_withdrawal_with_a_damaged_reason_still_withdraws(path):
    with open_store(path, "write") as store:
        store.withdraw(2, "off by 0.3", "s1")
    damage(path, "UPDATE withdrawals SET reason = x'ff'")
    with open_store(path) as store:
        assert store.winner(KEY, HERE, 1) is None
        assert [w.reason for w in store.withdrawals(KEY, HERE)] == [
            "the reason in withdrawal 1 is damaged"
        ]
        assert any(
            "withdrawals row 1: reason b'\\xff' or session 's1' is not text" in str(p)
            for p in store.verify()
        )


def test_store_reads_and_salvages_a_spend_that_damage_made_a_second_one_of_another(tmp_path, path):
    there = replace(HERE, fields=(("arch", "znver4"), ("device", "elsewhere")))
    with open_store(path, "write") as store:
        store.add_spend("model", there, "beam", 2.5)
    image = bytearray(path.read_bytes())
    # The content of the row: model_key, fingerprint, which is row 2, settings, seconds.
    content = b"model\x02beam" + struct.pack(">d", 2.5)
    assert image.count(content) == 1
    image[image.index(content) + len("model")] = 1
    path.write_bytes(image)
    with open_store(path) as store:
        assert store.verify()
        assert store.spent("model", HERE, "beam") == 7.5
    salvage_store(path, tmp_path / "new.db")
    with open_store(tmp_path / "new.db") as store:
        assert store.verify() == []
        assert store.spent("model", HERE, "beam") == 7.5
