"""A recorded space as a file: what was written comes back, and of a damaged or hostile file all
that is sound.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import small_recording

from benchmarks.recorded import Recording, read_recording, write_recording

RECORDING = small_recording()
QUESTIONS = len(RECORDING.questions)
Change = Callable[[dict[str, Any]], object]


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
