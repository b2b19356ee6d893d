"""Reading an exported file of unknown origin: good rows become Contents, each bad one is
reported and skipped.

    bytes --> lines of bounded length --> JSON objects --> fields by rule --> rows that name rows

Data only: nothing of the file is evaluated, imported, opened or formatted into SQL. A row is
refused when a field is missing, unknown, named twice, of another type, out of its range or too
long; when a key or an id is not the hash of what it stands for; when it names a row that is not
above it in the file; when its action text does not parse, is too long, or breaks the caller's rule
of what is legal; when it says a trial again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

from msgspec.structs import asdict

from tunegrad import untrusted
from tunegrad.db.claims import ActionRule, Refusal, parsed_only
from tunegrad.db.contents import Contents
from tunegrad.db.export import FORMAT, FORMAT_VERSION, KINDS
from tunegrad.db.file_rows import MAX_LINE_BYTES, FileRows
from tunegrad.db.import_rules import MAX_ROWS, Header
from tunegrad.db.rows import key_of
from tunegrad.errors import StoreError
from tunegrad.untrusted import FieldFault, converted

__all__ = ["MAX_ROWS", "Reading", "read_export"]

MAX_REFUSALS = 100_000
"""Beyond this many bad rows a file is no export, and reading ends."""
_MAX_SKIPPED = 64
"""Pieces of ``MAX_LINE_BYTES`` that a line which is too long may have."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a file.

    ``warnings`` are about the file as a whole: it is shorter than it says, or has no end.

    ``unchecked`` counts trials that were taken though it is unknown whether they are legal, by
    the reason.
    """

    contents: Contents
    unchecked: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]


def read_export(file: BinaryIO, source: str, rule: ActionRule = parsed_only) -> Reading:
    """Read the lines of an exported file; ``source`` names it.

    All rows of measurements come out marked as imported.

    ``rule`` says of each trial whether its actions are legal, and of each decision whether its
    choice is one; alike ones are asked about once.

    Raises StoreError when it is no export at all, or of another version.
    """
    lines = _lines(file, source)
    counts = _header(next(lines, (0, None)), source)
    work = FileRows(rule)
    for line_number, line in lines:
        work.take(line_number, line)
        if len(work.refusals) > MAX_REFUSALS:
            raise StoreError(
                f"file {source}: more than {MAX_REFUSALS} bad rows: it is no export of a store"
            )
    seen = work.seen
    short = [f"{seen[k]} of {counts[k]} {k} rows" for k in KINDS if seen[k] < counts[k]]
    warnings = [f"file {source}: is cut short: it has {', '.join(short)}"] if short else []
    contents = replace(
        work.contents(), kernels=tuple(sorted(work.kernels.values(), key=lambda k: key_of(k[0])))
    )
    return Reading(contents, dict(work.unchecked), tuple(work.refusals), tuple(warnings))


def _lines(file: BinaryIO, source: str) -> Iterator[tuple[int, bytes | None]]:
    """(line number, bytes) of each line that is not blank; None for one that is too long."""
    for count in range(1, MAX_ROWS + 2):
        line: bytes | None = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            yield count, None  # before the rest of it is read: a file may have no line end at all
            _skip_line(file, line, f"file {source}: line {count}")
        elif line.strip():
            yield count, line
    raise StoreError(
        f"file {source}: more than {MAX_ROWS} lines; split it by kernel with `store export "
        "--kernel`"
    )


def _skip_line(file: BinaryIO, line: bytes, place: str) -> None:
    """Read to the end of a line. Raises StoreError where that is too far away."""
    for _ in range(_MAX_SKIPPED):
        if not line or line.endswith(b"\n"):
            return
        line = file.readline(MAX_LINE_BYTES)
    raise StoreError(f"{place} has more than {_MAX_SKIPPED * MAX_LINE_BYTES:,} bytes")


def _header(first: tuple[int, bytes | None], source: str) -> dict[str, int]:
    """Number of rows of each kind that the file's header names."""
    rule = (
        f'must begin with a line {{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "rows": ...}}'
    )
    try:
        header = untrusted.json_object((first[1] or b"").decode("utf-8"))
    except (FieldFault, UnicodeDecodeError):
        raise StoreError(f"file {source}: is no export of a store: {rule}") from None
    if header.get("format") != FORMAT or type(version := header.get("version")) is not int:
        raise StoreError(f"file {source}: is no export of a store: {rule}")
    if version != FORMAT_VERSION:
        raise StoreError(
            f"file {source}: version {untrusted.shortened(version)} of the format is not "
            f"{FORMAT_VERSION}, the one known; export it again by this tunegrad, or upgrade it"
        )
    try:
        return asdict(converted(Header, header).rows)
    except FieldFault as error:
        raise StoreError(f"file {source}: line 1: {error}") from None
