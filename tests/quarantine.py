"""Tests that fail now and then, each with an owner: they run, are reported, and do not fail the
run.

``quarantine.toml`` lists them. An entry names what it is about, who mends it and since when; a name
that no test has is an error as soon as its file is collected, so that no entry outlives its test.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

import pytest

__all__ = ["LIST", "Entry", "apply", "entries"]

LIST = Path(__file__).with_name("quarantine.toml")


@dataclass(frozen=True, slots=True)
class Entry:
    """One test: its name as pytest prints it, who mends it, why it fails, and the day on which it
    came here.
    """

    test: str
    owner: str
    reason: str
    since: date


def entries(path: Path = LIST) -> list[Entry]:
    """The list.

    Raises UsageError for an entry that lacks one of its four fields or has another one.
    """
    wanted = {f.name for f in fields(Entry)}
    found = []
    for row in tomllib.loads(path.read_text(encoding="utf-8")).get("quarantined", []):
        if row.keys() != wanted or not all(row.values()) or not isinstance(row["since"], date):
            raise pytest.UsageError(
                f"{path.name}: {row}: an entry has {', '.join(sorted(wanted))}, since as a date"
            )
        found.append(Entry(**row))
    return found


def apply(items: Sequence[pytest.Item], listed: Sequence[Entry], whole_files: bool = True) -> None:
    """Let the listed ones among ``items`` fail.

    Raises UsageError for a name that its file has not, where ``whole_files`` were collected.
    """
    by_name = {item.nodeid: item for item in items}
    files = {name.partition("::")[0] for name in by_name}
    for entry in listed:
        item = by_name.get(entry.test)
        if item is not None:
            reason = f"quarantined since {entry.since}, {entry.owner} mends it: {entry.reason}"
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
        elif whole_files and entry.test.partition("::")[0] in files:
            raise pytest.UsageError(f"{LIST.name}: {entry.test}: there is no such test")
