"""A recorded space as a file: what was written comes back, and of a damaged or hostile file all
that is sound.
"""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recordings import small_recording

from benchmarks.recorded import Recording, files, read_recording, write_recording
from tunegrad.errors import StoreError

RECORDING = small_recording()
QUESTIONS = len(RECORDING.questions)
Change = Callable[[dict[str, Any]], object]
EXTRA = next(i for i, q in enumerate(RECORDING.questions) if q.name == "extra")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound file, not packed."""
    path = tmp_path / "space.jsonl"
    write_recording(path, RECORDING)
    return path


def sealed(record: dict[str, Any]) -> str:
    """A line with the checksum that belongs to it: what an attacker would write."""
    body = json.dumps(record, separators=(",", ":"))
    return json.dumps({**record, "crc": zlib.crc32(body.encode())}, separators=(",", ":"))


def forge(path: Path, line: int, change: Change) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[line])
    del record["crc"]
    change(record)
    lines[line] = sealed(record)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def without(recording: Recording, trial: int) -> tuple[object, ...]:
    return tuple(t for i, t in enumerate(recording.trials) if i != trial)


# ---- sound files
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_file_gives_back_what_was_written(tmp_path: Path, name: str) -> None:
    write_recording(tmp_path / name, RECORDING)
    read = read_recording(tmp_path / name)
    assert read.recording == RECORDING
    assert read.problems == ()


def test_file_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_recording(tmp_path / name, RECORDING)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_file_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.mkdir()
    with pytest.raises(StoreError, match="taken: can not be written"):
        write_recording(place, RECORDING)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


# ---- damage
# --------------------------------------------------------------------------------------------------


def test_broken_line_is_reported_and_the_others_count(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[1 + QUESTIONS] = lines[1 + QUESTIONS].replace(b'"ok"', b'"ko"')
    path.write_bytes(b"\n".join(lines))
    read = read_recording(path)
    assert read.recording.trials == without(RECORDING, 0)
    assert [str(p) for p in read.problems] == [
        f"lines row {2 + QUESTIONS}: its checksum does not match its content"
    ]


def test_lost_question_takes_its_trials_with_it(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    del lines[QUESTIONS]
    path.write_bytes(b"\n".join(lines))
    read = read_recording(path)
    lost = QUESTIONS - 1
    kept = [t for t in RECORDING.trials if all(q != lost for p in t.paths for q, _ in p)]
    assert [t.actions for t in read.recording.trials] == [t.actions for t in kept]
    assert len(read.problems) == len(RECORDING.trials) - len(kept)


def test_truncated_gzip_gives_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_recording(path, RECORDING)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    read = read_recording(path)
    assert 0 < len(read.recording.trials) < len(RECORDING.trials)
    assert set(read.recording.trials) <= set(RECORDING.trials)
    assert "unpacking stopped" in str(read.problems[0])


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_never_change_a_trial(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / ("a.gz" if seed % 3 == 0 else "a.jsonl"), Random(seed)
    write_recording(path, RECORDING)
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 20))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    try:
        read = read_recording(path)
    except StoreError:
        return  # nothing sound was left
    whole = {(t.actions, t.program_hash, t.measurement) for t in RECORDING.trials}
    assert {(t.actions, t.program_hash, t.measurement) for t in read.recording.trials} <= whole
    assert read.problems or len(read.recording.trials) == len(whole)


# ---- hostile files: every checksum is right
# --------------------------------------------------------------------------


def put(**values: object) -> Change:
    return lambda record: record.update(values)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put(actions="__import__(name=os)"), "no action '__import__'"),
        (put(actions="tile( axis=a, size=1)"), "actions print as"),
        (put(actions=7), "actions is 7: must be a string"),
        (put(actions="x" * 300_000), "must be valid Unicode of at most 200000 characters"),
        (put(program="\ud800"), "must be valid Unicode"),
        (put(status="fine"), "status is 'fine': must be one of ok"),
        (put(status="wrong"), "status is wrong with 3 samples"),
        (put(samples_s=[]), "status is ok with 0 samples"),
        (put(samples_s=[0.0]), "samples_s has a time of 0"),
        (put(samples_s=[-1.0]), "samples_s[0] is -1.0: must be a finite number from 0"),
        (put(samples_s=[True]), "samples_s[0] is True: must be a number"),
        (put(samples_s=[10**400]), ("samples_s[0] is a huge integer: must be a finite number "
                                   "from 0")),
        (put(samples_s=[1.0] * 20_000), ("samples_s is a list of 20000: must have at most 10000 "
                                        "items")),
        (put(samples_s="1.0"), "samples_s is '1.0': must be a list"),
        (put(compile_s=None), "compile_s is None: must be a number"),
        (put(paths=[]), "paths is a list of 0: must have 1 to 10000 items"),
        (put(paths=[[[0, 9]]]), "paths has option 9 of question 0, which has 2"),
        (put(paths=[[[0, -1]]]), "paths has option -1"),
        (put(paths=[[[77, 0]]]), "paths has an answer to question 77, which there is not"),
        (put(paths=[[[0, 0, 0]]]), "paths[0][0] is a list of 3: must be a [question, option] pair"),
        (put(paths=[[[0, True]]]), "paths[0][0][1] is True: must be an integer"),
        (put(paths=[[[0, 0]]]), "another trial has the same answers, or they end too early"),
        (put(paths=[[[1, 0], [0, 0]]]), ("answer 0 is to question 1, that of another trial to "
                                        "question 0")),
        (lambda record: record.pop("error"), "must have error"),
    ],
)  # fmt: skip
def test_forged_trial_is_reported_and_left_out(path: Path, change: Change, why: str) -> None:
    forge(path, QUESTIONS + 3, change)
    read = read_recording(path)
    assert read.recording.trials == without(RECORDING, 2)
    assert [why in p.text for p in read.problems] == [True], read.problems


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put(version=2), "version is 2; this tunegrad reads version 1"),
        (put(kernel_text="other"), "is not the hash of kernel_text"),
        (put(fingerprint=[["b", "1"], ["a", "2"]]), "names that are not sorted and distinct"),
        (
            put(fingerprint=[["a"]]),
            "fingerprint[0] is a list of 1: must be a [name, value] pair of texts",
        ),
        (put(policy={}), "policy is an object of 0: must have budget_s, cache"),
        (put(points=-1), "points is -1: must be from 0"),
        (put(points=1.5), "points is 1.5: must be an integer"),
        (lambda record: record.pop("kernel"), "must have kernel"),
    ],
)
def test_forged_header_is_refused(path: Path, change: Change, why: str) -> None:
    forge(path, 0, change)
    with pytest.raises(StoreError) as caught:
        read_recording(path)
    assert str(caught.value).startswith(f"{path}: line 1: ")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put(question=-1), "question is -1"),
        (put(question=1), "question is 1, not a new number"),
        (put(options=[]), "options is a list of 0: must have 1 to 10000 items"),
        (put(options=[{"a": 1}]), "options has an object of 1, not a text"),
        (put(options=[[[[[[1]]]]]]), "options has a list of 1"),
        (put(default=99), "default is 99: must be from 0 to"),
    ],
)
def test_forged_question_is_reported(path: Path, change: Change, why: str) -> None:
    forge(path, 1 + EXTRA, change)
    assert why in str(read_recording(path).problems[0])


@pytest.mark.parametrize(
    "line",
    [
        b"null", b"[]", b"{", b"\xff\xfe", b"[" * 200_000, b'{"samples_s": [NaN], "crc": 0}',
            (b'{"crc": '
            b'1e999}'),
        b'{"a": ' + b"1" * 10_000 + b"}", b'{"status": Infinity}', b"",
        (b'{"question": {"a": []}, "crc": '
            b'1}'),
    ],
    ids=range(11),
)  # fmt: skip
def test_line_that_is_no_record_is_reported(path: Path, line: bytes) -> None:
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:5], line, *lines[5:]]))
    read = read_recording(path)
    assert len(read.problems) == 1
    assert read.recording == RECORDING


def test_line_that_names_a_field_twice_is_reported(path: Path) -> None:
    """Readers differ in which of the two counts; the checksum is that of the last."""
    lines = path.read_bytes().split(b"\n")
    lines[QUESTIONS + 3] = lines[QUESTIONS + 3].replace(b"{", b'{"actions":"",', 1)
    path.write_bytes(b"\n".join(lines))
    read = read_recording(path)
    assert ["'actions': a field may be named once" in p.text for p in read.problems] == [True], (
        read.problems
    )
    assert read.recording.trials == without(RECORDING, 2)


def test_file_that_unpacks_without_end_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    write_recording(tmp_path / "a.jsonl", RECORDING)
    sound = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(sound + b"0" * (64 << 20)))
    read = read_recording(tmp_path / "bomb.gz")
    assert read.recording == RECORDING
    assert "is over 1,048,576 bytes; what follows was not read" in str(read.problems[0])


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        pickle.dumps(Trap()),
        b"SQLite format 3\x00",
        b"{}",
        b'{"results": 1}',
        b"\x1f\x8b",
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is neither a recorded space nor T4 results:"):
        read_recording(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.jsonl: can not be read: No such file"):
        read_recording(tmp_path / "none.jsonl")


def test_file_without_a_sound_trial_is_refused(path: Path) -> None:
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[: 1 + QUESTIONS]))
    with pytest.raises(StoreError, match="holds no sound trial"):
        read_recording(path)
