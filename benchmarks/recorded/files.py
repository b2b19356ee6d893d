"""A recording as a file of JSON lines, gzipped where its name ends in ``.gz``; or, read only, as T4
JSON.

    {"format": "tunegrad-space", "version": 1, "kernel": ..., "points": 720, ...}     the header
    {"question": 0, "name": "tile", "options": [[8, 2], [4, 1]], "default": 0}        one a question
    {"actions": "...", "status": "ok", "samples_s": [...], "paths": [[[0, 1]]], ...}  one a trial

Every line ends with a checksum of its own. A broken line is reported and skipped; the others count.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tunegrad.db import Problem
from tunegrad.errors import StoreError
from tunegrad.untrusted import json_object, json_value

from .fields import (
    check_own,
    header_of,
    header_record,
    question_of,
    question_record,
    trial_of,
    trial_record,
    write_whole,
)
from .space import Question, RecordedTrial, Recording, conflicts
from .t4 import parse_t4

__all__ = ["FORMAT", "MOST_BYTES", "VERSION", "Read", "read_recording", "write_recording"]

FORMAT, VERSION = "tunegrad-space", 1

MOST_BYTES = 64 << 20
"""Of a file once unpacked; more is refused, so that a small file can not fill the memory."""

_GZIP_BYTES = 256
_MOST_LINE = 8 << 20
_MOST_TRIALS = 200_000


@dataclass(frozen=True, slots=True)
class Read:
    """The result of reading a file: the recording of all that is sound, and the problems of the
    rest.
    """

    recording: Recording
    problems: tuple[Problem, ...]


# ---- writing
# --------------------------------------------------------------------------------------------------


def write_recording(path: Path, recording: Recording) -> None:
    """Write the file, whole or not at all.

    The same recording gives the same bytes. Raises StoreError.
    """
    check_own(recording)
    content = "".join(f"{_sealed(record)}\n" for record in _records(recording)).encode()
    write_whole(path, content)


def _records(recording: Recording) -> Iterator[dict[str, Any]]:
    yield {"format": FORMAT, "version": VERSION, **header_record(recording)}
    for i, question in enumerate(recording.questions):
        yield {"question": i, **question_record(question)}
    for trial in recording.trials:
        yield trial_record(trial)


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def _sealed(record: Mapping[str, Any]) -> str:
    return _dump({**record, "crc": zlib.crc32(_dump(record).encode())})


# ---- reading
# --------------------------------------------------------------------------------------------------


def read_recording(path: Path) -> Read:
    """Read a file of ours or of T4 JSON, other tuners' included, plain or gzipped.

    Nothing in it can run.

    Raises StoreError where there is no such file, no sound header, or a newer version; a broken row
    is a Problem.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return _read(path, _unpacked(file) if packed else _plain(file))
    except OSError as error:
        raise StoreError(f"{path}: can not be read: {error.strerror or error}") from error


def _read(path: Path, stream: Iterator[bytes]) -> Read:
    problems: list[Problem] = []
    content = _content(stream, problems)
    first = content.split(b"\n", 1)[0]
    try:
        head = json_value(first) if first.rstrip().endswith(b"}") else None
    except StoreError:
        head = None
    if isinstance(head, dict) and head.get("format") == FORMAT:
        recording = _lines(path, content, problems)
    else:
        recording = _foreign(path, content, problems)
    bad = dict(conflicts(recording.trials))
    problems += [Problem("trials", i, why) for i, why in bad.items()]
    kept = tuple(t for i, t in enumerate(recording.trials) if i not in bad)
    if not kept:
        raise StoreError(f"{path}: holds no sound trial{_because(problems)}")
    return Read(replace(recording, trials=kept), tuple(problems))


def _because(problems: list[Problem]) -> str:
    return f"; the first of {len(problems)} problems is: {problems[0]}" if problems else ""


def _content(stream: Iterator[bytes], problems: list[Problem]) -> bytes:
    """All bytes, or those before the damage."""
    parts, size = io.BytesIO(), 0
    try:
        for part in stream:
            size += len(part)
            if size > MOST_BYTES:
                problems.append(
                    Problem(
                        "file", None, f"is over {MOST_BYTES:,} bytes; what follows was not read"
                    )
                )
                break
            parts.write(part)
    except (EOFError, zlib.error) as error:
        problems.append(Problem("file", None, f"unpacking stopped after {size:,} bytes: {error}"))
    return parts.getvalue()


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(1 << 16):
        yield part


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The content of a gzip file, a little at a time, so that little is lost before damage, and no
    part is large.
    """
    unpack = zlib.decompressobj(wbits=31)
    while part := file.read(_GZIP_BYTES):
        while part:
            if unpack.eof:
                unpack = zlib.decompressobj(wbits=31)
            yield unpack.decompress(part)
            part = unpack.unused_data
    if not unpack.eof:
        raise EOFError("the file ends too early")


def _lines(path: Path, content: bytes, problems: list[Problem]) -> Recording:
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    try:
        head = _opened(lines[0])
        if head.get("version") != VERSION:
            raise StoreError(
                f"version is {head.get('version')!r}; this tunegrad reads version {VERSION}"
            )
        recording = header_of(head)
    except StoreError as error:
        raise StoreError(f"{path}: line 1: {error}") from error
    questions: dict[int, Question] = {}
    trials: list[RecordedTrial] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            record = _opened(line)
            if "question" in record:
                _take_question(record, questions)
            elif len(trials) >= _MOST_TRIALS:
                raise StoreError(f"is past the {_MOST_TRIALS:,} trials that a recording may have")
            else:
                trials.append(trial_of(record, questions))
        except StoreError as error:
            problems.append(Problem("lines", number, str(error)))
    return _assembled(recording, questions, trials)


def _assembled(
    recording: Recording, questions: Mapping[int, Question], trials: list[RecordedTrial]
) -> Recording:
    """The parts put together; a question that was lost leaves a gap, which answers skip."""
    place = {number: i for i, number in enumerate(sorted(questions))}
    moved = [
        replace(t, paths=tuple(tuple((place[q], c) for q, c in path) for path in t.paths))
        for t in trials
    ]
    return replace(
        recording, questions=tuple(questions[n] for n in sorted(questions)), trials=tuple(moved)
    )


def _take_question(record: Mapping[str, Any], questions: dict[int, Question]) -> None:
    number = record["question"]
    if type(number) is not int or not 0 <= number < _MOST_TRIALS or number in questions:
        raise StoreError(f"question is {number!r}, not a new number from 0 to {_MOST_TRIALS}")
    questions[number] = question_of(record)


def _opened(line: bytes) -> dict[str, Any]:
    """The record of a line whose checksum matches. Raises StoreError."""
    if len(line) > _MOST_LINE:
        raise StoreError(f"is over {_MOST_LINE:,} bytes long")
    record = json_object(line)
    crc = record.pop("crc", None)
    try:
        sealed = zlib.crc32(_dump(record).encode())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"can not be checked: {error}") from error
    if crc != sealed:
        raise StoreError("its checksum does not match its content")
    return record


def _foreign(path: Path, content: bytes, problems: list[Problem]) -> Recording:
    """The recording of a T4 file."""
    try:
        document = json_value(content)
        recording, questions, trials, bad = parse_t4(document, path.name.split(".")[0])
    except StoreError as error:
        raise StoreError(f"{path}: is neither a recorded space nor T4 results: {error}") from error
    problems += [Problem("results", row, why) for row, why in bad]
    return _assembled(recording, questions, trials)
