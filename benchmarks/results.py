"""The file of a run: the machine, the settings and the rows; written after every row, read again to
go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.rows import Row

__all__ = ["resumed", "write"]


def write(
    path: Path, about: Mapping[str, object], settings: Mapping[str, object], rows: Sequence[Row]
) -> None:
    """Replace the file as a whole, so that it is never half-written."""
    content = {"machine": about, "settings": settings, "rows": [row.to_json() for row in rows]}
    partial_path = path.with_name(f"{path.name}.partial")
    partial_path.write_text(json.dumps(content, indent=1) + "\n")
    partial_path.replace(path)


def resumed(path: Path, settings: Mapping[str, object]) -> dict[str, Row]:
    """The rows of an earlier run by workload; none where there is no file yet.

    Raises:
        ValueError: the file is none of ours, or its settings are others: rows of both would not be
        comparable.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
        found, rows = content["settings"], [_row(row) for row in content["rows"]]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"--resume {path}: not a result of this version ({type(error).__name__}: {error})"
        ) from error
    asked = json.loads(json.dumps(settings))
    differing = sorted(
        key for key in asked.keys() | found.keys() if asked.get(key) != found.get(key)
    )
    if differing:
        first = differing[0]
        raise ValueError(
            f"--resume {path}: {first} was {found.get(first)!r}, now it is {asked.get(first)!r}"
        )
    return {row.workload: row for row in rows}


def _row(values: Mapping[str, object]) -> Row:
    known = {f.name for f in fields(Row)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise KeyError(unknown[0])
    notes = values["notes"]
    return Row(**{**values, "notes": tuple(notes) if isinstance(notes, list) else ()})  # type: ignore[arg-type]
